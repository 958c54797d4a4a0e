"""Whole hours as few cells: each hour inside counts once, each other one not at all."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.usage import DAY, HOUR, whole_cells

HOURS = st.integers(0, 100).map(lambda hour: 490_000 * HOUR + hour * HOUR)


@given(HOURS, HOURS)
def test_each_hour_counts_once(one: int, other: int) -> None:
    begin, end = sorted((one, other))
    counted: Counter[int] = Counter()
    read = 0
    for sign, span, first, last in whole_cells(begin, end):
        assert first % span == last % span == 0
        read += (last - first) // span
        for hour in range(first, last, HOUR):
            counted[hour] += sign
    assert {hour for hour, times in counted.items() if times} == set(range(begin, end, HOUR))
    assert set(counted.values()) <= {0, 1}
    # Never more than half a day of hours at each end, and the days.
    assert read <= DAY // HOUR + (end - begin) // DAY + 1
