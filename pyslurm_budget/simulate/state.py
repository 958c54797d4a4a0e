"""The state of a simulated cluster: nodes, job records, the waiting lists. Changed by the other modules."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState
from pyslurm_budget.simulate.accounting import Rows
from pyslurm_budget.simulate.events import EventQueue
from pyslurm_budget.simulate.refs import ref_of
from pyslurm_budget.simulate.shapes import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyslurm_budget.domain.model import Job, NodeShare, Reservation
    from pyslurm_budget.simulate.shapes import ClusterSpec, NodeSpec, PartitionSpec, QosSpec, SubmitSpec

Key = tuple[int, int, int, int, int]
NEVER = 1 << 62
"""A time that does not come."""


@dataclass(slots=True, eq=False)
class NodeState:
    """One node: what is free of it, and whose jobs hold the rest. ``completing`` counts completing jobs."""

    spec: NodeSpec
    index: int
    partitions: tuple[str, ...]
    gpus: int
    cpus: int
    memory_mb: int
    up: bool = True
    draining: bool = False
    hangs: bool = False
    completing: int = 0
    reason: str = ""
    reason_since: int | None = None
    records: dict[int, Record] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.spec.name


@dataclass(slots=True, eq=False)
class Record:
    """One job record of slurmctld; a new run of a requeued job is the same record with a new ``submit``.

    ``held`` is the reason of a hold, empty for none. ``holds`` are the shares whose nodes are still taken, ``shares``
    those of the present or last run. ``ends`` is when it gives back its nodes at the latest, by
    its time limit or KillWait. ``since`` is when it began or went on working, ``worked`` the seconds before that
    in this run, ``saved`` those kept from earlier runs. ``queued`` is the number of the pass that it waits for.
    ``serial`` makes timers of an earlier state void. ``back``: whether the job returns to the queue when its end is
    over. ``final`` is the state in which it ended.
    """

    job_id: int
    spec: SubmitSpec
    partition: str
    qos: str
    site_factor: int
    limit: int | None
    submit: int
    array_id: int | None = None
    tasks: tuple[int, ...] = ()
    marker: str = ""
    comment: str = ""
    reservation: str | None = None
    state: JobState = JobState.PENDING
    completing: bool = False
    held: str = ""
    begin: int = 0
    eligible: int | None = None
    start: int | None = None
    end: int | None = None
    since: int = 0
    worked: int = 0
    saved: int = 0
    suspended: int = 0
    suspended_at: int | None = None
    ends: int = 0
    restarts: int = 0
    back: bool = False
    final: str = ""
    serial: int = 0
    preempting_until: int = 0
    shares: tuple[NodeShare, ...] = ()
    by_type: Mapping[str, int] = field(default_factory=dict)
    holds: list[NodeShare] = field(default_factory=list)
    place: Key | None = None
    queued: int = 0
    shown: Job | None = None
    nice: int = 0

    @property
    def ref(self) -> str:
        """The reference that addresses exactly this record."""
        return ref_of(self.job_id, self.array_id, self.tasks)

    @property
    def gpus(self) -> int:
        """GPUs of the present or last run."""
        return sum(share.gpus for share in self.shares)

    @property
    def can_requeue(self) -> bool:
        """Whether Slurm can put its run back into the queue."""
        return self.spec.requeue and not self.spec.interactive


@dataclass(slots=True)
class Array:
    """One array: its pending remainder if there is one, its split tasks, and how many of them run."""

    throttle: int | None
    rest: Record | None
    split: dict[int, Record] = field(default_factory=dict)
    running: int = 0

    @property
    def full(self) -> bool:
        """Whether its throttle lets no more tasks start."""
        return self.throttle is not None and self.running >= self.throttle


class State:
    """Everything that slurmctld and slurmdbd know."""

    def __init__(self, spec: ClusterSpec) -> None:
        """An empty cluster at its start time."""
        self.spec = spec
        self.settings = spec.settings
        self.queue = EventQueue(spec.settings.start)
        self.started = spec.settings.start
        self.rows = Rows(spec.settings.accounting_lag)
        self.events: list[Event] = []
        self.qos: dict[str, QosSpec] = {q.name: q for q in spec.qos}
        self.levels = _levels(self.qos)
        self.top_qos = max((q.priority for q in spec.qos), default=0)
        self.partitions: dict[str, PartitionSpec] = {p.name: p for p in spec.partitions}
        self.nodes: dict[str, NodeState] = {
            n.name: NodeState(
                n, i, tuple(p.name for p in spec.partitions if n.name in p.nodes), n.gpus, n.cpus, n.memory_mb
            )
            for i, n in enumerate(spec.nodes)
        }
        self.partition_nodes = {p.name: [self.nodes[name] for name in p.nodes] for p in spec.partitions}
        self.records: dict[int, Record] = {}
        self.arrays: dict[int, Array] = {}
        self.running: dict[str, dict[int, Record]] = {name: {} for name in self.qos}
        self.waiting: dict[str, list[Key]] = {name: [] for name in self.partitions}
        self.array_tasks: dict[str, tuple[int, ...]] = {}
        self.heads: dict[str, int] = {}
        self.passes = 0
        self.reservations: dict[str, Reservation] = {}
        self.dependents: dict[str, list[Record]] = {}
        self.submitted: dict[str, SubmitSpec] = {}
        self.finished: dict[str, str] = {}
        self.next_id = 1

    @property
    def now(self) -> int:
        """slurmctld's clock."""
        return self.queue.now

    def log(self, kind: str, ref: str, **detail: int | str) -> None:
        """Add to the event log."""
        if self.settings.keep_events:
            self.events.append(Event(self.queue.now, kind, ref, detail))

    def priority(self, record: Record) -> int:
        """QOS weight x normalized QOS priority + SiteFactor - nice, at least 1; 0 if held, also while it runs."""
        if record.held:
            return 0
        part = 0
        if self.top_qos:
            part = self.settings.priority_weight_qos * self.qos[record.qos].priority // self.top_qos
        return max(1, part + record.site_factor - record.nice)

    def enqueue(self, record: Record) -> None:
        """Put a record that could start into its waiting list.

        Slurm's order (job_scheduler.c:sort_job_queue2): jobs in reservations, then those that may preempt the others,
        then priority, then id.
        """
        level = self.levels[record.qos] + (len(self.qos) if record.reservation else 0)
        task = record.tasks[0] if record.tasks else 0
        key = (-level, -self.priority(record), record.array_id or record.job_id, task, record.job_id)
        record.place = key
        record.queued = self.passes
        insort(self.waiting[record.partition], key)

    def dequeue(self, record: Record) -> None:
        """Take a record out of its waiting list, if it is there."""
        if record.place is not None:
            keys = self.waiting[record.partition]
            del keys[bisect_left(keys, record.place)]
            record.place = None


def _levels(qos: dict[str, QosSpec]) -> dict[str, int]:
    """How far up each QOS stands: 0 if it preempts nothing, else one above all that it may preempt."""
    found: dict[str, int] = {}

    def level(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            raise ValueError(f"QOS Preemption loop detected: {' -> '.join((*path, name))}")
        if name not in found:
            found[name] = 1 + max((level(q, (*path, name)) for q in qos[name].preempts), default=-1)
        return found[name]

    for name in qos:
        level(name, ())
    return found
