"""Capacity of a pool and allowance of a budget over the window (design 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.budget import BudgetTree

LEAST_PART = 7  # capacity is never less than a seventh of the window (24 h of 7 days) x GPUs in service now


@dataclass(frozen=True, slots=True)
class HourSample:
    """GPU-seconds in service of one hour that begins at ``hour``, of which ``covered`` seconds were sampled."""

    hour: int
    gpu_seconds: int
    covered: int


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """A pool over the window: (begin, end, GPU-seconds) of each hour of it, oldest first."""

    hours: tuple[tuple[int, int, int], ...]

    @property
    def total(self) -> int:
        """GPU-seconds that the pool could deliver in the window."""
        return sum(amount for _, _, amount in self.hours)


def pool_capacity(
    samples: Iterable[HourSample], *, now: int, window: int, hour: int, size: int, in_service: int
) -> PoolCapacity:
    """GPU-seconds of every hour of [now - window, now).

    Seconds without a sample, and hours in which more than half of the pool was out, count as in service at today's
    ``size``. The whole is never less than a seventh of the window x ``in_service`` (GPUs in service now).
    """
    known = {s.hour: s for s in samples}
    hours: list[tuple[int, int, int]] = []
    begin = now - window
    at = begin - begin % hour
    while at < now:
        low, high = max(at, begin), min(at + hour, now)
        hours.append((low, high, _amount(known.get(at), high - low, size)))
        at += hour
    if sum(amount for _, _, amount in hours) < _least(window, in_service):
        hours = [
            (low, high, _least(high - begin, in_service) - _least(low - begin, in_service)) for low, high, _ in hours
        ]
    return PoolCapacity(tuple(hours))


def _least(length: int, in_service: int) -> int:
    """The least capacity of the first ``length`` seconds; differences of it add up without loss."""
    return length * in_service // LEAST_PART


def _amount(sample: HourSample | None, length: int, size: int) -> int:
    """GPU-seconds of ``length`` seconds of an hour: its sampled average, unsampled seconds at full size."""
    if sample is None or sample.covered <= 0:
        return length * size
    if 2 * sample.gpu_seconds < sample.covered * size:
        return length * size
    covered = min(sample.covered, length)
    return sample.gpu_seconds * covered // sample.covered + (length - covered) * size


def allowance(tree: BudgetTree, account: str, pool: str, capacity: PoolCapacity) -> int:
    """The budget's part of the window's capacity in mGPU-s: each hour at the share that was in force then."""
    total = Fraction(0)
    shares: dict[tuple[int, ...], Fraction] = {}
    changes = sorted({s.since for name in tree.path(account) for s in tree.budgets[name].shares})
    for low, _, amount in capacity.hours:
        era = tuple(1 for since in changes if since <= low)
        if era not in shares:
            shares[era] = tree.effective_share(account, pool, low)
        total += shares[era] * amount
    return int(total * MILLI)


def allowances(tree: BudgetTree, capacities: Mapping[str, PoolCapacity]) -> dict[tuple[str, str], int]:
    """Allowance of every (budget, pool) in mGPU-s."""
    return {
        (account, pool): allowance(tree, account, pool, capacity)
        for pool, capacity in capacities.items()
        for account in tree.budgets
    }
