"""What each budget wants of a pool at one moment (design 4.9): what runs for it, and what could run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain.candidate import could_start
from pyslurm_budget.domain.model import MILLI, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.situation import Situation

# A job counts from so long after it became eligible: a burst of short jobs could never be served in time.
PATIENCE = 3600


@dataclass(frozen=True, slots=True)
class Demand:
    """Charged GPUs in thousandths: those that run, and those that wait and could run."""

    running: int
    pending: int


def demands(situation: Situation) -> Mapping[tuple[str, str], Demand]:
    """Demand by (pool, budget that pays); together at most the pool. Where there is none there is no entry.

    A job that waits counts if Slurm could start it (not held, dependencies met, no reason that says never), if it
    became eligible an hour ago or earlier, and if it is no larger than the pool. Of an array count as many tasks as
    its throttle lets run. A job that may land in several pools counts in the first.
    """
    running: dict[tuple[str, str], int] = defaultdict(int)
    pending: dict[tuple[str, str], int] = defaultdict(int)
    for run in situation.runs:
        if run.budget is not None:
            running[run.pool, run.budget] += run.rate
    room = _room(situation.snapshot.jobs)
    for job in situation.snapshot.jobs:
        budget = situation.budget_of(job.account) if _waits(job, situation.now) else None
        pools = situation.pools.of_request(job) if budget is not None else ()
        if budget is not None and pools:
            count = _tasks(job, room)
            pending[pools[0], budget] += count * _rate(situation, job, pools)
    found: dict[tuple[str, str], Demand] = {}
    for key in sorted(running.keys() | pending.keys()):
        size = int(situation.policy.fixed.get(key[0], situation.pools.size(key[0])) * MILLI)
        runs = min(running[key], size)
        waits = min(pending[key], size - runs)
        if runs or waits:
            found[key] = Demand(runs, waits)
    return found


def _waits(job: Job, now: int) -> bool:
    """Whether the job waits for nothing but room, and has for long enough."""
    if job.state is not JobState.PENDING or job.completing or not could_start(job, now):
        return False
    return job.eligible is not None and job.eligible + PATIENCE <= now


def _rate(situation: Situation, job: Job, pools: tuple[str, ...]) -> int:
    """Rate of one task; 0 where the pool could not hold it even if it were empty."""
    members = situation.pools.members[pools[0]]
    per_node = job.request.gpus_per_node or 0
    rate = situation.pools.price(job.request, pools[:1], job.partitions, largest=situation.policy.charge_largest)
    fits = per_node <= max(node.gpus for node in members) and rate <= situation.pools.size(pools[0]) * MILLI
    return rate if fits else 0


def _room(jobs: Iterable[Job]) -> dict[int, int]:
    """How many more tasks of each throttled array may run."""
    room: dict[int, int] = {}
    running: dict[int, int] = defaultdict(int)
    for job in jobs:
        if job.array_job_id is not None and job.throttle is not None:
            room[job.array_job_id] = job.throttle
        if job.array_job_id is not None and job.state in (JobState.RUNNING, JobState.SUSPENDED):
            running[job.array_job_id] += 1
    return {array: max(0, most - running[array]) for array, most in room.items()}


def _tasks(job: Job, room: dict[int, int]) -> int:
    """How many tasks of the record could run; they are taken from the room of their array."""
    tasks = len(job.tasks) or 1
    if job.array_job_id is None or job.array_job_id not in room:
        return tasks
    count = min(tasks, room[job.array_job_id])
    room[job.array_job_id] -= count
    return count
