"""Everything that a cycle decides from: the snapshot, what the ledger knows, and the site's rules. One value."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain import engine
from pyslurm_budget.domain.model import Mode, WorkClass
from pyslurm_budget.domain.pool import PoolMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.books import History, Use
    from pyslurm_budget.domain.budget import BudgetTree
    from pyslurm_budget.domain.capacity import PoolCapacity
    from pyslurm_budget.domain.exempt import Protection
    from pyslurm_budget.domain.grant import Grant
    from pyslurm_budget.domain.model import Job, RunKey, Snapshot
    from pyslurm_budget.domain.plan import ActionKind, Admission
    from pyslurm_budget.domain.policy import Policy


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A running (or suspended) job with its frozen contract.

    ``work_class`` is the class that counts in the present mode. ``stoppable`` is false for runs that Slurm cannot
    requeue and for those that ran at the switch-on. ``requeued`` counts our requeues of the job in the last 24 h.
    ``withheld``: its partition or budget stays behind the site's enforce, so nothing is done to it.
    ``exempt_until``: nobody stops it before, whatever its class (``stoppable`` is false until then).
    ``reported`` is the last checkpoint that the job told of.
    """

    job: Job
    budget: str | None
    pool: str
    rate: int
    work_class: WorkClass
    start: int
    minimum: int
    protected_until: int
    stoppable: bool
    requeued: int = 0
    withheld: bool = False
    exempt_until: int | None = None
    reported: int | None = None

    def loss(self, now: int, cap: int) -> int:
        """Seconds of work that a stop would lose: since the last multiple of the contract, or the checkpoint that the
        job reported if that is later, at most ``cap``. A report never makes it more: nobody gains by a false one."""
        ran = max(0, now - self.start)
        since = ran % self.minimum if self.minimum > 0 else ran
        if self.reported is not None and self.reported >= self.start:
            since = min(since, max(0, now - self.reported))
        return min(since, cap)


@dataclass(frozen=True, slots=True)
class Requeued:
    """One of our requeues, as the ledger remembers it. ``state`` is that of the intent; ``gpus`` what was stopped."""

    at: int
    kind: ActionKind
    ref: str
    key: RunKey
    state: str
    budget: str | None
    for_ref: str | None
    for_budget: str | None
    gpus: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Situation:
    """What one cycle knows.

    ``uses`` is the use of every run that has not ended, cut nowhere, and the idle part of reservations; ``history``
    is what ended runs held.
    ``admissions`` are those of the last cycle, by ref.
    ``returning`` names pending jobs that come back with their class, first in their budget (after a drain or a node
    failure). ``requeued`` lists our requeues of the last 24 h, oldest first; ``tried`` the jobs for which Slurm found
    no place, with when that was; ``given_up`` the budgets whose collecting window was given up in that time.
    ``grants`` are those of which something may be left; what was booked of them stands in ``history``.
    ``borrowed`` is what left the charge because it was borrowed.
    ``protections`` are those in force.
    """

    snapshot: Snapshot
    policy: Policy
    mode: Mode
    tree: BudgetTree
    uses: tuple[Use, ...]
    runs: tuple[LiveRun, ...]
    capacities: Mapping[str, PoolCapacity]
    history: tuple[History, ...] = ()
    admissions: Mapping[str, Admission] = field(default_factory=lambda: MappingProxyType({}))
    returning: frozenset[str] = frozenset()
    requeued: tuple[Requeued, ...] = ()
    tried: tuple[tuple[str, int], ...] = ()
    grants: tuple[Grant, ...] = ()
    given_up: frozenset[str] = frozenset()
    protections: tuple[Protection, ...] = ()
    borrowed: tuple[History, ...] = ()
    next_sequence: int = 1

    @property
    def start_within(self) -> int:
        """Seconds that a job may take to start once runs are stopped for it: until they are gone, and some more."""
        return self.snapshot.controller.kill_wait + self.policy.start_deadline

    def room_made(self, ref: str, since: int) -> tuple[int, int] | None:
        """When runs were last stopped for a job, from ``since`` on, and in how many rounds; ``None``: never."""
        rounds = {r.at for r in self.requeued if r.for_ref == ref and r.at >= since}
        return (max(rounds), len(rounds)) if rounds else None

    @property
    def now(self) -> int:
        """slurmctld's clock."""
        return self.snapshot.now

    @cached_property
    def claims(self) -> bool:
        """Whether places are taken by claims; else by requeues."""
        return engine.engine(self.policy, self.snapshot.controller, self.snapshot.qos) == engine.CLAIM

    @property
    def enforcing(self) -> bool:
        """Whether jobs really are in the classes that we decide."""
        return self.mode is Mode.ENFORCE

    def mode_of(self, partitions: Iterable[str], budget: str | None) -> Mode:
        """The mode for work in these partitions that this budget pays for."""
        if not self.policy.modes:
            return self.mode
        return self.policy.modes.of(self.mode, partitions, self.tree.path_of(budget))

    def enforces(self, partitions: Iterable[str], budget: str | None) -> bool:
        """Whether such work really is in the class that we decide."""
        return self.mode_of(partitions, budget) is Mode.ENFORCE

    def withheld(self, partitions: Iterable[str], budget: str | None) -> bool:
        """Whether such work is left alone although the site enforces."""
        return self.enforcing and not self.enforces(partitions, budget)

    @cached_property
    def requeues(self) -> Mapping[str, int]:
        """How often we requeued each job in the last 24 h."""
        found: dict[str, int] = {}
        for entry in self.requeued:
            found[entry.ref] = found.get(entry.ref, 0) + 1
        return found

    @cached_property
    def pools(self) -> PoolMap:
        """The pools of the snapshot's nodes."""
        return PoolMap(self.policy.pools, self.snapshot.nodes, self.snapshot.partitions, self.policy.fractions)

    def budget_of(self, account: str) -> str | None:
        """The budget that pays for a Slurm account."""
        return self.tree.budget_of(account, self.snapshot.parents)
