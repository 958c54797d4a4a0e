"""Small builders of facts with sane defaults: nodes, jobs, runs, trees, snapshots and situations.

One cluster in miniature: partition ``gpu``, nodes of 8 a100, 64 CPUs and 512,000 MiB, budgets ``red`` and ``blue``
of one half each, QOS ``backed`` and ``spare``. Everything can be said otherwise by name.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.books import Books, Use
from pyslurm_budget.domain.budget import Budget, BudgetTree, ShareSince
from pyslurm_budget.domain.capacity import PoolCapacity
from pyslurm_budget.domain.model import (
    Controller,
    Job,
    JobState,
    Mode,
    Node,
    NodeShare,
    Partition,
    Request,
    RunKey,
    Snapshot,
    Tres,
    WorkClass,
)
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.domain.situation import LiveRun, Situation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NOW = 1_800_000_000  # a full hour
MINUTE = 60
HOUR = 3600
DAY = 24 * HOUR
POOL = "a100"
CPUS_PER_GPU = 8
MEMORY_PER_GPU = 64_000


def node(name: str = "n1", gpus: int = 8, **changes: Any) -> Node:
    """An idle node in partition ``gpu``; CPUs and memory go with its GPUs."""
    given: dict[str, Any] = {
        "name": name,
        "partitions": ("gpu",),
        "gpus": gpus,
        "gpu_type": POOL,
        "cpus": CPUS_PER_GPU * max(gpus, 1),
        "memory_mb": MEMORY_PER_GPU * max(gpus, 1),
    }
    return Node(**{**given, **changes})


def nodes(count: int, gpus: int = 8, **changes: Any) -> tuple[Node, ...]:
    """``n1``, ``n2``, ..."""
    return tuple(node(f"n{i}", gpus, **changes) for i in range(1, count + 1))


def partitions_of(of: Iterable[Node]) -> tuple[Partition, ...]:
    """The partitions that the nodes name; the first by name is the default."""
    found: dict[str, list[str]] = {}
    for n in of:
        for name in n.partitions:
            found.setdefault(name, []).append(n.name)
    return tuple(
        Partition(name, tuple(members), default=i == 0) for i, (name, members) in enumerate(sorted(found.items()))
    )


def pool_map(of: Sequence[Node], policy: Policy | None = None) -> PoolMap:
    """The pools of these nodes."""
    rules = policy or Policy()
    return PoolMap(rules.pools, tuple(of), partitions_of(of), rules.fractions)


def request(gpus: int = 1, **changes: Any) -> Request:
    """GPUs on one node, with their part of its CPUs and memory."""
    given: dict[str, Any] = {
        "nodes_min": 1,
        "nodes_max": 1,
        "gpus": gpus,
        "gpus_per_node": gpus or None,
        "cpus": CPUS_PER_GPU * max(gpus, 1),
        "memory_mb": MEMORY_PER_GPU * max(gpus, 1),
    }
    return Request(**{**given, **changes})


def pending(job_id: int = 1, gpus: int = 1, **changes: Any) -> Job:
    """A job of alice of ``red`` in QOS ``backed`` that waits for resources since an hour, with a limit of a day."""
    submit = changes.pop("submit", NOW - HOUR)
    given: dict[str, Any] = {
        "key": RunKey(job_id, submit),
        "ref": str(job_id),
        "name": "train",
        "user": "alice",
        "account": "red",
        "qos": "backed",
        "partitions": ("gpu",),
        "state": JobState.PENDING,
        "reason": "Resources",
        "priority": 1,
        "time_limit": DAY,
        "request": changes.pop("request", None) or request(gpus),
        "eligible": submit,
    }
    return Job(**{**given, **changes})


def array(job_id: int, tasks: Sequence[int], **changes: Any) -> Job:
    """The pending remainder of an array."""
    text = ",".join(str(t) for t in tasks)
    return pending(job_id, **{"ref": f"{job_id}_[{text}]", "array_job_id": job_id, "tasks": tuple(tasks), **changes})


def held(on: str = "n1", gpus: int = 1, **changes: Any) -> NodeShare:
    """A part of a node: GPUs with their CPUs and memory."""
    given: dict[str, Any] = {
        "cpus": CPUS_PER_GPU * max(gpus, 1),
        "memory_mb": MEMORY_PER_GPU * max(gpus, 1),
    }
    return NodeShare(on, gpus, **{**given, **changes})


def running(job_id: int = 101, *on: NodeShare, **changes: Any) -> Job:
    """A running job of bob of ``blue`` that started ten hours ago; by default one GPU of ``n1``."""
    shares = on or (held(),)
    start = changes.pop("start", NOW - 10 * HOUR)
    tres = Tres(
        cpus=sum(s.cpus for s in shares),
        memory_mb=sum(s.memory_mb for s in shares),
        nodes=len(shares),
        gpus=sum(s.gpus for s in shares),
    )
    given: dict[str, Any] = {
        "user": "bob",
        "account": "blue",
        "state": JobState.RUNNING,
        "reason": "",
        "submit": start,
        "start": start,
        "held_tres": tres,
        "allocation": shares,
        "time_limit": 7 * DAY,
    }
    return pending(job_id, tres.gpus or 0, **{**given, **changes})


def live(job: Job | None = None, minimum: int = HOUR, **changes: Any) -> LiveRun:
    """A backed run of a running job, by default past a contract of an hour."""
    of = job or running()
    start = of.start or 0
    given: dict[str, Any] = {
        "job": of,
        "budget": of.account,
        "pool": POOL,
        "rate": (of.held_tres.gpus or 0) * 1000,
        "work_class": WorkClass.SPARE if of.qos == "spare" else WorkClass.BACKED,
        "start": start,
        "minimum": minimum,
        "protected_until": start + minimum,
        "stoppable": of.can_requeue,
    }
    return LiveRun(**{**given, **changes})


def use(budget: str | None = "red", gpu_seconds: int = HOUR, **changes: Any) -> Use:
    """``gpu_seconds`` of eight GPUs (of one, where they cannot be divided; or of ``rate``), ended just now."""
    rate = changes.get("rate", 1000 if gpu_seconds % 8 else 8000)
    length = gpu_seconds * 1000 // rate
    if length > 7 * DAY and "start" not in changes:
        raise ValueError(f"{gpu_seconds} GPU-seconds at rate {rate} are longer than the window.")
    given: dict[str, Any] = {
        "budget": budget,
        "user": "alice" if budget == "red" else "bob",
        "pool": POOL,
        "rate": rate,
        "work_class": WorkClass.BACKED,
        "start": NOW - length,
        "end": NOW,
    }
    return Use(**{**given, **changes})


def share(of: str | int | Fraction, since: int = 0, pool: str = "*") -> ShareSince:
    """A share in force since the beginning."""
    return ShareSince(since, Fraction(of), pool)


def tree(**budgets: str | tuple[str | None, str] | Budget) -> BudgetTree:
    """Budgets by account: ``red="1/2"`` for a root, ``red=("org", "1/2")`` below another, or a whole Budget."""
    found: dict[str, Budget] = {}
    for account, given in (budgets or {"red": "1/2", "blue": "1/2"}).items():
        if isinstance(given, Budget):
            found[account] = given
        else:
            parent, part = given if isinstance(given, tuple) else (None, given)
            found[account] = Budget(account, parent, (share(part),))
    return BudgetTree(found)


def books(
    of: BudgetTree | None = None, policy: Policy | None = None, *, allowances: Mapping[str, int], now: int = NOW
) -> Books:
    """Books of one pool with the given allowances (mGPU-s by account) and no ceiling that is ever reached."""
    rules = replace(policy or Policy(), ceiling_part=Fraction(10**9))
    return Books(of or tree(), rules, {(a, POOL): n for a, n in allowances.items()}, {POOL: 10**6}, now)


def full(size: int, now: int = NOW, window: int = 7 * DAY) -> PoolCapacity:
    """A pool of ``size`` GPUs that was whole for the whole window."""
    begin, end = (now - window) // HOUR, now // HOUR
    return PoolCapacity(tuple((h * HOUR, (h + 1) * HOUR, size * HOUR) for h in range(begin, end)))


def occupied(of: Sequence[Node], jobs: Iterable[Job]) -> tuple[Node, ...]:
    """The nodes with what the running jobs hold of them."""
    found = {n.name: n for n in of}
    for job in jobs:
        for s in job.allocation:
            n = found[s.node]
            used = dict(n.used_by_type)
            for kind, count in s.by_type:
                used[kind] = used.get(kind, 0) + count
            found[s.node] = replace(
                n,
                used_by_type=used,
                gpus_used=n.gpus_used + s.gpus,
                cpus_used=n.cpus_used + s.cpus,
                memory_used_mb=n.memory_used_mb + s.memory_mb,
            )
    return tuple(found.values())


def snapshot(jobs: Sequence[Job] = (), on: Sequence[Node] | None = None, now: int = NOW, **changes: Any) -> Snapshot:
    """All jobs on all nodes (by default one), long after slurmctld's start; everybody may use both QOS."""
    at = occupied(on if on is not None else (node(),), jobs)
    pairs = {(j.account, j.user) for j in jobs}
    given: dict[str, Any] = {
        "controller": Controller("alpha", now, (24, 11, 5), now - DAY),
        "jobs": tuple(jobs),
        "nodes": at,
        "partitions": partitions_of(at),
        "allowed_qos": {pair: frozenset({"backed", "spare"}) for pair in pairs},
        "parents": {account: "root" for account, _ in pairs} | {"root": None},
    }
    return Snapshot(**{**given, **changes})


def situation(
    waiting: Sequence[Job] = (), runs: Sequence[LiveRun] = (), on: Sequence[Node] | None = None, **changes: Any
) -> Situation:
    """Waiting jobs and runs in enforce mode; every pool was whole for the whole window.

    ``now`` moves the clock, ``parents`` and ``controller`` change the snapshot, everything else the situation.
    """
    now = changes.pop("now", NOW)
    policy = changes.get("policy", Policy())
    inside = {k: changes.pop(k) for k in ("controller", "parents", "allowed_qos", "partitions") if k in changes}
    shot = snapshot([*waiting, *(r.job for r in runs)], on, now, **inside)
    pools = PoolMap(policy.pools, shot.nodes, shot.partitions, policy.fractions)
    given: dict[str, Any] = {
        "snapshot": shot,
        "policy": policy,
        "mode": Mode.ENFORCE,
        "tree": tree(),
        "uses": (),
        "runs": tuple(runs),
        "capacities": {pool: full(int(pools.size(pool)), now, policy.window) for pool in pools.members},
    }
    return Situation(**{**given, **changes})
