"""Was a contract broken? Computed from sacct's rows and the declared comments alone.

Shares no code with the product on purpose: it reads what Slurm says, and nothing that we say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Row:
    """One accounting row: times in epoch seconds, ``end`` None while it runs."""

    job: str
    submit: int
    start: int | None
    end: int | None
    state: str
    qos: str
    comment: str


def rows(text: str) -> list[Row]:
    """Rows of ``sacct -n -P -D -X -o JobID,Submit,Start,End,State,QOS,Comment`` with SLURM_TIME_FORMAT=%s."""
    found = []
    for line in text.splitlines():
        job, submit, start, end, state, qos, comment = line.split("|", 6)
        found.append(Row(job, int(submit), _time(start), _time(end), state.split(" ")[0], qos, comment))
    return found


def _time(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


def declared(comment: str, default: int) -> int:
    """The declared minimum in seconds, by a reading of its own: 90s, 5m, 4h, 1d, or plain minutes."""
    match = re.search(r"\bmin-runtime=(\d+)([smhd]?)\b", comment)
    if match is None:
        return default
    return int(match.group(1)) * UNITS[match.group(2) or "m"]


def broken(
    found: list[Row],
    *,
    default: int,
    backed: frozenset[str] = frozenset({"backed"}),
    by_others: frozenset[str] = frozenset(),
) -> list[str]:
    """One sentence for every backed run that was stopped before its declared minimum by something that requeues.

    ``by_others`` names jobs that a test requeued by itself.
    """
    faults = []
    for row in found:
        if row.qos not in backed or row.state not in ("REQUEUED", "PREEMPTED") or row.job in by_others:
            continue
        if row.start is None or row.end is None:
            continue
        ran, promised = row.end - row.start, declared(row.comment, default)
        if ran < promised:
            faults.append(f"{row.job} ({row.state}) ran {ran} s of the {promised} s that it was promised")
    return faults
