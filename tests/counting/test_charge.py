"""What every budget is charged, from saved accounting to the books, against the counter of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pyslurm_budget.service import dump
from tests.counting.charging import (
    PATHS,
    Ledgers,
    books,
    charges,
    everything,
    expected,
    load,
    opened,
    users_in,
    users_of,
)
from tests.counting.histories import (
    HEADER,
    LONG_AGO,
    NIGHTS,
    SPARE,
    History,
    Life,
    histories,
    holdings,
    sacct_line,
    windows,
)
from tests.counting.oracle import Row, by_piece

quick = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
BATCHES = st.sampled_from([1, 3, 5000])
HOUR = 3600


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledgers]:
    yield from opened(tmp_path_factory.mktemp("counting"))


@settings(quick, max_examples=60)
@given(history=histories(), data=st.data(), batch=BATCHES)
def test_the_charge_of_any_window_is_the_seconds_in_it(
    ledgers: Ledgers, history: History, data: st.DataObject, batch: int
) -> None:
    """What ran in a spare QOS is free."""
    ledger = ledgers.new()
    with mock.patch.object(dump, "BATCH", batch):
        for number, sync in enumerate(history.syncs):
            load(ledger, history.text(number), sync.when)
    rows = history.seen()
    for start, end in data.draw(st.lists(windows(history), min_size=1, max_size=4)):
        of = books(ledger, start, end)
        assert charges(of) == expected(rows, start, end, SPARE)
        for budget in PATHS:
            assert users_in(of, budget) == users_of(rows, budget, start, end)


@settings(quick, max_examples=25)
@given(history=histories(), data=st.data())
def test_what_leaves_the_window_is_the_seconds_that_leave_it(
    ledgers: Ledgers, history: History, data: st.DataObject
) -> None:
    """The charge at each horizon of an admission: of the window that will have moved on by then, until now."""
    ledger = ledgers.new()
    for number, sync in enumerate(history.syncs):
        load(ledger, history.text(number), sync.when)
    start, now = data.draw(windows(history))
    of = books(ledger, start, now)
    for at, ahead in enumerate((0, *of.grid[:-1])):
        wanted = expected(history.seen(), min(start + ahead, now), now, SPARE)
        assert {key: book.charged[at] for key, book in of.books.items() if book.charged[at]} == wanted


@settings(quick, max_examples=25)
@given(history=histories(exact=True), data=st.data(), batch=BATCHES)
def test_the_order_and_number_of_readings_change_nothing(
    ledgers: Ledgers, history: History, data: st.DataObject, batch: int
) -> None:
    """Readings that each show the truth of their time, in any order and as often as one likes."""
    numbers = list(range(len(history.syncs)))
    found = []
    for order in (numbers, [*data.draw(st.permutations(numbers)), *data.draw(st.lists(st.sampled_from(numbers)))]):
        ledger = ledgers.new()
        with mock.patch.object(dump, "BATCH", batch):
            for number in order:
                load(ledger, shuffled(data, history.text(number)), history.syncs[number].when)
        found.append(everything(ledger))
        start, end = data.draw(windows(history))
        assert charges(books(ledger, start, end)) == expected(history.seen(), start, end, SPARE)
    assert found[0] == found[1]
    again = [load(ledger, history.text(number), history.syncs[number].when).changed for number in numbers]
    assert again == [0] * len(numbers)


@settings(quick, max_examples=20)
@given(history=histories(), data=st.data())
def test_the_last_reading_again_changes_nothing(ledgers: Ledgers, history: History, data: st.DataObject) -> None:
    """Also where accounting had been wrong before: what is corrected stays corrected."""
    ledger = ledgers.new()
    for number, sync in enumerate(history.syncs):
        load(ledger, history.text(number), sync.when)
    known = everything(ledger)
    for _ in range(2):
        counts = load(ledger, shuffled(data, history.text(len(history.syncs) - 1)), history.syncs[-1].when)
        assert counts.changed == 0
    assert everything(ledger) == known


@pytest.mark.parametrize(("limit", "seconds"), [(None, 500), (60, 60 + 100), (600, 500)])
def test_a_row_that_stays_open_counts_to_its_time_limit(ledgers: Ledgers, limit: int | None, seconds: int) -> None:
    """A limit to which suspended time does not count."""
    row = Row(1, LONG_AGO, LONG_AGO, None, (("gpu", 1),), suspended=100, limit=limit)
    ledger = ledgers.new()
    life = Life(row, "1", "", ("gres/gpu=1", "gres/gpu=1"))
    load(ledger, HEADER + sacct_line(row, life, LONG_AGO + 500), LONG_AGO + 500)
    assert charges(books(ledger, LONG_AGO, LONG_AGO + 900)) == {("lab", "gpu"): 1000 * seconds}


@pytest.mark.parametrize("order", [(50, 150), (150, 50)])
def test_dumps_put_together_do_not_bring_an_ended_run_back(ledgers: Ledgers, order: tuple[int, int]) -> None:
    """Two readings in one file, loaded as of a later time: the row that says how the run ended wins."""
    row = Row(1, LONG_AGO, LONG_AGO, LONG_AGO + 100, (("gpu", 1),))
    life = Life(row, "1", "COMPLETED", ("gres/gpu=1", "gres/gpu=1"))
    seen = [(life.at(0, LONG_AGO + when), LONG_AGO + when) for when in order]
    ledger = ledgers.new()
    load(ledger, HEADER + "".join(sacct_line(r, life, when) for r, when in seen if r is not None), LONG_AGO + 1000)
    assert charges(books(ledger, LONG_AGO, LONG_AGO + 1000)) == {("lab", "gpu"): 100_000}


@settings(quick, max_examples=40)
@given(data=st.data(), night=st.sampled_from(NIGHTS))
def test_nights_in_which_clocks_change(ledgers: Ledgers, data: st.DataObject, night: tuple[str, int]) -> None:
    """Local times as sacct prints them. Where one of start and end is in an hour that comes twice, the elapsed time
    says which of the two is meant."""
    zone, change = night
    ledger = ledgers.new()
    lives = []
    for job_id in range(1, data.draw(st.integers(1, 4)) + 1):
        start = change + data.draw(st.integers(-4 * HOUR, 4 * HOUR))
        end = start + data.draw(st.integers(0, 6 * HOUR))
        assume(abs(start - change) > HOUR or abs(end - change) > HOUR)
        gpus, tres = data.draw(holdings())
        row = Row(
            job_id, change - 6 * HOUR, start, end, gpus, suspended=data.draw(st.integers(0, (end - start) // 2))
        )
        lives.append(Life(row, str(job_id), "COMPLETED", tres))
    late = change + 12 * HOUR
    load(ledger, HEADER + "".join(sacct_line(life.row, life, late, zone) for life in lives), late, zone)
    for start, end in data.draw(st.lists(windows(History(tuple(lives), ())), min_size=1, max_size=3)):
        assert charges(books(ledger, start, end)) == expected([life.row for life in lives], start, end, SPARE)


def test_every_spelling_of_gpus_and_what_nobody_accounted(ledgers: Ledgers) -> None:
    """The total is the untyped entry, else the sum of the typed ones; unknown GPUs are told of and charge nothing."""
    spellings = {
        ("cpu=1,gres/gpu=4,gres/gpu:a100=4", "cpu=1"): ("a100", 4),
        ("gres/gpu:a100=4,cpu=1", "cpu=1"): ("a100", 4),
        ("cpu=1,gres/gpu=4,mem=5G", "cpu=1"): ("gpu", 4),
        ("cpu=1,mem=5G", "cpu=1,gres/gpu=4"): None,
        ("cpu=1,gres/gpu=18446744073709551614", "gres/gpu=4"): None,
        ("cpu=64,mem=500G", "cpu=64"): ("gpu", 0),
    }
    for job_id, (tres, holds) in enumerate(spellings.items(), 1):
        gpus = None if holds is None else (holds,)
        row = Row(job_id, LONG_AGO, LONG_AGO, LONG_AGO + 100, gpus)
        ledger = ledgers.new()
        counts = load(ledger, saved(row, tres), LONG_AGO + 200)
        window = (LONG_AGO, LONG_AGO + 50)
        assert charges(books(ledger, *window)) == expected([row], *window, SPARE), tres
        assert (counts.unknown_gpus, counts.without_gpus) == (holds is None, holds == ("gpu", 0)), tres
        total = by_piece([row], LONG_AGO, LONG_AGO + 50, LONG_AGO + 50)[()]
        assert (total.runs, total.unknown) == (1, holds is None)
        assert len(everything(ledger)) == (holds != ("gpu", 0))


@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_the_edges_of_the_window(ledgers: Ledgers, edge: int) -> None:
    """[start, end): the first second of a window is in it, the one at its end is not."""
    row = Row(1, LONG_AGO, LONG_AGO, LONG_AGO + 10, (("gpu", 3),))
    ledger = ledgers.new()
    load(ledger, saved(row, ("gres/gpu=3", "")), LONG_AGO + 20)
    before = {("lab", "gpu"): 3000 * (edge + 5)}
    assert charges(books(ledger, LONG_AGO - 7, LONG_AGO + 5 + edge)) == before
    assert charges(books(ledger, LONG_AGO + 5 - edge, LONG_AGO + 99)) == before
    assert charges(books(ledger, LONG_AGO - 7, LONG_AGO)) == {}
    assert charges(books(ledger, LONG_AGO + 10, LONG_AGO + 99)) == {}


def saved(row: Row, tres: tuple[str, str]) -> str:
    """A dump of one run that is over, with these texts of allocated and requested TRES."""
    return HEADER + sacct_line(row, Life(row, str(row.job_id), "FAILED", tres), row.end or 0)


def shuffled(data: st.DataObject, text: str) -> str:
    """The dump with its rows in another order."""
    header, *lines = text.splitlines(keepends=True)
    return header + "".join(data.draw(st.permutations(lines)))
