"""Sums of usage on three databases, against the same counted run by run in Python."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.ports import RunPart
from pyslurm_budget.service.usage import GROUPS, UsageQuery, UsageSum
from tests.db import made
from tests.db.conftest import new_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.service.ports import RunFacts

UNTIL = 500
NAMES = st.sampled_from(["", "(none)", "nlp", "Nlp", "Zürich", "a b", "_x", "é"])
CLASSES = st.sampled_from(WorkClass)
TIMES = st.integers(0, 1000)
PARTS = st.builds(RunPart, st.none() | NAMES, st.none() | NAMES, st.integers(0, 9), st.integers(0, 9999))


@st.composite
def runs(draw: st.DrawFn) -> list[RunFacts]:
    """Runs around the numbers 0 to 1000: open and ended, of no length, suspended, with unknown GPUs."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        start = draw(TIMES)
        parts = draw(st.just(()) | st.lists(PARTS, min_size=2, max_size=3).map(tuple))
        end = draw(st.none() | st.integers(start, 1000))
        gpus = sum(part.gpus for part in parts) if parts else draw(st.none() | st.integers(0, 9))
        found.append(
            made.run(
                number,
                account=draw(NAMES),
                user=draw(NAMES),
                qos=draw(NAMES),
                pool=draw(st.none() | NAMES),
                gpu_type=draw(st.none() | NAMES),
                start=start,
                end=end,
                gpus=gpus,
                rate=sum(part.rate for part in parts) if parts else draw(st.integers(0, 9999)),
                parts=parts,
                suspended=draw(st.just(0) | st.integers(0, 1200)),
                charged_to=draw(st.none() | st.integers(start, 1000)) if end is None else None,
                time_limit=draw(st.none() | st.integers(0, 600)),
                work_class=draw(CLASSES),
                charged_as=draw(CLASSES),
                unknown="nobody knows" if gpus is None else None,
            )
        )
    return found


QUERIES = st.builds(
    UsageQuery,
    start=TIMES,
    end=TIMES,
    until=st.just(UNTIL),
    by=st.lists(st.sampled_from(GROUPS), unique=True).map(tuple),
    to_limit=st.booleans(),
    accounts=st.just(()) | st.just(("nlp", "(none)")),
    users=st.just(()) | st.just(("é",)),
)


def till(run: RunFacts, query: UsageQuery) -> int:
    if run.end is not None:
        return run.end
    if run.charged_to is not None and run.charged_to < query.until:
        return run.charged_to
    if query.to_limit and run.time_limit is not None:
        return min(query.until, (run.start or 0) + run.time_limit + run.suspended)
    return query.until


def counted(runs: list[RunFacts], query: UsageQuery) -> list[UsageSum]:
    """The long way, a run at a time."""
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for run in runs:
        assert run.start is not None
        names = {
            "account": run.account or "(none)",
            "user": run.user or "(none)",
            "qos": run.qos or "(none)",
            "class": str(run.charged_as),
        }
        seconds = min(till(run, query), query.end) - max(run.start, query.start)
        if seconds <= 0 or (query.accounts and names["account"] not in query.accounts):
            continue
        if query.users and names["user"] not in query.users:
            continue
        seen = set()
        for part in run.parts or (RunPart(run.pool, run.gpu_type, run.gpus or 0, run.rate),):
            names |= {"pool": part.pool or "(none)", "flavor": part.flavor or "gpu"}
            key = tuple(names[name] for name in query.by)
            row = sums[key]
            row[0] += part.gpus * seconds
            row[1] += part.rate * seconds if names["class"] == "backed" else 0
            row[2] += part.gpus * suspended(run, query)
            row[3] += key not in seen
            row[4] += key not in seen and run.gpus is None
            seen.add(key)
    return [UsageSum(key, *sums[key]) for key in sorted(sums)]


def suspended(run: RunFacts, query: UsageQuery) -> int:
    """Thousandths of seconds, spread evenly."""
    start, end = run.start or 0, till(run, query)
    share = Fraction(1000 * min(run.suspended, end - start), end - start)
    return int(share * (min(end, query.end) - start)) - int(share * (max(start, query.start) - start))


class Fresh:
    """One open ledger that changes its cluster for every example."""

    def __init__(self, url: str) -> None:
        self.ledger = SqlLedger(url, new_cluster())

    def holding(self, runs: list[RunFacts]) -> SqlLedger:
        self.ledger._cluster = new_cluster()
        self.ledger.save_runs(runs, made.STATE)
        return self.ledger


@pytest.fixture(scope="module")
def fresh(database: str) -> Iterator[Fresh]:
    found = Fresh(database)
    yield found
    found.ledger.close()


quick = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(runs=runs(), queries=st.lists(QUERIES, min_size=1, max_size=6))
def test_sums_are_those_of_the_runs_one_by_one(fresh: Fresh, runs: list[RunFacts], queries: list[UsageQuery]) -> None:
    found = list(fresh.holding(runs).usage(queries))
    assert found == [(i, row) for i, query in enumerate(queries) for row in counted(runs, query)]
    assert all(type(n) is int for _, row in found for n in (row.gpu_seconds, row.charged, row.suspended, row.runs))


@quick
@given(runs=runs(), edges=st.lists(TIMES, min_size=3, max_size=5, unique=True).map(sorted))
def test_periods_that_meet_add_up(fresh: Fresh, runs: list[RunFacts], edges: list[int]) -> None:
    queries = [UsageQuery(a, b, UNTIL) for a, b in [*pairwise(edges), (edges[0], edges[-1])]]
    rows = dict(fresh.holding(runs).usage(queries))
    whole = rows.pop(len(queries) - 1, UsageSum((), 0, 0, 0, 0, 0))
    for amount in ("gpu_seconds", "charged", "suspended"):
        assert sum(getattr(row, amount) for row in rows.values()) == getattr(whole, amount)


@quick
@given(runs=runs(), query=QUERIES)
def test_unknown_runs_are_those_that_are_counted(fresh: Fresh, runs: list[RunFacts], query: UsageQuery) -> None:
    """And bug 39: rows that accounting has as running although the job is gone, whenever their charge ended."""
    ledger = fresh.holding(runs)
    found = list(ledger.unknown_runs(query))
    counted = [run for run in found if run.gpus is None and till(run, query) > max(run.start or 0, query.start)]
    assert len(counted) == sum(row.unknown_runs for _, row in ledger.usage([query]))
    assert [run.start for run in found] == sorted(run.start or 0 for run in found)
    runaway = {
        run.key
        for run in runs
        if run.charged_to is not None and (run.start or 0) < query.end
        if not query.accounts or (run.account or "(none)") in query.accounts
        if not query.users or (run.user or "(none)") in query.users
    }
    assert {run.key for run in found} == {run.key for run in counted} | runaway
    assert all(run in runs for run in found)


def test_large_numbers_stay_exact(fresh: Fresh) -> None:
    """100,000 GPUs for three years, in part suspended, and a time after 2038."""
    start, length = 3_000_000_000, 3 * 365 * 86400 + 1
    held = {"start": start, "end": start + length, "suspended": length // 3, "gpus": 99_999, "rate": 99_999_001}
    many = [made.run(n, **held) for n in range(20)]
    query = UsageQuery(start + 7, start + length, start + length)
    ((_, row),) = fresh.holding(many).usage([query])
    assert row == counted(many, query)[0]
    assert row.charged == 20 * 99_999_001 * (length - 7)


def test_the_span_of_a_ledger(fresh: Fresh) -> None:
    assert fresh.holding([]).usage_span() is None
    ended = [made.run(1, start=300, end=900), made.run(2, start=200, end=250)]
    assert fresh.holding(ended).usage_span() == (200, 900)
    assert fresh.holding([*ended, made.run(3, start=400, end=None)]).usage_span() == (200, None)


def test_another_cluster_is_not_counted(fresh: Fresh) -> None:
    fresh.holding([made.run(start=0, end=9)])
    assert list(fresh.holding([]).usage([UsageQuery(0, 10, 10, ("account",))])) == []


def test_a_reader_that_stops_early_keeps_nothing_open(fresh: Fresh) -> None:
    ledger = fresh.holding([made.run(n, account=f"a{n}", start=0, end=9) for n in range(30)])
    rows = ledger.usage([UsageQuery(0, 10, 10, ("account",))])
    assert next(rows)[1].keys == ("a0",)
    rows.close()  # type: ignore[attr-defined]
    assert ledger.save_runs([made.run(99, start=0, end=9)], made.STATE) == 1


def test_a_run_counts_in_the_class_that_counts(fresh: Fresh) -> None:
    ledger = fresh.holding([made.run(start=200, end=300, charged_as=WorkClass.SPARE)])
    ((_, row),) = ledger.usage([UsageQuery(0, 900, 900, ("class",))])
    assert (row.keys, row.charged) == (("spare",), 0)


@pytest.mark.parametrize(
    ("to_limit", "limit", "seconds"), [(True, 60, 70), (False, 60, 300), (True, 900, 300), (True, None, 300)]
)
def test_an_open_run_of_saved_accounting_counts_to_its_limit(
    fresh: Fresh, to_limit: bool, limit: int | None, seconds: int
) -> None:
    ledger = fresh.holding([made.run(start=200, end=None, gpus=1, time_limit=limit, suspended=10)])
    ((_, row),) = ledger.usage([UsageQuery(0, 900, 500, to_limit=to_limit)])
    assert (row.gpu_seconds, row.suspended) == (seconds, 10_000)
