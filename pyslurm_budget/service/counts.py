"""What the ledger counts beside runs: GPUs in service and demand, sampled at every cycle, and single entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.credit import Credit
    from pyslurm_budget.domain.grant import Booking, Grant
    from pyslurm_budget.domain.holding import Holding, NodeEvent
    from pyslurm_budget.domain.model import RunKey


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


CREDIT = "credit"
"""Kind of an entry for a run that a node failure ended; ``credit-2`` and so on for its further pools."""
GRANT, LOAN, RECALL = "grant", "loan", "recall"
"""Kinds of entries that people make; a recall ends the grant or loan that it ``reverses``."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An amount (mGPU-s) that is booked for a budget in one pool. Never changed: another one ``reverses`` it.

    ``begin`` and ``end`` are the time that it is about, ``key`` the run, if it is about one. ``id`` is the ledger's,
    ``lender`` the budget that a loan comes from.
    """

    at: int
    kind: str
    account: str
    pool: str
    amount: int
    begin: int
    end: int | None
    who: str
    why: str
    key: RunKey | None = None
    reverses: int | None = None
    id: int | None = None
    lender: str | None = None


Sampled = tuple[tuple[int, int], ...]
"""The times [begin, end) that samples cover, ascending; the last ends at the last sample."""


class SiteHistory(Protocol):
    """What slurmdbd knows of nodes at other times than now."""

    def node_events(self, since: int, until: int) -> tuple[NodeEvent, ...]:
        """Every event that overlaps [since, until). Raises unless the answer is complete."""

    def reservations(self, since: int, until: int) -> tuple[Holding, ...]:
        """Every reservation that overlaps [since, until). Raises unless the answer is complete."""


class CountsLedger(Protocol):
    """Samples and entries. Every method is one transaction."""

    def add_samples(
        self, capacity: Iterable[CapacitySlice], demand: Iterable[DemandSlice], begin: int, end: int
    ) -> None:
        """Add amounts to their hours, and note that [begin, end) is covered."""

    def capacity(self, since: int) -> tuple[tuple[CapacitySlice, ...], Sampled]:
        """Slices from the hour of ``since`` on, and the times that samples cover."""

    def demand(self, since: int, until: int) -> tuple[DemandSlice, ...]:
        """Slices of the hours that begin in [since, until), by pool, account and hour."""

    def add_entries(self, entries: Iterable[Entry]) -> int:
        """Add entries; of one kind a run has one, and what is there stays as it is. Returns how many are new."""

    def entries_of(self, keys: Iterable[RunKey]) -> tuple[Entry, ...]:
        """The entries of these runs, oldest first."""

    def credits(self, since: int) -> tuple[Credit, ...]:
        """Credits of time after ``since`` that were not reversed."""

    def entries(self, kinds: Iterable[str]) -> tuple[Entry, ...]:
        """All entries of these kinds, oldest first."""

    def grants(self, since: int) -> tuple[Grant, ...]:
        """Grants and loans that had not ended by ``since``, with what is booked of each; a recall is an end."""

    def bookings(self, since: int) -> tuple[Booking, ...]:
        """What is booked for time after ``since``."""

    def add_bookings(self, bookings: Iterable[Booking]) -> None:
        """Book; what is booked for the same hour of the same grant already is added to."""

    def save_past(self, events: Iterable[NodeEvent], holdings: Iterable[Holding], since: int, until: int) -> None:
        """Let this be all that slurmdbd knows of [since, until), and remember that it was read up to ``until``."""

    def past_read(self) -> int | None:
        """Up to when slurmdbd's events and reservations were read; ``None`` before the first time."""

    def save_holdings(self, holdings: Iterable[Holding]) -> None:
        """Insert holdings, or replace those of the same id and start."""

    def node_events(self, since: int) -> tuple[NodeEvent, ...]:
        """Events that had not ended by ``since``."""

    def holdings(self, since: int) -> tuple[Holding, ...]:
        """Holdings that had not ended by ``since``, whoever told of them."""
