"""The simulated cluster: a small discrete-event Slurm behind the ports of the real one.

Whole seconds, no clock of its own and nothing random: time moves by :meth:`SimulatedCluster.run_until` alone, and the
same calls give the same history. What it does is what Slurm was measured to do (slurm-live, sections 0 to 7 and 11).
Not in it: het jobs, features, licences, jobs in several partitions, GraceTime, fair-share and age priorities.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from pyslurm_budget.errors import SbudgetError, SlurmctldError, SlurmdbdError, SlurmRefusedError
from pyslurm_budget.service.ports import JobUpdate
from pyslurm_budget.simulate import facts
from pyslurm_budget.simulate.admission import Door
from pyslurm_budget.simulate.check import violations
from pyslurm_budget.simulate.control import Control
from pyslurm_budget.simulate.events import Turn
from pyslurm_budget.simulate.lifecycle import Lifecycle
from pyslurm_budget.simulate.records import refs_of
from pyslurm_budget.simulate.scheduler import Scheduler
from pyslurm_budget.simulate.site import Site
from pyslurm_budget.simulate.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyslurm_budget.domain.holding import Holding, NodeEvent
    from pyslurm_budget.domain.model import Job, RunRecord, Snapshot
    from pyslurm_budget.simulate.shapes import ClusterSpec, Event, SubmitHook, SubmitSpec

Fault = Literal["live", "accounting", "commands"]


class SimulatedCluster:
    """Implements the ports of a cluster: ``LiveCluster``, ``Commands``, ``Accounting``, ``SiteHistory``.

    And does what users, operators and accidents do.
    """

    def __init__(self, spec: ClusterSpec, submit_hook: SubmitHook | None = None) -> None:
        """An empty cluster at ``spec.settings.start``. ``submit_hook`` stands for the submit plugin."""
        self._state = State(spec)
        self._life = Lifecycle(self._state)
        self._scheduler = Scheduler(self._state, self._life)
        self._door = Door(self._state, submit_hook)
        self._control = Control(self._state, self._life, self._door)
        self._site = Site(self._state, self._life)
        self._faults: dict[Fault, int] = {}

    # --- time

    @property
    def now(self) -> int:
        """slurmctld's clock, seconds since the epoch."""
        return self._state.now

    def run_until(self, time: int) -> None:
        """Let everything happen that is due up to and including ``time``; raises ValueError for a past one."""
        self._state.queue.run_until(time)

    def run_for(self, seconds: int) -> None:
        """Let so many seconds pass."""
        self.run_until(self.now + seconds)

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Do something at a later time, while time runs."""
        self._state.queue.at(time, Turn.TIMER, action)

    # --- users

    def submit(self, spec: SubmitSpec) -> str:
        """``sbatch``; returns the id that it prints. Raises SlurmRefusedError with Slurm's or the plugin's words."""
        s = self._state
        self._fault("commands")
        try:
            record = self._door.admit(spec)
        except SlurmRefusedError as error:
            s.log("refused", "-", user=spec.user, account=spec.account, why=str(error))
            raise
        s.next_id += 1
        ref = str(record.job_id)
        for one in refs_of(record):
            s.submitted[one] = spec
        if record.tasks:
            s.array_tasks[ref] = record.tasks
        s.log("submit", ref, user=spec.user, account=spec.account, qos=record.qos, tasks=max(1, len(record.tasks)))
        self._life.add(record)
        return ref

    def submit_at(self, time: int, spec: SubmitSpec) -> None:
        """``sbatch`` at a later time, while time runs; a refusal is in the event log."""
        self.at(time, partial(self._submit_later, spec))

    def _submit_later(self, spec: SubmitSpec) -> None:
        try:
            self.submit(spec)
        except SlurmRefusedError:
            return  # logged

    def cancel(self, ref: str, by_uid: int = 0) -> None:
        """``scancel``."""
        self._control.cancel(ref, by_uid)

    def hold(self, ref: str) -> None:
        """``scontrol hold``."""
        self._control.hold(ref)

    def release_job(self, ref: str) -> None:
        """``scontrol release`` of a held job, by its owner."""
        self._control.let_go(ref)

    def set_nice(self, ref: str, nice: int) -> None:
        """``scontrol update nice=``, which lowers the priority of the owner's job, also while it runs."""
        self._control.update(JobUpdate(ref, nice=nice))

    def suspend(self, ref: str) -> None:
        """``scontrol suspend``."""
        self._control.suspend(ref)

    def resume_job(self, ref: str) -> None:
        """``scontrol resume``."""
        self._control.resume(ref)

    def set_comment(self, ref: str, comment: str) -> None:
        """``scontrol update Comment=``, which an owner may also do to a running job."""
        self._control.set_comment(ref, comment)

    # --- operators and accidents

    def drain(self, node: str, reason: str = "repair") -> None:
        """Start nothing more on the node; running work stays."""
        self._site.drain(node, reason)

    def resume(self, node: str) -> None:
        """Undo a drain."""
        self._site.resume(node)

    def fail_node(self, node: str, reason: str = "Not responding") -> None:
        """The node dies; its runs end with NODE_FAIL."""
        self._site.fail(node, reason)

    def recover_node(self, node: str) -> None:
        """The node is back."""
        self._site.recover(node)

    def hang_node(self, node: str, *, hangs: bool = True) -> None:
        """From now on no completing job ends on the node (or, with ``hangs=False``, they do again)."""
        self._site.hang(node, hangs=hangs)

    def restart_controller(self) -> None:
        """slurmctld starts anew, with its state."""
        self._state.started = self.now
        self._state.log("controller", "slurmctld", state="started")

    def fail_reads(self, what: Fault, until: int) -> None:
        """Let ``live`` reads, ``accounting`` reads or ``commands`` fail before ``until``."""
        self._faults[what] = until

    # --- LiveCluster

    def snapshot(self) -> Snapshot:
        """See the port."""
        self._fault("live")
        return facts.snapshot_of(self._state)

    def jobs(self) -> tuple[Job, ...]:
        """See the port."""
        self._fault("live")
        return facts.jobs_of(self._state)

    def job(self, ref: str) -> Job | None:
        """See the port. An unsplit task's record is its array's remainder."""
        self._fault("live")
        record = self._control.find(ref)
        return None if record is None else facts.job_of(self._state, record)

    # --- Commands

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
        """See the port. An empty ``reservation`` takes the job out of its own."""
        self._fault("commands")
        self._control.update(JobUpdate(ref, qos, site_factor, time_limit, unlimited, reservation))

    def update_many(self, updates: Sequence[JobUpdate]) -> dict[str, str]:
        """See the port."""
        self._fault("commands")
        refused: dict[str, str] = {}
        for u in updates:
            try:
                self._control.update(u)
            except SlurmRefusedError as error:
                refused[u.ref] = str(error)
        return refused

    def requeue(self, ref: str) -> None:
        """See the port; owners use the same."""
        self._fault("commands")
        self._control.requeue(ref)

    def let_go(self, ref: str) -> None:
        """See the port."""
        self._fault("commands")
        self._control.let_go(ref)

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
        """See the port. Only jobs that are moved into the reservation may use its nodes."""
        self._fault("commands")
        self._site.reserve(name, tuple(nodes), start, end, tuple(accounts), idle=idle)

    def release(self, name: str) -> None:
        """See the port."""
        self._fault("commands")
        self._site.release(name)

    # --- Accounting

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """See the port."""
        self._fault("accounting")
        return self._state.rows.read(self.now, since, until)

    # --- SiteHistory

    def node_events(self, since: int, until: int) -> tuple[NodeEvent, ...]:
        """See the port."""
        self._fault("accounting")
        return self._site.past.events(since, until)

    def reservations(self, since: int, until: int) -> tuple[Holding, ...]:
        """See the port."""
        self._fault("accounting")
        return self._site.past.holdings(since, until)

    # --- Pace: a round of claims lets the cluster's time pass

    def milliseconds(self) -> int:
        """See the port."""
        return self.now * 1000

    def wait(self, milliseconds: int) -> None:
        """See the port; whole seconds."""
        self.run_for(-(-milliseconds // 1000))

    # --- for checkers

    @property
    def events(self) -> Sequence[Event]:
        """Everything that happened, in order."""
        return self._state.events

    def submission(self, ref: str) -> SubmitSpec:
        """What was submitted as this job or task."""
        return self._state.submitted[ref]

    def check(self) -> tuple[str, ...]:
        """One sentence for every broken invariant: a node over-committed, a job lost, a queue out of order."""
        return violations(self._state)

    def _fault(self, what: Fault) -> None:
        until = self._faults.get(what)
        if until is not None and self.now < until:
            raise self._failure(what)

    def _failure(self, what: Fault) -> SbudgetError:
        if what == "accounting":
            return SlurmdbdError("slurmdbd does not answer `sacct`: Problem talking to the database. (simulated)")
        return SlurmctldError("slurmctld does not answer: Unable to contact slurm controller. (simulated)")
