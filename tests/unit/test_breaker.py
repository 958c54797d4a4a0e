"""The breaker: an ordinary morning leaves it shut, a runaway opens it."""

from __future__ import annotations

import pytest

from pyslurm_budget.domain import guard
from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.model import Controller, JobState, Mode, RunKey, Snapshot, Tres, WorkClass
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import LiveRun, Requeued, Situation
from tests.unit.made import job

NOW = 1_800_000_000


def opened(running: int, stopped: list[tuple[int, int]], kind: ActionKind = ActionKind.DISPLACE) -> bool:
    """Whether it opens with so many GPUs running, and (seconds ago, GPUs) stopped."""
    live = job(NOW - 9000, JobState.RUNNING, held_tres=Tres(gpus=running))
    run = LiveRun(live, "olmo", "a100", 1000 * running, WorkClass.BACKED, NOW - 9000, 3600, NOW - 5400, True)
    past = [
        Requeued(NOW - ago, kind, str(i), RunKey(i, 1), "done", "olmo", "9", "bio", gpus)
        for i, (ago, gpus) in enumerate(stopped)
    ]
    situation = Situation(
        Snapshot(Controller("alpha", NOW, (24, 11, 5), NOW - 99_999), (live,), (), ()),
        Policy(),
        Mode.ENFORCE,
        BudgetTree(),
        (),
        (run,),
        {},
        requeued=tuple(past),
    )
    return guard.breaker(situation) is not None


@pytest.mark.parametrize(
    ("running", "stopped"),
    [
        (64, [(300, 29)]),  # the peak of a mixed load on 64 simulated GPUs
        (64, [(500, 32), (200, 32)]),  # a Monday: everything gives way once, and its places are taken
        (0, [(30, 64)]),  # the same, while what was stopped is on its way out
        (640, [(300, 320), (60, 320)]),
        (128, [(601, 600)]),  # longer ago than the window
    ],
)
def test_shut(running: int, stopped: list[tuple[int, int]]) -> None:
    assert not opened(running, stopped)


@pytest.mark.parametrize(
    ("running", "stopped"),
    [
        (64, [(500, 40), (300, 40)]),  # more than everything: the same places again
        (100, [(300, 120)]),  # places that nobody takes
        (640, [(480, 300), (300, 300), (120, 300)]),
    ],
)
def test_open(running: int, stopped: list[tuple[int, int]]) -> None:
    assert opened(running, stopped)
    assert not opened(running, stopped, ActionKind.DRAIN)
