"""Rounds of claims and the sweep, as functions of what is seen: against a Slurm in miniature that does its worst.

The miniature takes only runs that are open while a job claims, and everything else happens as it likes: jobs start,
end, are cancelled or requeued by their owners, updates are refused, and the controller dies between any two of them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.claim import (
    EXEMPT,
    OPEN,
    SHIELD,
    TOP,
    Change,
    Outcome,
    Phase,
    Round,
    Target,
    advance,
    steps_of,
)
from pyslurm_budget.domain.model import Job, JobState, RunKey
from pyslurm_budget.domain.policy import ClassMap
from pyslurm_budget.domain.sweep import Left, exposed, still_exposed, sweep
from tests.build import pending

CLASSES = ClassMap()
J = "1"
RUNS = ("2", "3", "4", "5")
STEP, DEADLINE = 2_000, 60_000
PENDING, RUNNING, OTHER = JobState.PENDING, JobState.RUNNING, JobState.OTHER


def run(ref: str, **changes: object) -> Job:
    return replace(pending(int(ref)), state=RUNNING, priority=SHIELD, eligible=0, **changes)  # type: ignore[arg-type]


def target(job: Job) -> Target:
    return Target(job.ref, job.key.submit)


class Miniature:
    """Job 1 waits, runs 2 to 5 are allowed, run 6 is not. ``opened`` is what was open while somebody claimed."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random
        self.jobs = {J: replace(pending(1), priority=SHIELD)} | {ref: run(ref) for ref in (*RUNS, "6")}
        self.now = 0
        self.stopped: list[str] = []
        self.sent: list[Change] = []

    def round(self) -> Round:
        steps = tuple((target(self.jobs[ref]),) for ref in RUNS)
        return Round(target(self.jobs[J]), "backed", 3600, steps, DEADLINE)

    def send(self, change: Change) -> None:
        """One update, as Slurm takes it."""
        job = self.jobs.get(change.ref)
        if job is None or job.state is OTHER or (self.random and self.random.random() < 0.05):
            return  # refused
        self.sent.append(change)
        if change.qos is not None and job.state is PENDING:
            job = replace(job, qos=change.qos)
        if change.site_factor is not None:
            job = replace(job, priority=max(1, change.site_factor) if job.priority or change.release else 0)
        self.jobs[change.ref] = job

    def claims(self) -> bool:
        j = self.jobs.get(J)
        return j is not None and j.state is PENDING and j.qos == "claim"

    def open(self) -> list[str]:
        return [ref for ref, job in self.jobs.items() if exposed(job, CLASSES)]

    def take(self, ref: str) -> None:
        """Slurm stops an open run for the job that claims."""
        assert self.claims()
        assert ref in self.open()
        self.stopped.append(ref)
        self.requeue(ref)

    def requeue(self, ref: str) -> None:
        job = self.jobs[ref]
        key = RunKey(job.key.job_id, job.key.submit + 1)
        self.jobs[ref] = replace(job, state=PENDING, key=key, completing=False)

    def start(self) -> None:
        self.jobs[J] = replace(self.jobs[J], state=RUNNING)

    def happen(self) -> None:
        """Anything that others may do."""
        assert self.random is not None
        r = self.random
        self.now += r.choice((0, 300, 500, 1_000, 3_000, 30_000))
        for ref in list(self.jobs):
            job = self.jobs[ref]
            fate = r.random()
            if self.claims() and ref in self.open() and fate < 0.3:
                self.take(ref)
            elif fate < 0.03:
                del self.jobs[ref]
            elif fate < 0.05:
                self.jobs[ref] = replace(job, state=OTHER)
            elif fate < 0.08 and job.state is RUNNING:
                self.requeue(ref)
            elif fate < 0.1 and ref == "6" and job.state is RUNNING:
                self.jobs[ref] = replace(job, priority=0)  # its owner held it
        if self.jobs.get(J) is not None and self.jobs[J].state is PENDING and r.random() < 0.1:
            self.start()


def play(m: Miniature, r: Round, *, looks: int) -> Round:
    for _ in range(looks):
        if r.over:
            break
        r, changes = advance(r, m.jobs, m.now, step=STEP, claim="claim")
        for change in changes:
            m.send(change)
    return r


# --- one round after another, by hand


def test_the_round_that_goes_well() -> None:
    m = Miniature()
    r = play(m, m.round(), looks=1)
    assert m.sent == [Change(J, "claim", TOP, 3600)]
    r = play(m, r, looks=1)
    assert (m.sent[1:], m.open()) == ([Change("2", site_factor=OPEN)], ["2"])
    m.take("2")
    r = play(m, r, looks=1)
    assert m.open() == []
    assert m.sent[2:] == [Change("2", site_factor=SHIELD)], (
        "the taken one too: it must not stand open when it is back"
    )
    r = play(m, r, looks=1)
    assert (r.phase, m.sent[3:]) == (Phase.WAIT, [])
    m.start()
    r = play(m, r, looks=1)
    assert (r.outcome, m.sent[3:]) == (Outcome.RUNS, [Change(J, site_factor=SHIELD)])
    assert m.jobs[J].qos == "claim"


def test_it_opens_step_by_step_and_takes_everything_back() -> None:
    m = Miniature()
    r = play(m, m.round(), looks=2)
    opened = []
    for _ in range(20):
        m.now += 500
        r = play(m, r, looks=1)
        opened.append(len(m.open()))
    assert [opened.count(n) for n in (1, 2, 3, 4)] == [3, 4, 4, 4], "2 s a step"
    assert (r.outcome, m.stopped, m.open()) == (Outcome.NO_PLACE, [], [])
    assert [c.ref for c in m.sent[-5:]] == [*RUNS, J], "close before withdraw"
    assert (m.jobs[J].qos, m.jobs[J].priority) == ("backed", SHIELD)


@pytest.mark.parametrize("started", [1, 2])
def test_a_job_that_finds_room_by_itself_takes_nobodys_place(started: int) -> None:
    m = Miniature()
    r = play(m, m.round(), looks=started)
    m.start()
    r = play(m, r, looks=9)
    assert (r.outcome, m.stopped, m.open()) == (Outcome.RUNS, [], [])


def test_a_job_that_does_not_start_in_the_room_that_was_made_gives_its_claim_back() -> None:
    m = Miniature()
    r = play(m, m.round(), looks=2)
    m.take("2")
    r = play(m, r, looks=5)
    assert r.phase is Phase.WAIT
    m.now = DEADLINE
    r = play(m, r, looks=1)
    assert (r.outcome, m.jobs[J].qos) == (Outcome.WASTED, "backed")


def test_a_refused_claim_opens_nothing() -> None:
    m = Miniature()
    r, _ = advance(m.round(), m.jobs, 0, step=STEP, claim="claim")
    r = play(m, r, looks=1)
    assert (r.outcome, m.sent) == (Outcome.REFUSED, [])


@pytest.mark.parametrize(
    "moved",
    [
        {"state": RUNNING},
        {"completing": True},
        {"qos": "spare"},
        {"key": RunKey(1, 7)},
    ],
)
def test_a_job_that_has_moved_on_is_left_alone(moved: dict[str, object]) -> None:
    m = Miniature()
    r = m.round()
    m.jobs[J] = replace(m.jobs[J], **moved)  # type: ignore[arg-type]
    r = play(m, r, looks=9)
    assert (r.outcome, m.sent) == (Outcome.MOVED_ON, [])


@pytest.mark.parametrize(
    "moved",
    [
        {"state": PENDING},
        {"completing": True},
        {"key": RunKey(2, 7)},
        {"requeueable": False},
        {"batch": False},
        {"het": True},
    ],
)
def test_only_the_very_run_that_was_allowed_is_opened(moved: dict[str, object]) -> None:
    m = Miniature()
    r = play(m, m.round(), looks=1)
    m.jobs["2"] = replace(m.jobs["2"], **moved)  # type: ignore[arg-type]
    play(m, r, looks=1)
    assert [c.ref for c in m.sent if c.site_factor == OPEN] == ["3"]


def test_the_steps() -> None:
    a, b, c, d = (Target(ref, 0) for ref in "abcd")
    assert steps_of([(a, 8), (b, 1)], [(c, 1), (d, 1)], 2) == ((a, b), (c, d))
    assert steps_of([], [(a, 1), (b, 4), (c, 4), (d, 1)], 4) == ((a, b), (c,), (d,))
    assert len(steps_of([], [(Target(str(i), 0), 4) for i in range(50)], 4)) == 6


# --- whatever happens


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 25))
def test_whatever_happens_only_what_was_allowed_is_open_and_only_while_somebody_claims(seed: int, looks: int) -> None:
    m = Miniature(Random(seed))
    r = m.round()
    allowed = {t for step in r.steps for t in step}
    for _ in range(looks):
        before = r
        r, changes = advance(r, m.jobs, m.now, step=STEP, claim="claim")
        for change in changes:
            if change.site_factor == OPEN:
                assert target(m.jobs[change.ref]) in allowed
                assert m.claims(), "claim before open"
            if change.qos == "backed":
                assert before.phase in (Phase.READ, Phase.WAIT, Phase.LOOK), "close before withdraw"
            m.send(change)
        if r.over:
            break
        m.happen()
    assert not [c for c in m.sent if c.ref == "6"]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 15), st.integers(0, 6), st.booleans())
def test_in_whatever_state_the_controller_dies_the_sweep_brings_all_back(
    seed: int, looks: int, sent: int, noted: bool
) -> None:
    """It dies after some of a look's updates; the ledger knows the round, and perhaps that it only waited."""
    random = Random(seed)
    m = Miniature(random)
    r = m.round()
    runs = tuple(t for step in r.steps for t in step)
    for i in range(looks + 1):
        r, changes = advance(r, m.jobs, m.now, step=STEP, claim="claim")
        for n, change in enumerate(changes):
            if i < looks or n < sent:
                m.send(change)
        if r.over:
            break
        m.happen()
    left = Left(r.job, r.home, runs, DEADLINE // 1000, waits=noted and r.phase is Phase.WAIT)
    m.random = None  # Slurm takes every update from now on
    swept = sweep(m.jobs, [left], {J: "backed"}, CLASSES, m.now // 1000)
    for change in swept.changes:
        m.send(change)
    for change in still_exposed(m.jobs.values(), CLASSES):
        m.send(change)
    assert m.open() == []
    kept = {one.job.ref for one in swept.kept}
    claiming = {ref for ref, job in m.jobs.items() if job.qos == "claim" and job.state is PENDING}
    assert claiming <= kept
    if kept:
        assert m.now < DEADLINE
        assert left.waits or any(target(m.jobs[ref]) not in runs for ref in RUNS if ref in m.jobs)
    else:
        assert len(swept.ended) == 1
    again = sweep(m.jobs, swept.kept, {J: "backed"}, CLASSES, m.now // 1000)
    assert [c for c in again.changes if c.ref != J] == [], "swept once, nothing is left to sweep"


def test_a_claim_that_no_round_knows_goes_back_to_where_it_came_from() -> None:
    jobs = {"7": replace(pending(7), qos="claim"), "8": replace(pending(8), qos="claim", completing=True)}
    swept = sweep(jobs, [], {"7": "normal"}, CLASSES, 0)
    assert swept.changes == (Change("7", "normal", SHIELD, jobs["7"].time_limit),)
    assert sweep(jobs, [], {}, CLASSES, 0).changes[0].qos == "backed"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"priority": EXEMPT}, True),
        ({"priority": EXEMPT + 1}, False),
        ({"priority": 0}, True),
        ({"priority": 1, "qos": "claim"}, True),
        ({"priority": 1, "qos": "spare"}, False),
        ({"priority": 1, "qos": "normal"}, False),
        ({"priority": 1, "completing": True}, False),
        ({"priority": 1, "state": PENDING}, False),
    ],
)
def test_what_stands_open(changes: dict[str, object], *, expected: bool) -> None:
    assert exposed(replace(run("2"), **changes), CLASSES) is expected  # type: ignore[arg-type]


def test_a_run_that_its_owner_opened_is_closed_by_the_means_that_fit() -> None:
    held, nice = (
        run(
            "2",
        ),
        run("3"),
    )
    jobs = [replace(held, priority=0), replace(nice, priority=5)]
    assert still_exposed(jobs, CLASSES) == (
        Change("2", site_factor=SHIELD, release=True),
        Change("3", site_factor=SHIELD, nice=True),
    )
