"""The state as the real edges would present it: the values of ``domain/model.py``."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import (
    LIVE,
    Controller,
    Job,
    JobState,
    Node,
    Partition,
    Request,
    RunKey,
    Snapshot,
    Tres,
)
from pyslurm_budget.simulate.accounting import tres_of
from pyslurm_budget.simulate.place import need_of
from pyslurm_budget.simulate.records import never_met, waits_for
from pyslurm_budget.simulate.shapes import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyslurm_budget.simulate.shapes import ClusterSpec, SubmitSpec
    from pyslurm_budget.simulate.state import NodeState, Record, State

NOT_WAITING = (*LIVE, JobState.OTHER)


def snapshot_of(state: State) -> Snapshot:
    """Everything."""
    return Snapshot(
        controller=controller_of(state),
        jobs=jobs_of(state),
        nodes=tuple(node_of(state, n) for n in state.nodes.values()),
        partitions=tuple(
            Partition(p.name, p.nodes, p.default, max_time=p.max_time, default_time=p.default_time)
            for p in state.spec.partitions
        ),
        reservations=tuple(state.reservations.values()),
        allowed_qos=allowed_qos(state.spec),
        parents=parents(state.spec),
        qos=frozenset(state.qos),
    )


def controller_of(state: State) -> Controller:
    """What slurmctld says of itself."""
    settings = state.settings
    text = {
        "ClusterName": settings.cluster,
        "KillWait": f"{settings.kill_wait} sec",
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
        "PriorityWeightQOS": str(settings.priority_weight_qos),
        "SchedulerParameters": f"bf_interval={settings.backfill_interval},bf_max_job_test={settings.backfill_depth}",
    }
    if settings.min_exempt_priority is not None:
        text["PreemptParameters"] = f"min_exempt_priority={settings.min_exempt_priority}"
    return Controller(
        cluster=settings.cluster,
        now=state.now,
        release=settings.release,
        started=state.started,
        kill_wait=settings.kill_wait,
        weights=settings.priority_weight_qos,
        settings=MappingProxyType(text),
    )


def jobs_of(state: State) -> tuple[Job, ...]:
    """All records that slurmctld knows, by id."""
    return tuple(job_of(state, state.records[job_id]) for job_id in sorted(state.records))


def job_of(state: State, record: Record) -> Job:
    """One record; made anew only where it has changed."""
    reason = reason_of(state, record)
    if record.shown is None:
        record.shown = _job(state, record, reason)
    elif record.shown.reason != reason:
        record.shown = replace(record.shown, reason=reason)
    return record.shown


def reason_of(state: State, record: Record) -> str:
    """Why it waits, in Slurm's words; ``None`` (the word) while the scheduler has not looked."""
    if record.state in NOT_WAITING:
        return "None"
    if record.held:
        return record.held
    array = state.arrays.get(record.array_id) if record.array_id is not None else None
    early = record.eligible is not None and record.eligible > state.now
    words = (
        (record.completing, "None"),
        (never_met(state, record), "DependencyNeverSatisfied"),
        (waits_for(state, record), "Dependency"),
        (array is not None and array.full, "JobArrayTaskLimit"),
        (early, "BeginTime"),
        (record.reservation is not None and not _open(state, record), "Reservation"),
        (record.queued == state.passes, "None"),
        (state.heads.get(record.partition) == record.job_id or record.reservation is not None, "Resources"),
    )
    return next((word for applies, word in words if applies), "Priority")


def node_of(state: State, node: NodeState) -> Node:
    """One node. What completing jobs have not given back counts as used."""
    spec = node.spec
    return Node(
        name=spec.name,
        partitions=node.partitions,
        gpus=spec.gpus,
        gpu_type=spec.gpu_type,
        cpus=spec.cpus,
        memory_mb=spec.memory_mb,
        gpus_used=spec.gpus - node.gpus,
        cpus_used=spec.cpus - node.cpus,
        memory_used_mb=spec.memory_mb - node.memory_mb,
        features=spec.features,
        up=node.up,
        draining=node.draining,
        reserved=any(r.start <= state.now < r.end for r in node.reservations),
        reason=node.reason,
        reason_since=node.reason_since,
    )


def allowed_qos(spec: ClusterSpec) -> Mapping[tuple[str, str], frozenset[str]]:
    """QOS names by (account, user)."""
    by_name = {a.name: a for a in spec.accounts}
    found: dict[tuple[str, str], frozenset[str]] = {}
    for account in spec.accounts:
        at = account
        while at.qos is None and at.parent in by_name:
            at = by_name[at.parent]
        names = frozenset(q.name for q in spec.qos) if at.qos is None else frozenset(at.qos)
        found.update({(account.name, user): names for user in account.users})
    return MappingProxyType(found | dict(spec.allowed_qos))


def parents(spec: ClusterSpec) -> Mapping[str, str | None]:
    """The parent of each account."""
    return MappingProxyType({ROOT: None, **{a.name: a.parent for a in spec.accounts if a.name != ROOT}})


def request_of(spec: SubmitSpec) -> Request:
    """The request of a job, per array task."""
    need = need_of(spec)
    return Request(
        nodes_min=need.nodes,
        nodes_max=need.nodes_max,
        gpus=need.gpus,
        gpus_per_node=need.per_node,
        gpu_type=need.gpu_type,
        cpus=need.cpus,
        memory_mb=need.memory_mb,
        special="a dependency" if spec.after_ok is not None else None,
        features=spec.features,
        excluded=spec.excluded,
    )


def _open(state: State, record: Record) -> bool:
    reservation = state.reservations.get(record.reservation or "")
    return reservation is not None and reservation.start <= state.now < reservation.end


def _job(state: State, record: Record, reason: str) -> Job:
    spec, live = record.spec, record.state in LIVE
    request = request_of(spec)
    if record.reservation is not None:
        request = replace(request, special="a reservation")
    return Job(
        key=RunKey(record.job_id, record.submit),
        ref=record.ref,
        name=spec.name,
        user=spec.user,
        account=spec.account,
        qos=record.qos,
        partitions=(record.partition,),
        state=record.state,
        reason=reason,
        priority=state.priority(record),
        time_limit=record.limit,
        request=request,
        completing=record.completing,
        array_job_id=record.array_id,
        tasks=record.tasks if len(record.tasks) > 1 else (),
        throttle=_throttle(state, record),
        eligible=record.eligible,
        start=None if record.state is JobState.PENDING else record.start,
        requeueable=spec.requeue,
        batch=not spec.interactive,
        restarts=record.restarts,
        comment=record.comment,
        held_tres=tres_of(record) if live or record.completing else Tres(),
        allocation=record.shares if live else (),
        reservation=record.reservation,
        marker=record.marker,
        leaving=tuple(record.holds) if record.completing else (),
        ended=record.end if record.completing else None,
    )


def _throttle(state: State, record: Record) -> int | None:
    array = state.arrays.get(record.array_id) if record.array_id is not None else None
    return array.throttle if array is not None else None
