"""``scontrol`` and ``scancel`` on jobs, with Slurm's rules and words (slurm-live sections 1 to 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import LIVE, JobState
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.accounting import row_of
from pyslurm_budget.simulate.lifecycle import HELD_BY_USER
from pyslurm_budget.simulate.refs import parse
from pyslurm_budget.simulate.state import NEVER

if TYPE_CHECKING:
    from pyslurm_budget.service.ports import JobUpdate
    from pyslurm_budget.simulate.admission import Door
    from pyslurm_budget.simulate.lifecycle import Lifecycle
    from pyslurm_budget.simulate.state import Record, State

LARGEST_SITE_FACTOR = 2_147_483_645
FIRST_RECORD_ONLY = (24, 11, 0)


class Control:
    """Finds the records that a reference names, and changes them."""

    def __init__(self, state: State, lifecycle: Lifecycle, door: Door) -> None:
        """Acts on the state through the lifecycle."""
        self._s = state
        self._life = lifecycle
        self._door = door

    def find(self, ref: str) -> Record | None:
        """The record that ``scontrol show job REF`` shows (first); a pending task's is its array's remainder."""
        found = self._named(ref, split=False)
        return next((r for r in found if r.ref == ref), found[0] if found else None)

    def update(self, u: JobUpdate) -> None:
        """One update. Of several records 24.11 and later give only the first the QOS, and say nothing; running tasks
        of an array are passed over by its bare id (before 24.11 they are refused after the others have changed)."""
        records = self._records(u.ref)
        newer = self._s.settings.release >= FIRST_RECORD_ONLY
        late: SlurmRefusedError | None = None
        if len(records) > 1:
            records = [r for r in records if r.state is not JobState.OTHER]
            if newer and u.qos is not None:
                records = [r for r in records if r.state is JobState.PENDING] or records[:1]
        for i, record in enumerate(records):
            own = u if i == 0 or not newer else replace(u, qos=None)
            try:
                self._update(record, own)
            except SlurmRefusedError as error:
                if len(records) == 1:
                    raise
                late = late or error
        if late is not None:
            raise late

    def _update(self, record: Record, u: JobUpdate) -> None:
        """Check all of it, then change all of it."""
        s = self._s
        self._check(record, u)
        if u.qos is not None:
            self._set_qos(record, u.qos)
        if u.site_factor is not None:
            record.site_factor = u.site_factor
        if u.unlimited or u.time_limit is not None:
            record.limit = None if u.unlimited else u.time_limit
        if u.reservation is not None:
            record.reservation = u.reservation or None
        if u.nice is not None:
            record.nice = u.nice
        s.log("update", record.ref, qos=record.qos, site_factor=record.site_factor)
        self._changed(record)

    def _check(self, record: Record, u: JobUpdate) -> None:
        """Raise Slurm's refusal."""
        name = record.ref
        if record.state is JobState.OTHER:
            raise _refused("update", name, "Job has already finished")
        if u.qos is not None and u.qos not in self._s.qos:
            raise _refused("update", name, f"Invalid qos specification for job {name}")
        if u.qos is not None and u.qos != record.qos and record.state is not JobState.PENDING:
            raise _refused("update", name, f"Job is no longer pending execution for job {name}")
        if u.site_factor is not None and abs(u.site_factor) > LARGEST_SITE_FACTOR:
            raise _refused("update", name, f"Invalid SiteFactor, value ignored for job {name}")
        if u.reservation:
            self._door.check_reservation(u.reservation, record.spec.account)

    def _set_qos(self, record: Record, qos: str) -> None:
        s = self._s
        s.dequeue(record)
        record.qos = qos
        if record.completing and s.settings.rewrites_finished_row:
            s.rows.write(s.now, row_of(record, state=record.final, end=record.end))

    def _changed(self, record: Record) -> None:
        """After a change: a new place in the queue, or a new timer for the end of a run."""
        s = self._s
        record.shown = None
        if record.state is JobState.RUNNING:
            record.worked, record.since = self._life.worked(record), s.now
            self._life.resume_work(record)
        if record.state in LIVE:
            s.rows.write(s.now, row_of(record, state=str(record.state)))
        self._life.refresh(record)
        self._life.on_change()

    def requeue(self, ref: str, state: str = "REQUEUED") -> None:
        """``requeue Incomplete``: what does not run is left alone, without a word."""
        for record in self._records(ref):
            if record.state not in LIVE:
                continue
            if record.spec.interactive:
                raise _refused("requeue", ref, f"Only batch jobs are accepted or processed for job {ref}")
            if not record.spec.requeue:
                raise _refused("requeue", ref, f"Requested operation is presently disabled for job {ref}")
            self._life.interrupt(record, state)

    def cancel(self, ref: str, by_uid: int) -> None:
        """``scancel``; nothing happens to what has ended."""
        for record in self._records(ref):
            if record.state is not JobState.OTHER:
                self._life.cancel(record, by_uid)

    def hold(self, ref: str) -> None:
        """``scontrol hold``; a running job goes on, with priority 0 (slurm-live 11.5)."""
        for record in self._records(ref):
            if record.state in (JobState.PENDING, JobState.RUNNING):
                record.held = record.held or HELD_BY_USER
                record.shown = None
                self._life.refresh(record)
                self._life.on_change()

    def let_go(self, ref: str) -> None:
        """``scontrol release``; a begin time stays in force."""
        for record in self._records(ref):
            record.held = ""
            record.shown = None
            self._life.refresh(record)

    def suspend(self, ref: str) -> None:
        """``scontrol suspend``: the nodes stay taken."""
        s = self._s
        for record in self._records(ref):
            if record.state is not JobState.RUNNING:
                raise _refused("suspend", ref, f"Requested operation is presently disabled for job {ref}")
            record.worked = self._life.worked(record)
            record.state, record.suspended_at, record.ends = JobState.SUSPENDED, s.now, NEVER
            record.serial += 1
            record.shown = None
            s.log("suspend", record.ref)
            s.rows.write(s.now, row_of(record, state="SUSPENDED"))

    def resume(self, ref: str) -> None:
        """``scontrol resume`` of a suspended job."""
        s = self._s
        for record in self._records(ref):
            if record.state is not JobState.SUSPENDED:
                raise _refused("resume", ref, f"Requested operation is presently disabled for job {ref}")
            record.suspended += s.now - (record.suspended_at or s.now)
            record.state, record.suspended_at, record.since = JobState.RUNNING, None, s.now
            record.shown = None
            s.log("resume", record.ref)
            self._life.resume_work(record)
            s.rows.write(s.now, row_of(record, state="RUNNING"))

    def set_comment(self, ref: str, comment: str) -> None:
        """What the owner may do at any time, also to a running job."""
        for record in self._records(ref):
            record.comment = comment
            self._changed(record)

    def _records(self, ref: str) -> list[Record]:
        """All records that a command on this reference reaches, tasks split off where it names some of them."""
        found = self._named(ref, split=True)
        if not found:
            raise SlurmRefusedError(f"`scontrol` {ref}: Invalid job id specified")
        return found

    def _named(self, ref: str, *, split: bool) -> list[Record]:
        s = self._s
        words = parse(ref)
        if words is None:
            return []
        job_id, tasks = words
        array = s.arrays.get(job_id)
        if array is None:
            record = s.records.get(job_id)
            return [record] if record is not None and tasks is None else []
        rest = array.rest
        if tasks is None:
            return [*([rest] if rest else []), *(r for _, r in sorted(array.split.items()) if r.job_id in s.records)]
        if rest is not None and tasks == rest.tasks:
            return [rest]
        found: list[Record] = []
        for task in tasks:
            own = array.split.get(task)
            if own is None and array.rest is not None and task in array.rest.tasks:
                own = self._life.split(array.rest, task) if split else array.rest
            if own is not None and own.job_id in s.records:
                found.append(own)
        return found


def _refused(verb: str, ref: str, words: str) -> SlurmRefusedError:
    return SlurmRefusedError(f"`scontrol {verb}` {ref}: {words}")
