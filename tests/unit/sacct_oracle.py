"""A slow and simple reader of sacct's lines: each row a mapping by column names, nothing remembered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.domain.times import parse_duration
from pyslurm_budget.domain.tres import parse_tres
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.sacct import FIELDS

NOTHING = ("", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "None assigned")


def runs(lines: Iterable[str], delimiter: str) -> Iterator[RunRecord]:
    """Every run, then perhaps a SlurmOutputError."""
    rows = records(lines, delimiter)
    header = next(rows, None)
    if header is None:
        raise SlurmOutputError("sacct: an empty answer, without even the header")
    missing = [name for name in FIELDS if name not in header and name != "Comment"]
    if missing:
        raise SlurmOutputError(f"sacct: the header {delimiter.join(header)!r} lacks {', '.join(missing)}")
    for cells in rows:
        try:
            yield run(dict(zip(header, cells, strict=True)))
        except ValueError as error:
            raise SlurmOutputError(f"sacct: cannot read the row {'|'.join(cells)[:200]!r}: {error}") from error


def records(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Cells of each record: a line without delimiters belongs to the last cell before it."""
    found: list[list[str]] = []
    broken = None
    for line in lines:
        cells = line.split(delimiter)
        if not found or len(cells) == len(found[0]):
            found.append(cells)
        elif len(cells) == 1:
            found[-1][-1] += "\n" + line
        else:
            text = "|".join(cells)[:200]
            broken = SlurmOutputError(f"sacct: {len(cells)} columns, not {len(found[0])}, in the line {text!r}")
            break
    # A record is known to be whole when the next one begins.
    yield from found if broken is None else found[:-1]
    if broken is not None:
        raise broken


def run(row: Mapping[str, str]) -> RunRecord:
    """One run; raises ``ValueError``."""
    submit = seconds(row["Submit"])
    if submit is None:
        raise ValueError(f"Submit is {row['Submit']!r}")
    nowhere = row["Start"] == row["End"] and not nodes(row["NodeList"])
    start = None if nowhere else seconds(row["Start"])
    requested = parse_tres(row["ReqTRES"]).gpus or 0
    tres = parse_tres(row["AllocTRES"]) if start is not None else Tres()
    if start is not None and requested and not tres.gpus:
        tres = replace(tres, gpus=None)
    cancelled = re.fullmatch(r"CANCELLED by ([0-9]+)", row["State"])
    return RunRecord(
        key=RunKey(int(row["JobIDRaw"]), submit),
        job_ref=row["JobID"],
        account=row["Account"].lower() or "(none)",
        user=row["User"] or f"uid:{row['UID']}",
        qos=row["QOS"],
        partition=row["Partition"],
        state="CANCELLED" if cancelled else row["State"],
        eligible=seconds(row["Eligible"]),
        start=start,
        end=seconds(row["End"]),
        suspended=parse_duration(row["Suspended"] or "0"),
        time_limit=limit(row["TimelimitRaw"]),
        tres=tres,
        requested_gpus=requested,
        nodes=nodes(row["NodeList"]),
        comment=row.get("Comment", ""),
        by_uid=int(cancelled[1]) if cancelled else None,
    )


def seconds(value: str) -> int | None:
    """A time; ``None`` for none."""
    if value.isdecimal():
        return int(value) or None
    if value in NOTHING:
        return None
    return int(datetime.strptime(value, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp())


def limit(raw: str) -> int | None:
    """A time limit in seconds."""
    if raw in ("", "UNLIMITED", "Partition_Limit", "INVALID"):
        return None
    if not raw.isdecimal():
        raise ValueError(f"TimelimitRaw is {raw!r}")
    return int(raw) * 60


def nodes(value: str) -> tuple[str, ...]:
    """Node names."""
    if value in NOTHING:
        return ()
    if "[" not in value and "," not in value:
        return (value,)
    try:
        return tuple(NodeSet(value, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ValueError(f"{value!r} is not a list of nodes") from error
