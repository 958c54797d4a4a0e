"""Emptying draining nodes (design 4.7)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.drain import drained_runs, emptied
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from tests.build import HOUR, MINUTE, NOW, POOL, held, live, node, nodes, pending, running, situation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Node
    from pyslurm_budget.domain.situation import LiveRun, Situation


def drains(name: str = "n1", **changes: Any) -> Node:
    """A node that drains since ten minutes."""
    given: dict[str, Any] = {"draining": True, "reason": "gpu 3: xid 79", "reason_since": NOW - 10 * MINUTE}
    return node(name, **{**given, **changes})


def requeued(of: Situation) -> list[str]:
    return [run.job.ref for run, _ in drained_runs(of, POOL)[0]]


def on_drain(run: LiveRun, **changes: Any) -> list[str]:
    """Who is requeued when the run's node, or the changed one, drains."""
    return requeued(situation((), [run], [drains(**changes), *nodes(9)[1:]]))


PAST = live(running(101, held("n1", 8)))
INSIDE = live(running(101, held("n1", 8)), minimum=11 * HOUR)
SPARE = live(running(101, held("n1", 8), qos="spare", start=NOW - 1))


def test_backed_runs_go_when_their_contract_ends_and_spare_runs_at_once() -> None:
    assert on_drain(PAST) == ["101"]
    assert on_drain(INSIDE) == []
    assert on_drain(SPARE) == ["101"]
    assert on_drain(replace(PAST, protected_until=NOW)) == ["101"]
    assert on_drain(replace(PAST, protected_until=NOW + 1)) == []


def test_the_reason_says_which_node_and_why() -> None:
    ((_, reason),) = drained_runs(situation((), [PAST], [drains()]), POOL)[0]
    assert reason.code == "drain"
    assert reason.numbers == {"node": "n1", "reason": "gpu 3: xid 79", "contract": HOUR}


@pytest.mark.parametrize(
    "changes",
    [
        {"requeueable": False},
        {"batch": False},
        {"completing": True},
        {"het": True},
        {"state": JobState.SUSPENDED},
    ],
)
@pytest.mark.parametrize("run", [PAST, SPARE])
def test_never_a_run_that_slurm_would_not_put_back(run: LiveRun, changes: dict[str, Any]) -> None:
    """``scontrol requeue`` would be refused, or kill it."""
    assert on_drain(replace(run, job=replace(run.job, **changes), stoppable=True)) == []


def test_never_a_run_that_is_to_be_left_alone() -> None:
    assert on_drain(replace(PAST, stoppable=False)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"draining": False},
        {"up": False},
        {"reason_since": NOW - 10 * MINUTE + 1},
        {"reason_since": None},
    ],
)
def test_only_what_drains_since_ten_minutes_is_emptied(changes: dict[str, Any]) -> None:
    assert on_drain(PAST, **changes) == []


def test_only_for_reasons_that_the_site_allows() -> None:
    policy = replace(Policy(), drain_reason="^(gpu|ecc)")
    for reason, found in (("gpu 3: xid 79", ["101"]), ("ecc", ["101"]), ("Kill task failed", []), ("", [])):
        assert requeued(situation((), [PAST], [drains(reason=reason)], policy=policy)) == found


def many(count: int, drained: int) -> tuple[list[Node], list[LiveRun]]:
    on = [drains(f"n{i}") if i <= drained else node(f"n{i}") for i in range(1, count + 1)]
    return on, [live(running(100 + i, held(f"n{i}", 8))) for i in range(1, drained + 1)]


@pytest.mark.parametrize(
    ("size", "drained", "stopped"),
    [(3, 2, 2), (3, 3, 0), (40, 2, 2), (40, 3, 0), (60, 3, 3), (60, 4, 0), (100, 5, 5), (100, 6, 0)],
)
def test_above_the_limit_nothing_at_all_is_requeued(size: int, drained: int, stopped: int) -> None:
    """5 % of the pool, at least two nodes: a health check that flaps must not requeue the cluster."""
    on, runs = many(size, drained)
    of = situation((), runs, on)
    found, limits = drained_runs(of, POOL)
    assert len(found) == stopped
    assert [(n.code, n.numbers["nodes"]) for n in limits] == ([] if stopped else [("drain-limit", drained)])


def test_nodes_that_are_empty_do_not_count() -> None:
    on, runs = many(3, 3)
    assert len(drained_runs(situation((), runs[:2], on), POOL)[0]) == 2


def test_the_limit_is_the_sites() -> None:
    on, runs = many(10, 4)
    policy = replace(Policy(), drain_at_once=Fraction(2, 5))
    assert [n.name for n in emptied(situation((), runs, on, policy=policy), POOL)[0]] == ["n1", "n2", "n3", "n4"]
    assert len(drained_runs(situation((), runs, on, policy=policy), POOL)[0]) == 4


def test_other_pools_are_counted_apart() -> None:
    on = [drains("n1"), drains("n2"), drains("h1", gpu_type="h100"), drains("h2", gpu_type="h100")]
    runs = [live(running(i, held(n.name, 8))) for i, n in enumerate(on)]
    of = situation((), runs, on)
    assert requeued(of) == ["0", "1"]


def test_a_run_over_two_draining_nodes_is_requeued_once() -> None:
    run = live(running(101, held("n1", 8), held("n2", 8)))
    assert requeued(situation((), [run], [drains("n1"), drains("n2")])) == ["101"]


def actions(waiting: Sequence[Any], runs: Sequence[LiveRun], on: Sequence[Node]) -> list[tuple[ActionKind, str]]:
    plan = evaluate(situation(waiting, runs, on)).plan
    return [(a.kind, a.ref) for a in plan.actions if a.kind.is_requeue]


def test_a_run_over_draining_nodes_of_two_pools_is_requeued_once() -> None:
    run = live(running(101, held("n1", 8), held("n2", 8)))
    on = [drains("n1"), drains("n2", gpu_type="h100")]
    assert actions((), [run], on) == [(ActionKind.DRAIN, "101")]


def test_runs_elsewhere_stay() -> None:
    other = live(running(102, held("n2", 8)))
    assert actions((), [PAST, other], [drains("n1"), node("n2")]) == [(ActionKind.DRAIN, "101")]


def test_a_drained_node_is_no_room_for_anybody() -> None:
    assert actions([pending(1, 8)], [INSIDE], [drains("n1")]) == []
