"""What saved text and saved JSON have in common: from the values of one row to a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pyslurm_budget.domain.model import RunRecord, Tres
from pyslurm_budget.slurm.dump_summary import RowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.slurm.dump_summary import Summary

T = TypeVar("T")

NOBODY = "(none)"
_ASKED = re.compile(
    r"(?:^|\s)(?:--gpus(?:-per-(?:node|task|socket))?|-G)[= ]?(?:[A-Za-z][\w.-]*:)?([0-9]+)"
    r"|(?:^|\s)--(?:gres|tres-per-(?:task|node|job|socket))[= ]\S*gpu(?:[:=][A-Za-z][\w.-]*)?(?:[:=]([0-9]+))?"
)
_OVER = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
    | {"OUT_OF_MEMORY", "REQUEUED", "REVOKED", "RESIZING", "LAUNCH_FAILED"}
)


@dataclass(frozen=True, slots=True)
class Options:
    """How to read: when the dump was taken (``None``: not said), the site's zone (``None``: this host's), and the
    cluster whose rows are wanted (``None``: any)."""

    as_of: int | None = None
    timezone: str | None = None
    cluster: str | None = None


def read(kind: str, reader: Callable[[str], T], text: str) -> T:
    """A value, or RowError that names its column."""
    try:
        return reader(text)
    except (ValueError, OverflowError) as error:
        raise RowError(f"{kind} cannot be read", str(error)) from error


def asked_gpus(submit_line: str) -> int:
    """How many GPUs the command line names, at least 1 if it names any; a hint, as its quotes are gone."""
    counts = [int(found[1] or found[2] or 1) for found in _ASKED.finditer(submit_line)]
    return max(counts, default=0)


def held(alloc: Tres, requested: int) -> Tres:
    """What a started run holds; unknown GPUs where some were asked for and none are accounted (design 4.2)."""
    return replace(alloc, gpus=None) if requested and not alloc.gpus else alloc


def finished(run: RunRecord, elapsed: int | None, options: Options, summary: Summary) -> RunRecord:
    """The run with an end: one that still ran counts until the dump was taken, to its time limit at most, one that
    is over but has no end in the row until it had run as long as the row says."""
    if run.start is None or run.end is not None:
        return run
    by_elapsed = None if elapsed is None else run.start + elapsed + run.suspended
    if run.state in _OVER:
        if by_elapsed is None:
            raise RowError("over, but without an End", f"state {run.state}")
        return replace(run, end=by_elapsed)
    summary.running += 1
    until = options.as_of if options.as_of is not None else by_elapsed
    if until is None:
        summary.open += 1
        return run
    if until < run.start:
        raise RowError("started after the time of the dump", f"start {run.start}, as of {until}")
    if run.time_limit is not None and until > run.start + run.time_limit + run.suspended:
        summary.capped += 1
        until = run.start + run.time_limit + run.suspended
    return replace(run, end=until)
