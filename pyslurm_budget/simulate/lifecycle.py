"""The life of a job record: waiting, started, stopped, completing, and back in the queue or gone.

A stopped run's row ends at once. Its nodes stay taken until its processes are gone (its own time, at most KillWait)
and the epilog is over; only then a requeued job is really pending again, with a new Submit (slurm.md 3.3).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState
from pyslurm_budget.simulate.accounting import row_of
from pyslurm_budget.simulate.events import Turn
from pyslurm_budget.simulate.place import give, take
from pyslurm_budget.simulate.records import refs_of, waits_for
from pyslurm_budget.simulate.state import NEVER, Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.domain.model import NodeShare
    from pyslurm_budget.simulate.state import NodeState, Record, State

HELD_BY_USER = "JobHeldUser"
HELD_BY_ADMIN = "JobHeldAdmin"
HELD_BY_RESERVATION = "ReservationDeleted"
KILL_TASK = "Kill task failed"


def _nobody() -> None:
    """Nobody to tell."""


class Lifecycle:
    """Moves records from one state to the next; ``on_change`` tells the scheduler that something may start now."""

    def __init__(self, state: State) -> None:
        """The scheduler is told by replacing ``on_change``."""
        self._s = state
        self.on_change: Callable[[], None] = _nobody

    # --- waiting

    def add(self, record: Record) -> None:
        """A new record: into the tables, and into the queue if it may start."""
        s = self._s
        s.records[record.job_id] = record
        if len(record.tasks) > 1:
            s.arrays[record.job_id] = Array(record.spec.throttle, record)
        elif record.tasks:
            s.arrays[record.job_id] = Array(record.spec.throttle, None, {record.tasks[0]: record})
        if record.spec.after_ok is not None:
            s.dependents.setdefault(record.spec.after_ok.partition("_")[0], []).append(record)
        self.refresh(record)

    def refresh(self, record: Record) -> None:
        """Work out anew whether a pending record may start, since when, and its place in the queue."""
        s = self._s
        self.withdraw(record)
        record.shown = None
        if record.state is not JobState.PENDING or record.completing:
            return
        array = s.arrays.get(record.array_id) if record.array_id is not None else None
        if record.held or waits_for(s, record) or (array is not None and array.full):
            record.eligible = None
        elif record.eligible is None:
            record.eligible = max(record.begin, s.now)
            if record.eligible > s.now:
                s.queue.at(record.eligible, Turn.TIMER, partial(self._due, record, record.submit))
        if record.eligible is not None and record.eligible <= s.now:
            s.enqueue(record)
            self.on_change()
        s.rows.write(s.now, row_of(record, state="PENDING"))

    def withdraw(self, record: Record) -> None:
        """Take a record out of the queue; whoever stands behind it may start now."""
        if record.place is not None:
            self._s.dequeue(record)
            self.on_change()

    def _due(self, record: Record, submit: int) -> None:
        if record.submit == submit:
            self.refresh(record)

    def split(self, record: Record, task: int) -> Record:
        """Make a record of its own of one pending task; the last one keeps the array's id."""
        s = self._s
        if len(record.tasks) == 1:
            return record
        array = s.arrays[record.job_id]
        own = replace(record, job_id=s.next_id, tasks=(task,), holds=[], place=None, shown=None)
        s.next_id += 1
        s.records[own.job_id] = own
        array.split[task] = own
        record.tasks = tuple(t for t in record.tasks if t != task)
        if len(record.tasks) == 1:
            array.rest = None
            array.split[record.tasks[0]] = record
        if own.spec.after_ok is not None:
            s.dependents.setdefault(own.spec.after_ok.partition("_")[0], []).append(own)
        self.refresh(record)
        self.refresh(own)
        return own

    # --- running

    def start(self, record: Record, shares: tuple[NodeShare, ...]) -> None:
        """Start a record, or the lowest task of an array's remainder, there."""
        s = self._s
        record.preempting_until = 0
        record = self.split(record, record.tasks[0]) if record.tasks else record
        s.dequeue(record)
        take(s.nodes, shares)
        record.state, record.start, record.since, record.worked = JobState.RUNNING, s.now, s.now, 0
        record.end, record.suspended, record.final, record.preempting_until = None, 0, "", 0
        record.shares, record.holds = shares, list(shares)
        record.by_type = self._types(shares)
        for share in shares:
            s.nodes[share.node].records[record.job_id] = record
        s.running[record.qos][record.job_id] = record
        self._count(record, 1)
        self.resume_work(record)
        exempt = s.qos[record.qos].exempt_time
        if exempt:
            s.queue.at(s.now + exempt, Turn.TIMER, self.on_change)
        record.shown = None
        s.rows.write(s.now, row_of(record, state="RUNNING"))
        s.log("start", record.ref, gpus=record.gpus, nodes=",".join(x.node for x in shares), qos=record.qos)

    def resume_work(self, record: Record) -> None:
        """Set the timer for its end: its own, or its time limit. Suspended time counts for neither."""
        s = self._s
        record.serial += 1
        rest = None if record.limit is None else max(0, record.limit - record.worked)
        record.ends = NEVER if rest is None else s.now + rest + s.settings.epilog
        left = record.spec.work - record.saved - record.worked
        state = "COMPLETED"
        if rest is not None and rest < left:
            left, state = rest, "TIMEOUT"
        s.queue.at(s.now + max(left, 0), Turn.END, partial(self._over, record, record.serial, state))

    def _over(self, record: Record, serial: int, state: str) -> None:
        if record.serial == serial and record.state is JobState.RUNNING:
            self.stop(record, state, kill=state == "TIMEOUT")

    def _types(self, shares: tuple[NodeShare, ...]) -> dict[str, int]:
        found: dict[str, int] = {}
        for share in shares:
            kind = self._s.nodes[share.node].spec.gpu_type
            if kind and share.gpus:
                found[kind] = found.get(kind, 0) + share.gpus
        return found

    def _count(self, record: Record, change: int) -> None:
        """Count a running task of an array; its throttle may let the remainder in or out."""
        if record.array_id is None:
            return
        array = self._s.arrays[record.array_id]
        was = array.full
        array.running += change
        if array.full != was:
            if array.rest is not None:
                self.refresh(array.rest)
            for own in list(array.split.values()):
                if own.state is JobState.PENDING and not own.completing and own is not record:
                    self.refresh(own)

    # --- stopped

    def interrupt(self, record: Record, state: str) -> None:
        """Slurm stops the run to put it back: by requeue, preemption or a node failure (the ``state`` of its row)."""
        if record.spec.on_sigterm == "exits" and state != "NODE_FAIL" and record.state is JobState.RUNNING:
            self.stop(record, "COMPLETED", kill=False)
            return
        if record.spec.checkpoint and record.can_requeue:
            done = record.saved + self.worked(record)
            record.saved = done - done % record.spec.checkpoint
        if record.state is JobState.SUSPENDED:
            record.held = HELD_BY_ADMIN
        record.restarts += record.can_requeue
        self.stop(record, state, kill=True, back=record.can_requeue)

    def worked(self, record: Record) -> int:
        """Seconds that its present run has worked."""
        return record.worked + (self._s.now - record.since if record.state is JobState.RUNNING else 0)

    def stop(self, record: Record, state: str, *, kill: bool, back: bool = False, by_uid: int | None = None) -> None:
        """End the run; the row is closed now, the nodes are given back when its processes are gone."""
        s = self._s
        if record.suspended_at is not None:
            record.suspended += s.now - record.suspended_at
            record.suspended_at = None
        record.end, record.final, record.back = s.now, state, back
        record.state = JobState.PENDING if back else JobState.OTHER
        record.serial += 1
        del s.running[record.qos][record.job_id]
        record.completing = True
        record.shown = None
        stops_in = s.settings.kill_wait if record.spec.stops_in is None else record.spec.stops_in
        record.ends = s.now + (min(stops_in, s.settings.kill_wait) if kill else 0) + s.settings.epilog
        for share in record.holds:
            s.nodes[share.node].completing += 1
        s.rows.write(s.now, row_of(record, state=state, end=s.now, by_uid=by_uid))
        s.log("stop", record.ref, state=state, gpus=record.gpus, back=int(back))
        self._count(record, -1)
        if not back:
            self.finished(record, state)
        if record.ends <= s.now:
            self.complete(record)
        else:
            s.queue.at(record.ends, Turn.END, partial(self._complete, record, record.serial))

    def finished(self, record: Record, state: str) -> None:
        """Remember how a job ended, and wake what depended on it."""
        s = self._s
        for ref in refs_of(record):
            s.finished[ref] = state
        for dependent in s.dependents.get(record.ref.partition("_")[0], ()):
            self.refresh(dependent)

    def _complete(self, record: Record, serial: int) -> None:
        if record.serial == serial:
            self.complete(record)

    def complete(self, record: Record) -> None:
        """Give back the nodes where nothing of the run is left; nodes that hang keep it."""
        s = self._s
        for share in list(record.holds):
            node = s.nodes[share.node]
            if not node.hangs:
                self.free(record, share)
            elif node.up and not node.draining:
                at = max(s.now, record.ends + s.settings.unkillable_timeout)
                s.queue.at(at, Turn.TIMER, partial(self._unkillable, record, record.serial, node))
        self.settle(record)

    def settle(self, record: Record) -> None:
        """Finish a completing record that holds nothing any more."""
        if record.completing and not record.holds:
            self._done(record)

    def free(self, record: Record, share: NodeShare) -> None:
        """Give one node back."""
        s = self._s
        node = s.nodes[share.node]
        record.holds.remove(share)
        record.shown = None
        give(s.nodes, (share,))
        node.completing -= 1
        del node.records[record.job_id]
        self.on_change()

    def _unkillable(self, record: Record, serial: int, node: NodeState) -> None:
        """slurmd gives up on processes that cannot be killed: the node is drained."""
        if record.serial == serial and node.hangs and not node.draining and record.job_id in node.records:
            node.draining, node.reason, node.reason_since = True, KILL_TASK, self._s.now
            self._s.log("node", node.name, state="drain", reason=KILL_TASK)

    def _done(self, record: Record) -> None:
        """The end is over: back into the queue, or gone after MinJobAge."""
        s = self._s
        record.completing = False
        record.shown = None
        s.log("free", record.ref, gpus=record.gpus)
        if not record.back:
            s.queue.at(s.now + s.settings.min_job_age, Turn.TIMER, partial(self._purge, record))
            return
        record.submit = max(s.now, record.submit + 1)
        record.begin = max(record.submit, s.now + s.settings.requeue_delay)
        record.eligible = record.start = record.end = None
        record.back = False
        s.log("pending", record.ref, begin=record.begin, submit=record.submit)
        self.refresh(record)

    def cancel(self, record: Record, by_uid: int) -> None:
        """scancel: a pending record goes at once, a run is killed, one that was on its way back does not come."""
        s = self._s
        if record.state in (JobState.RUNNING, JobState.SUSPENDED):
            self.stop(record, "CANCELLED", kill=True, by_uid=by_uid)
            return
        if record.completing:
            record.back, record.state = False, JobState.OTHER
            self._cancelled(record)
            return
        self.withdraw(record)
        record.end = s.now
        record.state = JobState.OTHER
        record.shown = None
        s.rows.write(s.now, row_of(record, state="CANCELLED", end=s.now, by_uid=by_uid))
        self._cancelled(record)
        s.queue.at(s.now + s.settings.min_job_age, Turn.TIMER, partial(self._purge, record))

    def _cancelled(self, record: Record) -> None:
        s = self._s
        record.final = "CANCELLED"
        record.shown = None
        s.log("cancelled", record.ref)
        if len(record.tasks) > 1:
            s.arrays[record.job_id].rest = None
        self.finished(record, "CANCELLED")

    def _purge(self, record: Record) -> None:
        """slurmctld forgets a record that ended some time ago."""
        self._s.records.pop(record.job_id, None)
