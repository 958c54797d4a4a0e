"""What a pending job asks for, from the fields of its record.

Slurm's totals (ReqTRES, in 22.05 TRES) say how much; NumNodes and the TresPer* fields say how it must lie on nodes.
Whatever else restricts where the job fits is named in ``special``: our placement then leaves the judgement to Slurm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Request
from pyslurm_budget.domain.slices import SHARD
from pyslurm_budget.domain.tres import parse_memory
from pyslurm_budget.slurm.fields import gpus_of, node_names, text_of, tres_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    Fields = Mapping[str, str]

_FEATURE = re.compile(r"[A-Za-z0-9_.:=+-]+", re.ASCII)
_RANGE = re.compile(r"([0-9]+)(K?)(?:-([0-9]+)(K?))?", re.ASCII)
_TRES_PER = ("TresPerJob", "TresPerNode", "TresPerSocket", "TresPerTask")
_JUDGED = frozenset({"gpu", "cpu", "mem", "node", "billing", "energy"})

# Fields that restrict placement, with the value that restricts nothing, and the words for people.
_PLAIN = (
    ("Licenses", "", "licences"),
    ("Dependency", "", "a dependency"),
    ("Reservation", "", "a reservation"),
    ("Network", "", "a network"),
    ("Contiguous", "0", "contiguous nodes"),
    ("CoreSpec", "*", "reserved cores"),
    ("MinTmpDiskNode", "0", "local disk"),
    ("ReqB:S:C:T", "0:0:*:*", "sockets or cores"),
    ("Socks/Node", "*", "sockets"),
    ("TresPerSocket", "", "GPUs per socket"),
    ("NtasksPerTRES", "0", "tasks per GPU"),
    ("BurstBuffer", "", "a burst buffer"),
    ("Switches", "", "switches"),
    ("SegmentSize", "", "segments"),
)


def request_of(fields: Fields) -> Request:
    """The request of a job; raises ``ValueError`` for a value that cannot be read."""
    tres = tres_of(fields.get("ReqTRES", fields.get("TRES", "")))
    nodes_min, nodes_max = node_counts(fields)
    tasks = count_of(fields.get("NumTasks", "1"))
    least_cpus = nodes_min * count_of(fields.get("MinCPUsNode", "1"))
    per_node, types = _per_node(fields)
    gpus = max(tres.gpus or 0, _by_fields("gpu", fields, nodes_min, tasks))
    with_gpu = {key: gpus_of(fields.get(key, ""))[0] for key in ("CpusPerTres", "MemPerTres")}
    cpus = max(tres.cpus, count_of(fields.get("NumCPUs", "1")), least_cpus, with_gpu["CpusPerTres"] * gpus)
    memory = tres.memory_mb or _memory_by_fields(fields, nodes_min, cpus)
    memory_by = "MinMemoryCPU" in fields or with_gpu["MemPerTres"]
    units = _units(fields, gpus, tasks, per_gpu=any(with_gpu.values()))
    features = features_of(fields.get("Features", ""))
    if not types and tres.gpus_by_type and "ReqTRES" in fields:
        types = set(tres.gpus_by_type)
    shared, sharing = _sharing(fields)
    return Request(
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        gpus=gpus,
        gpus_per_node=per_node,
        gpu_type=next(iter(types)) if len(types) == 1 else None,
        cpus=cpus,
        memory_mb=max(memory, with_gpu["MemPerTres"] * gpus),
        exclusive=not shared,
        special=_special(fields, types, sharing, even=tasks == nodes_min * _tasks_per_node(fields)),
        shards=max(tres.shards, _by_fields(SHARD, fields, nodes_min, tasks)),
        units=units,
        node_memory_mb=None if units is None or memory_by else parse_memory(fields.get("MinMemoryNode", "0")),
        features=features or (),
        required=node_names(fields.get("ReqNodeList", "")),
        excluded=frozenset(node_names(fields.get("ExcNodeList", ""))),
    )


def features_of(text: str) -> tuple[frozenset[str], ...] | None:
    """Groups of features of which a node must have all of one: ``a&b`` is one group, ``a|b`` two of one feature.

    ``None`` for what is neither: counts, brackets, and both operators in one text, which Slurm reads in ways of its
    own.
    """
    text = text_of(text)
    if not text:
        return ()
    if "&" in text and "|" in text:
        return None
    words = re.split("[&|]", text)
    if not all(_FEATURE.fullmatch(word) for word in words):
        return None
    return (frozenset(words),) if "&" in text else tuple(frozenset({word}) for word in words)


def _units(fields: Fields, gpus: int, tasks: int, *, per_gpu: bool) -> int | None:
    """In how many equal parts, each on one node, the request comes; ``None`` where that is not how it was asked."""
    if gpus_of(fields.get("TresPerNode", ""))[0]:
        return None
    if gpus_of(fields.get("TresPerTask", ""))[0]:
        return tasks
    return gpus if per_gpu and gpus else None


def _tasks_per_node(fields: Fields) -> int:
    """Tasks on each node, where they were asked so, else 0."""
    word = fields.get("NtasksPerN:B:S:C", "0").partition(":")[0]
    return int(word) if word.isdecimal() else 0


def node_counts(fields: Fields) -> tuple[int, int | None]:
    """Least and most nodes of NumNodes: ``1``, ``1-1``, ``2-3``; ``1`` alone leaves the most open for a GPU total.

    Slurm prints ``N`` where no most is set (and 22.05 also for a requeued ``-N3``): only a job that asks for GPUs as
    a total, or per task, and for no number of nodes can become wider than what is printed.
    """
    match = _RANGE.fullmatch(fields.get("NumNodes", ""))
    if match is None:
        raise ValueError(f"NumNodes={fields.get('NumNodes')}")
    least = max(1, int(match[1]) * (1024 if match[2] else 1))
    if match[3]:
        return least, max(least, int(match[3]) * (1024 if match[4] else 1))
    total = text_of(fields.get("TresPerJob", "")) or text_of(fields.get("TresPerTask", ""))
    total_only = bool(total) and not text_of(fields.get("TresPerNode", ""))
    return least, (None if total_only and least == 1 else least)


def count_of(value: str) -> int:
    """The least number of a count (``4``, ``4-8``, ``2K``); 1 where there is none."""
    if not text_of(value):
        return 1
    match = _RANGE.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a count")
    return int(match[1]) * (1024 if match[2] else 1)


def _per_node(fields: Fields) -> tuple[int | None, set[str]]:
    """GPUs per node, where they were asked so, and all GPU types that the request names."""
    types: set[str] = set()
    for key in _TRES_PER:
        types.update(gpus_of(fields.get(key, ""))[1])
    per_node = gpus_of(fields.get("TresPerNode", ""))[0]
    return (per_node or None), types


def _by_fields(name: str, fields: Fields, nodes: int, tasks: int) -> int:
    """The least total of a GRES by the TresPer* fields: where a site does not track it, ReqTRES has none."""
    return max(
        gpus_of(fields.get("TresPerJob", ""), name)[0],
        gpus_of(fields.get("TresPerNode", ""), name)[0] * nodes,
        gpus_of(fields.get("TresPerTask", ""), name)[0] * tasks,
        gpus_of(fields.get("TresPerSocket", ""), name)[0] * nodes,
    )


def _memory_by_fields(fields: Fields, nodes: int, cpus: int) -> int:
    """Total memory by MinMemoryNode or MinMemoryCPU, where the TRES has none (22.05 after a requeue)."""
    if "MinMemoryCPU" in fields:
        return parse_memory(fields["MinMemoryCPU"]) * cpus
    return parse_memory(fields.get("MinMemoryNode", "0")) * nodes


def _sharing(fields: Fields) -> tuple[bool, str | None]:
    """Whether others may run on the job's nodes, and the words for a sharing that is neither yes nor no.

    26.05 has Exclusive= and prints OverSubscribe=NO for every job; before, OverSubscribe=NO means exclusive nodes.
    """
    if "Exclusive" in fields:
        word = fields["Exclusive"]
        if word in ("NO", "NODE"):
            return word == "NO", None
    else:
        word = fields.get("OverSubscribe", "OK")
        if word in ("OK", "NO", "YES"):
            return word != "NO", "oversubscribed nodes" if word == "YES" else None
    return True, f"exclusive {word.lower()}"


def _special(fields: Fields, types: set[str], sharing: str | None, *, even: bool) -> str | None:
    """All that our placement cannot judge, in a few words; ``None`` for nothing. ``even`` says that the tasks fill
    their nodes evenly."""
    words = [label for key, neutral, label in _PLAIN if text_of(fields.get(key, neutral)) != neutral]
    if features_of(fields.get("Features", "")) is None:
        words.append("features with counts, brackets, or both & and |")
    sockets = fields.get("NtasksPerN:B:S:C", "0:0:*:*").partition(":")[2] != "0:*:*"
    if sockets or (_tasks_per_node(fields) and not even):
        words.append("tasks per node")
    if len(types) > 1:
        words.append("several GPU types")
    if sharing:
        words.append(sharing)
    if any(_other_gres(fields.get(key, "")) for key in _TRES_PER):
        words.append("other GRES")
    return ", ".join(words) or None


def _other_gres(value: str) -> bool:
    """Whether a TresPer* text names anything but GPUs, CPUs and memory."""
    items = [item.removeprefix("gres:").removeprefix("gres/") for item in text_of(value).split(",") if item]
    return any(re.split("[:=]", item, maxsplit=1)[0] not in _JUDGED for item in items)
