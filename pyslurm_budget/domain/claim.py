"""Claims: Slurm stops exactly the runs that we open, for exactly the job that we name (design 4.6).

A running backed run can be stopped by Slurm's own preemption only if both hold: its priority is at most ``EXEMPT``
(it is *open*), and a pending job has the QOS ``claim``. Users can do neither. Where the opened runs would not make
room, Slurm stops nobody: its refusal is the test whether they fit.

A *round* serves one job: claim, open in steps, close at once, wait for the job or give up. Claim before open, close
before withdraw. All of it is a function of what was read. :mod:`pyslurm_budget.service.claims` reads and sends, and
:mod:`pyslurm_budget.domain.sweep` brings back what a dead controller left. Times are milliseconds of any steady
clock, as a round is over in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.steps import BACKED_BASE, CEILING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyslurm_budget.domain.model import Job

EXEMPT = CEILING
OPEN = 0
SHIELD = BACKED_BASE
TOP = 3_000_000
MOST_STEPS = 6


@dataclass(frozen=True, slots=True)
class Change:
    """One update of one record; ``release`` ends a hold, ``nice`` takes back what the owner gave away."""

    ref: str
    qos: str | None = None
    site_factor: int | None = None
    time_limit: int | None = None
    release: bool = False
    nice: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """One run, or one wait, of a job: its record's reference and the submit time that a requeue renews."""

    ref: str
    submit: int


class Phase(StrEnum):
    """Where a round stands: what is done next."""

    CLAIM = "claim"
    LOOK = "look"
    OPEN = "open"
    CLOSE = "close"
    READ = "read"
    WAIT = "wait"
    OVER = "over"


class Outcome(StrEnum):
    """How a round ended."""

    RUNS = "runs"
    NO_PLACE = "no place"
    WASTED = "wasted"
    MOVED_ON = "moved on"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Round:
    """One round: job ``job`` of QOS ``home`` (``time_limit`` in seconds, ``None``: unlimited) may take the place of
    the runs in ``steps``, which are opened one step after the other. ``deadline`` is when waiting for it ends."""

    job: Target
    home: str
    time_limit: int | None
    steps: tuple[tuple[Target, ...], ...]
    deadline: int
    phase: Phase = Phase.CLAIM
    opened: tuple[Target, ...] = ()
    since: int = 0
    outcome: Outcome | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase is Phase.OVER


def steps_of(
    first: Sequence[tuple[Target, int]], others: Sequence[tuple[Target, int]], gpus: int
) -> tuple[tuple[Target, ...], ...]:
    """What to open in each step, from runs with their GPUs: our own placement's best set, then in their order as
    many as hold the job's GPUs."""
    steps: list[tuple[Target, ...]] = [tuple(t for t, _ in first)] if first else []
    group: list[Target] = []
    held = 0
    for target, own in others:
        group.append(target)
        held += own
        if held >= gpus:
            steps.append(tuple(group))
            group, held = [], 0
    if group:
        steps.append(tuple(group))
    return tuple(steps[:MOST_STEPS])


def advance(
    r: Round, jobs: Mapping[str, Job], now: int, *, step: int, claim: str
) -> tuple[Round, tuple[Change, ...]]:
    """The next state of a round after one look at ``jobs`` (by reference), and what to send before the next look.

    ``step`` is how long Slurm is given to act on what is open; ``claim`` is the QOS. Without a change, and not over,
    the caller waits a moment.
    """
    job = jobs.get(r.job.ref)
    if job is not None and job.key.submit != r.job.submit:
        job = None
    if r.phase is Phase.CLAIM:
        return _claim(r, job, claim)
    claims = claims_now(job, claim)
    if r.phase is Phase.OPEN:
        return _while_open(r, jobs, now, step, claims=claims)
    if claims and r.phase is Phase.LOOK:
        return _open(r, jobs, now)
    waits = r.phase is Phase.WAIT or (r.phase is Phase.READ and any(taken(t, jobs) for t in r.opened))
    if claims and waits and now < r.deadline:
        return replace(r, phase=Phase.WAIT), ()
    return _end(r, job, claim, _why(r, claims=claims, waits=waits))


def _why(r: Round, *, claims: bool, waits: bool) -> Outcome:
    """Why the round ends, if its job does not run."""
    if not claims:
        return Outcome.REFUSED if r.phase is Phase.LOOK else Outcome.MOVED_ON
    return Outcome.WASTED if waits else Outcome.NO_PLACE


def _while_open(
    r: Round, jobs: Mapping[str, Job], now: int, step: int, *, claims: bool
) -> tuple[Round, tuple[Change, ...]]:
    """Close as soon as one is taken, or the job claims no more (it runs, or its owner moved it)."""
    if not claims or any(taken(t, jobs) for t in r.opened):
        return _close(r, jobs)
    if now - r.since < step:
        return r, ()
    return _open(r, jobs, now) if r.steps else _close(r, jobs)


def _claim(r: Round, job: Job | None, claim: str) -> tuple[Round, tuple[Change, ...]]:
    if job is None or not _waits(job) or job.qos != r.home:
        return replace(r, phase=Phase.OVER, outcome=Outcome.MOVED_ON), ()
    return replace(r, phase=Phase.LOOK), (Change(r.job.ref, claim, TOP, r.time_limit),)


def _open(r: Round, jobs: Mapping[str, Job], now: int) -> tuple[Round, tuple[Change, ...]]:
    """Open the next step, as far as its runs are still those that were allowed."""
    ready = tuple(t for t in r.steps[0] if _still(t, jobs)) if r.steps else ()
    r = replace(r, phase=Phase.OPEN, steps=r.steps[1:], since=now)
    if not ready:
        return _open(r, jobs, now) if r.steps else (r, ())
    return replace(r, opened=(*r.opened, *ready)), tuple(Change(t.ref, site_factor=OPEN) for t in ready)


def _still(target: Target, jobs: Mapping[str, Job]) -> bool:
    job = jobs.get(target.ref)
    return (
        job is not None
        and job.key.submit == target.submit
        and job.state is JobState.RUNNING
        and not job.completing
        and job.can_requeue
        and not job.het
    )


def _close(r: Round, jobs: Mapping[str, Job]) -> tuple[Round, tuple[Change, ...]]:
    """Close every opened run, taken ones too: what comes back must not stand open."""
    there = [t for t in r.opened if t.ref in jobs and jobs[t.ref].state is not JobState.OTHER]
    return replace(r, phase=Phase.READ), tuple(Change(t.ref, site_factor=SHIELD) for t in there)


def _end(r: Round, job: Job | None, claim: str, otherwise: Outcome) -> tuple[Round, tuple[Change, ...]]:
    """The round is over: a job that runs is shielded like any other, one that still claims goes back."""
    over = replace(r, phase=Phase.OVER, outcome=otherwise)
    if job is not None and job.state is JobState.RUNNING:
        return replace(over, outcome=Outcome.RUNS), (Change(r.job.ref, site_factor=SHIELD),)
    if job is not None and claims_now(job, claim):
        return over, (Change(r.job.ref, r.home, SHIELD, r.time_limit),)
    return over, ()


def _waits(job: Job) -> bool:
    """Plain pending: while a record is still COMPLETING a new QOS would be written into the row that has ended."""
    return job.state is JobState.PENDING and not job.completing


def claims_now(job: Job | None, claim: str) -> bool:
    """Whether it is plain pending, with the QOS of claims."""
    return job is not None and _waits(job) and job.qos == claim


def taken(target: Target, jobs: Mapping[str, Job]) -> bool:
    """Whether the run was stopped and its job is on its way back, or back, in the queue."""
    job = jobs.get(target.ref)
    return job is not None and (job.key.submit != target.submit or job.state is JobState.PENDING)
