"""The use cases of `sbudget setup` over ports: apply, and remove, which gives back what apply wrote down.

What is to be done is written down before it is done. If a step fails, what was not begun is taken out of the record:
`apply` then goes on where it was, and `remove` undoes what there is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Protocol

from pyslurm_budget.domain.engine import AUTO
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.errors import SlurmRefusedError, SlurmSetupError, UnfinishedError
from pyslurm_budget.service.setup import step_of
from pyslurm_budget.service.setup_claim import everything
from pyslurm_budget.service.setup_undo import (
    PluginRecord,
    Record,
    drop_qos,
    home_of,
    left_in,
    record_of,
    record_text,
    undo,
)
from pyslurm_budget.service.setup_verify import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyslurm_budget.domain.model import Job, Snapshot
    from pyslurm_budget.domain.policy import ClassMap
    from pyslurm_budget.service.setup import Change, SlurmFacts, Step

RECORD = "setup-record"
MOST_SHOWN = 5


class Admin(Protocol):
    """The accounting side of Slurm."""

    def facts(self) -> SlurmFacts:
        """Everything that the plan needs, or a failure."""

    def accepts(self, account: str, user: str, qos: str, partition: str) -> bool | None:
        """Whether slurmctld lets a user have a QOS; ``None`` where it says neither."""

    def do(self, step: Step) -> None:
        """Carry out one step; that it is so already is no failure."""


class Plugin(Protocol):
    """The submit plugin's file."""

    def is_ready(self) -> bool:
        """Whether jobs are judged by the plugin of this release."""

    def keep(self, known: PluginRecord | None, *, replace: bool) -> PluginRecord:
        """Keep a copy of the site's own file; returns what is to be written down before the file is replaced."""

    def install(self, *, replace: bool = False) -> str:
        """Put ours in, and say so."""

    def give_back(self, known: PluginRecord, *, needed: bool) -> str:
        """Give the site's own file back, and say so; ``needed``: slurmctld does not start without a file."""


class Live(Protocol):
    """The part of the live cluster that is read."""

    def snapshot(self) -> Snapshot:
        """Jobs and reservations, all of them or a failure."""


class Commands(Protocol):
    """The changes to jobs and reservations that are made (those of ``ports.Commands`` that are needed here)."""

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
        """Change one record; raises SlurmRefusedError."""

    def release(self, name: str) -> None:
        """Delete a reservation of ours."""


class Memory(Protocol):
    """Where the record lies: the ledger's small named values."""

    def get(self, name: str) -> str | None:
        """A value."""

    def put(self, name: str, value: str | None) -> None:
        """Set or remove a value."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One site. ``bound`` are the accounts of its budgets, ``None`` where there are none yet; ``say`` is told each
    change after it was made; ``pause`` waits some seconds."""

    classes: ClassMap
    bound: Collection[str] | None
    admin: Admin
    plugin: Plugin
    memory: Memory
    say: Callable[[str], None]
    pause: Callable[[float], None] = sleep
    engine: str = AUTO

    def record(self) -> Record:
        """What was begun so far; raises LedgerError if it cannot be read."""
        return record_of(self.memory.get(RECORD))

    def missing(self, facts: SlurmFacts) -> list[Change]:
        """What apply would make in slurmdbd."""
        return everything(facts, self.classes, self.bound, self.record().made, engine=self.engine)

    def apply(self, facts: SlurmFacts, *, replace: bool = False) -> int:
        """Make what is missing, and return how many changes that were. Raises what a step raises."""
        record, changes = self.record(), self.missing(facts)
        self._write(record.with_changes(changes))
        begun: list[Change] = []
        try:
            for change in changes:
                begun.append(change)
                step = step_of(change, facts.cluster)
                self.admin.do(step)
                self.say(step.says)
        finally:
            self._write(record.with_changes(begun))
        if changes:
            facts = self._read_back()
        # Before the plugin, by which jobs get these QOS, and also where an apply before this one found it wanting.
        wait_for(facts, self.classes, self.admin.accepts, self.pause)
        return len(changes) + self._install(replace=replace)

    def _read_back(self) -> SlurmFacts:
        """Look whether all is there: sacctmgr may end with 0 and leave something out."""
        facts = self.admin.facts()
        if still := self.missing(facts):
            says = step_of(still[0], "").says
            raise SlurmSetupError(f"sacctmgr reported no failure, and yet this is still to be done: {says}")
        return facts

    def _install(self, *, replace: bool) -> int:
        if self.plugin.is_ready():
            return 0
        record = self.record()
        self._write(Record(record.changes, self.plugin.keep(record.plugin, replace=replace)))
        self.say(self.plugin.install(replace=replace))
        return 1

    def _write(self, record: Record) -> None:
        self.memory.put(RECORD, record_text(record))

    def remove(self, live: Live, commands: Commands) -> None:
        """Give everything back; raises UnfinishedError if jobs still use a QOS of ours, which then stays."""
        facts, record = self.admin.facts(), self.record()
        applied = record != Record()
        if record.plugin is not None:
            needed = "lua" in facts.settings.get("JobSubmitPlugins", "").split(",")
            self.say(self.plugin.give_back(record.plugin, needed=needed))
            record = Record(record.changes)
            self._write(record)
        snapshot = live.snapshot()
        troubles = self._reservations(snapshot, commands)
        if applied:
            troubles += self._jobs(snapshot.jobs, record, facts, commands)
        for step in undo(record, facts):
            self._do(step)
        facts = self.admin.facts()
        if again := undo(record, facts):
            raise SlurmSetupError(f"sacctmgr reported no failure, and yet this is still to be done: {again[0].says}")
        self._drop(record, facts, live.snapshot().jobs, troubles)

    def _do(self, step: Step) -> None:
        self.admin.do(step)
        self.say(step.says)

    def _drop(self, record: Record, facts: SlurmFacts, jobs: Iterable[Job], troubles: list[str]) -> None:
        """Delete our QOS that no job uses; the others stay in the record."""
        steps, stay = drop_qos(record, facts, _users_of(jobs))
        for step in steps:
            self._do(step)
        self._write(left_in(record, facts, list(stay)))
        if stay or troubles:
            reasons = [f"QOS {name} stays: {why}" for name, why in stay.items()] + troubles
            raise UnfinishedError(
                f"{'; '.join(reasons[:MOST_SHOWN])}; run sbudget setup remove again when that is over"
            )

    def _reservations(self, snapshot: Snapshot, commands: Commands) -> list[str]:
        """Jobs leave our reservations, which would end them, and the reservations go; returns what was refused."""
        refused = []
        for reservation in snapshot.reservations:
            if not reservation.ours:
                continue
            try:
                for job in snapshot.jobs:
                    if job.reservation == reservation.name and job.state is not JobState.OTHER:
                        commands.update_job(job.ref, reservation="")
                commands.release(reservation.name)
                self.say(f"reservation {reservation.name} deleted")
            except SlurmRefusedError as error:
                refused.append(str(error))
        return refused

    def _jobs(self, jobs: Iterable[Job], record: Record, facts: SlurmFacts, commands: Commands) -> list[str]:
        """Pending jobs leave our QOS, all lose the order that we gave; returns the jobs that have nowhere to go.

        What Slurm refuses of one job is no trouble here: whether it still uses a QOS of ours is looked at later.
        """
        home = home_of(record, facts, self.classes)
        stuck, moved = [], Counter[str]()
        # Claims first: once nobody claims, runs that lose their shield are not open to anybody.
        for job in sorted(jobs, key=lambda j: j.qos != self.classes.claim):
            if not self.classes.is_managed(job.qos) or job.state is JobState.OTHER or job.completing:
                continue
            to = home(job.account, job.user, job.qos) if job.state is JobState.PENDING else job.qos
            if to is None:
                stuck.append(f"job {job.ref} of {job.user} may use no other QOS than {job.qos}")
                continue
            try:
                if to == job.qos:
                    commands.update_job(job.ref, site_factor=0)
                else:
                    # With the time limit: 25.05.6 to 25.11.4 replace it when the QOS changes.
                    commands.update_job(job.ref, qos=to, site_factor=0, time_limit=job.time_limit,
                                        unlimited=job.time_limit is None)  # fmt: skip
                    moved[f"{job.qos} to {to}"] += 1
            except SlurmRefusedError:
                continue
        for way, count in sorted(moved.items()):
            self.say(f"{count} pending jobs from QOS {way}")
        return stuck


def _users_of(jobs: Iterable[Job]) -> dict[str, str]:
    """By QOS the jobs that have it and did not end, in words."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        if job.state is not JobState.OTHER or job.completing:
            found.setdefault(job.qos, []).append(job.ref)
    return {qos: f"{len(refs)} jobs use it ({', '.join(refs[:MOST_SHOWN])})" for qos, refs in found.items()}
