"""Who held how many GPUs, counted the long way: one answer for all that the product counts.

Nothing of the product is used here, and nothing is clever. :func:`by_second` walks over every second of the window
and asks each row whether it holds GPUs in it. That is what the words mean, and too slow for a month of a cluster:
:func:`by_piece` cuts each row at the edges of days and multiplies, and a test holds it against the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from zoneinfo import ZoneInfo

NOBODY = "(none)"
UNTYPED = "gpu"
GROUPINGS = ("account", "user", "flavor", "qos", "class", "day", "month")


@dataclass(frozen=True)
class Row:
    """One row of accounting as it was last seen; times in seconds since the epoch.

    ``start`` is ``None`` if the job never started, ``end`` if nothing says that it ended: such a row counts until
    ``now``, or to its time limit (from which Slurm takes no suspended time) where that is earlier. ``gpus`` are
    (type, count) pairs, type ``gpu`` for those without one; ``None`` where GPUs were asked for and nobody accounted
    them. ``rate`` is what is charged, in thousandths of a GPU, where that is more than the GPUs. Accounts compare
    without case, users as they stand.
    """

    job_id: int
    submit: int
    start: int | None
    end: int | None
    gpus: tuple[tuple[str, int], ...] | None
    account: str | None = "lab"
    user: str | None = "alice"
    qos: str = "normal"
    suspended: int = 0
    limit: int | None = None
    rate: int | None = None

    def held_until(self, now: int) -> int:
        """The second from which on nothing is held."""
        if self.end is not None:
            return self.end
        if self.limit is not None:
            return min(now, (self.start or 0) + self.limit + self.suspended)
        return now

    def parts(self) -> list[tuple[str, int, int]]:
        """(type, GPUs, thousandths charged) of each type; no GPUs where they are unknown."""
        known = list(self.gpus or ()) or [(UNTYPED, 0)]
        parts = [(kind, count, 1000 * count) for kind, count in known]
        if self.rate is not None:
            kind, count, rate = parts[0]
            parts[0] = (kind, count, rate + self.rate - sum(part[2] for part in parts))
        return parts

    def word(self, grouping: str, spare: frozenset[str]) -> str:
        """Name of the row's group, for the groupings that are the same in each of its seconds."""
        if grouping == "account":
            return (self.account or NOBODY).lower()
        if grouping == "user":
            return self.user or NOBODY
        if grouping == "qos":
            return self.qos
        return "spare" if self.qos in spare else "backed"


@dataclass
class Total:
    """Sums of one group: raw GPU-seconds, thousandths of GPU-seconds that are charged (spare work is free), what the
    same seconds would cost if all of it were backed, raw GPU-seconds that were suspended (spread evenly over the
    run), and how many runs held something, of which ``unknown`` ones nobody knows how much."""

    gpu_seconds: int = 0
    charged: int = 0
    priced: int = 0
    suspended: Fraction = field(default_factory=Fraction)
    runs: int = 0
    unknown: int = 0


Totals = dict[tuple[str, ...], Total]


def by_second(
    rows: list[Row],
    start: int,
    end: int,
    now: int,
    by: tuple[str, ...] = (),
    zone: str = "UTC",
    spare: frozenset[str] = frozenset(),
) -> Totals:
    """Totals of [start, end) by group, second after second."""
    totals: Totals = defaultdict(Total)
    seen = set()
    for second in range(start, end):
        if second >= now:
            break
        for number, row in enumerate(rows):
            if row.start is not None and row.start <= second < row.held_until(now):
                for kind, gpus, rate in row.parts():
                    group = tuple(_name(row, kind, grouping, spare, second, zone) for grouping in by)
                    _add(totals[group], row, gpus, rate, 1, now, spare)
                    if (number, group) not in seen:
                        seen.add((number, group))
                        totals[group].runs += 1
                        totals[group].unknown += row.gpus is None
    return dict(totals)


def by_piece(
    rows: list[Row],
    start: int,
    end: int,
    now: int,
    by: tuple[str, ...] = (),
    zone: str = "UTC",
    spare: frozenset[str] = frozenset(),
) -> Totals:
    """The same, a piece of a row at a time; a piece lies within one local day."""
    totals: Totals = defaultdict(Total)
    days = midnights(start, end, zone) if {"day", "month"} & set(by) else (start,)
    for row in rows:
        if row.start is None:
            continue
        first, last = max(row.start, start), min(row.held_until(now), end, now)
        pieces = []
        while first < last:
            later = bisect_right(days, first)
            stop = min(last, days[later]) if later < len(days) else last
            pieces.append((first, stop))
            first = stop
        for kind, gpus, rate in row.parts():
            groups = set()
            for begin, stop in pieces:
                group = tuple(_name(row, kind, grouping, spare, begin, zone) for grouping in by)
                _add(totals[group], row, gpus, rate, stop - begin, now, spare)
                groups.add(group)
            for group in groups:
                totals[group].runs += 1
                totals[group].unknown += row.gpus is None
    return dict(totals)


def _add(total: Total, row: Row, gpus: int, rate: int, seconds: int, now: int, spare: frozenset[str]) -> None:
    total.gpu_seconds += gpus * seconds
    total.priced += rate * seconds
    if row.qos not in spare:
        total.charged += rate * seconds
    if row.suspended:
        length = row.held_until(now) - (row.start or 0)
        total.suspended += Fraction(gpus * seconds * min(row.suspended, length), length)


def _name(row: Row, kind: str, grouping: str, spare: frozenset[str], second: int, zone: str) -> str:
    if grouping == "flavor":
        return kind
    if grouping == "day":
        return local_day(second, zone)
    if grouping == "month":
        return local_day(second, zone)[:7]
    return row.word(grouping, spare)


def local_day(second: int, zone: str) -> str:
    """The date that clocks of the zone show in this second."""
    return datetime.fromtimestamp(second, _zone(zone)).date().isoformat()


@lru_cache(maxsize=64)
def midnights(start: int, end: int, zone: str) -> tuple[int, ...]:
    """The seconds of [start, end) in which the date changes, start first. Zones change on whole minutes."""
    found = [start]
    before = local_day(start, zone)
    for second in range(start - start % 60 + 60, end, 60):
        day = local_day(second, zone)
        if day != before:
            found.append(second)
            before = day
    return tuple(found)


@lru_cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
