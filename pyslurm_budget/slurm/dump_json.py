"""Saved answers of ``sacct --json`` and of slurmrestd's ``/slurmdb/.../jobs``, by the data parser they name.

The shape changes from release to release (21.08: openapi/dbv0.0.37 ... 26.05: data_parser/v0.0.45): numbers that may
be unset or infinite became objects in 23.02, and the state became a list in 23.11. A parser that is not listed here
is an error: a shape that is only guessed would give wrong numbers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.domain.times import MINUTE
from pyslurm_budget.domain.tres import parse_tres
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.dump_run import NOBODY, asked_gpus, finished, held, read
from pyslurm_budget.slurm.dump_summary import RowError
from pyslurm_budget.slurm.fields import node_names, ranges, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyslurm_budget.slurm.dump_run import Options
    from pyslurm_budget.slurm.dump_summary import Summary

Json = Any
_PLUGIN = re.compile(r"(?:openapi/db|data_parser/)v0\.0\.([0-9]+)(\+.*)?")
_NO_VAL = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})


@dataclass(frozen=True, slots=True)
class Shape:
    """How one data parser writes a state (text or a list), and a number that may be unset (plain or an object)."""

    state_is_list: bool
    number_is_object: bool

    def state(self, value: Json) -> str:
        """The state as sacct's text has it: a flag such as REQUEUED wins over the base state before it."""
        if self.state_is_list:
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return str(value[-1])
        elif isinstance(value, str) and value:
            return value
        raise RowError("state cannot be read", repr(value))

    def number(self, value: Json) -> int | None:
        """A number; ``None`` where it is unset, infinite or one of Slurm's markers."""
        if self.number_is_object:
            if not isinstance(value, dict) or not {"set", "infinite", "number"} <= set(value):
                raise RowError("a number cannot be read", repr(value))
            if not value["set"] or value["infinite"]:
                return None
            value = value["number"]
        return whole(value)


_OLD, _BETWEEN, _NEW = Shape(False, False), Shape(False, True), Shape(True, True)
SHAPES: Mapping[int, Shape] = {37: _OLD, 38: _OLD, 39: _BETWEEN, **dict.fromkeys(range(40, 46), _NEW)}


def json_runs(text: str, options: Options, summary: Summary) -> Iterator[RunRecord]:
    """Every run of the document, in its order; rows that cannot be read go to the summary. Raises SlurmOutputError
    for a document that is not an answer of Slurm's accounting, that reports errors, or of an unknown data parser."""
    try:
        document = json.loads(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise SlurmOutputError(f"the dump begins as JSON and is not: {error} (cut off?)") from error
    shape = _shape(document)
    if document.get("errors"):
        raise SlurmOutputError(f"the dump says itself that it is not complete: {str(document['errors'])[:200]}")
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise SlurmOutputError("the JSON of the dump has no list `jobs`; save it with `sacct -a -D --json`")
    for place, job in enumerate(jobs, 1):
        try:
            run = _run(job, shape, options, summary)
        except RowError as error:
            summary.reject(place, error, json.dumps(job))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            summary.reject(place, RowError("a field is missing or of another type", repr(error)), json.dumps(job))
        else:
            summary.steps += len(job.get("steps") or ())
            yield run


def _shape(document: Json) -> Shape:
    """The shape by the header; raises SlurmOutputError for one that is not known."""
    meta = document.get("meta") if isinstance(document, dict) else None
    plugin = meta.get("plugin") if isinstance(meta, dict) else None
    if not isinstance(plugin, dict):
        raise SlurmOutputError("the JSON of the dump has no meta.plugin: it is not an answer of Slurm")
    name = str(plugin.get("data_parser") or plugin.get("type") or "")
    found = _PLUGIN.fullmatch(name)
    shape = SHAPES.get(int(found[1])) if found else None
    if found is None or shape is None or found[2]:
        raise SlurmOutputError(
            f"the dump was written by the data parser {name!r}, which this release does not know "
            f"(it knows v0.0.{min(SHAPES)} to v0.0.{max(SHAPES)}); save it as text: sacct -a -X -D -P -o ..."
        )
    return shape


def _run(job: Json, shape: Shape, options: Options, summary: Summary) -> RunRecord:
    cluster = job.get("cluster") or ""
    if options.cluster is not None and cluster and cluster != options.cluster:
        raise RowError("of another cluster", f"{cluster}, not {options.cluster}")
    time = job["time"]
    submit, start, end = (whole(time[name]) or None for name in ("submission", "start", "end"))
    if submit is None:
        raise RowError("no Submit time")
    if start is not None and end is not None and end < start:
        raise RowError("End before Start", f"start {start}, end {end}")
    nodes = read("nodes", node_names, _hosts(job.get("nodes")))
    elapsed, suspended = whole(time.get("elapsed")), whole(time.get("suspended")) or 0
    if start == end and not elapsed and not nodes:
        start = None
    limit = shape.number(time["limit"])
    requested = tres_of(job["tres"].get("requested")).gpus
    requested = 1 if requested is None else requested or asked_gpus(str(job.get("submit_line") or ""))
    run = RunRecord(
        key=RunKey(_id(job["job_id"]), submit),
        job_ref=_ref(job, shape),
        account=text_of(str(job.get("account") or "")).lower() or NOBODY,
        user=text_of(str(job.get("user") or job.get("association", {}).get("user") or "")) or NOBODY,
        qos=str(job.get("qos") or ""),
        partition=str(job.get("partition") or ""),
        state=shape.state(job["state"]["current"]),
        eligible=whole(time.get("eligible")) or None,
        start=start,
        end=end,
        suspended=suspended,
        time_limit=None if limit is None else limit * MINUTE,
        tres=held(tres_of(job["tres"]["allocated"]), requested) if start is not None else Tres(),
        requested_gpus=requested,
        nodes=nodes,
        comment=str(job.get("comment", {}).get("job") or ""),
    )
    if start is not None and end is not None and elapsed is not None:
        summary.elapsed_differs += max(end - start - suspended, 0) != elapsed
    return finished(run, elapsed, options, summary)


def whole(value: Json) -> int | None:
    """A plain number; ``None`` for null and for Slurm's markers of "not set"."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowError("a number cannot be read", repr(value))
    return None if value < 0 or value in _NO_VAL else value


def tres_of(entries: Json) -> Tres:
    """What a list of TRES entries holds; counts that are markers are not set, which is not 0."""
    parts = []
    for entry in entries or ():
        name = "/".join(str(word) for word in (entry["type"], entry.get("name")) if word)
        count = whole(entry["count"])
        parts.append(f"{name}={-2 if count is None else count}")
    return read("TRES", parse_tres, ",".join(parts))


def _id(value: Json) -> int:
    job_id = whole(value)
    if not job_id:
        raise RowError("job_id cannot be read", repr(value))
    return job_id


def _hosts(value: Json) -> str:
    """A host list: the text, or the object that newer parsers write for it."""
    if isinstance(value, dict):
        return str(value.get("range") or ",".join(value.get("list") or ()))
    return str(value or "")


def _ref(job: Json, shape: Shape) -> str:
    """The readable id: ``100_7``, ``100_[3-9]`` for pending tasks, ``21+1``, else the raw one."""
    array, het = job.get("array") or {}, job.get("het") or {}
    task = shape.number(array["task_id"]) if "task_id" in array else None
    if array.get("job_id") and task is not None:
        return f"{array['job_id']}_{task}"
    if array.get("job_id") and array.get("task"):
        return f"{array['job_id']}_[{_tasks(str(array['task']))}]"
    if het.get("job_id"):
        return f"{het['job_id']}+{shape.number(het['job_offset']) or 0}"
    return str(job["job_id"])


def _tasks(text: str) -> str:
    """Pending tasks: a bit mask in hexadecimal (``0xF%2``), or a list as it is."""
    mask, percent, throttle = text.partition("%")
    if not re.fullmatch(r"0x[0-9A-Fa-f]+", mask):
        return text
    bits = int(mask, 16)
    return ranges(tuple(n for n in range(bits.bit_length()) if bits >> n & 1)) + percent + throttle
