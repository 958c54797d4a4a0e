"""Nodes, partitions and reservations as ``scontrol show ... -o`` prints them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from pyslurm_budget.domain.capacity import DRAINS, MARKS, is_down
from pyslurm_budget.domain.model import Node, Partition, Reservation
from pyslurm_budget.domain.times import parse_limit
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.fields import epoch, gpus_of, listed, main_type, node_names, text_of, tres_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

RESERVATION_PREFIX = "sbudget_"
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_/:]*)=(\S*)")
_REASON = re.compile(
    r" Reason=(?P<reason>.*?)(?: \[(?P<who>[^\]@]*)@(?P<when>[^\]]*)\])?"
    r"(?: +(?:ReservationName|Comment|Extra|InstanceId|InstanceType|TopologyInfo)=.*)?$",
    re.DOTALL,
)
_BASE_STATES = frozenset(
    {"IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN", "DRAINED", "DRAINING", "FAIL", "FAILING"}
)
_SET_ASIDE = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})


def nodes_of(text: str) -> tuple[Node, ...]:
    """Read ``scontrol show node -d -o``; raises SlurmOutputError naming what cannot be read; no node is a failure."""
    return _read("node", "NodeName", text, _node, None)


def partitions_of(text: str) -> tuple[Partition, ...]:
    """Read ``scontrol show partition -o``."""
    return _read("partition", "PartitionName", text, _partition, None)


def reservations_of(text: str) -> tuple[Reservation, ...]:
    """Read ``scontrol show reservation -o``; there may be none."""
    return _read("reservation", "ReservationName", text, _reservation, "No reservations in the system")


def _read(
    what: str, first: str, text: str, build: Callable[[Mapping[str, str], str], T], none: str | None
) -> tuple[T, ...]:
    """One value a record; a record begins with a line that begins with the key ``first``."""
    head, *records = re.split(rf"^(?={first}=)", text, flags=re.MULTILINE)
    if (head.strip() or not records) and not (none is not None and head.strip() == none and not records):
        raise SlurmOutputError(f"scontrol show {what}: cannot read {head.strip()[:160]!r}")
    found: list[T] = []
    for record in records:
        fields: dict[str, str] = {}
        for key, value in _FIELD.findall(record):
            fields.setdefault(key, value)
        try:
            found.append(build(fields, record.rstrip()))
        except (ValueError, KeyError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else error
            raise SlurmOutputError(f"scontrol show {what}: cannot read {record.strip()[:160]!r}: {why}") from error
    return tuple(found)


def _node(fields: Mapping[str, str], record: str) -> Node:
    """Build a node. Users cannot write into these records; Reason and Comment come after all that decides."""
    flags = _flags(fields["State"])
    total, used = tres_of(fields["CfgTRES"]), tres_of(fields["AllocTRES"])
    count, types = gpus_of(fields["Gres"])
    gpus, gpus_used = total.gpus or count, used.gpus or 0
    if not total.gpus and count:
        gpus_used = gpus_of(fields.get("GresUsed", ""))[0]
    reason = _REASON.search(record)
    mixed = len(types) > 1 and sum(types.values()) == gpus
    return Node(
        name=fields["NodeName"],
        partitions=listed(fields.get("Partitions", "")),
        gpus=gpus,
        gpu_type=main_type(types) or main_type(total.gpus_by_type),
        cpus=int(fields.get("CPUEfctv") or fields["CPUTot"]),
        memory_mb=int(fields["RealMemory"]),
        gpus_used=gpus_used,
        cpus_used=int(fields["CPUAlloc"]),
        memory_used_mb=int(fields["AllocMem"]),
        up=not is_down(flags),
        draining=bool(flags & DRAINS),
        reserved=bool(flags & _SET_ASIDE),
        reason=reason["reason"].strip() if reason else "",
        reason_since=epoch(reason["when"]) if reason and reason["when"] else None,
        gpus_by_type=types if mixed else {},
        used_by_type=gpus_of(fields.get("GresUsed", ""))[1] if mixed else {},
        features=frozenset(listed(fields.get("ActiveFeatures", ""))),
    )


def _flags(state: str) -> frozenset[str]:
    """Base state and flags of ``MIXED+DRAIN``, ``DOWN*+DRAIN``...; raises ``ValueError`` for an unknown base state.

    Flags that are not known are kept and mean nothing: releases add some. ``*`` is NOT_RESPONDING, ``~`` is
    POWERED_DOWN, which counts as in service (design 4.1).
    """
    base, *flags = state.split("+")
    found = {word.rstrip(MARKS) for word in (base, *flags)}
    if base.rstrip(MARKS) not in _BASE_STATES:
        raise ValueError(f"State={state}")
    if "*" in state:
        found.add("NOT_RESPONDING")
    if "~" in state:
        found.add("POWERED_DOWN")
    return frozenset(found)


def _partition(fields: Mapping[str, str], _record: str) -> Partition:
    """Build a partition."""
    return Partition(
        name=fields["PartitionName"],
        nodes=node_names(fields["Nodes"]),
        default=fields["Default"] == "YES",
        up=fields["State"] == "UP",
        max_time=parse_limit(fields["MaxTime"]),
        default_time=parse_limit(fields["DefaultTime"]),
    )


def _reservation(fields: Mapping[str, str], _record: str) -> Reservation:
    """Build a reservation."""
    name = fields["ReservationName"]
    start, end = epoch(fields["StartTime"]), epoch(fields["EndTime"])
    if not text_of(name) or start is None or end is None:
        raise ValueError(f"ReservationName={name} StartTime={fields['StartTime']} EndTime={fields['EndTime']}")
    held = tres_of(text_of(fields.get("TRES", "")))
    return Reservation(
        name=name,
        nodes=node_names(fields["Nodes"]),
        start=start,
        end=end,
        accounts=listed(fields["Accounts"]),
        flags=listed(fields["Flags"]),
        ours=name.startswith(RESERVATION_PREFIX),
        gpus=held.gpus or None,
        cpus=held.cpus or None,
    )
