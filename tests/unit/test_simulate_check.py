"""The simulator's conscience speaks: each invariant, broken on purpose, is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyslurm_budget.domain.model import JobState
from pyslurm_budget.simulate.state import State
from tests.unit.sim import cluster, job


def take_a_gpu(s: State) -> None:
    s.nodes["n2"].gpus -= 1


def overcommit(s: State) -> None:
    s.nodes["n1"].gpus -= 4
    s.nodes["n1"].records[2] = s.records[2]
    s.records[2].holds = list(s.records[1].holds)


def forget_a_job(s: State) -> None:
    s.dequeue(s.records[2])
    del s.records[2]


def end_twice(s: State) -> None:
    s.finished["1"] = "COMPLETED"


def lose_by_preemption(s: State) -> None:
    s.dequeue(s.records[2])
    s.records[2].state = JobState.OTHER
    s.finished["2"] = "PREEMPTED"


def drop_a_share(s: State) -> None:
    s.records[1].holds.clear()


def count_wrong(s: State) -> None:
    s.nodes["n1"].completing = 1


def fail_without_freeing(s: State) -> None:
    s.nodes["n1"].up = False


def leave_the_queue(s: State) -> None:
    s.waiting["gpu"].clear()


def shuffle_the_queue(s: State) -> None:
    s.waiting["gpu"].reverse()


def queue_a_held_job(s: State) -> None:
    s.records[2].held = "JobHeldUser"


def unlist_a_run(s: State) -> None:
    s.running["backed"].clear()


def invent_a_job(s: State) -> None:
    del s.submitted["3"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (take_a_gpu, "n2: 0 of 4 GPUs held, 3 free"),
        (overcommit, "n1: 8 of 4 GPUs held"),
        (forget_a_job, "2: 0 records, ended as None"),
        (end_twice, "1: 1 records, ended as COMPLETED"),
        (lose_by_preemption, "2 is lost: ended as PREEMPTED"),
        (drop_a_share, "1 runs and does not hold its nodes"),
        (count_wrong, "n1: 1 completing jobs counted"),
        (fail_without_freeing, "n1 is down, and holds [1]"),
        (leave_the_queue, "its place in the queue is"),
        (shuffle_the_queue, "out of order"),
        (queue_a_held_job, "2 waits, and may not"),
        (unlist_a_run, "1 is RUNNING, and the list"),
        (invent_a_job, "3 was never submitted"),
    ],
)
def test_a_broken_invariant_is_told(fault: Callable[[State], None], told: str) -> None:
    c = cluster(nodes=2)
    c.submit(job())
    c.run_for(5)
    for _ in range(2):
        c.submit(job(nodes=2))
    c.run_for(5)
    assert c.check() == ()
    fault(c._state)
    assert any(told in sentence for sentence in c.check()), c.check()
