"""From a record of ``scontrol show job -d -o`` to a :class:`pyslurm_budget.domain.model.Job`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Job, JobState, NodeShare, RunKey, Tres
from pyslurm_budget.domain.times import parse_duration, parse_limit
from pyslurm_budget.domain.tres import parse_memory
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.fields import epoch, gpus_of, listed, node_names, numbers, ranges, text_of, tres_of
from pyslurm_budget.slurm.request import request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyslurm_budget.slurm.records import Record

    Limit = Callable[[tuple[str, ...]], int | None]

PARTITION_LIMIT = "Partition_Limit"
_NO_TASK = "4294967294"
# scontrol prints a flag, where the job has one, instead of its base state (slurm_protocol_defs.c: job_state_string).
_STATES: Mapping[str, JobState] = {
    "PENDING": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "EXPEDITING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "COMPLETED": JobState.OTHER,
    "CANCELLED": JobState.OTHER,
    "FAILED": JobState.OTHER,
    "TIMEOUT": JobState.OTHER,
    "NODE_FAIL": JobState.OTHER,
    "PREEMPTED": JobState.OTHER,
    "BOOT_FAIL": JobState.OTHER,
    "DEADLINE": JobState.OTHER,
    "OUT_OF_MEMORY": JobState.OTHER,
    "REVOKED": JobState.OTHER,
    "REQUEUE_FED": JobState.OTHER,
    "LAUNCH_FAILED": JobState.OTHER,
    "RECONFIG_FAIL": JobState.OTHER,
}
_ENDING = frozenset({"COMPLETING", "STAGE_OUT", "REQUEUED"})
_WAITS = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "Dependency", "DependencyNeverSatisfied"})


def job_of(record: Record, partition_limit: Limit) -> Job:
    """The job of a record; raises SlurmOutputError naming the job and what cannot be read.

    ``partition_limit`` gives the time limit of a job that asked for none, by its partitions.
    """
    try:
        return _job(record, partition_limit)
    except (ValueError, KeyError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise SlurmOutputError(f"scontrol show job: cannot read the record of job {record.job_id}: {what}") from error


def jobs_of(records: Iterable[Record], partition_limit: Limit) -> tuple[Job, ...]:
    """All jobs, in the order of the records."""
    return tuple(job_of(record, partition_limit) for record in records)


def needs_partitions(records: Iterable[Record]) -> bool:
    """Whether a job's time limit is its partition's."""
    return any(record.fields.get("TimeLimit") == PARTITION_LIMIT for record in records)


def _job(record: Record, partition_limit: Limit) -> Job:
    """Build the job; errors are ``ValueError`` or ``KeyError``."""
    fields = record.fields
    state, completing = _state(fields)
    partitions = listed(fields["Partition"])
    limit = fields["TimeLimit"]
    holds = state in (JobState.RUNNING, JobState.SUSPENDED)
    held = _held(fields) if holds or completing else Tres()
    submit = epoch(fields["SubmitTime"])
    if submit is None:
        raise ValueError(f"SubmitTime={fields['SubmitTime']}")
    resized = epoch(fields.get("ResizeTime", "")) or 0
    ref, array, tasks = _identity(fields)
    return Job(
        # A resize begins another row of accounting, as if it was submitted then; after a requeue it means nothing.
        key=RunKey(record.job_id, max(submit, resized)),
        ref=ref,
        name=fields["JobName"],
        user=text_of(fields["UserId"]) or fields["Uid"],
        account=text_of(fields["Account"]),
        qos=text_of(fields["QOS"]),
        partitions=partitions,
        state=state,
        reason=text_of(fields["Reason"]),
        priority=int(fields["Priority"]),
        time_limit=partition_limit(partitions) if limit == PARTITION_LIMIT else parse_limit(limit),
        request=request_of(fields),
        completing=completing,
        array_job_id=array,
        tasks=tasks,
        throttle=int(fields["ArrayTaskThrottle"]) if fields.get("ArrayTaskThrottle") else None,
        het="HetJobId" in fields,
        eligible=_eligible(fields, state),
        start=epoch(fields["StartTime"]) if _has_started(fields, state) else None,
        requeueable=fields["Requeue"] != "0",
        batch=fields["BatchFlag"] != "0",
        restarts=int(fields["Restarts"]),
        comment=fields["Comment"],
        held_tres=held,
        allocation=_allocation(record, held) if holds else (),
        reservation=text_of(fields.get("Reservation", "")) or None,
        marker=fields["AdminComment"],
        leaving=_leaving(record, held) if completing else (),
        ended=epoch(fields["EndTime"]) if completing else None,
        expected=epoch(fields["StartTime"]) if state is JobState.PENDING and not completing else None,
        resized=resized >= submit,
    )


def _state(fields: Mapping[str, str]) -> tuple[JobState, bool]:
    """The base state and whether the job is completing. scontrol prints the flag instead of the base state.

    A requeued job is PENDING and COMPLETING until its epilog is over; it is told from one that ended by its run time,
    which scontrol prints as 0 for whatever is pending (``slurm_sprint_job_info``), though its start and end differ.
    """
    word = fields["JobState"]
    if word in _ENDING:
        ran = epoch(fields["StartTime"]) != epoch(fields["EndTime"])
        again = ran and parse_duration(fields["RunTime"]) == 0
        return (JobState.PENDING if again else JobState.OTHER), True
    if word not in _STATES:
        raise ValueError(f"JobState={word}")
    return _STATES[word], False


def _identity(fields: Mapping[str, str]) -> tuple[str, int | None, tuple[int, ...]]:
    """The reference that addresses exactly this record, the array's id, and the tasks of a pending remainder."""
    if "HetJobId" in fields:
        return f"{fields['HetJobId']}+{fields['HetJobOffset']}", None, ()
    if "ArrayJobId" not in fields:
        return fields["JobId"], None, ()
    array, expression = fields["ArrayJobId"], fields["ArrayTaskId"].partition("%")[0]
    if expression == _NO_TASK:
        return fields["JobId"], int(array), ()
    tasks = numbers(expression)
    if expression.isdecimal():
        return f"{array}_{expression}", int(array), ()
    return f"{array}_[{ranges(tasks)}]", int(array), tasks


def _eligible(fields: Mapping[str, str], state: JobState) -> int | None:
    """When the job became (or becomes) eligible; ``None`` for one that is held or waits for another job."""
    waits = fields["Priority"] == "0" or fields["Reason"] in _WAITS
    if state is JobState.PENDING and waits:
        return None
    return epoch(fields["EligibleTime"])


def _has_started(fields: Mapping[str, str], state: JobState) -> bool:
    """Whether StartTime is a start: of a pending job it is a guess, of one cancelled before its start the end."""
    if state is JobState.PENDING:
        return False
    return state is not JobState.OTHER or bool(text_of(fields["NodeList"]))


def _held(fields: Mapping[str, str]) -> Tres:
    """What the job holds; its GPUs are unknown where it asked for some and none are accounted."""
    held = tres_of(fields.get("AllocTRES", fields.get("TRES", "")))
    if held.gpus == 0 and request_of(fields).gpus > 0:
        return replace(held, gpus=None)
    return held


def _allocation(record: Record, held: Tres) -> tuple[NodeShare, ...]:
    """What the job holds of each node, by the lines of ``-d``; without them, its total spread evenly."""
    found = [
        NodeShare(
            node,
            gpus_of(share.get("GRES", ""))[0],
            len(numbers(share["CPU_IDs"])),
            parse_memory(share["Mem"]),
            tuple(sorted(gpus_of(share.get("GRES", ""))[1].items())),
        )
        for share in record.shares
        for node in node_names(share["Nodes"])
    ]
    nodes = node_names(record.fields["NodeList"])
    if not found or (held.gpus and not any(share.gpus for share in found)):
        return _spread(nodes, held)
    if {share.node for share in found} != set(nodes):
        raise ValueError(f"NodeList={record.fields['NodeList']} differs from the nodes of its details")
    return tuple(found)


def _leaving(record: Record, held: Tres) -> tuple[NodeShare, ...]:
    """What a completing job still holds: NodeList are the nodes where it does, AllocTRES tells of all that it had."""
    nodes = node_names(record.fields["NodeList"])
    parts = max(held.nodes, len(nodes), 1)
    return tuple(NodeShare(n, (held.gpus or 0) // parts, held.cpus // parts, held.memory_mb // parts) for n in nodes)


def _spread(nodes: tuple[str, ...], held: Tres) -> tuple[NodeShare, ...]:
    """The total over the nodes, as evenly as whole numbers allow; the sums are kept."""
    count = len(nodes)

    def part(total: int, index: int) -> int:
        return total * (index + 1) // count - total * index // count

    return tuple(
        NodeShare(node, part(held.gpus or 0, i), part(held.cpus, i), part(held.memory_mb, i))
        for i, node in enumerate(nodes)
    )
