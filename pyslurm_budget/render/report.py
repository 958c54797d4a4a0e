"""Tables of the reports. Amounts are exact until here: four decimals of GPU-hours for programs, two for people."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.model import MILLI
from pyslurm_budget.render.table import Column
from pyslurm_budget.service.report import RUNAWAY
from pyslurm_budget.service.usage import NONE, UsageSum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyslurm_budget.service.ports import RunFacts
    from pyslurm_budget.service.zones import Zone

HOUR = 3600
_NAMES = {"qos": "QOS"}
_AMOUNTS: tuple[tuple[str, str, Callable[[UsageSum], int]], ...] = (
    ("GPU_Hours", "GPU-h", lambda row: row.gpu_seconds * MILLI),
    ("Charged_GPU_Hours", "Charged", lambda row: row.charged),
    ("Suspended_GPU_Hours", "Suspended", lambda row: row.suspended),
)
_COUNTS: tuple[tuple[str, str, Callable[[UsageSum], int]], ...] = (
    ("Runs", "Runs", lambda row: row.runs),
    ("Unknown_Runs", "Unknown", lambda row: row.unknown_runs),
)


def hours(amount: int, digits: int) -> str:
    """Thousandths of GPU-seconds as GPU-hours, rounded once."""
    unit: int = 10**digits
    whole, rest = divmod(round(Fraction(amount * unit, MILLI * HOUR)), unit)
    return f"{whole}.{rest:0{digits}d}"


def _with_separators(number: str) -> str:
    whole, dot, rest = number.partition(".")
    return f"{int(whole):,}{dot}{rest}"


def usage_columns(by: Sequence[str]) -> list[Column[UsageSum]]:
    """The columns of a usage report; the names are those of the JSON's fields, in another case."""
    return [
        *(_key(name, number) for number, name in enumerate(by)),
        *(_amount(*amount) for amount in _AMOUNTS),
        *(_count(*count) for count in _COUNTS),
    ]


def _key(name: str, number: int) -> Column[UsageSum]:
    def cell(row: UsageSum) -> str:
        return row.keys[number]

    return Column(_NAMES.get(name, name.capitalize()), cell, cell, left=True)


def _amount(name: str, heading: str, amount: Callable[[UsageSum], int]) -> Column[UsageSum]:
    return Column(
        name, lambda row: _with_separators(hours(amount(row), 2)), lambda row: hours(amount(row), 4), heading=heading
    )


def _count(name: str, heading: str, count: Callable[[UsageSum], int]) -> Column[UsageSum]:
    return Column(name, lambda row: f"{count(row):,}", lambda row: str(count(row)), heading=heading)


def total_row(total: UsageSum, by: Sequence[str]) -> UsageSum:
    """The last line of the table for people."""
    keys = ("Total", *("" for _ in by[1:]))
    return UsageSum(keys, total.gpu_seconds, total.charged, total.suspended, total.runs, total.unknown_runs)


def usage_fields(row: UsageSum, by: Sequence[str]) -> dict[str, Any]:
    """One row of the JSON."""
    found: dict[str, Any] = dict(zip(by, row.keys, strict=True))
    found |= {name.lower(): float(hours(amount(row), 4)) for name, _, amount in _AMOUNTS}
    return found | {name.lower(): count(row) for name, _, count in _COUNTS}


def unknown_columns(zone: Zone) -> list[Column[RunFacts]]:
    """The columns of the runs whose GPUs or end are unknown; times as sacct shows them, in the zone."""

    def when(time: int | None) -> str:
        return "Unknown" if time is None else f"{zone.local(time):%Y-%m-%dT%H:%M:%S}"

    def until(run: RunFacts) -> list[str]:
        return [] if run.charged_to is None else [f"it counts until {when(run.charged_to)}"]

    def column(name: str, cell: Callable[[RunFacts], str]) -> Column[RunFacts]:
        return Column(name, cell, cell, left=True)

    return [
        column("JobID", lambda run: run.job_ref),
        column("Account", lambda run: run.account or NONE),
        column("User", lambda run: run.user or NONE),
        column("Start", lambda run: when(run.start)),
        column("End", lambda run: when(run.end)),
        column("State", lambda run: run.state),
        column("Why", lambda run: "; ".join([*_why(run), *until(run)])),
    ]


def _why(run: RunFacts) -> list[str]:
    """Why nobody knows what the run held, or until when."""
    return [*([run.unknown] if run.unknown else []), *([RUNAWAY] if run.charged_to is not None else [])]


def unknown_fields(run: RunFacts) -> dict[str, Any]:
    """One run of the JSON; times are seconds since the epoch, ``end`` is ``null`` while it runs; ``counted_until`` is
    set for a runaway row."""
    return {
        "job_id": run.job_ref,
        "account": run.account or NONE,
        "user": run.user or NONE,
        "start": run.start,
        "end": run.end,
        "state": run.state,
        "why": "; ".join(_why(run)),
        "counted_until": run.charged_to,
    }


def json_lines(meta: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """``{"meta": {...}, "rows": [...]}``, a row a line, never all of it at once."""
    yield f'{{\n"meta": {json.dumps(meta, ensure_ascii=False)},\n"rows": ['
    before = "\n"
    for row in rows:
        yield before + json.dumps(row, ensure_ascii=False)
        before = ",\n"
    yield "\n]\n}\n"
