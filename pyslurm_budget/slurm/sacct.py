"""Accounting rows by sacct, as a stream: the reference implementation of ``Accounting``.

sacct escapes nothing, so the delimiter is a new random text for each call, which nobody can have written into a
comment, and the one column of free text comes last: a line without delimiters continues it.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.domain.times import MINUTE, parse_duration
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.fields import epoch, node_names, tres_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
_CANCELLED = re.compile(r"CANCELLED by ([0-9]+)")


class SacctAccounting:
    """Runs of one cluster as slurmdbd has them; ``clock`` is our time, used only to look far enough ahead."""

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.time) -> None:
        self._runner = runner
        self._clock = clock

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """Every run that was alive or waiting in [since, until), each requeued run by itself.

        sacct is asked up to a day after now and after ``until``: it hides a run whose Eligible lies after its end
        time, and a run requeued a moment ago becomes eligible two minutes later. Raises at the end, or earlier, if
        the answer is not complete.
        """
        mark = f"\x1f{secrets.token_hex(6)}\x1f"
        first = max(since, _FIRST_EPOCH)
        last = max(until, int(self._clock()), _FIRST_EPOCH) + _DAY
        lines = self._runner.lines(
            "sacct", "-a", "-X", "-D", "-P", "--noconvert", f"--delimiter={mark}",
            "-S", f"uts{first}", "-E", f"uts{last}", "-o", ",".join(FIELDS),
        )  # fmt: skip
        for row in runs_of(lines, mark):
            if row.key.submit < until and (row.end is None or row.end >= since):
                yield row


def runs_of(lines: Iterable[str], delimiter: str) -> Iterator[RunRecord]:
    """Read sacct's lines, header first; raises SlurmOutputError naming the line that cannot be read."""
    rows = _rows(lines, delimiter)
    header = next(rows, None)
    if header is None:
        raise SlurmOutputError("sacct: an empty answer, without even the header")
    missing = [name for name in FIELDS if name not in header and name != "Comment"]
    if missing:
        raise SlurmOutputError(f"sacct: the header {delimiter.join(header)!r} lacks {', '.join(missing)}")
    for cells in rows:
        row = dict(zip(header, cells, strict=True))
        try:
            yield _run(row)
        except ValueError as error:
            raise SlurmOutputError(f"sacct: cannot read the row {'|'.join(cells)[:200]!r}: {error}") from error


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


def _run(row: Mapping[str, str]) -> RunRecord:
    """Build a run; raises ``ValueError``."""
    submit = epoch(row["Submit"])
    if submit is None:
        raise ValueError(f"Submit is {row['Submit']!r}")
    start = None if _nowhere(row["Start"], row["End"], row["NodeList"]) else epoch(row["Start"])
    requested = tres_of(row["ReqTRES"]).gpus or 0
    cancelled = _CANCELLED.fullmatch(row["State"])
    return RunRecord(
        key=RunKey(int(row["JobIDRaw"]), submit),
        job_ref=row["JobID"],
        account=row["Account"].lower() or NOBODY,
        user=row["User"] or f"uid:{row['UID']}",
        qos=row["QOS"],
        partition=row["Partition"],
        state="CANCELLED" if cancelled else row["State"],
        eligible=epoch(row["Eligible"]),
        start=start,
        end=epoch(row["End"]),
        suspended=parse_duration(row["Suspended"] or "0"),
        time_limit=_limit(row["TimelimitRaw"]),
        tres=_held(row["AllocTRES"], requested) if start is not None else Tres(),
        requested_gpus=requested,
        nodes=node_names(row["NodeList"]),
        comment=row.get("Comment", ""),
        by_uid=int(cancelled[1]) if cancelled else None,
    )


def _nowhere(start: str, end: str, nodes: str) -> bool:
    """Whether a job ended before it started: one that is cancelled before slurmdbd knows it gets its end for a start
    (seen on 22.05)."""
    return start == end and not node_names(nodes)


def _held(alloc: str, requested: int) -> Tres:
    """What a started run holds; unknown GPUs where some were asked for and none are accounted (design 4.2)."""
    tres = tres_of(alloc)
    return replace(tres, gpus=None) if requested and not tres.gpus else tres


def _limit(raw: str) -> int | None:
    """TimelimitRaw: whole minutes, or a word (or nothing) for none; raises ``ValueError`` for others."""
    if raw in _NO_LIMIT:
        return None
    if not raw.isdecimal():
        raise ValueError(f"TimelimitRaw is {raw!r}")
    return int(raw) * MINUTE
