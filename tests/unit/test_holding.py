"""Reservations as holdings, node events as outages (design 4.1, 4.2), by example."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyslurm_budget.domain.capacity import Outage
from pyslurm_budget.domain.holding import Holding, NodeEvent, forgotten, out_of_service, seen, told_once, without
from pyslurm_budget.domain.idle import Occupant, idle_uses
from pyslurm_budget.domain.model import Reservation
from tests.build import CPUS_PER_GPU, node, pool_map

BUDGETS = {"red": "red", "blue": "blue"}
LIVE = Reservation("bought", ("n1", "n2"), 100, 900, ("red",), ("SPEC_NODES",), cpus=16)


def charged(*holdings: Holding, runs: tuple[Occupant, ...] = ()) -> list[tuple[str | None, int, int, int | None]]:
    pools = pool_map([node("n1", 8), node("n2", 8)])
    uses = idle_uses(holdings, runs, pools, BUDGETS.get, lambda a, b: a == b, out={})
    return sorted((u.budget, u.rate, u.start, u.end) for u in uses)


def test_holding_costs_what_it_holds() -> None:
    assert charged(Holding(1, "r", 0, 10, ("red",), (), ("n1",))) == [("red", 8000, 0, 10)]


def test_it_is_split_evenly_and_the_remainder_goes_to_the_first() -> None:
    three = Holding(1, "r", 0, 10, ("red", "blue", "none"), (), ("n1",))
    assert charged(three) == [("blue", 2666, 0, 10), ("red", 2668, 0, 10)]


def test_own_backed_runs_make_it_smaller_and_own_spare_runs_do_not() -> None:
    held = Holding(1, "r", 0, 10, ("red",), (), ("n1",))
    backed = Occupant("red", ("n1",), 2, 5, 6000, 6000)
    spare = replace(backed, charged=0)
    assert charged(held, runs=(backed,)) == [("red", 2000, 2, 5), ("red", 8000, 0, 2), ("red", 8000, 5, 10)]
    assert sum(rate * ((end or 0) - start) for _, rate, start, end in charged(held, runs=(spare,))) == 80000


def test_what_others_run_there_is_not_charged_again() -> None:
    held = Holding(1, "r", 0, 10, ("red",), (), ("n1",))
    foreign = Occupant("blue", ("n1",), 0, 10, 8000, 0)
    assert charged(held, runs=(foreign,)) == []


def test_a_part_of_a_node_costs_a_part() -> None:
    assert charged(Holding(1, "r", 0, 9, ("red",), (), ("n1",), None, 2 * CPUS_PER_GPU)) == [("red", 2000, 0, 9)]
    assert charged(Holding(1, "r", 0, 9, ("red",), (), ("n1",), 4, CPUS_PER_GPU)) == [("red", 4000, 0, 9)]
    whole = Holding(1, "r", 0, 9, ("red",), (), ("n1", "n2"), None, 16 * CPUS_PER_GPU)
    assert charged(whole) == [("red", 8000, 0, 9), ("red", 8000, 0, 9)]


@pytest.mark.parametrize(
    ("changes", "pays", "idle"),
    [
        ({}, True, False),
        ({"accounts": ("none",)}, False, True),
        ({"accounts": ()}, False, True),
        ({"flags": ("MAINT", "SPEC_NODES")}, False, True),
        ({"name": "sbudget_5"}, False, False),
        ({"accounts": ("none", "blue")}, True, False),
    ],
)
def test_who_pays(changes: dict[str, Any], pays: bool, idle: bool) -> None:
    """Nobody for maintenance, for our own windows, for users alone; without a payer the nodes leave the capacity."""
    of = replace(Holding(1, "r", 0, 10, ("red",), (), ("n1",)), **changes)
    assert bool(of.payers(BUDGETS.get)) is pays
    assert of.idle(BUDGETS.get) is idle


def test_a_live_reservation_is_noted_once_it_has_begun() -> None:
    assert seen([], [LIVE], 99, 50) == []
    (first,) = seen([], [LIVE], 150, 50)
    assert (first.name, first.start, first.end, first.accounts, first.nodes) == (
        "bought",
        100,
        900,
        ("red",),
        LIVE.nodes,
    )
    assert first.id < 0
    assert seen([first], [LIVE], 160, 50) == []


def test_before_we_looked_slurmdbd_tells() -> None:
    """Of one that is new to us, we know from when we looked; after a pause, of none what became of it."""
    (first,) = seen([], [LIVE], 150, 120)
    assert first.start == 120
    assert forgotten([first, replace(first, id=4)], 800, 400) == [replace(first, end=400)]
    assert forgotten([replace(first, end=700)], 800, 400) == []


def test_a_change_ends_the_holding_and_begins_another() -> None:
    (first,) = seen([], [LIVE], 150, 50)
    changed = seen([first], [replace(LIVE, nodes=("n1",))], 200, 50)
    assert changed == [replace(first, end=200), replace(first, start=200, nodes=("n1",))]
    assert seen(changed, [replace(LIVE, nodes=("n1",))], 230, 50) == []


def test_a_new_end_is_no_other_holding() -> None:
    (first,) = seen([], [LIVE], 150, 50)
    assert seen([first], [replace(LIVE, end=5000)], 200, 50) == [replace(first, end=5000)]


def test_one_that_is_gone_has_ended() -> None:
    (first,) = seen([], [LIVE], 150, 50)
    assert seen([first], [], 200, 50) == [replace(first, end=200)]
    assert seen([replace(first, end=180)], [], 200, 50) == []
    assert seen([replace(first, id=4)], [], 200, 50) == []


def test_floating_denied_and_empty_ones() -> None:
    assert seen([], [replace(LIVE, flags=("TIME_FLOAT",)), replace(LIVE, nodes=())], 150, 50) == []
    (found,) = seen([], [replace(LIVE, accounts=("-red",))], 150, 50)
    assert found.accounts == ()


def test_slurmctld_is_believed_and_slurmdbd_tells_the_rest() -> None:
    live, stored = Holding(-5, "r", 20, 40, ("red",)), Holding(3, "r", 0, 100)
    assert told_once([stored, live]) == [replace(stored, end=20), live, replace(stored, start=40)]
    assert told_once([stored, replace(live, name="other")]) == [stored, replace(live, name="other")]


def test_intervals() -> None:
    assert without((0, 10), []) == [(0, 10)]
    assert without((0, 10), [(8, 12), (2, 3), (2, 5)]) == [(0, 2), (5, 8)]
    assert without((0, 10), [(0, 10)]) == without((5, 5), []) == []


def test_a_node_that_is_down_and_reserved_is_out_once() -> None:
    events = [
        NodeEvent("n1", 0, 50, "DOWN*"),
        NodeEvent("n1", 40, None, "DRAIN"),
        NodeEvent("n2", 0, 50, "IDLE~"),
        NodeEvent("n9", 0, 50, "DOWN"),
    ]
    unpaid = [Holding(1, "r", 30, 900, (), (), ("n1", "n2", "login"))]
    assert out_of_service(events, unpaid, {"n1": 8, "n2": 4}, 100) == {
        "n1": [Outage(0, 50, 8), Outage(50, 100, 8)],
        "n2": [Outage(30, 100, 4)],
    }
