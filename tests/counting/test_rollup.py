"""Usage by hour, kept by deltas: what it says of any window, to the second, against the counter of these tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import Mode, RunKey, WorkClass
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.ports import ContractFacts
from tests.counting.charging import PATHS, Ledgers, load, opened
from tests.counting.histories import (
    HEADER,
    LONG_AGO,
    SPARE,
    History,
    Life,
    Sync,
    histories,
    moments,
    open_line,
)
from tests.counting.oracle import Row, by_piece

quick = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
HOUR = 3600
# Budget, user, pool, class, and whether it was after the contract.
Key = tuple[str, str, str, str, bool]


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledgers]:
    yield from opened(tmp_path_factory.mktemp("rollup"))


def contract(row: Row, until: int) -> ContractFacts:
    """A contract of this run that ends then."""
    return ContractFacts(
        key=RunKey(row.job_id, row.submit),
        ref=str(row.job_id),
        pool="gpu",
        budget=None,
        user="",
        work_class=WorkClass.BACKED,
        shadow=WorkClass.BACKED,
        rate=0,
        start=row.start or 0,
        minimum=0,
        protected_until=until,
        stoppable=True,
        mode=Mode.ENFORCE,
        source="comment",
    )


def held(ledger: SqlLedger, marks: list[int], now: int) -> dict[Key, tuple[int, ...]]:
    """What the ledger says."""
    found = {(h.budget, h.user, h.pool, str(h.work_class), h.run_on): h.amounts for h in ledger.history(marks, now)}
    assert len(found) == len(ledger.history(marks, now))
    return found


def counted(rows: list[Row], ends: dict[int, int], marks: list[int], now: int) -> dict[Key, tuple[int, ...]]:
    """What is counted; ``ends`` are the ends of contracts, by the number of the row."""
    parts = []
    for number, row in enumerate(rows):
        if row.start is not None and row.end is not None and row.start < row.end:
            split = min(max(ends.get(number, row.end), row.start), row.end)
            parts += [(False, replace(row, end=split)), (True, replace(row, start=split))]
    found: dict[Key, list[int]] = defaultdict(lambda: [0] * len(marks))
    for run_on in (False, True):
        chosen = [row for which, row in parts if which is run_on]
        for at, mark in enumerate(marks):
            totals = by_piece(chosen, mark, now, now, ("account", "user", "flavor", "class"), spare=SPARE)
            for (account, user, flavor, of), total in totals.items():
                if account in PATHS:
                    found[account, user, flavor, of, run_on][at] += total.priced
    return {key: tuple(amounts) for key, amounts in found.items() if any(amounts)}


# Seconds at, and just beside, whole hours and days in UTC; and some far from any.
MIDNIGHT = LONG_AGO - LONG_AGO % (24 * HOUR)
EDGES = st.builds(
    lambda hours, seconds: MIDNIGHT + HOUR * hours + seconds,
    st.sampled_from([0, 1, 2, 23, 24, 25, 47, 48, 49]),
    st.sampled_from([0, 0, 0, -1, 1, 1234]),
)


@st.composite
def lives(draw: st.DrawFn, job_id: int) -> Life:
    """A run between such seconds, which accounting may have shown with another end at first."""
    start, end, wrong = sorted((draw(EDGES), draw(EDGES), draw(EDGES)))
    if draw(st.booleans()):
        end, wrong = wrong, end
    kind, count = draw(st.sampled_from(["gpu", "a100"])), draw(st.integers(1, 3))
    tres = f"gres/gpu={count}" + (f",gres/gpu:{kind}={count}" if kind == "a100" else "")
    account, user = draw(st.sampled_from(["lab", "nlp", "far"])), draw(st.sampled_from(["joe", "Joe"]))
    qos = draw(st.sampled_from(["normal", "spare"]))
    row = Row(job_id, start - 5, start, end, ((kind, count),), account, user, qos)
    right_from = draw(st.integers(0, 1))
    return Life(row, str(job_id), "COMPLETED", (tres, ""), right_from=right_from, wrong_end=wrong)


@settings(quick, max_examples=80)
@given(data=st.data())
def test_any_window_is_the_seconds_in_it(ledgers: Ledgers, data: st.DataObject) -> None:
    """Hours and days that are full, or touched; contracts that end in them; ends that are corrected; runs that go on,
    which are not in it."""
    ledger = ledgers.new()
    late = MIDNIGHT + 90 * HOUR
    found = tuple(data.draw(lives(job_id)) for job_id in range(1, data.draw(st.integers(1, 4)) + 1))
    history = History(found, (Sync(late, tuple(range(len(found)))),) * 2)
    load(ledger, history.text(0), late)
    hours = EDGES.map(lambda second: second - second % HOUR)
    contracts = [data.draw(st.sampled_from([None, life.row.start]) | EDGES | hours) for life in found]
    ends = {n: until for n, until in enumerate(contracts) if until is not None}
    ledger.save_contracts([contract(found[n].row, until) for n, until in ends.items()])
    if data.draw(st.booleans()):
        load(ledger, HEADER + open_line(Row(99, MIDNIGHT, MIDNIGHT, None, (("gpu", 1),))), None)
    load(ledger, history.text(1), late)
    for _ in range(data.draw(st.integers(1, 3))):
        *marks, now = sorted(data.draw(st.lists(EDGES, min_size=2, max_size=5, unique=True)))
        assert held(ledger, marks, now) == counted(history.seen(), ends, marks, now)
    assert ledger.verify_usage()[1] == ()


@settings(quick, max_examples=15)
@given(history=histories(span=30 * HOUR), data=st.data())
def test_counting_it_anew_changes_nothing(ledgers: Ledgers, history: History, data: st.DataObject) -> None:
    ledger = ledgers.new()
    for number, sync in enumerate(history.syncs):
        load(ledger, history.text(number), sync.when)
    *marks, now = sorted(data.draw(st.lists(moments(history.lives), min_size=2, max_size=5, unique=True)))
    before = held(ledger, marks, now)
    ledger.rebuild_usage()
    assert held(ledger, marks, now) == before == counted(history.seen(), {}, marks, now)
