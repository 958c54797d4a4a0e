"""A pending job as admission sees it: its price, what re-opens its admission, and whether it may be backed at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from pyslurm_budget.domain import comment
from pyslurm_budget.domain.books import Price
from pyslurm_budget.domain.exempt import protection_of
from pyslurm_budget.domain.holding import OURS
from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.plan import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.exempt import Protection
    from pyslurm_budget.domain.model import Job, Request
    from pyslurm_budget.domain.plan import Admission
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.situation import Situation

# A requeued job waits for its begin time, and must have its class before that: so a begin time this near is eligible.
SOON = 180
ASKED_SPARE = "sbudget:spare"
# Reasons (their beginnings) that say that Slurm cannot start the job now, or as it is will never. A limit for one job
# (QOSMaxGRESPerJob and its kin) is never met by waiting.
NEVER = (
    "AccountNotAllowed",
    "BadConstraints",
    "Dependency",
    "InvalidAccount",
    "InvalidQOS",
    "JobArrayTaskLimit",
    "JobHeld",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSMin",
    "QOSNotAllowed",
)
# Slurm says this for whatever wants a node that is down or reserved just now, and may say another in its next pass:
# no sign that a job could start, and none that one that was admitted could not.
COMES_AND_GOES = "ReqNodeNotAvail"
PER_JOB = "PerJob"
# Nodes are reserved now, for somebody else or for this very job: it waits for room as others do (scontrol writes the
# underscores).
RESERVED = ("ReqNodeNotAvail, May be reserved", "ReqNodeNotAvail,_May_be_reserved")
# A begin time that has passed is the reason until Slurm looks again.
WAITS_FOR_ROOM = ("Resources", "Priority", "BeginTime", *RESERVED)

_OBSTACLES = {
    comment.ContractKind.ASKED_SPARE: "declared-spare",
    comment.ContractKind.ABOVE_CAP: "above-cap",
    comment.ContractKind.CANNOT_REQUEUE: "cannot-requeue-too-long",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pending record, or one task of an array's pending remainder (``task``), with its price.

    ``obstacle`` says why it cannot be backed whatever the budget has left; ``None`` if it may be. ``known`` is the
    last cycle's admission, if nothing that re-opens it has changed. ``exempt``: an operator protected it.
    """

    ref: str
    job: Job
    budget: str | None
    pools: tuple[str, ...]
    price: Price
    contract: int
    signature: str
    obstacle: Reason | None
    eligible: bool
    known: Admission | None
    returning: bool
    task: int | None = None
    exempt: Protection | None = None

    @property
    def place(self) -> tuple[int, ...]:
        """Order among the user's own jobs: by submission."""
        return (self.job.key.submit, self.job.array_job_id or self.job.key.job_id, self.task or 0)


def candidates(situation: Situation) -> tuple[Candidate, ...]:
    """Every managed pending record; of an array's remainder the lowest tasks one by one, the rest as one record.

    Jobs that are still COMPLETING (a requeue that Slurm has not finished) are left alone: a new QOS would be written
    into the row of the run that has just ended.
    """
    found: list[Candidate] = []
    for job in situation.snapshot.jobs:
        if job.state is JobState.PENDING and not job.completing and situation.policy.classes.is_managed(job.qos):
            found.extend(_of_job(situation, job))
    return tuple(found)


def _of_job(situation: Situation, job: Job) -> Iterator[Candidate]:
    pools = situation.pools.of_request(job)
    if not pools:
        return
    if not job.tasks:
        yield _one(situation, job, pools, job.ref, None)
        return
    ahead, rest = job.tasks[: situation.policy.array_ahead], job.tasks[situation.policy.array_ahead :]
    enforced = situation.enforces(job.partitions, situation.budget_of(job.account))
    if not rest or not enforced or situation.policy.classes.is_spare(job.qos):
        for task in ahead:
            yield _one(situation, job, pools, f"{job.array_job_id}_{task}", task)
    if rest:
        # More tasks than are backed at a time, in one record: it is spare, and tasks leave it. If it is in a backed
        # QOS (submitted without a table, or before the switch-on), it goes back as a whole first.
        yield replace(_one(situation, job, pools, job.ref, rest[0]), obstacle=_array_ahead(situation))


def _array_ahead(situation: Situation) -> Reason:
    """Why what is left of a long array is spare."""
    return Reason("array-ahead", {"ahead": situation.policy.array_ahead})


def requeueable(policy: Policy, job: Job) -> bool:
    """Whether the job can be put back into the queue without ending what it is for."""
    qos = policy.classes.backed_of(job.qos) if policy.classes.is_managed(job.qos) else job.qos
    return job.can_requeue and not policy.interactive.matches(job.partitions, qos, job.name)


def contract_of(policy: Policy, job: Job, requeues: int = 0) -> tuple[int, Reason | None]:
    """Contract of a job in seconds, and why it cannot be backed whatever its budget has left (design 4.4).

    A job that we requeued as often in 24 h as one may be (``requeues``) gets the double, up to the cap: it is to come
    to something between two requeues, and pays for it.
    """
    if ASKED_SPARE in job.marker:
        return 0, Reason("declared-spare")
    try:
        declared = comment.declared_minimum(job.comment)
    except ValueError as error:
        return 0, Reason("unreadable-contract", {"text": str(error)})
    contract = comment.contract_of(
        declared,
        time_limit=job.time_limit,
        requeueable=requeueable(policy, job),
        default=policy.default_contract,
        cap=policy.cap,
    )
    if contract.kind is comment.ContractKind.MAY_BE_BACKED:
        again = requeueable(policy, job) and requeues >= policy.requeues_per_job_day
        longer = min(2 * contract.seconds, policy.cap) if again else contract.seconds
        return longer if job.time_limit is None else min(longer, max(job.time_limit, contract.seconds)), None
    limit = -1 if job.time_limit is None else job.time_limit
    numbers = {"cap": policy.cap, "contract": contract.seconds, "limit": limit}
    return 0, Reason(_OBSTACLES[contract.kind], numbers)


def _one(situation: Situation, job: Job, pools: tuple[str, ...], ref: str, task: int | None) -> Candidate:
    policy = situation.policy
    contract, obstacle = contract_of(policy, job, situation.requeues.get(job.ref, 0))
    rate = situation.pools.price(job.request, pools, job.partitions, largest=policy.charge_largest)
    length = comment.price_length(contract, policy.floor, job.time_limit)
    budget = situation.budget_of(job.account)
    signature = _signature(job, rate, contract)
    known = situation.admissions.get(ref)
    if known is not None and (known.signature != signature or known.key.submit != job.key.submit):
        known = None
    exempt = protection_of(job, situation.protections, situation.now)
    if exempt is not None:
        obstacle = None  # an operator's word goes above what it asked for, not above what Slurm lets it have
    return Candidate(
        ref=ref,
        job=job,
        budget=budget,
        pools=pools,
        price=Price(rate, length),
        contract=contract,
        signature=signature,
        obstacle=obstacle or _obstacle(situation, job, budget, known),
        eligible=could_start(job, situation.now, admitted=known is not None and known.work_class is WorkClass.BACKED),
        known=known,
        returning=ref in situation.returning,
        task=task,
        exempt=exempt,
    )


def _obstacle(situation: Situation, job: Job, budget: str | None, known: Admission | None) -> Reason | None:
    """Why the job is spare whatever its budget has left."""
    classes = situation.policy.classes
    if budget is None:
        return Reason("no-budget", {"account": job.account})
    if not situation.enforces(job.partitions, budget):
        return None
    if classes.is_spare(job.qos) and known is not None and _moved_by_user(known):
        return Reason("moved-by-user")
    backed = classes.backed_of(job.qos)
    if backed not in situation.snapshot.allowed_qos.get((job.account, job.user), frozenset()):
        return Reason("no-qos", {"account": job.account, "user": job.user, "qos": backed})
    return None


def _moved_by_user(known: Admission) -> bool:
    """Whether a job that we left backed, and that was in the backed QOS then, has been moved to spare since."""
    if known.reason.code == "moved-by-user":
        return True
    return known.work_class is WorkClass.BACKED and known.reason.numbers.get("was") == "backed"


def could_start(job: Job, now: int, *, admitted: bool = False) -> bool:
    """Whether Slurm could start it now: not held, dependencies met, begin time (nearly) reached, no "never"; one that
    was ``admitted`` is not given up for a reason that comes and goes."""
    if job.priority == 0 or job.eligible is None or job.eligible > now + SOON:
        return False
    if job.reason.startswith(COMES_AND_GOES) and not job.reason.startswith(RESERVED):
        return admitted
    return not job.reason.startswith(NEVER) and PER_JOB not in job.reason


def _signature(job: Job, rate: int, contract: int) -> str:
    """Everything that re-opens an admission when it changes (design 4.3); that it has a place from us does not."""
    limit = "-" if job.time_limit is None else job.time_limit
    request, reservation = job.request, job.reservation or "-"
    if reservation.startswith(OURS):
        request, reservation = replace(request, special=None), "-"
    return f"{job.account}|{','.join(job.partitions)}|{limit}|{_asked(request)}|{reservation}|{rate}|{contract}"


@lru_cache(maxsize=8192)
def _asked(r: Request) -> str:
    """The request's part of it: a queue has few different ones."""
    parts = (
        r.nodes_min,
        r.nodes_max,
        r.gpus,
        r.gpus_per_node,
        r.gpu_type,
        r.cpus,
        r.memory_mb,
        r.special,
        r.units,
        "/".join("&".join(sorted(group)) for group in r.features) or None,
        ",".join(r.required) or None,
        ",".join(sorted(r.excluded)) or None,
    )
    return "|".join("-" if p is None else str(p) for p in parts)
