"""Reports of usage: what is asked of the ledger, and how exact amounts become text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.errors import StaleDataError, UsageError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.render.report import hours, json_lines, total_row, usage_columns, usage_fields
from pyslurm_budget.render.table import Style, draw
from pyslurm_budget.service import report
from pyslurm_budget.service.ports import SyncState
from pyslurm_budget.service.report import Ask, Known, UsageReport, usual_period
from pyslurm_budget.service.usage import UsageQuery, UsageSum
from pyslurm_budget.service.zones import Zone
from tests.unit.made import MONDAY, open_ledger, run

UTC = Zone("UTC")
DAY = 86400
MIDNIGHT = MONDAY - MONDAY % DAY


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from open_ledger(tmp_path)


class Recorded:
    """A ledger that remembers what it was asked, and answers each query with one group."""

    def __init__(self) -> None:
        self.asked: list[UsageQuery] = []

    def get(self, name: str) -> str | None:
        return "17" if name == "enforced-since" else None

    def usage(self, queries: Sequence[UsageQuery]) -> Iterator[tuple[int, UsageSum]]:
        self.asked = list(queries)
        for number, query in enumerate(queries):
            yield number, UsageSum(tuple(f"{name}-{number % 2}" for name in query.by), 1, 2, 3, 4, 5)


def asked(**changes: object) -> tuple[list[UsageQuery], list[tuple[str, ...]], UsageSum]:
    """The queries, the keys of the rows, and the total."""
    given: dict[str, object] = {"start": MIDNIGHT, "end": MIDNIGHT + 3 * DAY, "now": MIDNIGHT + 9 * DAY, "zone": UTC}
    ledger, known = Recorded(), Known(MIDNIGHT - DAY, None, MIDNIGHT + 9 * DAY, saved=False)
    found = UsageReport(ledger, Ask(**(given | changes)), known)  # type: ignore[arg-type]
    keys = [row.keys for row in found.rows()]
    return ledger.asked, keys, found.total


def test_one_question_a_period_and_one_for_the_whole() -> None:
    queries, keys, total = asked(by=("day", "account"))
    assert [(q.start, q.end, q.by) for q in queries] == [
        *((MIDNIGHT + n * DAY, MIDNIGHT + (n + 1) * DAY, ("account",)) for n in range(3)),
        (MIDNIGHT, MIDNIGHT + 3 * DAY, ()),
    ]
    assert keys == [("2026-11-30", "account-0"), ("2026-12-01", "account-1"), ("2026-12-02", "account-0")]
    assert total == UsageSum((), 1, 2, 3, 4, 5)


def test_rows_are_ordered_as_they_are_grouped() -> None:
    _, keys, _ = asked(by=("account", "day", "month"))
    assert keys == sorted(keys)
    assert keys[0] == ("account-0", "2026-11-30", "2026-11")


def test_days_of_which_the_ledger_knows_nothing_are_not_asked_for() -> None:
    queries, keys, _ = asked(by=("day",), start=0, end=MIDNIGHT + 10**6 * DAY)
    assert (keys[0], keys[-1], len(queries)) == (("2026-11-29",), ("2026-12-08",), 11)
    queries, keys, _ = asked(by=("month",), start=0, end=10)
    assert (keys, [(q.start, q.end) for q in queries]) == ([], [(0, 10)])


def test_open_runs_count_until_now() -> None:
    (query, _), _, _ = asked()
    assert (query.to_limit, query.until) == (False, MIDNIGHT + 9 * DAY)


def test_what_a_ledger_of_saved_accounting_knows(ledger: SqlLedger) -> None:
    with pytest.raises(StaleDataError, match="no accounting yet"):
        report.known(ledger)
    ledger.save_runs([run(1, MONDAY, None, "RUNNING")], SyncState(0, MONDAY + 50, complete=False))
    known = report.known(ledger)
    assert known == Known(MONDAY, None, MONDAY + 50, saved=True)
    assert (known.until(MONDAY + 99), known.until(MONDAY + 9)) == (MONDAY + 50, MONDAY + 9)
    ledger.save_runs([], SyncState(MONDAY, MONDAY + 60, complete=True))
    assert report.known(ledger).until(MONDAY + 99) == MONDAY + 99


def test_saved_accounting_in_which_no_run_held_gpus_is_known(ledger: SqlLedger) -> None:
    ledger.save_runs([], SyncState(0, MONDAY, complete=False))
    known = report.known(ledger)
    assert (known.empty, known.saved) == (True, True)
    assert report.usual_period(known, MONDAY + DAY, DAY) == (MONDAY, MONDAY + DAY)


def test_a_cluster_without_runs_is_no_failure(ledger: SqlLedger) -> None:
    ledger.save_runs([], SyncState(MONDAY, MONDAY, complete=True))
    known = report.known(ledger)
    assert list(UsageReport(ledger, Ask(0, MONDAY, MONDAY, UTC, ("day",)), known).rows()) == []


@pytest.mark.parametrize(
    ("known", "period"),
    [
        (Known(10, 20, None, saved=True), (10, 20)),
        (Known(10, 900, None, saved=True), (10, 900)),
        (Known(10, 901, None, saved=True), (900, 1000)),
        (Known(10, None, 950, saved=True), (900, 1000)),
        (Known(10, None, 800, saved=True), (10, 800)),
        (Known(10, 20, 1000, saved=False), (900, 1000)),
    ],
)
def test_the_usual_period(known: Known, period: tuple[int, int]) -> None:
    assert usual_period(known, 1000, 100) == period


def test_groups() -> None:
    assert report.groups("Account, day") == ("account", "day")
    for text in ("", "acount", "day,day", "account,"):
        with pytest.raises(UsageError, match=r"write"):
            report.groups(text)


@given(amount=st.integers(0, 10**18), digits=st.sampled_from([2, 4]))
def test_hours_are_rounded_once_and_keep_their_digits(amount: int, digits: int) -> None:
    text = hours(amount, digits)
    assert len(text.partition(".")[2]) == digits
    assert abs(Fraction(text) - Fraction(amount, 3_600_000)) <= Fraction(1, 2 * 10**digits)


@given(st.integers(0, 10**13))
def test_the_json_has_the_digits_of_the_text(amount: int) -> None:
    row = UsageSum(("nlp",), amount, amount, amount, 1, 0)
    told = json.loads("".join(json_lines({}, [usage_fields(row, ["account"])])))["rows"][0]
    assert f"{told['charged_gpu_hours']:.4f}" == hours(amount, 4)


def test_json_without_rows() -> None:
    assert json.loads("".join(json_lines({"a": "é"}, []))) == {"meta": {"a": "é"}, "rows": []}


def test_a_table() -> None:
    row = UsageSum(("nlp", "ann"), 3600 * 12345, 1800_000, 36_000, 1234, 0)
    columns = usage_columns(["account", "user"])
    assert draw(columns, [row, total_row(row, ["account", "user"])], Style()) == (
        "Account  User      GPU-h  Charged  Suspended   Runs  Unknown\n"
        "nlp      ann   12,345.00     0.50       0.01  1,234        0\n"
        "Total          12,345.00     0.50       0.01  1,234        0\n"
    )
