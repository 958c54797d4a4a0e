"""Capacity and allowance (design 4.1), example by example; the second-by-second oracle is in the property tests."""

from __future__ import annotations

from fractions import Fraction

from pyslurm_budget.domain.budget import Budget
from pyslurm_budget.domain.capacity import HourSample, PoolCapacity, allowance, allowances, pool_capacity
from tests.build import DAY, HOUR, NOW, full, share, tree

WINDOW = 7 * DAY


def capacity(*samples: HourSample, size: int = 10, now: int = NOW, in_service: int = 10) -> PoolCapacity:
    return pool_capacity(samples, now=now, window=WINDOW, hour=HOUR, size=size, in_service=in_service)


def test_hours_before_the_first_sample_count_at_todays_size() -> None:
    found = capacity()
    assert found.total == WINDOW * 10
    assert len(found.hours) == 168


def test_a_window_that_begins_inside_an_hour_has_two_partial_hours() -> None:
    found = capacity(now=NOW + 600)
    assert len(found.hours) == 169
    assert found.hours[0][1] - found.hours[0][0] == HOUR - 600
    assert found.hours[-1][1] - found.hours[-1][0] == 600
    assert found.total == WINDOW * 10


def test_nodes_that_were_out_leave_the_capacity() -> None:
    found = capacity(HourSample(NOW - HOUR, 8 * HOUR, HOUR))
    assert found.total == WINDOW * 10 - 2 * HOUR


def test_an_hour_with_more_than_half_out_counts_as_in_service() -> None:
    assert capacity(HourSample(NOW - HOUR, 5 * HOUR, HOUR)).total == WINDOW * 10 - 5 * HOUR
    assert capacity(HourSample(NOW - HOUR, 5 * HOUR - 1, HOUR)).total == WINDOW * 10


def test_seconds_without_a_sample_count_at_todays_size() -> None:
    assert capacity(HourSample(NOW - HOUR, 8 * 600, 600)).total == WINDOW * 10 - 2 * 600


def test_an_hour_nobody_sampled_is_no_outage() -> None:
    assert capacity(HourSample(NOW - HOUR, 0, 0)).total == WINDOW * 10


def test_never_less_than_a_day_of_what_is_in_service() -> None:
    """To the second: no hour may lose a part by rounding."""
    found = capacity(size=1, in_service=10)
    assert found.total == DAY * 10
    assert found.hours[0][0] == NOW - WINDOW


def test_each_hour_counts_at_the_share_of_then() -> None:
    """Three quarters for the last day only."""
    changed = Budget("red", None, (share("1/4"), share("3/4", since=NOW - DAY)))
    assert allowance(tree(red=changed), "red", "a100", full(8)) == 1000 * 8 * (6 * DAY // 4 + 3 * DAY // 4)


def test_a_changed_share_acts_from_the_next_hour_on() -> None:
    changed = Budget("red", None, (share(0), share(1, since=NOW - HOUR - 1)))
    assert allowance(tree(red=changed), "red", "a100", full(8)) == 1000 * 8 * HOUR


def test_shares_multiply_along_the_path_and_by_pool() -> None:
    budgets = tree(
        org="1/2",
        red=Budget("red", "org", (share("1/2"), share("1/8", pool="h100"))),
    )
    found = allowances(budgets, {"a100": full(8), "h100": full(16)})
    assert found["org", "a100"] == 1000 * 4 * WINDOW
    assert found["red", "a100"] == 1000 * 2 * WINDOW
    assert found["red", "h100"] == 1000 * 1 * WINDOW


def test_a_share_of_thirds_is_exact() -> None:
    budgets = tree(**dict.fromkeys(("red", "green", "blue"), "1/3"))
    parts = [allowance(budgets, name, "a100", full(8)) for name in budgets.budgets]
    assert sum(parts) == 1000 * 8 * WINDOW
    assert Fraction(parts[0], 1000) == Fraction(8 * WINDOW, 3)
