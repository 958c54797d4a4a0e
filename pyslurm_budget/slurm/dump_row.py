"""From the cells of one record of saved sacct output to a run."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.domain.times import MINUTE, parse_duration, parse_limit
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.dump_fields import JOB
from pyslurm_budget.slurm.dump_lines import ADVICE
from pyslurm_budget.slurm.dump_run import NOBODY, asked_gpus, finished, held, read
from pyslurm_budget.slurm.dump_summary import RowError
from pyslurm_budget.slurm.dump_times import moments, settle
from pyslurm_budget.slurm.fields import gpus_of, node_names, text_of, tres_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.slurm.dump_run import Options
    from pyslurm_budget.slurm.dump_summary import Summary
    from pyslurm_budget.slurm.dump_times import Times

_CANCELLED = re.compile(r"CANCELLED by ([0-9]+)", re.ASCII)
_PER = re.compile(r"PER_(NODE|TASK|SOCKET|JOB):")
_NO_LIMIT = frozenset({"", "INVALID"})


def check_columns(names: Iterable[str]) -> None:
    """Raise SlurmOutputError if a column that makes a run is missing: it must not look like nothing."""
    present = set(names)
    missing = [n for n in ("Account", "State", "Submit", "Start", "End") if n.lower() not in present]
    if not {"alloctres", "allocgres"} & present:
        missing.append("AllocTRES")
    if missing:
        raise SlurmOutputError(f"the dump lacks the columns {', '.join(missing)}; {ADVICE}")


def is_step(cells: Mapping[str, str]) -> bool:
    """Whether the row is a step (``123.0``, ``123.batch``, ``123_4.extern``), which its allocation contains."""
    return any("." in cells.get(name, "") for name in ("jobid", "jobidraw"))


def run_of(cells: Mapping[str, str], options: Options, summary: Summary) -> RunRecord:
    """The run of an allocation's row; raises RowError."""
    cluster = cells.get("cluster", "")
    if options.cluster is not None and cluster and cluster != options.cluster:
        raise RowError("of another cluster", f"{cluster}, not {options.cluster}")
    suspended = read("Suspended", parse_duration, cells.get("suspended") or "0")
    elapsed = _elapsed(cells)
    times = _times(cells, options, elapsed, suspended)
    nodes = read("NodeList", node_names, cells.get("nodelist", ""))
    start = times.start if _started(cells, times, elapsed) else None
    requested = _requested(cells)
    cancelled = _CANCELLED.fullmatch(cells["state"])
    run = RunRecord(
        key=RunKey(job_id(cells), times.submit),
        job_ref=cells.get("jobid") or cells["jobidraw"],
        account=text_of(cells["account"]).lower() or NOBODY,
        user=text_of(cells.get("user", "")) or _uid(cells) or NOBODY,
        qos=text_of(cells.get("qos", "")),
        partition=cells.get("partition", ""),
        state="CANCELLED" if cancelled else cells["state"],
        eligible=times.eligible,
        start=start,
        end=times.end,
        suspended=suspended,
        time_limit=_limit(cells),
        tres=held(_allocated(cells), requested) if start is not None else Tres(),
        requested_gpus=requested,
        nodes=nodes,
        comment=cells.get("comment", ""),
        by_uid=int(cancelled[1]) if cancelled else None,
    )
    run = finished(run, elapsed, options, summary)
    summary.ambiguous += not times.sure
    summary.elapsed_differs += times.differs
    return run


def job_id(cells: Mapping[str, str]) -> int:
    """The raw id. Without JobIDRaw a part of a heterogeneous job has the id after those before it (slurmctld gives
    them one after the other), and a task of an array none that could be known. Raises RowError."""
    text = cells.get("jobidraw") or cells.get("jobid", "")
    found = JOB.fullmatch(text)
    if found is None or found["step"]:
        raise RowError("JobID cannot be read", f"{text!r} is not the id of a job")
    if found["task"]:
        raise RowError("task of an array without JobIDRaw", f"{text} has no raw id; add JobIDRaw to the columns")
    return int(found["job"]) + int(found["offset"] or 0)


def _times(cells: Mapping[str, str], options: Options, elapsed: int | None, suspended: int) -> Times:
    when = partial(moments, zone=options.timezone)
    return settle(
        read("Submit", when, cells["submit"]),
        read("Eligible", when, cells.get("eligible", "")),
        read("Start", when, cells["start"]),
        read("End", when, cells["end"]),
        elapsed=elapsed,
        suspended=suspended,
    )


def _elapsed(cells: Mapping[str, str]) -> int | None:
    """Seconds that the job ran, by ElapsedRaw or Elapsed; ``None`` if the dump has neither."""
    if raw := cells.get("elapsedraw"):
        return read("ElapsedRaw", int, raw)
    text = cells.get("elapsed")
    return read("Elapsed", parse_duration, text) if text else None


def _started(cells: Mapping[str, str], times: Times, elapsed: int | None) -> bool:
    """Whether a job started: one that was cancelled while it waited may have its end for a start, always before
    22.05, later where slurmdbd did not know it yet."""
    if times.start is None:
        return False
    nowhere = cells.get("nodelist") == "None assigned"
    return not (nowhere and times.start == times.end and not elapsed)


def _allocated(cells: Mapping[str, str]) -> Tres:
    """AllocTRES, and AllocGRES of old files where it alone names GPUs."""
    tres = read("AllocTRES", tres_of, cells.get("alloctres", ""))
    if tres.gpus or not cells.get("allocgres"):
        return tres
    count, types = read("AllocGRES", gpus_of, cells["allocgres"])
    return replace(tres, gpus=count or tres.gpus, gpus_by_type=types)


def _requested(cells: Mapping[str, str]) -> int:
    """GPUs asked for: by ReqTRES, by ReqGRES of old files (per node), else what the command line names."""
    gpus = read("ReqTRES", tres_of, cells.get("reqtres", "")).gpus
    if gpus is None:
        return 1
    if not gpus and cells.get("reqgres"):
        count, _ = read("ReqGRES", gpus_of, _PER.sub("", cells["reqgres"]))
        nodes = cells.get("nnodes", "")
        gpus = count * (int(nodes) if nodes.isdecimal() else 1)
    return gpus or asked_gpus(cells.get("submitline", ""))


def _limit(cells: Mapping[str, str]) -> int | None:
    raw = cells.get("timelimitraw", "")
    if raw.isdecimal():
        return int(raw) * MINUTE
    text = raw or cells.get("timelimit", "")
    return None if text in _NO_LIMIT else read("Timelimit", parse_limit, text)


def _uid(cells: Mapping[str, str]) -> str:
    uid = cells.get("uid", "")
    return f"uid:{uid}" if uid else ""
