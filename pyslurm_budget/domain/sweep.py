"""The sweep: whatever state a dead controller left rounds of claims in, all comes back (design 4.6).

Every open run is shielded, and every claim taken back but that of a job whose room is being made. Times are seconds
since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain.claim import EXEMPT, SHIELD, Change, Outcome, Target, claims_now, taken
from pyslurm_budget.domain.model import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.policy import ClassMap


@dataclass(frozen=True, slots=True)
class Left:
    """A round as the ledger has it: begun by an earlier cycle, and not closed. ``waits``: all its runs were closed,
    and the job was only waited for, until ``until``."""

    job: Target
    home: str
    runs: tuple[Target, ...]
    until: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Swept:
    """What brings all back. ``kept`` are the rounds whose job may keep its claim: its room is being made, and nothing
    is open any more. ``ended`` says what became of the others."""

    changes: tuple[Change, ...]
    kept: tuple[Left, ...] = ()
    ended: tuple[tuple[Left, Outcome], ...] = ()


def exposed(job: Job, classes: ClassMap) -> bool:
    """Whether a claim could stop this run now: it is backed, and its priority is no shield."""
    backed = classes.is_managed(job.qos) and not classes.is_spare(job.qos)
    return job.state is JobState.RUNNING and not job.completing and backed and job.priority <= EXEMPT


def sweep(
    jobs: Mapping[str, Job], left: Iterable[Left], homes: Mapping[str, str], classes: ClassMap, now: int
) -> Swept:
    """Shield every open run and take back every claim but that of a job whose room is being made.

    ``jobs`` are by reference; ``homes`` names the QOS that each claiming job had, where the ledger knows it.
    """
    kept: list[Left] = []
    ended: list[tuple[Left, Outcome]] = []
    changes: dict[str, Change] = {}
    for one in left:
        job = jobs.get(one.job.ref)
        gone = any(taken(t, jobs) for t in one.runs)
        if job is None or job.key.submit != one.job.submit:
            ended.append((one, Outcome.MOVED_ON))
        elif job.state is JobState.RUNNING:
            ended.append((one, Outcome.RUNS if job.qos == classes.claim else Outcome.MOVED_ON))
            changes[job.ref] = Change(job.ref, site_factor=SHIELD)
        elif claims_now(job, classes.claim) and now < one.until and (one.waits or gone):
            kept.append(one)
        else:
            ended.append((one, Outcome.WASTED if one.waits or gone else Outcome.NO_PLACE))
    keep = {one.job.ref for one in kept}
    for job in jobs.values():
        if claims_now(job, classes.claim) and job.ref not in keep:
            changes[job.ref] = Change(job.ref, homes.get(job.ref, classes.home), SHIELD, job.time_limit)
        elif exposed(job, classes):
            changes[job.ref] = Change(job.ref, site_factor=SHIELD)
    return Swept(tuple(changes.values()), tuple(kept), tuple(ended))


def still_exposed(jobs: Iterable[Job], classes: ClassMap) -> tuple[Change, ...]:
    """What else brings back runs that the shield alone did not: priority 0 means that the owner held it, else he gave
    its priority away by ``nice``."""
    runs = {job.ref: job for job in jobs if exposed(job, classes)}.values()
    return tuple(
        Change(job.ref, site_factor=SHIELD, release=job.priority == 0, nice=job.priority != 0) for job in runs
    )
