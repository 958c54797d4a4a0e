"""What the ledger counts beside runs: GPUs in service and demand, sampled at every cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class CapacitySlice:
    """GPU-seconds in service and covered seconds of one pool in one hour, and the pool's GPUs at the last sample, in
    service or not."""

    pool: str
    hour: int
    gpu_seconds: int
    covered: int
    gpus: int


@dataclass(frozen=True, slots=True)
class DemandSlice:
    """Demand of one budget in one pool and hour, in mGPU-s: what ran and what waited; ``covered`` are the sampled
    seconds in which there was any."""

    pool: str
    account: str
    hour: int
    running: int
    pending: int
    covered: int


Sampled = tuple[tuple[int, int], ...]
"""The times [begin, end) that samples cover, ascending; the last ends at the last sample."""


class CountsLedger(Protocol):
    """Samples. Every method is one transaction."""

    def add_samples(
        self, capacity: Iterable[CapacitySlice], demand: Iterable[DemandSlice], begin: int, end: int
    ) -> None:
        """Add amounts to their hours, and note that [begin, end) is covered."""

    def capacity(self, since: int) -> tuple[tuple[CapacitySlice, ...], Sampled]:
        """Slices from the hour of ``since`` on, and the times that samples cover."""

    def demand(self, since: int, until: int) -> tuple[DemandSlice, ...]:
        """Slices of the hours that begin in [since, until), by pool, account and hour."""
