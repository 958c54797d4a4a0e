"""Accounting rows by sacct, as a stream: the reference implementation of ``Accounting``.

sacct escapes nothing, so the delimiter is a new random text for each call, which nobody can have written into a
comment, and the one column of free text comes last: a line without delimiters continues it.
"""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.domain.times import MINUTE, parse_duration
from pyslurm_budget.errors import SlurmdbdError, SlurmOutputError
from pyslurm_budget.slurm.fields import epoch, node_names, tres_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyslurm_budget.slurm.run import Runner

# Present under these names in 22.05 to 26.05; Comment is free text and must stay last.
FIELDS = (
    *("Cluster", "JobIDRaw", "JobID", "Account", "User", "UID", "QOS", "Partition", "State", "Submit", "Eligible"),
    *("Start", "End", "Suspended", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList", "Comment"),
)
_NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit", "INVALID"})
NOBODY = "(none)"
_FIRST_EPOCH = 1_000_000_000  # sacct refuses `uts` with less
_DAY = 86400
PART = 7 * _DAY
_BY = "CANCELLED by "
_MANY = 1 << 14  # values that are remembered at most, under 1 kB each


class SacctAccounting:
    """Runs of one cluster as slurmdbd has them; ``clock`` is our time, used only to look far enough ahead.

    A long time is read in parts of ``part`` seconds: slurmdbd and sacct hold a whole answer in memory before a row of
    it comes, and while we work on one part sacct works on the next.
    """

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.time, part: int = PART) -> None:
        self._runner = runner
        self._clock = clock
        self._part = part

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """Every run that was alive or waiting in [since, until), each requeued run by itself.

        sacct is asked up to a day after now and after ``until``: it hides a run whose Eligible lies after its end
        time, and a run requeued a moment ago becomes eligible two minutes later. Raises at the end, or earlier, if
        the answer is not complete. A run that changed while it was read may come twice, as it was and as it is. What
        was cancelled before it became eligible, a part later, does not come: it held nothing.
        """
        mark = f"\x1f{secrets.token_hex(6)}\x1f"
        now = int(self._clock())
        first = max(since, _FIRST_EPOCH)
        last = max(until, now, _FIRST_EPOCH) + _DAY
        edges = [*range(first, min(until, now), self._part)] or [first]
        parts = [*zip(edges, [*edges[1:], last], strict=True)]
        seen: dict[RunKey, RunRecord] = {}
        quiet = False  # whether the part before had no row
        for (begin, end), lines in zip(parts, self._answers(parts, mark), strict=True):
            before, seen = seen, {}
            was_quiet, quiet = quiet, True
            for row in runs_of(lines, mark):
                quiet = False
                if was_quiet and row.eligible is not None and row.eligible < begin:
                    raise _lost(row, begin)
                if row.key.submit >= until or (row.end is not None and row.end < since):
                    continue
                if row.end is None or row.end >= end:
                    seen[row.key] = row  # the next part has it too
                if not before or before.get(row.key) != row:
                    yield row
            if quiet and before:
                raise _lost(next(iter(before.values())), begin)

    def _answers(self, parts: Iterable[tuple[int, int]], mark: str) -> Iterator[Iterator[str]]:
        """sacct's lines for each part. It is asked for a part when the one before is about to be read."""
        with ExitStack() as running:
            asked: list[Iterator[str]] = []
            for begin, end in parts:
                lines = self._runner.started(
                    "sacct", "-a", "-X", "-D", "-P", "--noconvert", f"--delimiter={mark}",
                    "-S", f"uts{begin}", "-E", f"uts{end}", "-o", ",".join(FIELDS),
                )  # fmt: skip
                asked.append(running.enter_context(lines))
                if len(asked) > 1:
                    yield asked.pop(0)
            yield from asked


def _lost(row: RunRecord, at: int) -> SlurmdbdError:
    """slurmdbd 22.05 was seen to fail in its database while sacct printed its header alone and ended with 0."""
    return SlurmdbdError(
        f"accounting shows no run at all next to {at} (seconds since the epoch), but job {row.job_ref} was "
        "there then; look into slurmdbd's log"
    )


def runs_of(lines: Iterable[str], delimiter: str) -> Iterator[RunRecord]:
    """Read sacct's lines, header first; raises SlurmOutputError naming the line that cannot be read."""
    rows = _rows(lines, delimiter)
    header = next(rows, None)
    if header is None:
        raise SlurmOutputError("sacct: an empty answer, without even the header")
    missing = [name for name in FIELDS if name not in header and name != "Comment"]
    if missing:
        raise SlurmOutputError(f"sacct: the header {delimiter.join(header)!r} lacks {', '.join(missing)}")
    ordered = _order(header)
    for cells in rows:
        try:
            yield _run(ordered(cells) if ordered else cells)
        except ValueError as error:
            raise SlurmOutputError(f"sacct: cannot read the row {'|'.join(cells)[:200]!r}: {error}") from error


def _order(header: list[str]) -> Callable[[list[str]], Sequence[str]] | None:
    """What brings cells into the order of ``FIELDS``; ``None`` where they are in it, as they are when asked for."""
    if header == [*FIELDS]:
        return None
    column = {name: i for i, name in enumerate(header)}
    picked = itemgetter(*(column.get(name, -1) for name in FIELDS))
    return lambda cells: picked([*cells, ""] if "Comment" not in column else cells)


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Cells of each record, continuation lines glued to their last cell; the header is the first."""
    width = 0
    row: list[str] = []
    for line in lines:
        cells = line.split(delimiter)
        width = width or len(cells)
        if len(cells) == width:
            if row:
                yield row
            row = cells
        elif len(cells) == 1:
            row[-1] += "\n" + line
        else:
            raise SlurmOutputError(f"sacct: {len(cells)} columns, not {width}, in the line {'|'.join(cells)[:200]!r}")
    if row:
        yield row


def _run(cells: Sequence[str]) -> RunRecord:
    """Build a run from cells in the order of ``FIELDS``; raises ``ValueError``.

    A site has a million of them, so what repeats is read once (limits, TRES, nodes) or kept once (names), and nothing
    is looked up by its name.
    """
    (
        _, job, job_ref, account, user, uid, qos, partition, state, submitted,
        eligible, started, ended, suspended, limit, alloc, req, nodes, comment,
    ) = cells  # fmt: skip
    submit = epoch(submitted)
    if submit is None:
        raise ValueError(f"Submit is {submitted!r}")
    start = None if _nowhere(started, ended, nodes) else epoch(started)
    state, by_uid = _cancelled(state) if state.startswith(_BY) else (state, None)
    tres, requested = _tres(alloc if start is not None else None, req)
    return RunRecord(
        RunKey(int(job), submit),
        job_ref,
        intern(account.lower() or NOBODY),
        intern(user or f"uid:{uid}"),
        intern(qos),
        intern(partition),
        intern(state),
        submit if eligible == submitted else epoch(eligible),
        start,
        epoch(ended),
        _suspended(suspended),
        _limit(limit),
        tres,
        requested,
        node_names(nodes),
        comment,
        by_uid,
    )


def _nowhere(start: str, end: str, nodes: str) -> bool:
    """Whether a job ended before it started: one that is cancelled before slurmdbd knows it gets its end for a start
    (seen on 22.05)."""
    return start == end and not node_names(nodes)


def _cancelled(state: str) -> tuple[str, int | None]:
    """The state without who cancelled the job, and that user's id."""
    uid = state.removeprefix(_BY)
    return ("CANCELLED", int(uid)) if uid.isascii() and uid.isdigit() else (state, None)


@lru_cache(maxsize=_MANY)
def _tres(alloc: str | None, req: str) -> tuple[Tres, int]:
    """What a run holds (``alloc`` is ``None`` for one that never started: nothing), and the GPUs it asked for.

    GPUs are unknown where some were asked for and none are accounted (design 4.2).
    """
    requested = tres_of(req).gpus or 0
    if alloc is None:
        return Tres(), requested
    tres = tres_of(alloc)
    return (replace(tres, gpus=None) if requested and not tres.gpus else tres), requested


@lru_cache(maxsize=_MANY)
def _suspended(raw: str) -> int:
    return parse_duration(raw or "0")


@lru_cache(maxsize=_MANY)
def _limit(raw: str) -> int | None:
    """TimelimitRaw: whole minutes, or a word (or nothing) for none; raises ``ValueError`` for others."""
    if raw in _NO_LIMIT:
        return None
    if not raw.isdecimal():
        raise ValueError(f"TimelimitRaw is {raw!r}")
    return int(raw) * MINUTE
