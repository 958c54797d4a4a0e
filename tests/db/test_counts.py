"""Samples, node events, reservations and entries, on every database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.credit import Credit
from pyslurm_budget.domain.holding import Holding, NodeEvent
from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.service.counts import CapacitySlice, DemandSlice, Entry
from tests.db.conftest import new_cluster
from tests.db.made import STATE, run

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
    """Neither amounts nor what is covered."""
    cluster = new_cluster()
    ledgers = [opened(cluster), opened(cluster)]

    def add(which: int) -> None:
        for i in range(which, 80, 4):
            ledgers[which // 2].add_samples(
                [CapacitySlice("a", 0, 3, 1, 1)], [DemandSlice("a", "b", 0, 2, 1, 1)], i, i + 1
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, (0, 2)))
    slices, covered = ledgers[0].capacity(0)
    assert slices == (CapacitySlice("a", 0, 120, 40, 1),)
    assert sorted(covered) == [(i, i + 1) for i in range(0, 80, 2)]
    assert ledgers[0].demand(0, 1) == (DemandSlice("a", "b", 0, 80, 40, 40),)


ONE = Entry(
    at=950, kind="credit", account="bio", pool="a100", amount=8000 * 100, begin=800, end=900, who="automatic",
    why="a node failed", key=RunKey(7, 100),
)  # fmt: skip


def test_a_run_has_one_entry_of_a_kind_and_it_stays_as_it_is(ledger: SqlLedger) -> None:
    assert ledger.add_entries([ONE]) == 1
    assert ledger.add_entries([ONE, replace(ONE, amount=1, at=2000)]) == 0
    (found,) = ledger.entries_of([ONE.key, ONE.key] if ONE.key else [])
    assert replace(found, id=None) == ONE
    assert ledger.add_entries([replace(ONE, kind="credit-2"), replace(ONE, key=RunKey(7, 101))]) == 2
    assert [e.kind for e in ledger.entries_of([RunKey(7, 100)])] == ["credit", "credit-2"]
    assert ledger.entries_of([RunKey(8, 100)]) == ledger.entries_of([]) == ()


def test_two_that_add_the_same_entry_add_it_once(opened: Callable[[str], SqlLedger]) -> None:
    cluster = new_cluster()
    ledgers = [opened(cluster), opened(cluster)]
    entries = [replace(ONE, key=RunKey(i, 100)) for i in range(20)]
    with ThreadPoolExecutor(2) as pool:
        added = sum(pool.map(lambda ledger: sum(ledger.add_entries([e]) for e in entries), ledgers))
    assert added == len(ledgers[0].entries_of([e.key for e in entries if e.key])) == 20


def test_entries_about_no_run_are_all_kept(ledger: SqlLedger) -> None:
    grant = replace(ONE, kind="grant", key=None)
    assert ledger.add_entries([grant, grant]) == 2
    assert ledger.credits(0) == ()


def test_credits_of_the_window_with_the_user_of_their_runs(ledger: SqlLedger) -> None:
    of = replace(run(7, end=900, state="NODE_FAIL"), protected_until=700)
    ledger.save_runs([of, replace(of, key=RunKey(8, 100), protected_until=850)], STATE)
    ledger.add_entries([ONE, replace(ONE, kind="credit-2", pool="h100"), replace(ONE, key=RunKey(8, 100))])
    ledger.add_entries([replace(ONE, key=RunKey(9, 100), begin=100, end=200), replace(ONE, kind="loan")])
    on, inside = (
        Credit("bio", of.user, "a100", run_on=flag, amount=800_000, begin=800, end=900) for flag in (True, False)
    )
    assert ledger.credits(200) == (on, replace(on, pool="h100"), inside)
    assert ledger.credits(900) == ()


def test_a_credit_that_was_reversed_counts_no_more(ledger: SqlLedger) -> None:
    ledger.add_entries([ONE, replace(ONE, key=RunKey(8, 100))])
    (first,) = ledger.entries_of([RunKey(7, 100)])
    ledger.add_entries(
        [replace(ONE, kind="correction", key=None, reverses=first.id, who="ann", why="it was the job")]
    )
    assert [credit.begin for credit in ledger.credits(0)] == [800]


DOWN = NodeEvent("n1", 100, 200, "DOWN", "a | b\nc")
OPEN = NodeEvent("n2", 150, None, "DRAIN")
BOUGHT = Holding(7, "bought", 100, 200, ("nlp", "bio"), ("MAINT", "SPEC_NODES"), ("n1", "n2"), 4, 16)


def test_the_past_of_nodes_is_what_slurmdbd_says_now(ledger: SqlLedger) -> None:
    assert ledger.past_read() is None
    ledger.save_past([DOWN, OPEN], [BOUGHT, replace(BOUGHT, start=200, end=300, gpus=None)], 0, 250)
    assert ledger.past_read() == 250
    assert ledger.node_events(0) == (DOWN, OPEN)
    assert ledger.node_events(200) == (OPEN,)
    assert ledger.holdings(0) == (BOUGHT, replace(BOUGHT, start=200, end=300, gpus=None))
    assert ledger.holdings(250) == (replace(BOUGHT, start=200, end=300, gpus=None),)
    closed = replace(OPEN, end=260)
    ledger.save_past([closed], [], 220, 400)
    assert ledger.node_events(0) == (DOWN, closed)
    assert ledger.holdings(0) == (BOUGHT,)
    ledger.save_past([], [], 0, 400)
    assert ledger.node_events(0) == ledger.holdings(0) == ()


def test_what_slurmctld_told_of_stays(ledger: SqlLedger) -> None:
    live = replace(BOUGHT, id=-8)
    ledger.save_holdings([live, BOUGHT])
    ledger.save_past([], [], 0, 400)
    assert ledger.holdings(0) == (live,)
    ledger.save_holdings([replace(live, end=150)])
    assert ledger.holdings(0) == (replace(live, end=150),)
