"""What became of an intent: a table of every state that an action, its job and its run can be in."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from pyslurm_budget.domain.model import Job, JobState, RunKey
from pyslurm_budget.domain.plan import Action, ActionKind, Reason
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.settle import settle
from tests.build import NOW, pending

OLD, NEW = NOW - 100, NOW - 5
REQUEUES = [ActionKind.DISPLACE, ActionKind.DRAIN]
UPDATES = [ActionKind.SET_CLASS, ActionKind.SET_RANK, ActionKind.RESET_RANK]
SOON, LATE = NOW - 30, NOW - 31  # lost_after is 30 s

PENDING, RUNNING, SUSPENDED, OTHER = JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.OTHER


def action(kind: ActionKind) -> Action:
    qos = "spare" if kind is ActionKind.SET_CLASS else None
    state = PENDING if kind in (ActionKind.SET_CLASS, ActionKind.SET_RANK) else RUNNING
    return Action(kind, "1", RunKey(1, OLD), Reason("x"), state, "backed", qos=qos, site_factor=7)


def job(state: JobState, submit: int = OLD, qos: str = "backed", *, completing: bool = False) -> Job:
    return pending(1, state=state, submit=submit, qos=qos, completing=completing)


def verdict(
    kind: ActionKind, state: str, live: Job | None, ended_as: str | None = None, at: int = SOON
) -> str | None:
    found = settle(action(kind), state, at, live, ended_as=ended_as, now=NOW, policy=Policy())
    return None if found is None else found[0]


@pytest.mark.parametrize("kind", REQUEUES)
@pytest.mark.parametrize("state", ["intent", "sent"])
@pytest.mark.parametrize("at", [SOON, LATE])
@pytest.mark.parametrize("now_is", [PENDING, RUNNING, SUSPENDED, OTHER])
def test_a_new_run_says_that_the_requeue_was_carried_out(
    kind: ActionKind, state: str, at: int, now_is: JobState
) -> None:
    """Whatever became of the new run since: waiting, running, suspended, or cancelled by its owner."""
    assert verdict(kind, state, job(now_is, NEW), at=at) == "done"


@pytest.mark.parametrize("kind", REQUEUES)
@pytest.mark.parametrize(
    ("state", "now_is", "at", "expected"),
    [
        ("intent", RUNNING, SOON, "undone"),
        ("intent", RUNNING, LATE, "undone"),
        ("intent", SUSPENDED, SOON, "undone"),
        ("sent", RUNNING, SOON, None),
        ("sent", RUNNING, LATE, "failed"),
        ("sent", SUSPENDED, LATE, "failed"),
        ("intent", PENDING, SOON, "done"),
        ("sent", PENDING, SOON, "done"),
        ("intent", OTHER, SOON, "skipped"),
        ("sent", OTHER, SOON, "skipped"),
    ],
)
def test_the_same_run(kind: ActionKind, state: str, now_is: JobState, at: int, expected: str | None) -> None:
    assert verdict(kind, state, job(now_is), at=at) == expected


@pytest.mark.parametrize("kind", REQUEUES)
@pytest.mark.parametrize(
    ("start", "state", "at", "expected"),
    [
        (OLD, "intent", SOON, "undone"),
        (OLD, "sent", SOON, None),
        (OLD, "sent", LATE, "failed"),
        (NEW, "sent", SOON, "done"),
    ],
)
def test_a_change_of_size_is_no_new_run(
    kind: ActionKind, start: int, state: str, at: int, expected: str | None
) -> None:
    """Slurm gives the job another submit time; when it started tells whether this is the run that we asked about."""
    changed = replace(job(RUNNING, NEW), start=start, resized=True)
    assert verdict(kind, state, changed, at=at) == expected


@pytest.mark.parametrize("kind", REQUEUES)
@pytest.mark.parametrize("now_is", [PENDING, RUNNING, SUSPENDED, OTHER])
@pytest.mark.parametrize("submit", [OLD, NEW])
@pytest.mark.parametrize("state", ["intent", "sent"])
def test_while_it_completes_nothing_is_said(kind: ActionKind, now_is: JobState, submit: int, state: str) -> None:
    assert verdict(kind, state, job(now_is, submit, completing=True), at=LATE) is None


@pytest.mark.parametrize("kind", REQUEUES)
@pytest.mark.parametrize("state", ["intent", "sent"])
@pytest.mark.parametrize(
    ("ended_as", "at", "expected"),
    [
        (None, SOON, None),
        (None, LATE, "lost"),
        ("REQUEUED", SOON, None),
        ("REQUEUED", LATE, "lost"),
        ("PREEMPTED", LATE, "lost"),
        ("NODE_FAIL", LATE, "lost"),
        ("COMPLETED", SOON, "skipped"),
        ("COMPLETED", LATE, "skipped"),
        ("FAILED", LATE, "skipped"),
        ("TIMEOUT", LATE, "skipped"),
        ("OUT_OF_MEMORY", LATE, "skipped"),
        ("CANCELLED by 1000", LATE, "skipped"),
    ],
)
def test_a_job_that_is_gone(
    kind: ActionKind, state: str, ended_as: str | None, at: int, expected: str | None
) -> None:
    assert verdict(kind, state, None, ended_as, at) == expected


@pytest.mark.parametrize("kind", UPDATES)
@pytest.mark.parametrize("state", ["intent", "sent"])
def test_an_update_of_a_job_that_moved_on_is_skipped(kind: ActionKind, state: str) -> None:
    assert verdict(kind, state, None) == "skipped"
    for now_is in (PENDING, RUNNING, SUSPENDED, OTHER):
        assert verdict(kind, state, job(now_is, NEW, "spare")) == "skipped"


@pytest.mark.parametrize("state", ["intent", "sent"])
@pytest.mark.parametrize("now_is", [PENDING, RUNNING, SUSPENDED, OTHER])
def test_a_class_is_read_back_also_from_a_job_that_started_meanwhile(state: str, now_is: JobState) -> None:
    assert verdict(ActionKind.SET_CLASS, state, job(now_is, qos="spare")) == "done"
    assert verdict(ActionKind.SET_CLASS, state, job(now_is, qos="backed")) == "undone"


@pytest.mark.parametrize("kind", [ActionKind.SET_RANK, ActionKind.RESET_RANK])
@pytest.mark.parametrize("now_is", [PENDING, RUNNING, SUSPENDED, OTHER])
def test_a_rank_is_done_when_it_was_sent(kind: ActionKind, now_is: JobState) -> None:
    assert verdict(kind, "sent", job(now_is)) == "done"
    assert verdict(kind, "intent", job(now_is)) == "undone"


def test_nothing_stays_open_for_ever() -> None:
    """An hour later every intent has a verdict, whatever was read, unless Slurm still completes the job."""
    states = [PENDING, RUNNING, SUSPENDED, OTHER]
    lives: list[Job | None] = [None, *(job(s, k) for s, k in product(states, [OLD, NEW]))]
    endings = [None, "COMPLETED", "REQUEUED", "PREEMPTED", "CANCELLED by 0"]
    for kind, state, live, ended_as in product(REQUEUES + UPDATES, ["intent", "sent"], lives, endings):
        assert verdict(kind, state, live, ended_as, NOW - 3600) is not None


@pytest.mark.parametrize("kind", REQUEUES)
def test_no_run_that_ended_by_itself_is_ever_said_to_be_lost(kind: ActionKind) -> None:
    for ended_as, at in product(["COMPLETED", "FAILED", "TIMEOUT", "DEADLINE", "CANCELLED"], [SOON, LATE, 0]):
        assert verdict(kind, "sent", None, ended_as, at) == "skipped"
