"""Real traces as rows of accounting, and as the text that sacct would have printed for them.

The right answers stand in the README of the data; both the counter of these tests and the product are held against
them. GPU-hours are rounded to four decimals there.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from tests.counting.histories import HEADER
from tests.counting.oracle import UNTYPED, Row
from tests.shared_data import shared

HELIOS_BEGIN = 1_600_000_000  # its times have no beginning of their own
ALIBABA_BEGIN = 1_730_419_200  # the same; a midnight in UTC
ALIBABA_END = ALIBABA_BEGIN + 31 * 86400


def utc(text: str) -> int:
    """Seconds since the epoch of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def philly() -> list[Row]:
    """Jobs of Microsoft's cluster; the account is the virtual cluster."""
    with shared("data/traces/philly.csv").open() as file:
        return [
            Row(
                number,
                utc(line["timestamp"]),
                utc(line["timestamp"]),
                utc(line["timestamp"]) + int(float(line["duration"])),
                ((UNTYPED, int(line["num_gpus"])),),
                account=line["cluster"],
                user=None,
            )
            for number, line in enumerate(csv.DictReader(file), 1)
        ]


def helios() -> list[tuple[Row, str]]:
    """Jobs of SenseTime's cluster with their states (Pass, Killed, Failed)."""
    with shared("data/traces/helios.csv").open() as file:
        return [
            (
                Row(
                    number,
                    HELIOS_BEGIN + int(line["submit_s"]),
                    HELIOS_BEGIN + int(line["submit_s"]),
                    HELIOS_BEGIN + int(line["submit_s"]) + int(line["duration_s"]),
                    ((UNTYPED, int(line["gpus"])),) if int(line["gpus"]) else (),
                    account="helios",
                    user=line["user"],
                ),
                line["status"],
            )
            for number, line in enumerate(csv.DictReader(file), 1)
        ]


def alibaba() -> list[tuple[Row, bool]]:
    """Instances with a GPU; the account is the application. Where no time stands an instance was there before the
    trace begins, or is still there when it ends. Said with each: whether both times were given."""
    with shared("data/traces/alibaba_gpu_v2025/disaggregated_DLRM_trace.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["role"] == "HN"]
    found = []
    for number, line in enumerate(lines, 1):
        start, end = line["scheduled_time"] or line["creation_time"], line["deletion_time"]
        row = Row(
            number,
            ALIBABA_BEGIN + int(float(start or 0)),
            ALIBABA_BEGIN + int(float(start or 0)),
            ALIBABA_BEGIN + int(float(end)) if end else None,
            ((UNTYPED, int(line["gpu_request"])),),
            account=line["app_name"],
            user=None,
        )
        found.append((row, bool(start and end)))
    return found


def phillips() -> list[Row]:
    """A year of a university's cluster, whose days another tool has counted."""
    rows = []
    for line in shared("data/sacct/xdmod/phillips.log").read_text().splitlines():
        cells = line.split("|")
        tres = dict(entry.split("=") for entry in cells[22].split(",") if entry)
        gpus = int(tres.get("gres/gpu", "0"))
        rows.append(
            Row(
                int(cells[1]),
                utc(cells[10]),
                None if cells[24] == "None assigned" else utc(cells[12]),
                utc(cells[13]),
                ((UNTYPED, gpus),) if gpus else (),
                account=cells[5],
                user=cells[8],
                qos=cells[4],
            )
        )
    return rows


def dump(rows: Iterable[Row], state: Callable[[Row], str] = lambda row: "COMPLETED") -> str:
    """The rows as sacct -P prints them in UTC; those without an end as running."""
    return HEADER + "".join(
        "|".join(
            (
                str(row.job_id), str(row.job_id), row.account or "", row.user or "", row.qos,
                state(row) if row.end is not None else "RUNNING", _time(row.submit), _time(row.start),
                _time(row.end), "", "00:00:00", "UNLIMITED",
                ",".join(["cpu=1", *(f"gres/gpu={count}" for _, count in row.gpus or ())]), "cpu=1",
            )
        )
        + "\n"
        for row in rows
    )  # fmt: skip


def _time(moment: int | None) -> str:
    if moment is None:
        return "Unknown"
    return (datetime(1970, 1, 1) + timedelta(seconds=moment)).isoformat()


def hours(gpu_seconds: int | Fraction) -> float:
    """GPU-hours to four decimals."""
    return round(float(Fraction(gpu_seconds) / 3600), 4)
