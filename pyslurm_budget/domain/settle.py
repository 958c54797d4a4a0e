"""What became of an intent: read back from the live job and, where it is gone, from its accounting row.

Pure, and the same for an intent of this cycle and for one that a dead controller left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.plan import ActionKind

if TYPE_CHECKING:
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.policy import Policy

Verdict = tuple[str, str]

# How a run ends when it is put back into the queue; all other ends are the job's own.
PUT_BACK = ("REQUEUED", "PREEMPTED", "NODE_FAIL")


def settle(
    action: Action, state: str, at: int, job: Job | None, *, ended_as: str | None, now: int, policy: Policy
) -> Verdict | None:
    """New state and a short text, or ``None`` while it cannot be told yet.

    ``state`` is ``intent`` or ``sent``, ``at`` the time it got it. ``job`` is the live record that the action's ref
    names now; ``ended_as`` the accounting state of the run that the action was about, if that run has ended.
    """
    if action.kind.is_requeue:
        return _requeue(action, state, at, job, ended_as=ended_as, now=now, policy=policy)
    if action.kind is ActionKind.CLAIM:
        return None  # the sweep's business: it knows the whole round
    if not action.kind.is_about_place:  # the reservation itself tells the next cycle
        if job is None or job.key.submit != action.key.submit:
            return "skipped", "the job had moved on"
        if action.qos is not None:
            if job.qos == action.qos:
                return "done", f"QOS is {job.qos}"
            return "undone", f"not carried out: QOS is {job.qos}, decided anew"
    return ("done", "") if state == "sent" else ("undone", "not carried out, decided anew")


def _requeue(
    action: Action, state: str, at: int, job: Job | None, *, ended_as: str | None, now: int, policy: Policy
) -> Verdict | None:
    if job is not None:
        return _live_requeue(action, state, at, job, now=now, policy=policy)
    if ended_as is not None and not ended_as.startswith(PUT_BACK):
        return "skipped", f"ended by itself ({ended_as}) before it could be requeued"
    if now - at > policy.lost_after:
        return "lost", "not in the queue any more, and its last run did not end by itself"
    return None


def _live_requeue(action: Action, state: str, at: int, job: Job, *, now: int, policy: Policy) -> Verdict | None:
    if job.completing:
        return None
    # A change of its size gives a run another submit time; what had begun before we asked was not put back.
    same_run = job.resized and job.start is not None and job.start <= at
    if job.key.submit != action.key.submit and not same_run:
        return "done", "waits again" if job.state is JobState.PENDING else "ran again"
    if job.state in (JobState.RUNNING, JobState.SUSPENDED):
        if state == "intent":
            return "undone", "not carried out: the run goes on, decided anew"
        return ("failed", "Slurm did not stop the run") if now - at > policy.lost_after else None
    if job.state is JobState.PENDING:
        return "done", "waits again"
    return "skipped", "ended by itself before it could be requeued"
