"""Capacity of a pool and allowance of a budget over the window (design 4.1)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from pyslurm_budget.domain.budget import BudgetTree

LEAST_PART = 7  # capacity is never less than a seventh of the window (24 h of 7 days) x GPUs in service now


Interval = tuple[int, int]
"""Times [begin, end) in seconds."""
Era = tuple[int, int]
"""A moment of a time without changes of shares, and GPU-seconds."""

# Slurm's words for the states of nodes (base states and flags), and the marks that it puts behind them.
DOWN = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN", "FAIL", "FAILING", "INVAL", "INVALID_REG", "NOT_RESPONDING"})
DRAINS = frozenset({"DRAIN", "DRAINED", "DRAINING"})
SLEEPS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"})
MARKS = "*~#!%$@^-"


@dataclass(frozen=True, slots=True)
class HourSample:
    """GPU-seconds in service of one hour that begins at ``hour``, of which ``covered`` seconds were sampled; ``size``
    is what the pool had then, in service or not."""

    hour: int
    gpu_seconds: int
    covered: int
    size: int


@dataclass(frozen=True, slots=True)
class Outage:
    """GPUs that were out in [begin, end), as slurmdbd tells it; outages of one node do not overlap."""

    begin: int
    end: int
    gpus: int | Fraction


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """A pool over the window: (begin, end, GPU-seconds) of each hour of it, oldest first."""

    hours: tuple[tuple[int, int, int], ...]

    @property
    def total(self) -> int:
        """GPU-seconds that the pool could deliver in the window."""
        return sum(amount for _, _, amount in self.hours)


def is_down(flags: Set[str]) -> bool:
    """Whether a node with these states, without marks, can do no work. One that sleeps can, though it does not
    answer: its GPUs are there when wanted."""
    return bool(flags & (DOWN - {"NOT_RESPONDING"} if flags & SLEEPS else DOWN))


def is_out(state: str) -> bool:
    """Whether a node of this state (``DOWN*+DRAIN``, ``IDLE~``) was out of service: down, or drained."""
    flags = {word.rstrip(MARKS) for word in state.upper().split("+")}
    return is_down(flags) or bool(flags & DRAINS)


def hours_of(begin: int, end: int, hour: int) -> Iterator[tuple[int, int]]:
    """(begin of the hour, seconds of it in [begin, end)) for each hour that has some, oldest first."""
    at = begin - begin % hour
    while at < end:
        yield at, min(at + hour, end) - max(at, begin)
        at += hour


def fixed_capacity(gpus: int, *, now: int, window: int, hour: int) -> PoolCapacity:
    """A pool that counts as ``gpus`` GPUs at all times, whatever its nodes do: a cloud."""
    begin = now - window
    hours = ((max(at, begin), seconds) for at, seconds in hours_of(begin, now, hour))
    return PoolCapacity(tuple((low, low + seconds, gpus * seconds) for low, seconds in hours))


def pool_capacity(
    samples: Iterable[HourSample],
    *,
    sampled: Sequence[Interval],
    outages: Iterable[Outage] = (),
    now: int,
    window: int,
    hour: int,
    size: int | Fraction,
    in_service: int | Fraction,
) -> PoolCapacity:
    """GPU-seconds of every hour of [now - window, now), of a pool that may hold parts of GPUs.

    ``sampled`` are the times that samples cover, ascending. All other seconds count at today's ``size`` less what was
    out then. An hour in which more than half of the pool was out counts as in service at today's size. The whole is
    never less than a seventh of the window x ``in_service`` (GPUs in service now).
    """
    known = {s.hour: s for s in samples}
    begin = now - window
    first = begin - begin % hour
    gaps = _gaps(sampled, first, now)
    lost = _Lost(outages, gaps)
    hours: list[tuple[int, int, int]] = []
    for at, seconds in hours_of(begin, now, hour):
        low = max(at, begin)
        upto = min(at + hour, now)
        sample = known.get(at, HourSample(at, 0, 0, int(size)))
        empty = sample.covered <= 0
        whole_gap = upto - at if empty else _overlap(gaps, at, upto)
        in_hour = sample.gpu_seconds + whole_gap * size - lost.between(at, upto)
        full = sample.covered * sample.size + whole_gap * size
        if 2 * in_hour < full:
            amount = seconds * size
        else:
            gap = seconds if empty else _overlap(gaps, low, upto)
            part = 0 if empty else sample.gpu_seconds * (seconds - gap) // sample.covered
            amount = part + gap * size - lost.between(low, upto)
        hours.append((low, upto, int(amount)))
    if sum(amount for _, _, amount in hours) < _least(window, in_service):
        hours = [
            (low, high, _least(high - begin, in_service) - _least(low - begin, in_service)) for low, high, _ in hours
        ]
    return PoolCapacity(tuple(hours))


class _Lost:
    """GPU-seconds that were out in the gaps between samples."""

    def __init__(self, outages: Iterable[Outage], gaps: Sequence[Interval]) -> None:
        self._parts = [
            Outage(max(o.begin, low), min(o.end, high), o.gpus)
            for o in outages
            for low, high in gaps
            if o.begin < high and o.end > low
        ]

    def between(self, begin: int, end: int) -> int | Fraction:
        return sum(o.gpus * max(0, min(o.end, end) - max(o.begin, begin)) for o in self._parts)


def _gaps(sampled: Sequence[Interval], begin: int, end: int) -> list[Interval]:
    """What of [begin, end) no sample covers."""
    found: list[Interval] = []
    at = begin
    for low, high in sampled:
        if low > at:
            found.append((at, min(low, end)))
        at = max(at, high)
    if at < end:
        found.append((at, end))
    return [(low, high) for low, high in found if low < high]


def _overlap(intervals: Iterable[Interval], begin: int, end: int) -> int:
    return sum(max(0, min(high, end) - max(low, begin)) for low, high in intervals)


def _least(length: int, in_service: int | Fraction) -> int:
    """The least capacity of the first ``length`` seconds; differences of it add up without loss."""
    return length * in_service // LEAST_PART


def allowance(tree: BudgetTree, account: str, pool: str, capacity: PoolCapacity) -> int:
    """The budget's part of the window's capacity in mGPU-s: each hour at the share that was in force then."""
    return _allowance(tree, account, pool, capacity, {})


def _allowance(
    tree: BudgetTree, account: str, pool: str, capacity: PoolCapacity, known: dict[tuple[int, ...], list[Era]]
) -> int:
    """The same; ``known`` are the eras of this capacity between changes of shares, by the moments of change."""
    changes = tree.changes(account)
    if changes not in known:
        known[changes] = _eras(capacity, changes)
    total = sum((tree.effective_share(account, pool, at) * amount for at, amount in known[changes]), Fraction(0))
    return int(total * MILLI)


def _eras(capacity: PoolCapacity, changes: Sequence[int]) -> list[Era]:
    """A moment in each era between the changes that has hours of the window, and the capacity of these hours."""
    found: dict[int, Era] = {}
    for low, _, amount in capacity.hours:
        era = bisect_right(changes, low)
        begin, before = found.get(era, (low, 0))
        found[era] = begin, before + amount
    return list(found.values())


def allowances(tree: BudgetTree, capacities: Mapping[str, PoolCapacity]) -> dict[tuple[str, str], int]:
    """Allowance of every (budget, pool) in mGPU-s."""
    found: dict[tuple[str, str], int] = {}
    for pool, capacity in capacities.items():
        known: dict[tuple[int, ...], list[Era]] = {}
        for account in tree.budgets:
            found[account, pool] = _allowance(tree, account, pool, capacity, known)
    return found
