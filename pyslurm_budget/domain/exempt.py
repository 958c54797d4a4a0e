"""Exempt jobs (design 4.4): charged, and stopped by nobody until their protection expires. Few, and capped together.

What is asked is checked once, when it is asked for; what was granted is kept, as every promise is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.domain import wording
from pyslurm_budget.domain.model import MILLI, JobState
from pyslurm_budget.domain.plan import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.pool import PoolMap


@dataclass(frozen=True, slots=True)
class Protection:
    """Job ``ref`` is exempt in [at, until): who said so, and why. ``ended`` is when it was taken back before."""

    ref: str
    job_id: int
    at: int
    until: int
    who: str
    why: str
    ended: int | None = None
    ended_by: str | None = None

    def in_force(self, now: int) -> bool:
        """Whether it holds now."""
        return self.ended is None and now < self.until

    def reason(self, code: str) -> Reason:
        """A reason that tells of it."""
        return Reason(code, {"until": self.until, "by": self.who, "text": self.why, "job": self.ref})


def protection_of(job: Job, protections: Iterable[Protection], now: int) -> Protection | None:
    """The protection of a job that is in force, the longest if there are several."""
    mine = (p for p in protections if p.in_force(now) and (p.job_id == job.key.job_id or p.ref == job.ref))
    return max(mine, key=lambda p: p.until, default=None)


def obstacle(job: Job, until: int, now: int, policy: Policy) -> str | None:
    """Why the job cannot be protected until then, whatever others are; ``None`` if it can. A sentence's end."""
    if until <= now:
        return "the time is over already"
    if until - now > policy.exempt_longest:
        longest = wording.span(policy.exempt_longest)
        return f"the longest protection is {longest} ([exempt] longest); ask again before it expires"
    return _unfit(job, policy)


def _unfit(job: Job, policy: Policy) -> str | None:
    if job.tasks:
        return "it is the rest of an array; name one task, as 100_7"
    if job.state not in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED):
        return "it has ended"
    if not policy.classes.is_managed(job.qos):
        return f"nobody stops it: its QOS {job.qos} is not managed"
    if job.state is not JobState.PENDING and policy.classes.is_spare(job.qos):
        return (
            "it runs as spare, which Slurm itself preempts, and no release lets anybody change the QOS of a running "
            "job; requeue it, and protect it while it waits"
        )
    return None


def rate_of(job: Job, pools: PoolMap, policy: Policy) -> tuple[tuple[str, ...], int]:
    """The pools that a job is in or may land on, and its GPUs in thousandths."""
    where = pools.of_request(job)
    if job.allocation:
        nodes = tuple(share.node for share in job.allocation)
        on = pools.of_nodes(nodes)
        return (on,) if on else where, pools.held(job.held_tres, nodes)
    return where, pools.price(job.request, where, job.partitions, largest=policy.charge_largest) if where else 0


def most(pool: str, pools: PoolMap, policy: Policy) -> int:
    """Thousandths of GPUs of the pool that may be exempt at one time."""
    return int(max(pools.size(pool) * policy.exempt_part, Fraction(policy.exempt_least_gpus)) * MILLI)


def exempt_in(pool: str, jobs: Iterable[Job], pools: PoolMap, policy: Policy) -> int:
    """Thousandths of GPUs of these (protected) jobs that count in the pool; one that may land there counts."""
    rates = (rate_of(job, pools, policy) for job in jobs)
    return sum(rate for where, rate in rates if pool in where)
