"""Protecting single jobs, and taking that back: what an operator decides, with who, why and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyslurm_budget.domain import wording
from pyslurm_budget.domain.exempt import Protection, exempt_in, most, obstacle, protection_of, rate_of
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.errors import NotFoundError, ProtectionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.model import Job, Snapshot
    from pyslurm_budget.domain.policy import Policy

ENDED = JobState.OTHER


class ProtectionLedger(Protocol):
    """Where protections are kept. They are added and ended, never changed."""

    def add_protection(self, protection: Protection) -> None:
        """Add one; an earlier one of the job that is in force ends at the same moment."""

    def end_protection(self, ref: str, now: int, who: str) -> int:
        """End those of the job that are in force; returns how many were."""

    def protections(self, *, since: int | None = None, refs: Iterable[str] | None = None) -> tuple[Protection, ...]:
        """Those that were in force after ``since``, or of these jobs; without both all, oldest first."""


def protect(ledger: ProtectionLedger, snapshot: Snapshot, policy: Policy, asked: Protection) -> tuple[Job, str]:
    """Protect the job that ``asked.ref`` names; returns it, and the pool's room in words.

    Raises NotFoundError for a job that slurmctld does not know, ProtectionError for one that cannot be protected or
    would be one too many. The controller's next cycle acts on it.
    """
    now = asked.at
    job = next((j for j in snapshot.jobs if asked.ref in (j.ref, str(j.key.job_id))), None)
    if job is None:
        raise NotFoundError(f"job {asked.ref} is not known to slurmctld; an array task is written 100_7")
    if not asked.why.strip():
        raise ProtectionError(f"job {job.ref} is not protected without a reason; give one with --why")
    why_not = obstacle(job, asked.until, now, policy)
    if why_not is not None:
        raise ProtectionError(f"job {job.ref} cannot be protected: {why_not}")
    pools = PoolMap(policy.pools, snapshot.nodes, snapshot.partitions, policy.fractions)
    known = ledger.protections(since=now)
    others = [j for j in snapshot.jobs if j.state is not ENDED and j.key != job.key and protection_of(j, known, now)]
    where, rate = rate_of(job, pools, policy)
    told = ""
    for pool in where:
        used, limit = exempt_in(pool, others, pools, policy), most(pool, pools, policy)
        if used + rate > limit:
            raise ProtectionError(
                f"job {job.ref} cannot be protected: it holds {wording.gpus(rate)} GPUs, and {wording.gpus(used)} of "
                f"at most {wording.gpus(limit)} in {pool} are exempt already ([exempt] part, least_gpus)"
            )
        told = f"{wording.gpus(used + rate)} of at most {wording.gpus(limit)} GPUs in {pool} are exempt"
    ledger.add_protection(
        Protection(job.ref, job.key.job_id, now, asked.until, asked.who, asked.why.strip(), None, None)
    )
    return job, told


def unprotect(ledger: ProtectionLedger, ref: str, now: int, who: str) -> None:
    """Take the protection of a job back; raises NotFoundError where there is none in force."""
    if not ledger.end_protection(ref, now, who):
        raise NotFoundError(f"job {ref} is not protected; `sbudget protect` without a job lists those that are")
