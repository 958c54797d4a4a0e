"""Real traces, whose totals are known: by the counter of these tests, and through the product.

The answers are read from the README of the data. Billing a job whole in the month of its start would be wrong by up
to a factor of two there, and leaving out rows that have no end by a factor of thirty.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

import pytest

from pyslurm_budget.ledger.store import SqlLedger
from tests.counting import traces
from tests.counting.charging import books
from tests.counting.oracle import Row, by_piece
from tests.counting.reporting import Site
from tests.counting.traces import ALIBABA_BEGIN, ALIBABA_END, HELIOS_BEGIN, hours, utc
from tests.shared_data import shared

DAY = 86400
EVER = 1 << 40
LARGEST = {"app_0": 281474.17, "app_62": 96933.05, "app_23": 92901.88, "app_21": 87906.90}
MONTHS = ("2017-09", "2017-10", "2017-11", "2017-12")


def answers(begin: str, cells: int) -> list[list[str]]:
    """Rows of the README's table whose header begins so, without marks and thousands separators."""
    lines = iter(shared("data/README.md").read_text().splitlines())
    next(line for line in lines if line.startswith(f"| {begin} |"))
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip().strip("*").replace(",", "") for cell in line.strip("|").split("|")])
    assert {len(row) for row in found} == {cells}
    return found


@pytest.fixture(scope="module")
def philly() -> list[Row]:
    return traces.philly()


@pytest.fixture(scope="module")
def by_month() -> dict[tuple[str, str], float]:
    """GPU-hours by virtual cluster and month that must come out; those that are 0 are left out."""
    rows = answers("virtual cluster", 7)[:-1]
    wanted = {(row[0], month): float(cell) for row in rows for month, cell in zip(MONTHS, row[3:], strict=True)}
    return {key: amount for key, amount in wanted.items() if amount}


def test_philly_by_virtual_cluster_and_month(philly: list[Row], by_month: dict[tuple[str, str], float]) -> None:
    found = by_piece(philly, 0, EVER, EVER, ("account",))
    table = answers("virtual cluster", 7)
    assert {name: (total.runs, hours(total.gpu_seconds)) for (name,), total in found.items()} == {
        row[0]: (int(row[1]), float(row[2])) for row in table[:-1]
    }
    assert (len(philly), hours(sum(t.gpu_seconds for t in found.values()))) == (82247, float(table[-1][2]))
    months = by_piece(philly, utc("2017-09-01"), utc("2018-01-01"), EVER, ("account", "month"))
    assert {key: hours(total.gpu_seconds) for key, total in months.items()} == by_month
    assert sum(total.runs for total in months.values()) == 82247 + 551


def test_philly_in_three_windows(philly: list[Row]) -> None:
    for window, total, _, first, second in answers("window", 5):
        start, end = (utc(day) for day in window.split(" to "))
        found = by_piece(philly, start, end, EVER, ("account",))
        assert hours(sum(t.gpu_seconds for t in found.values())) == float(total)
        assert [hours(found[name,].gpu_seconds) for name in ("ee9e8c", "7f04ca")] == [float(first), float(second)]


def test_helios() -> None:
    rows = traces.helios()
    whole = by_piece([row for row, _ in rows], 0, EVER, EVER, ("user",))
    assert sum(total.gpu_seconds for total in whole.values()) == 1_290_987_967
    users = {"20": 77558.78, "35": 29738.31, "8": 26794.83, "10": 18554.48, "13": 17332.92}
    assert {name: round(hours(whole[name,].gpu_seconds), 2) for name in users} == users
    assert sum(row.gpus == () for row, _ in rows) == 4204
    for state, amount in {"Pass": 200367.76, "Killed": 115484.74, "Failed": 42755.27}.items():
        found = by_piece([row for row, ended in rows if ended == state], 0, EVER, EVER)
        assert round(hours(found[()].gpu_seconds), 2) == amount
    for week, amount in ((1, 113868.6303), (2, 116834.3561)):
        start = HELIOS_BEGIN + week * 7 * DAY
        assert hours(by_piece([row for row, _ in rows], start, start + 7 * DAY, EVER)[()].gpu_seconds) == amount


def test_alibaba_with_times_that_are_blank() -> None:
    rows = traces.alibaba()
    found = by_piece([row for row, _ in rows], ALIBABA_BEGIN, ALIBABA_END, ALIBABA_END, ("account",))
    assert hours(sum(total.gpu_seconds for total in found.values())) == 2_376_668.1428
    no_second = sum(row.start == row.end for row, _ in rows)
    assert (sum(total.runs for total in found.values()), no_second, len(rows)) == (7370, 16, 7386)
    assert {name: round(hours(found[name,].gpu_seconds), 2) for name in LARGEST} == LARGEST
    whole = by_piece([row for row, known in rows if known], ALIBABA_BEGIN, ALIBABA_END, ALIBABA_END)
    assert hours(whole[()].gpu_seconds) == 73_227.1839


def xdmod() -> dict[str, float]:
    """GPU-hours by UTC day, as another tool counted them."""
    with shared("data/sacct/xdmod/phillips-gpu_hours-by-day.csv").open() as file:
        return {line["day"]: float(line["gpu_hours"]) for line in csv.DictReader(file)}


def test_a_year_of_a_cluster_day_by_day() -> None:
    rows = traces.phillips()
    days = by_piece(rows, utc("2016-12-01"), utc("2017-02-01"), EVER, ("day",))
    assert {day: hours(total.gpu_seconds) for (day,), total in days.items() if total.gpu_seconds} == xdmod()
    assert hours(sum(total.gpu_seconds for total in days.values())) == 506.9128


@dataclass(frozen=True)
class Loaded:
    """A site and what was loaded into it."""

    site: Site
    rows: list[Row]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, philly: list[Row]) -> Iterator[Loaded]:
    """A site into which the traces were loaded in one go, shuffled; of Philly the virtual clusters of less than 2,000
    jobs, two of which use the most GPU-hours of all; of Helios what held GPUs in its second week, of
    Alibaba its four largest applications."""
    sizes = Counter(row.account for row in philly)
    rows = [row for row in philly if sizes[row.account] < 2000]
    begin, end = HELIOS_BEGIN + 7 * DAY, HELIOS_BEGIN + 14 * DAY
    rows += [row for row, _ in traces.helios() if row.gpus and (row.start or 0) < end and (row.end or 0) > begin]
    rows += [row for row, _ in traces.alibaba() if row.account in LARGEST] + traces.phillips()
    rows = [replace(row, job_id=number) for number, row in enumerate(rows, 1)]
    Random(1).shuffle(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.devnull)
        site = Site(tmp_path_factory.mktemp("traces"))
        site.budgets({row.account or "" for row in rows})
        told = site.load(traces.dump(rows), "--as-of", ALIBABA_END)
        holding = sum(row.start is not None and row.gpus != () for row in rows)
        assert f"{len(rows):,} runs and 0 steps read, {holding:,} rows of the ledger changed" in told
        yield Loaded(site, rows)


def charged(site: Site, start: int, end: int) -> dict[str, float]:
    """GPU-hours charged to each budget in [start, end), those that are not 0."""
    ledger = SqlLedger(site.url, "alpha")
    found = {
        name: book.charged_now for (name, pool), book in books(ledger, start, end).books.items() if pool == "gpu"
    }
    ledger.close()
    return {name: hours(Fraction(amount, 1000)) for name, amount in found.items() if amount}


def test_philly_through_the_product(loaded: Loaded, by_month: dict[tuple[str, str], float]) -> None:
    accounts = {row.account for row in loaded.rows}
    for number, month in enumerate(MONTHS, 9):
        start, end = utc(f"{month}-01"), utc(f"2017-{number + 1}-01" if number < 12 else "2018-01-01")
        wanted = {name: amount for (name, of), amount in by_month.items() if of == month and name in accounts}
        assert charged(loaded.site, start, end) == wanted
    for window, _, _, first, second in answers("window", 5):
        found = charged(loaded.site, *(utc(day) for day in window.split(" to ")))
        assert (found["ee9e8c"], found["7f04ca"]) == (float(first), float(second))


def test_the_others_through_the_product(loaded: Loaded) -> None:
    start = HELIOS_BEGIN + 7 * DAY
    assert charged(loaded.site, start, start + 7 * DAY) == {"helios": 113868.6303}
    found = charged(loaded.site, ALIBABA_BEGIN, ALIBABA_END)
    assert {name: round(amount, 2) for name, amount in found.items()} == LARGEST
    for day, amount in xdmod().items():
        assert charged(loaded.site, utc(day), utc(day) + DAY) == {"chaff": amount}


def test_philly_in_reports(loaded: Loaded, by_month: dict[tuple[str, str], float]) -> None:
    accounts = {row.account for row in loaded.rows}
    found = loaded.site.report(("account", "month"), utc("2017-09-01"), utc("2018-01-01"))
    wanted = {key: amount for key, amount in by_month.items() if key[0] in accounts}
    assert {key: row["gpu_hours"] for key, row in found.items()} == wanted
    assert {key: row["charged_gpu_hours"] for key, row in found.items()} == wanted
    for window, _, _, first, second in answers("window", 5):
        found = loaded.site.report(("account",), *(utc(day) for day in window.split(" to ")))
        assert [found[name,]["gpu_hours"] for name in ("ee9e8c", "7f04ca")] == [float(first), float(second)]


def test_the_others_in_reports(loaded: Loaded) -> None:
    start = HELIOS_BEGIN + 7 * DAY
    found = loaded.site.report(("user",), start, start + 7 * DAY, "UTC", "-A", "helios")
    assert round(found["20",]["gpu_hours"], 2) == 24662.67
    assert sum(row["gpu_hours"] for row in found.values()) == pytest.approx(113868.6303, abs=0.005)
    found = loaded.site.report(("account",), ALIBABA_BEGIN, ALIBABA_END)
    assert {name: round(row["gpu_hours"], 2) for (name,), row in found.items()} == LARGEST
    days = loaded.site.report(("account", "day"), utc("2016-12-01"), utc("2017-02-01"))
    assert {day: row["gpu_hours"] for (_, day), row in days.items()} == xdmod()
    assert sum(row["runs"] for row in days.values()) == len(xdmod()) + 1
