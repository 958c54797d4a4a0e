"""Demand (design 4.9): what runs, and what could run and has waited for long enough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.demand import Demand, demands
from pyslurm_budget.domain.model import JobState
from tests.build import HOUR, NOW, array, held, live, node, nodes, pending, running, situation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.situation import LiveRun


def of_red(jobs: Sequence[Job], runs: Sequence[LiveRun] = (), gpus: int = 64) -> Demand:
    """Demand of red in a pool of so many GPUs."""
    return demands(situation(jobs, runs, on=nodes(gpus // 8))).get(("a100", "red"), Demand(0, 0))


def test_what_runs_and_what_waits() -> None:
    mine = live(running(101, held("n1", 4), account="red", user="alice"))
    spare = live(running(102, held("n2", 1), account="red", user="alice", qos="spare"))
    found = demands(situation([pending(1, 2), pending(2, 8)], [mine, spare, live(running(103))], on=nodes(2)))
    assert found == {("a100", "red"): Demand(5000, 10000), ("a100", "blue"): Demand(1000, 0)}


def test_a_job_counts_from_an_hour_after_it_became_eligible() -> None:
    assert of_red([pending(1, 2, eligible=NOW - HOUR)]) == Demand(0, 2000)
    assert of_red([pending(1, 2, eligible=NOW - HOUR + 1)]) == Demand(0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 0, "reason": "JobHeldUser"},
        {"eligible": None, "reason": "Dependency"},
        {"reason": "DependencyNeverSatisfied"},
        {"eligible": NOW + HOUR, "reason": "BeginTime"},
        {"reason": "BadConstraints"},
        {"reason": "QOSMaxGRESPerJob"},
        {"reason": "PartitionTimeLimit"},
        {"completing": True},
        {"account": "strangers"},
        {"partitions": ("cpu",)},
    ],
)
def test_what_cannot_run_is_no_demand(changes: dict[str, Any]) -> None:
    assert of_red([pending(1, 2, **changes)]) == Demand(0, 0)


def test_what_the_pool_could_not_hold_empty_is_no_demand() -> None:
    assert of_red([pending(1, 16), pending(2, 8)]) == Demand(0, 8000)
    wide = replace(pending(1).request, nodes_min=9, nodes_max=9, gpus=72, gpus_per_node=8)
    assert of_red([pending(1, request=wide)]) == Demand(0, 0)


def test_an_array_counts_by_the_tasks_that_could_run() -> None:
    waits = array(100, range(4, 20))
    assert of_red([waits]) == Demand(0, 16000)
    assert of_red([replace(waits, throttle=5)]) == Demand(0, 5000)
    task = running(101, held("n1", 1), account="red", user="alice", array_job_id=100, ref="100_0", throttle=5)
    assert of_red([replace(waits, throttle=5)], [live(task)]) == Demand(1000, 4000)
    split = pending(102, ref="100_3", array_job_id=100, throttle=5)
    assert of_red([split, replace(waits, throttle=5)], [live(task)]) == Demand(1000, 4000)
    assert of_red([replace(waits, throttle=1)], [live(replace(task, throttle=1))]) == Demand(1000, 0)


def test_the_largest_part_counts() -> None:
    """One GPU with all the memory of a node."""
    job = pending(1, request=replace(pending(1).request, memory_mb=8 * 64_000))
    assert of_red([job]) == Demand(0, 8000)


def test_demand_is_at_most_the_pool_whatever_runs() -> None:
    mine = [live(running(100 + i, held(f"n{i}", 8), account="red", user="alice")) for i in (1, 2)]
    jobs = [pending(i, 8) for i in range(1, 10)]
    assert demands(situation(jobs, mine, on=nodes(3)))["a100", "red"] == Demand(16000, 8000)


def test_nodes_that_are_down_do_not_make_demand_smaller() -> None:
    on = [node("n1"), node("n2", up=False)]
    assert demands(situation([pending(i, 8) for i in (1, 2, 3)], on=on))["a100", "red"] == Demand(0, 16000)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 8), st.integers(0, 2 * HOUR), st.sampled_from(("red", "blue", "none")), st.booleans()
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(1, 2), st.sampled_from(("red", "blue"))), max_size=6),
)
def test_demand_counted_one_by_one(waiting: list[tuple[int, int, str, bool]], runs: list[tuple[int, str]]) -> None:
    """Against a count that knows nothing of the code: two nodes of eight."""
    jobs = [
        pending(i + 1, gpus, account=account, eligible=NOW - waited, priority=0 if held_ else 1)
        for i, (gpus, waited, account, held_) in enumerate(waiting)
    ]
    live_ = [live(running(100 + i, held("n1", gpus), account=account)) for i, (gpus, account) in enumerate(runs)]
    found = demands(situation(jobs, live_, on=nodes(2)))
    for account in ("red", "blue"):
        ran = sum(1000 * gpus for gpus, whose in runs if whose == account)
        waits = sum(1000 * g for g, waited, whose, h in waiting if whose == account and waited >= HOUR and not h)
        expected = Demand(min(ran, 16000), min(waits, 16000 - min(ran, 16000)))
        assert found.get(("a100", account), Demand(0, 0)) == expected
    assert ("a100", "none") not in found


def test_only_pending_jobs_wait() -> None:
    assert of_red([pending(1, 2, state=JobState.OTHER)]) == Demand(0, 0)
