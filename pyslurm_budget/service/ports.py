"""What the use cases need from the outside, as protocols. The simulator and the real edges implement the same ones.

*Failure is never empty*: every read either returns all of it or raises a :class:`pyslurm_budget.errors.SbudgetError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.row import row
from pyslurm_budget.service.counts import CountsLedger
from pyslurm_budget.service.protections import ProtectionLedger
from pyslurm_budget.service.usage import UsageLedger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyslurm_budget.domain.books import History
    from pyslurm_budget.domain.budget import Budget, ShareLoan
    from pyslurm_budget.domain.journal import Decision
    from pyslurm_budget.domain.model import Job, Mode, RunKey, RunRecord, Snapshot
    from pyslurm_budget.domain.plan import Action, Admission, Plan


class LiveCluster(Protocol):
    """Live reads of slurmctld (and the association lists of slurmdbd)."""

    def snapshot(self) -> Snapshot:
        """Read jobs, nodes, partitions, reservations and settings. Raises on any failure, never a partial answer."""

    def jobs(self) -> tuple[Job, ...]:
        """Read the job records alone: the fresh look just before and just after acting."""

    def job(self, ref: str) -> Job | None:
        """Read one record; ``None`` only if slurmctld says that it knows no such job."""


NEVER_OPENED = "not needed: it was never opened"
"""Outcome of a run that a round could have opened: nothing happened to it, so its story leaves that out."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """One update of one record; ``None`` leaves a value as it is. ``reservation`` ``""`` takes the job out of it.
    ``nice`` 0 takes back what the owner gave away of the job's priority."""

    ref: str
    qos: str | None = None
    site_factor: int | None = None
    time_limit: int | None = None
    unlimited: bool = False
    reservation: str | None = None
    nice: int | None = None

    @classmethod
    def of_job(
        cls, ref: str, qos: str | None, site_factor: int | None, time_limit: int | None, *, nice: int | None = None
    ) -> JobUpdate:
        """The update of a job whose time limit is ``time_limit`` (``None``: UNLIMITED), which goes with every QOS,
        because some releases reset it otherwise, and with nothing else."""
        if qos is None:
            return cls(ref, site_factor=site_factor, nice=nice)
        return cls(ref, qos, site_factor, time_limit, unlimited=time_limit is None, nice=nice)


class Commands(Protocol):
    """Changes to Slurm. Each raises SlurmRefusedError (this job, with Slurm's words) or a larger failure."""

    def update_job(
        self,
        ref: str,
        *,
        qos: str | None = None,
        site_factor: int | None = None,
        time_limit: int | None = None,
        unlimited: bool = False,
        reservation: str | None = None,
    ) -> None:
        """Change one record in one update. ``time_limit`` in seconds; ``unlimited`` sends UNLIMITED instead."""

    def update_many(self, updates: Sequence[JobUpdate]) -> Mapping[str, str]:
        """Change many records, each in one update; returns Slurm's words by the ref of each that it refused."""

    def requeue(self, ref: str) -> None:
        """``scontrol requeue Incomplete``: does nothing, and says nothing, if the run has ended already."""

    def let_go(self, ref: str) -> None:
        """``scontrol release``: end a hold, also that of a running job, whose owner can lower its priority so."""

    def reserve(
        self,
        name: str,
        *,
        nodes: Iterable[str],
        start: int,
        end: int,
        accounts: Iterable[str],
        idle: int | None = None,
    ) -> None:
        """Create a reservation of ours over nodes that may be busy. With ``idle``, Slurm deletes it by itself once it
        has begun and no job has been in it, running or waiting, for so many seconds (about: whole minutes)."""

    def release(self, name: str) -> None:
        """Delete a reservation of ours; no error if it is gone."""


class Accounting(Protocol):
    """Runs as slurmdbd has them."""

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """Every run that was alive or waiting in [since, until), duplicates (requeued runs) included. Raises at any
        point if the answer is not complete."""


@runtime_checkable
class ChangedAccounting(Accounting, Protocol):
    """Accounting that knows when each row was written."""

    def changed(self, since: int, jobs: Collection[int], written: int | None, oldest: int) -> Iterator[RunRecord]:
        """Every run that has not ended, or did at ``since`` or later, and all runs of ``jobs``; with ``written`` also
        those whose row was written then or later (its clock) and that ended at ``oldest`` or later. Raises at any
        point if the answer is not complete.

        What was changed without a trace is not in it, but for open runs: the reader must know which it has open
        (``jobs``), and now and then read everything. To look for what was written costs more than the rest."""


@dataclass(frozen=True, slots=True)
class RunPart:
    """What a run held of one pool and flavor: raw GPUs, and charged ones in thousandths."""

    pool: str | None
    flavor: str | None
    gpus: int
    rate: int


@row(frozen=True, slots=True)
class RunFacts:
    """One run as the ledger counts it.

    ``rate`` is the charged GPUs in thousandths, ``gpus`` the raw ones (``None``: unknown, and ``unknown`` says why).
    ``work_class`` is the class by the run's QOS, ``shadow`` the one it would have had, and ``charged_as`` the one
    that counts: the shadow of a run that ended while we only observed, else the class by QOS. ``parts`` is given
    where there are several: GPUs of more than one flavor. ``budget`` is the paying budget, ``None`` for none.

    The ledger sets the rest itself: ``protected_until`` is the end of the frozen contract; ``absent_since`` the first
    sync at which accounting had the run open although slurmctld did not know it, and ``charged_to`` where the charge
    of such a run ends (a runaway row).
    """

    key: RunKey
    job_ref: str
    account: str
    user: str
    qos: str
    budget: str | None
    pool: str | None
    state: str
    start: int | None
    end: int | None
    suspended: int
    gpus: int | None
    rate: int
    work_class: WorkClass
    shadow: WorkClass
    unknown: str | None = None
    time_limit: int | None = None
    nodes: tuple[str, ...] = ()
    gpu_type: str | None = None
    partition: str | None = None
    charged_as: WorkClass = WorkClass.BACKED
    parts: tuple[RunPart, ...] = ()
    protected_until: int | None = None
    absent_since: int | None = None
    charged_to: int | None = None


@dataclass(frozen=True, slots=True)
class ContractFacts:
    """A contract, frozen when its run was first seen (design 4.4).

    ``mode`` is the mode in which it was frozen. ``outcome`` is ``None`` while it runs, then ``kept``, ``ended`` (the
    run ended by itself before) or ``broken:<by what>``. ``stoppable`` is false for runs that cannot be requeued and
    for those that ran at the switch-on.
    """

    key: RunKey
    ref: str
    pool: str
    budget: str | None
    user: str
    work_class: WorkClass
    shadow: WorkClass
    rate: int
    start: int
    minimum: int
    protected_until: int
    stoppable: bool
    mode: Mode
    source: str
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """An action of the ledger: written before acting, closed after reading back.

    ``state`` is ``intent`` (not known to be carried out), ``sent`` (carried out, not yet read back), or closed:
    ``done``, ``skipped``, ``failed``, ``undone``, ``lost``. ``outcome`` is a short text for people.
    """

    id: int
    cycle: int
    at: int
    action: Action
    state: str
    outcome: str = ""
    closed: int | None = None


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One cycle: ``stages`` maps a stage's name to its microseconds; ``error`` is the sentence of a failed one."""

    id: int
    started: int
    finished: int | None
    mode: Mode
    applied: bool
    stages: Mapping[str, int]
    counts: Mapping[str, int]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SyncState:
    """How far the accounting has been read: ``watermark`` is where the next read begins."""

    watermark: int
    as_of: int
    complete: bool


# What is to be saved of a run (the second), where the ledger has the first; None: nothing.
News = Callable[["RunFacts | None", "RunFacts"], "RunFacts | None"]


class Ledger(UsageLedger, CountsLedger, ProtectionLedger, Protocol):
    """Facts and decisions. Every method is one transaction; a failure leaves nothing half-written."""

    def take_lease(self, holder: str, now: int, until: int) -> int:
        """Take or renew the lease and return its token; raises LeaseHeldError if another holder's is in force."""

    def drop_lease(self, holder: str) -> None:
        """Give the lease back."""

    def save_runs(self, runs: Iterable[RunFacts], state: SyncState | None = None, news: News = ...) -> int:
        """Upsert runs by key, keep the usage by hour exact, and move the watermark (not without a state, nor to one
        that is not complete from one that is), in one transaction; returns how many rows changed. The shadow class
        and the budget of a known run are kept as they were first written; an ended run's class too. ``news`` is asked
        for each run inside the transaction, where nobody else can write; without it all is saved."""

    def sync_state(self) -> SyncState | None:
        """State of the last complete read, ``None`` before the first."""

    def runs_between(self, start: int, end: int) -> tuple[RunFacts, ...]:
        """Runs that held something in [start, end): started before ``end`` and not ended by ``start``."""

    def open_runs(self) -> tuple[RunFacts, ...]:
        """Runs that started and have no end."""

    def runs_of(self, keys: Iterable[RunKey]) -> Mapping[RunKey, RunFacts]:
        """Runs by their keys; those that are not known are left out."""

    def last_runs(self, job_ids: Iterable[int]) -> Mapping[int, RunFacts]:
        """The newest run of each of these jobs (raw ids) that started; those without one are left out."""

    def history(self, marks: Sequence[int], now: int) -> tuple[History, ...]:
        """What *ended* runs held in [mark, now) for each of the ascending marks, by budget, user, pool and class."""

    def mark_absent(self, keys: Iterable[RunKey], now: int) -> int:
        """Note open runs that slurmctld does not know. Seen so twice, a run is charged until it was first missed, or
        to its time limit if that is earlier. Returns how many are at that point."""

    def runs_of_job(self, job_ref: str) -> tuple[RunFacts, ...]:
        """All runs of a job, oldest first. ``job_ref`` is a raw id or a readable one."""

    def save_contracts(self, contracts: Iterable[ContractFacts]) -> None:
        """Insert contracts that are not known yet (a known one is never changed), and set outcomes."""

    def contracts(self, keys: Iterable[RunKey] | None = None) -> tuple[ContractFacts, ...]:
        """Contracts of these runs; without keys, those without an outcome."""

    def save_admissions(self, admissions: Iterable[Admission]) -> None:
        """Replace the set of pending admissions by this one."""

    def admissions(self) -> tuple[Admission, ...]:
        """The admissions of the last cycle."""

    def record_plan(self, cycle: int, plan: Plan) -> None:
        """Store the plan's actions as ``planned`` rows of an observing cycle (shown, never carried out)."""

    def write_intents(self, cycle: int, now: int, actions: Iterable[Action]) -> tuple[Intent, ...]:
        """Write intents, and return them with their ids, before anything is done."""

    def move_intent(self, intent_id: int, state: str, outcome: str, now: int) -> None:
        """Advance one intent."""

    def move_intents(self, moves: Iterable[tuple[int, str, str]], now: int) -> None:
        """Advance many intents, each (id, state, outcome), in one transaction; closed ones stay as they are."""

    def open_intents(self) -> tuple[Intent, ...]:
        """Intents in state ``intent`` or ``sent``."""

    def intents(
        self, *, ref: str | None = None, since: int | None = None, kinds: Iterable[str] | None = None
    ) -> tuple[Intent, ...]:
        """Intents of a job, or since a time, oldest first, in any state."""

    def add_decisions(self, decisions: Iterable[Decision], now: int) -> None:
        """Add decisions to the record; those of long ago may be forgotten."""

    def decisions_of(self, refs: Iterable[str]) -> tuple[Decision, ...]:
        """The decisions about these jobs, oldest first."""

    def last_decisions(self, kind: str, refs: Iterable[str]) -> Mapping[str, Decision]:
        """The newest decision of a kind about each of these jobs."""

    def begin_cycle(self, started: int, mode: Mode, applied: bool) -> int:
        """Record the start of a cycle and return its id."""

    def end_cycle(self, record: CycleRecord) -> None:
        """Record its end."""

    def last_cycle(self, *, finished: bool = True) -> CycleRecord | None:
        """The newest (finished) cycle."""

    def budgets(self) -> tuple[Budget, ...]:
        """The budget tree's nodes with their share history; empty before the first ``budget apply``."""

    def save_budgets(self, budgets: Iterable[Budget], now: int, who: str, why: str) -> None:
        """Make this the tree; what changed is added to the history with who, when and why."""

    def share_loans(self, since: int = 0) -> tuple[ShareLoan, ...]:
        """Loans of shares that had not ended by ``since``."""

    def save_class_map(self, twins: Mapping[str, str], now: int) -> None:
        """Remember the class map (managed QOS and their spare twins) in force from ``now`` on, if it changed."""

    def get(self, name: str) -> str | None:
        """A small named value (``enforce_since``, ``breaker``, ``generation``...)."""

    def put(self, name: str, value: str | None) -> None:
        """Set or (``None``) remove a small named value."""


class Publisher(Protocol):
    """Where the decision table and the public state go."""

    def publish(self, table: str, state: str) -> None:
        """Replace both files atomically."""
