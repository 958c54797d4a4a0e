"""The facts of a snapshot, as values.

Units: times are seconds since the epoch (slurmctld's clock), durations seconds, memory mebibytes. A *rate* is charged
GPUs in thousandths (``MILLI`` = one GPU), so that an amount ``rate x seconds`` is an exact integer ("mGPU-s").
``None`` means "not known" or "no limit", as each field says; it never means 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.row import row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MILLI = 1000


class WorkClass(StrEnum):
    """Backed work is paid for and protected during its contract; spare work is free and always preemptible."""

    BACKED = "backed"
    SPARE = "spare"


class Mode(StrEnum):
    """Observe writes nothing; advise only talks at submit; enforce acts."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ENFORCE = "enforce"


class JobState(StrEnum):
    """The base states of a live job that decisions depend on; ``OTHER`` is any ended state."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    OTHER = "OTHER"


LIVE = (JobState.RUNNING, JobState.SUSPENDED)
"""States of a job that holds its nodes."""


@row(frozen=True, slots=True, order=True)
class RunKey:
    """Identity of a run: Slurm's raw job id and the submit time, which a requeue renews (design section 2)."""

    job_id: int
    submit: int


@dataclass(frozen=True, slots=True)
class Tres:
    """What a run holds or held. ``gpus`` are devices as Slurm counts them (a MIG slice is one), ``None`` where some
    were asked for but none were accounted; ``shards`` are shares of GPUs (``gres/shard``)."""

    cpus: int = 0
    memory_mb: int = 0
    nodes: int = 0
    gpus: int | None = 0
    gpus_by_type: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    shards: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What a pending job asks for, all tasks of one array element.

    ``gpus``, ``shards``, ``cpus`` and ``memory_mb`` are totals over all nodes. ``gpus_per_node`` is set where GPUs
    were asked per node. ``units`` is set where GPUs, CPUs and memory come in so many equal parts, each on one node:
    tasks (GPUs per task), or GPUs (CPUs per GPU); with ``node_memory_mb`` the memory is that of each node.

    A node must have all features of one group of ``features``; the ``required`` nodes are all used, and none of the
    ``excluded`` ones. ``special`` says in a few words why our own placement cannot judge the request (switches,
    sockets, licences...); ``None`` means that it can.
    """

    nodes_min: int = 1
    nodes_max: int | None = None
    gpus: int = 0
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    cpus: int = 1
    memory_mb: int = 0
    exclusive: bool = False
    special: str | None = None
    shards: int = 0
    units: int | None = None
    node_memory_mb: int | None = None
    features: tuple[frozenset[str], ...] = ()
    required: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What one job holds of one node; ``by_type`` are its GPUs by type, where it is known."""

    node: str
    gpus: int
    cpus: int
    memory_mb: int
    by_type: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One job record as slurmctld has it now.

    ``ref`` addresses exactly this record in Slurm's commands: ``"123"``, ``"100_7"`` for an array task (also after it
    was split off and got a raw id), ``"100_[3-9]"`` for the pending remainder of an array. ``tasks`` lists the
    pending task ids of such a remainder; ``throttle`` is how many tasks of the array may run at one time (``None``:
    all). ``time_limit`` is ``None`` for UNLIMITED. ``eligible`` is ``None`` where Slurm has set none (held,
    dependent). ``allocation`` is empty unless running or suspended. ``marker`` is the AdminComment, where our submit
    plugin notes what the user asked for. ``resized`` says that its size was changed since it was submitted (or put
    back): accounting has another row since then, the submit time of ``key`` is that of this row, and ``start`` is
    that of the job. ``leaving`` is what a completing job still holds, and ``ended`` when its run
    ended. ``expected`` is when Slurm's backfill expects a pending job to start (``None``: it does not say).
    """

    key: RunKey
    ref: str
    name: str
    user: str
    account: str
    qos: str
    partitions: tuple[str, ...]
    state: JobState
    reason: str
    priority: int
    time_limit: int | None
    request: Request
    completing: bool = False
    array_job_id: int | None = None
    tasks: tuple[int, ...] = ()
    throttle: int | None = None
    het: bool = False
    eligible: int | None = None
    start: int | None = None
    requeueable: bool = True
    batch: bool = True
    restarts: int = 0
    comment: str = ""
    held_tres: Tres = Tres()
    allocation: tuple[NodeShare, ...] = ()
    reservation: str | None = None
    marker: str = ""
    resized: bool = False
    leaving: tuple[NodeShare, ...] = ()
    ended: int | None = None
    expected: int | None = None

    @property
    def can_requeue(self) -> bool:
        """Whether Slurm can put the run back into the queue (interactive and --no-requeue runs would be killed)."""
        return self.batch and self.requeueable


def by_ref(jobs: Iterable[Job]) -> dict[str, Job]:
    """Records by ref; each pending task of an unsplit array also by its own."""
    found: dict[str, Job] = {}
    for job in jobs:
        found[job.ref] = job
        for task in job.tasks:
            found.setdefault(f"{job.array_job_id}_{task}", job)
    return found


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``in_service`` is false for DOWN, FAIL and *drained* nodes; a draining node still runs work.

    ``gpus`` are devices as Slurm counts them; ``gpu_type`` is the type of most of them, and ``gpus_by_type`` tells
    all, where there are several; ``used_by_type`` what is in use of them then. ``features`` are the active ones.
    """

    name: str
    partitions: tuple[str, ...]
    gpus: int
    gpu_type: str | None
    cpus: int
    memory_mb: int
    gpus_used: int = 0
    cpus_used: int = 0
    memory_used_mb: int = 0
    up: bool = True
    draining: bool = False
    reserved: bool = False
    reason: str = ""
    reason_since: int | None = None
    gpus_by_type: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    used_by_type: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    features: frozenset[str] = frozenset()

    @property
    def types(self) -> Mapping[str | None, int]:
        """Devices by type; ``None`` is no type."""
        return dict(self.gpus_by_type.items()) or {self.gpu_type: self.gpus}

    @property
    def in_service(self) -> bool:
        """Whether the node's GPUs count as capacity: up, and either taking work or still running it."""
        return self.up and (not self.draining or self.gpus_used > 0 or self.cpus_used > 0)

    @property
    def takes_work(self) -> bool:
        """Whether Slurm could start a job here."""
        return self.up and not self.draining and not self.reserved


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; ``max_time`` and ``default_time`` are seconds or ``None`` for no limit, no default."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    up: bool = True
    max_time: int | None = None
    default_time: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation; ``ours`` are those that this project made (their names start with its prefix). ``gpus`` and
    ``cpus`` are what it takes of its nodes, where Slurm says so."""

    name: str
    nodes: tuple[str, ...]
    start: int
    end: int
    accounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    ours: bool = False
    gpus: int | None = None
    cpus: int | None = None


@dataclass(frozen=True, slots=True)
class Controller:
    """What slurmctld says of itself: its clock, release (``(22, 5, 8)``), start, and the settings that rules use.

    ``weights`` is the sum of all PriorityWeight* settings: an upper bound of the priority that Slurm itself gives.
    """

    cluster: str
    now: int
    release: tuple[int, int, int]
    started: int
    kill_wait: int = 30
    preempt_type: str = "preempt/qos"
    preempt_mode: str = "REQUEUE"
    weights: int = 0
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent reading of the live cluster. A reader that could not read all of it raises instead.

    ``allowed_qos`` maps (account, user) to the QOS names of the association; ``parents`` maps each account to its
    parent account (``None`` for root); ``qos`` are the names of all QOS. All three come from slurmdbd.
    """

    controller: Controller
    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    reservations: tuple[Reservation, ...] = ()
    allowed_qos: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    parents: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    qos: frozenset[str] = frozenset()

    @property
    def now(self) -> int:
        """slurmctld's clock: the only time that decisions know."""
        return self.controller.now


@row(frozen=True, slots=True)
class RunRecord:
    """One accounting row (one run) as slurmdbd has it, GPUs raw, nothing cut to any window.

    ``start`` is ``None`` for a job that never started, ``end`` for one that still runs. ``job_ref`` is the readable
    id (``100_7``). ``by_uid`` is set where the row says who cancelled it. ``time_limit`` is ``None`` for none.

    A job that is resized gets another row, whose Submit is the time of the resize. Its Start stays that of the job,
    so what lies before Submit is in the rows before.
    """

    key: RunKey
    job_ref: str
    account: str
    user: str
    qos: str
    partition: str
    state: str
    eligible: int | None
    start: int | None
    end: int | None
    suspended: int
    time_limit: int | None
    tres: Tres
    requested_gpus: int
    nodes: tuple[str, ...]
    comment: str = ""
    by_uid: int | None = None

    @property
    def begun(self) -> int | None:
        """Since when the run holds what the row says. An end before Submit is that of a clock that was set back."""
        early = self.start is not None and self.start < self.key.submit
        return self.key.submit if early and (self.end is None or self.end >= self.key.submit) else self.start
