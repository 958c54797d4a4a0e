"""What a simulated cluster is made of, and what can be submitted to it: plain values, checked when they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "root"
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({"nlp": ("alice",), "vision": ("bob",), "bio": ("carol",)})


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node; memory in MiB."""

    name: str
    gpus: int = 8
    gpu_type: str | None = "a100"
    cpus: int = 64
    memory_mb: int = 512_000
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """One partition; times in seconds, ``None`` for no limit and no default."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time: int | None = None
    default_time: int | None = None


@dataclass(frozen=True, slots=True)
class QosSpec:
    """One QOS. ``exempt_time`` is its PreemptExemptTime in seconds. ``within`` is PreemptMode=within: its pending
    jobs may also preempt runs of the same QOS whose priority is lower."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    exempt_time: int = 0
    within: bool = False


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """One account and its users. ``qos`` is what its users may use (``None``: as the parent's); ``default_qos`` is
    what a job without a QOS gets (``None``: the first of the list)."""

    name: str
    parent: str = ROOT
    users: tuple[str, ...] = ()
    qos: tuple[str, ...] | None = None
    default_qos: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the cluster; all times in seconds.

    ``schedule_delay`` is from a change to the main scheduler's pass (measured: 0.3 to 1 s), ``backfill_interval``
    bf_interval, ``backfill_depth`` bf_max_job_test, ``planned_jobs`` how many waiting jobs backfill plans for.
    ``preempt_again`` is how long a preemptor waits for its room before it may preempt again; ``None`` for KillWait +
    MessageTimeout, as Slurm does. ``completing_blocks``: a node with a completing job starts nothing
    (node_scheduler.c:_pick_best_nodes takes cg_node_bitmap out). ``rewrites_finished_row`` is the trap of 22.05 to
    25.11: a QOS given while a requeued job is still COMPLETING is written into the row of the run that has ended.
    ``unkillable_timeout``: when a hanging node is drained with "Kill task failed". ``accounting_lag``: how late rows
    reach slurmdbd. ``min_exempt_priority`` is that of PreemptParameters (23.02 and later).
    """

    start: int = 1_800_000_000
    cluster: str = "sim"
    release: tuple[int, int, int] = (24, 11, 5)
    kill_wait: int = 30
    epilog: int = 0
    requeue_delay: int = 121
    min_job_age: int = 300
    priority_weight_qos: int = 1000
    schedule_delay: int = 1
    backfill_interval: int = 30
    backfill_depth: int = 100
    planned_jobs: int = 2
    preempt_again: int | None = None
    min_exempt_priority: int | None = None
    completing_blocks: bool = True
    rewrites_finished_row: bool = True
    unkillable_timeout: int = 60
    accounting_lag: int = 0
    keep_events: bool = True


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A whole cluster. ``allowed_qos`` replaces the accounts' lists for single (account, user) pairs."""

    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...]
    accounts: tuple[AccountSpec, ...]
    qos: tuple[QosSpec, ...]
    settings: Settings = field(default_factory=Settings)
    allowed_qos: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class SubmitSpec:
    """What ``sbatch`` is told, and how the job will behave.

    ``work`` seconds is how long a run needs from its beginning. GPUs are asked per node (``gpus_per_node``) or in
    total (``gpus``, over ``nodes`` or more); ``cpus`` (``None``: one a node) and ``memory_mb`` are totals.
    ``time_limit`` in seconds, ``None`` for the partition's. ``array`` lists task ids, ``throttle`` is ``%n``.
    ``begin`` is the earliest start, ``after_ok`` the job or array that must have completed.

    ``on_sigterm``: ``exits`` is a job that ends by itself in the second of the signal, before the requeue takes
    effect: it is over. ``stops_in`` seconds its processes need to end (``None``: they wait for SIGKILL, KillWait
    later). ``checkpoint`` seconds of work are saved each time and kept across requeues. A node must
    have all of one group of ``features``, and not be ``excluded``.
    """

    user: str
    account: str
    work: int
    qos: str | None = None
    partition: str | None = None
    nodes: int = 1
    gpus: int = 0
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    cpus: int | None = None
    memory_mb: int = 0
    time_limit: int | None = None
    name: str = "job"
    comment: str = ""
    array: tuple[int, ...] = ()
    throttle: int | None = None
    begin: int | None = None
    after_ok: str | None = None
    hold: bool = False
    requeue: bool = True
    interactive: bool = False
    reservation: str | None = None
    on_sigterm: Literal["requeue", "exits"] = "requeue"
    stops_in: int | None = None
    checkpoint: int | None = None
    features: tuple[frozenset[str], ...] = ()
    excluded: frozenset[str] = frozenset()


class SubmitDecision(NamedTuple):
    """What a submit plugin decides: QOS (``None``: it leaves what was asked for), SiteFactor and AdminComment."""

    qos: str | None
    site_factor: int = 0
    marker: str = ""


SubmitHook = Callable[[SubmitSpec, int], SubmitDecision]
"""Stands for job_submit.lua: gets the request and slurmctld's time; raises SlurmRefusedError to refuse the job."""


class Event(NamedTuple):
    """One thing that happened. ``kind``: submit, refused, start, stop (the row ends; ``state``, ``gpus``), free (its
    nodes are given back), pending (in the queue again), update, suspend, resume, node, reservation, controller.

    ``ref`` is the job's reference (as in the ports) or the node's or reservation's name.
    """

    time: int
    kind: str
    ref: str
    detail: Mapping[str, int | str]


def small(
    nodes: int = 4,
    gpus: int = 8,
    groups: Mapping[str, tuple[str, ...]] = GROUPS,
    settings: Settings | None = None,
    *,
    claim: bool = False,
) -> ClusterSpec:
    """Equal nodes in one partition, with the QOS of an empty site (design section 3) and these groups."""
    names = tuple(f"n{i + 1}" for i in range(nodes))
    qos = [QosSpec("backed", 100, ("spare",)), QosSpec("spare", 1)]
    if claim:
        qos.append(QosSpec("claim", 100, ("spare", "backed"), within=True))
    return ClusterSpec(
        nodes=tuple(NodeSpec(name, gpus=gpus, cpus=8 * gpus, memory_mb=64_000 * gpus) for name in names),
        partitions=(PartitionSpec("gpu", names, default=True),),
        accounts=tuple(
            AccountSpec(name, users=users, qos=("backed", "spare"), default_qos="backed")
            for name, users in groups.items()
        ),
        qos=tuple(qos),
        settings=settings or Settings(),
    )
