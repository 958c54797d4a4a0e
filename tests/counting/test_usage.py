"""Who used what in any period, as reports ask the ledger, against the counter of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.usage import UsageQuery, UsageSum
from tests.counting.charging import Ledgers, load, opened
from tests.counting.histories import (
    HEADER,
    LONG_AGO,
    SPARE,
    History,
    Life,
    histories,
    open_line,
    sacct_line,
    windows,
)
from tests.counting.oracle import Row, Total, by_piece, by_second

quick = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
GROUPS = st.lists(st.sampled_from(["account", "user", "flavor", "qos", "class"]), unique=True).map(tuple)


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledgers]:
    yield from opened(tmp_path_factory.mktemp("usage"))


def loaded(ledger: SqlLedger, history: History, data: st.DataObject) -> list[Row]:
    """The history in the ledger; returns what must be counted. Sometimes as a cluster that is still read: what ran
    at the last reading has no end then."""
    for number, sync in enumerate(history.syncs):
        load(ledger, history.text(number), sync.when)
    rows = history.seen()
    if data.draw(st.booleans()):
        rows += [replace(row, job_id=row.job_id + 1000, end=None) for row in rows if row.start is not None]
        lines = [open_line(row) for row in rows if row.start is not None and row.end is None]
        load(ledger, HEADER + "".join(lines), None)
    return [row for row in rows if row.gpus != ()]


def same(found: UsageSum | None, wanted: Total | None) -> None:
    """Every number is exact; suspended time, to less than a thousandth of a second for each GPU of each run."""
    if found is None or wanted is None:
        assert found is wanted is None
        return
    assert (found.gpu_seconds, found.charged) == (wanted.gpu_seconds, wanted.charged)
    assert (found.runs, found.unknown_runs) == (wanted.runs, wanted.unknown)
    assert abs(found.suspended - 1000 * wanted.suspended) <= 9 * found.runs


@settings(quick, max_examples=50)
@given(history=histories(), data=st.data(), by=GROUPS)
def test_sums_of_any_period_by_any_groups(
    ledgers: Ledgers, history: History, data: st.DataObject, by: tuple[str, ...]
) -> None:
    ledger = ledgers.new()
    rows = loaded(ledger, history, data)
    periods = data.draw(st.lists(windows(history), min_size=1, max_size=3))
    until = max(data.draw(windows(history))[1], *(row.end or 0 for row in rows), 0)
    queries = [UsageQuery(start, end, until, by, to_limit=True) for start, end in periods]
    found = {(number, found.keys): found for number, found in ledger.usage(queries)}
    for number, (start, end) in enumerate(periods):
        totals = by_piece(rows, start, end, until, by, spare=SPARE)
        for keys in totals.keys() | {keys for n, keys in found if n == number}:
            same(found.get((number, keys)), totals.get(keys))


@settings(quick, max_examples=20)
@given(history=histories(), data=st.data())
def test_periods_that_meet_add_up(ledgers: Ledgers, history: History, data: st.DataObject) -> None:
    """A bill by day adds up to the bill of the month, to the last thousandth."""
    ledger = ledgers.new()
    loaded(ledger, history, data)
    edges = sorted({edge for window in data.draw(st.lists(windows(history), min_size=1)) for edge in window})
    whole = UsageQuery(edges[0], edges[-1], edges[-1], to_limit=True)
    parts = [replace(whole, start=a, end=b) for a, b in pairwise(edges)]
    sums = [0, 0, 0]
    for _, found in ledger.usage(parts):
        sums = [a + b for a, b in zip(sums, (found.gpu_seconds, found.charged, found.suspended), strict=True)]
    (total,) = [found for _, found in ledger.usage([whole])] or [UsageSum((), 0, 0, 0, 0, 0)]
    assert sums == [total.gpu_seconds, total.charged, total.suspended]


def test_every_second_by_itself(ledgers: Ledgers) -> None:
    """Many short periods of long and short runs, the longest one too: each second has what was held in it."""
    rows = [Row(n, LONG_AGO, LONG_AGO + n, LONG_AGO + n + n * n, (("gpu", n),)) for n in range(1, 6)]
    lives = [Life(row, str(row.job_id), "COMPLETED", (f"gres/gpu={row.job_id}", "")) for row in rows]
    ledger = ledgers.new()
    load(ledger, HEADER + "".join(sacct_line(life.row, life, LONG_AGO + 99) for life in lives), LONG_AGO + 99)
    queries = [UsageQuery(second, second + 1, LONG_AGO + 99) for second in range(LONG_AGO - 2, LONG_AGO + 35)]
    found = dict(ledger.usage(queries))
    for number, query in enumerate(queries):
        same(found.get(number), by_second(rows, query.start, query.end, query.until).get(()))


@settings(quick, max_examples=20)
@given(history=histories(), data=st.data())
def test_of_some_accounts_and_users(ledgers: Ledgers, history: History, data: st.DataObject) -> None:
    ledger = ledgers.new()
    rows = loaded(ledger, history, data)
    start, end = data.draw(windows(history))
    accounts = data.draw(st.sampled_from([(), ("nlp",), ("lab", "(none)")]))
    users = data.draw(st.sampled_from([("joe",), ("Joe", "(none)"), ()]))
    query = UsageQuery(start, end, end, ("user",), to_limit=True, accounts=accounts, users=users)
    wanted = [
        row
        for row in rows
        if (not accounts or (row.account or "(none)").lower() in accounts)
        and (not users or (row.user or "(none)") in users)
    ]
    totals = by_piece(wanted, start, end, end, ("user",), spare=SPARE)
    found = {found.keys: found for _, found in ledger.usage([query])}
    assert found.keys() == totals.keys()
    for keys, total in totals.items():
        same(found[keys], total)
    unknown = [run.key.job_id for run in ledger.unknown_runs(query)]
    assert len(unknown) == sum(total.unknown for total in totals.values())
