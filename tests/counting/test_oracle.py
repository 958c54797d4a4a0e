"""The counter of these tests: its quick way against its slow one, against Slurm's manual, and the answers that are
known for real accounting."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counting.histories import LONG_AGO, NIGHTS, SPARE, History, Life, Sync, histories
from tests.counting.oracle import GROUPINGS, Row, Total, by_piece, by_second, local_day, midnights

BY = st.lists(st.sampled_from(GROUPINGS), unique=True, max_size=3).map(tuple)
SPAN = 40


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), night=st.sampled_from(NIGHTS), by=BY)
def test_pieces_are_the_seconds_added_up(data: st.DataObject, night: tuple[str, int], by: tuple[str, ...]) -> None:
    zone, change = night
    history: History = data.draw(histories(begin=change - 100, span=SPAN))
    rows = [replace(row, end=data.draw(st.sampled_from([row.end, None]))) for row in history.seen()]
    start = change + data.draw(st.integers(-150, 150))
    end, now = (start + data.draw(st.integers(0, 300)) for _ in range(2))
    assert by_piece(rows, start, end, now, by, zone, SPARE) == by_second(rows, start, end, now, by, zone, SPARE)


def test_the_example_of_the_manual() -> None:
    """sacct(1), option -T: the seconds of four jobs in twenty minutes."""
    noon = 1_404_388_800  # 2014-07-03 12:00 UTC
    rows = [
        Row(2, 1, noon - 1604, noon - 59, (("gpu", 1),)),
        Row(3, 1, noon - 1479, None, (("gpu", 1),)),
        Row(4, 1, noon - 1479, noon - 879, (("gpu", 1),)),
        Row(5, 1, noon - 1139, None, (("gpu", 1),)),
    ]
    for row, seconds in zip(rows, (1141, 1200, 321, 1139), strict=True):
        assert by_second([row], noon - 1200, noon, noon + 60)[()].gpu_seconds == seconds


def test_what_each_column_counts() -> None:
    row = Row(1, 0, 100, 200, (("a100", 2),), user="Joe", qos="spare", suspended=50, rate=2500)
    half = by_second([row, replace(row, gpus=None, rate=None)], 150, 999, 300, ("class", "flavor"), spare=SPARE)
    assert half == {
        ("spare", "a100"): Total(gpu_seconds=100, priced=125_000, suspended=Fraction(50), runs=1),
        ("spare", "gpu"): Total(runs=1, unknown=1),
    }
    assert by_second([replace(row, qos="normal")], 150, 999, 300)[()].charged == 125_000
    assert by_second([replace(row, end=None, limit=60)], 0, 999, 300)[()].gpu_seconds == 2 * (60 + 50)
    assert by_second([replace(row, end=100), replace(row, start=None)], 0, 999, 300) == {}


def test_groups_are_named_as_people_know_them() -> None:
    rows = [
        Row(1, 0, 10, 20, (("gpu", 1),), account="NLP", user="joe"),
        Row(2, 0, 10, 20, (("gpu", 1),), account="nlp", user="Joe"),
        Row(3, 0, 10, 20, (("gpu", 1),), account=None, user=None),
    ]
    names = set(by_second(rows, 0, 30, 30, ("account", "user")))
    assert names == {("nlp", "joe"), ("nlp", "Joe"), ("(none)", "(none)")}


@pytest.mark.parametrize(
    ("night", "hours"), list(zip(NIGHTS, (25, 23, 25, 23, 24.5, 25), strict=True)), ids=[zone for zone, _ in NIGHTS]
)
def test_days_around_the_changes_of_clocks(night: tuple[str, int], hours: float) -> None:
    zone, change = night
    found = midnights(change - 4 * 86400, change + 4 * 86400, zone)
    assert all(local_day(at, zone) > local_day(at - 1, zone) for at in found[1:])
    lengths = [(b - a) / 3600 for a, b in pairwise(found[1:])]
    assert sorted(lengths) == sorted([24] * (len(lengths) - 1) + [hours])


def test_a_history_says_what_was_seen_last() -> None:
    """An end that is corrected, a runaway row that is repaired, and a run that still ran when it was last read."""

    def life(number: int, end: int | None, **changes: int | None) -> Life:
        row = Row(number, LONG_AGO, LONG_AGO, end, (("gpu", 1),))
        return Life(row, str(number), "COMPLETED", ("gres/gpu=1", "gres/gpu=1"), **changes)  # type: ignore[arg-type]

    lives = (
        life(1, LONG_AGO + 50, right_from=1, wrong_end=LONG_AGO + 70),
        life(2, LONG_AGO, right_from=1, wrong_end=None),
        life(3, None),
        life(4, LONG_AGO + 10, late=1),
    )
    first, second = Sync(LONG_AGO + 100, (0, 1, 2, 3)), Sync(LONG_AGO + 200, (3, 1, 0, 0))

    def ends(*syncs: Sync) -> dict[int, int]:
        return {row.job_id: (row.end or 0) - LONG_AGO for row in History(lives, syncs).seen()}

    assert ends(first) == {1: 70, 2: 100, 3: 100}
    assert ends(first, second) == {1: 50, 2: 0, 3: 100, 4: 10}
