"""Times of saved accounting: epoch seconds, or calendar times, with a zone or in the zone of the site.

In the night in which clocks go back an hour of local times comes twice; the elapsed time that sacct gives says which
of the two was meant, and so do submit <= start <= end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import product

from pyslurm_budget.service.zones import Zone
from pyslurm_budget.slurm.dump_summary import RowError

_NOTHING = frozenset({"", "Unknown", "None", "N/A", "(null)"})


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one row, seconds since the epoch; ``sure`` is false where another reading is as good.

    ``differs``: the elapsed time that the row gives is not what these times give.
    """

    submit: int
    eligible: int | None
    start: int | None
    end: int | None
    sure: bool = True
    differs: bool = False


def moments(text: str, zone: str | None) -> tuple[int, ...]:
    """Every moment that a time may mean: one, two in the hour that comes twice, none where Slurm says that it has no
    time. Raises ``ValueError`` for what is no time, or one that no clock of the zone has shown."""
    if text.isdecimal() and text.isascii():
        return (int(text),) if int(text) else ()
    if text in _NOTHING:
        return ()
    return _calendar(text, zone)


@lru_cache(maxsize=8192)
def _calendar(text: str, zone: str | None) -> tuple[int, ...]:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        return (int(moment.timestamp()),)
    found = Zone(zone).moments(moment.replace(microsecond=0))
    if not found:
        raise ValueError(f"{text} is no time in {zone or 'the zone of this host'}: there the clocks were put forward")
    return found


def settle(
    submit: tuple[int, ...],
    eligible: tuple[int, ...],
    start: tuple[int, ...],
    end: tuple[int, ...],
    *,
    elapsed: int | None,
    suspended: int,
) -> Times:
    """The first of the readings that are in order and agree with the elapsed time, if any does."""
    if not submit:
        raise RowError("no Submit time")
    ways = [Times(*way) for way in product(submit, eligible or (None,), start or (None,), end or (None,))]
    ordered = [way for way in ways if _in_order(way)]
    if not ordered:
        raise RowError("End before Start", f"start {start}, end {end}")
    agreeing = [way for way in ordered if _agrees(way, elapsed, suspended)]
    good = agreeing or ordered
    first = good[0]
    same = {(way.submit, way.start, way.end) for way in good}
    return Times(first.submit, first.eligible, first.start, first.end, sure=len(same) == 1, differs=not agreeing)


def _in_order(way: Times) -> bool:
    """Start before submit is left alone: slurmctld's clock may be set back, and a resized job's submit is later."""
    return way.start is None or way.end is None or way.start <= way.end


def _agrees(way: Times, elapsed: int | None, suspended: int) -> bool:
    if elapsed is None or way.start is None or way.end is None:
        return True
    return max(way.end - way.start - suspended, 0) == elapsed
