"""Cycles in miniature: a plan's updates are applied to the job records as Slurm would, and the next cycle is planned.

Splits arrays as Slurm does: a task that is updated alone leaves the record with its own one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.evaluate import Evaluation, evaluate
from pyslurm_budget.domain.model import Reservation
from pyslurm_budget.domain.plan import ActionKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.model import Job, Snapshot
    from pyslurm_budget.domain.plan import Action, Plan
    from pyslurm_budget.domain.situation import Situation


def _updated(job: Job, action: Action, natural: int) -> Job:
    """``natural`` is what Slurm's own weights give every job, beside our SiteFactor."""
    changed = job if action.qos is None else replace(job, qos=action.qos)
    return changed if action.site_factor is None else replace(changed, priority=natural + action.site_factor)


def remainder(job: Job, tasks: tuple[int, ...]) -> Job:
    """What is left of an array's record."""
    return replace(job, ref=f"{job.array_job_id}_[{','.join(map(str, tasks))}]", tasks=tasks)


def applied(jobs: Iterable[Job], actions: Iterable[Action], natural: int = 0) -> list[Job]:
    """The records after all updates; each must be expected as it is when the cycle begins."""
    found = list(jobs)
    begin = {job.ref: job for job in found} | {f"{j.array_job_id}_{t}": j for j in found for t in j.tasks}
    for action in actions:
        if action.kind.is_requeue or action.kind.is_about_place:
            continue
        if action.ref not in begin:
            raise AssertionError(f"{action.ref} names no record")
        assert (begin[action.ref].qos, begin[action.ref].state) == (action.expect_qos, action.expect_state)
        found = [after for job in found for after in _after(job, action, natural)]
    return found


def _after(job: Job, action: Action, natural: int) -> list[Job]:
    """One record after one update that may name it, one of its tasks, or the record that it came from."""
    if job.ref == action.ref:
        return [_updated(job, action, natural)]
    inside = [t for t in job.tasks if action.ref == f"{job.array_job_id}_{t}"]
    if inside:
        alone = replace(_updated(job, action, natural), ref=action.ref, tasks=())
        left = tuple(t for t in job.tasks if t not in inside)
        return [alone, remainder(job, left)] if left else [alone]
    named = action.ref.partition("_[")[2].rstrip("]").split(",")
    if job.array_job_id is not None and action.ref.startswith(f"{job.array_job_id}_["):
        tasks = job.tasks or (int(job.ref.partition("_")[2]),)
        if all(str(t) in named for t in tasks):  # split off in this very cycle, and named by the record's old name
            return [_updated(job, action, natural)]
    return [job]


def reserved(snapshot: Snapshot, jobs: Iterable[Job], actions: Iterable[Action]) -> Snapshot:
    """The snapshot with ``jobs``, after all that the actions do about places."""
    places = {place.name: place for place in snapshot.reservations}
    inside = {job.ref: job.reservation for job in jobs}
    for action in (a for a in actions if a.kind.is_about_place):
        assert action.reservation is not None
        if action.kind is ActionKind.RESERVE:
            assert action.start is not None and action.until is not None
            places[action.reservation] = Reservation(
                action.reservation, action.nodes, action.start, action.until, ours=True
            )
        elif action.kind is ActionKind.ENTER:
            inside[action.ref] = action.reservation
        else:
            del places[action.reservation]
            if action.ref in inside:
                inside[action.ref] = None
    taken = {node for place in places.values() if place.start <= snapshot.now for node in place.nodes}
    return replace(
        snapshot,
        jobs=tuple(replace(job, reservation=inside[job.ref]) for job in jobs),
        reservations=tuple(places.values()),
        nodes=tuple(replace(node, reserved=node.reserved or node.name in taken) for node in snapshot.nodes),
    )


def after(situation: Situation, plan: Plan) -> Situation:
    """The situation of the next cycle, half a minute later in all but the clock: no new events."""
    jobs = applied(situation.snapshot.jobs, plan.actions, situation.snapshot.controller.weights)
    snapshot = reserved(situation.snapshot, jobs, plan.actions)
    by_key = {job.key: job for job in snapshot.jobs}
    return replace(
        situation,
        snapshot=snapshot,
        runs=tuple(replace(run, job=by_key[run.job.key]) for run in situation.runs),
        admissions={a.ref: a for a in plan.admissions},
        next_sequence=1 + max((a.sequence for a in plan.admissions), default=0),
    )


def cycles(situation: Situation, count: int) -> tuple[Situation, Evaluation]:
    """After so many cycles: the situation, and what the next one decides."""
    for _ in range(count):
        situation = after(situation, evaluate(situation).plan)
    return situation, evaluate(situation)


def updates(plan: Plan) -> list[tuple[ActionKind, str]]:
    """The updates of a plan, requeues left out."""
    return [(a.kind, a.ref) for a in plan.actions if not a.kind.is_requeue]
