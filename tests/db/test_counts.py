"""Samples, node events, reservations and entries, on every database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyslurm_budget.service.counts import CapacitySlice, DemandSlice
from tests.db.conftest import new_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger


def test_capacity_adds_up_by_hour(ledger: SqlLedger) -> None:
    ledger.add_samples([CapacitySlice("b", 3600, 40, 10, 4), CapacitySlice("a", 3600, 8, 10, 1)], [], 3600, 3610)
    ledger.add_samples([CapacitySlice("b", 3600, 60, 20, 3), CapacitySlice("b", 3600, 1, 1, 2)], [], 3610, 3630)
    ledger.add_samples([CapacitySlice("a", 7200, 8, 10, 1)], [], 7200, 7210)
    a, b = CapacitySlice("a", 3600, 8, 10, 1), CapacitySlice("b", 3600, 101, 31, 2)
    later = CapacitySlice("a", 7200, 8, 10, 1)
    covered = ((3600, 3630), (7200, 7210))
    assert ledger.capacity(0) == ledger.capacity(3600) == ledger.capacity(7199) == ((a, later, b), covered)
    assert ledger.capacity(7200) == ((later,), covered)
    ledger.add_samples([], [], 9999, 9999)
    assert ledger.capacity(10800) == ((), (*covered, (9999, 9999)))
    ledger.add_samples([], [], 9999, 10005)
    assert ledger.capacity(10800) == ((), (*covered, (9999, 10005)))


def test_demand_adds_up_by_hour_and_budget(ledger: SqlLedger) -> None:
    ledger.add_samples([], [DemandSlice("a", "nlp", 3600, 40, 5, 10), DemandSlice("a", "bio", 3600, 1, 0, 10)], 0, 10)
    ledger.add_samples([], [DemandSlice("a", "nlp", 3600, 2, 7, 10), DemandSlice("a", "nlp", 7200, 9, 9, 9)], 10, 20)
    bio, nlp = DemandSlice("a", "bio", 3600, 1, 0, 10), DemandSlice("a", "nlp", 3600, 42, 12, 20)
    assert ledger.demand(3600, 7200) == (bio, nlp)
    assert ledger.demand(7200, 7201) == (DemandSlice("a", "nlp", 7200, 9, 9, 9),)
    assert ledger.demand(7201, 9000) == ledger.demand(0, 3600) == ()


def test_samples_that_two_add_at_once_are_not_lost(opened: Callable[[str], SqlLedger]) -> None:
    cluster = new_cluster()
    ledgers = [opened(cluster), opened(cluster)]

    def add(ledger: SqlLedger) -> None:
        for _ in range(20):
            ledger.add_samples([CapacitySlice("a", 0, 3, 1, 1)], [DemandSlice("a", "b", 0, 2, 1, 1)], 5, 5)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, ledgers))
    assert ledgers[0].capacity(0) == ((CapacitySlice("a", 0, 120, 40, 1),), ((5, 5),))
    assert ledgers[0].demand(0, 1) == (DemandSlice("a", "b", 0, 80, 40, 40),)
