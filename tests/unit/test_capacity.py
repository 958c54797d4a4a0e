"""Capacity and allowance (design 4.1), example by example; the second-by-second oracle is in the property tests."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain.budget import Budget
from pyslurm_budget.domain.capacity import (
    HourSample,
    Outage,
    PoolCapacity,
    allowance,
    allowances,
    fixed_capacity,
    is_out,
    pool_capacity,
)
from tests.build import DAY, HOUR, NOW, full, share, tree

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 7 * DAY


def sample(hour: int, gpu_seconds: int, covered: int, size: int = 10) -> HourSample:
    return HourSample(hour, gpu_seconds, covered, size)


def capacity(
    *samples: HourSample,
    size: int = 10,
    now: int = NOW,
    in_service: int = 10,
    sampled: Sequence[tuple[int, int]] | None = None,
    outages: Sequence[Outage] = (),
) -> PoolCapacity:
    """Unless told otherwise samples cover the beginnings of their hours."""
    return pool_capacity(
        samples,
        sampled=[(s.hour, s.hour + s.covered) for s in samples] if sampled is None else sampled,
        outages=outages,
        now=now,
        window=WINDOW,
        hour=HOUR,
        size=size,
        in_service=in_service,
    )


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
    found = capacity(sample(NOW - HOUR, 8 * HOUR, HOUR))
    assert found.total == WINDOW * 10 - 2 * HOUR


def test_an_hour_with_more_than_half_out_counts_as_in_service() -> None:
    assert capacity(sample(NOW - HOUR, 5 * HOUR, HOUR)).total == WINDOW * 10 - 5 * HOUR
    assert capacity(sample(NOW - HOUR, 5 * HOUR - 1, HOUR)).total == WINDOW * 10


def test_seconds_without_a_sample_count_at_todays_size() -> None:
    assert capacity(sample(NOW - HOUR, 8 * 600, 600)).total == WINDOW * 10 - 2 * 600


def test_an_hour_nobody_sampled_is_no_outage() -> None:
    assert capacity(sample(NOW - HOUR, 0, 0)).total == WINDOW * 10


def test_what_was_out_while_nobody_sampled_leaves_the_capacity() -> None:
    out = Outage(NOW - 2 * HOUR - 600, NOW - 2 * HOUR + 60, 4)
    assert capacity(outages=[out]).total == WINDOW * 10 - 4 * 660


def test_what_was_out_in_sampled_time_counts_once() -> None:
    """It is in the sample already."""
    whole = sample(NOW - HOUR, 10 * HOUR - 4 * 660, HOUR)
    assert capacity(whole, outages=[Outage(NOW - HOUR, NOW - HOUR + 660, 4)]).total == WINDOW * 10 - 4 * 660


def test_an_outage_that_a_sample_covers_in_part_counts_for_the_rest() -> None:
    part = sample(NOW - HOUR, 6 * 600, 600)
    assert capacity(part, outages=[Outage(NOW - HOUR, NOW - HOUR + 900, 4)]).total == WINDOW * 10 - 4 * 900


def test_an_outage_before_the_window_or_after_it_changes_nothing() -> None:
    out = [Outage(NOW - WINDOW - 5000, NOW - WINDOW, 4), Outage(NOW, NOW + 5000, 4)]
    assert capacity(outages=out).total == WINDOW * 10


def test_more_than_half_of_the_pool_out_while_nobody_sampled_is_no_outage() -> None:
    """That is how a cluster looks that was being built, or whose slurmctld was down."""
    assert capacity(outages=[Outage(NOW - HOUR, NOW, 5)]).total == WINDOW * 10 - 5 * HOUR
    assert capacity(outages=[Outage(NOW - HOUR, NOW, 5), Outage(NOW - 2, NOW - 1, 1)]).total == WINDOW * 10


def test_whether_half_was_out_does_not_depend_on_where_the_window_begins() -> None:
    """The hour was out for 40 minutes; a window that begins in its middle still takes it as in service."""
    begin = NOW - WINDOW
    out = Outage(begin, begin + 2400, 10)
    assert capacity(outages=[out]).total == WINDOW * 10
    assert capacity(outages=[out], now=NOW + 1800).total == WINDOW * 10


def test_a_pool_that_has_grown_was_whole_when_it_was_smaller() -> None:
    """Sampled hours count as they were; without its own size the small pool would look broken."""
    before = sample(NOW - HOUR, 3 * HOUR, HOUR, size=3)
    assert capacity(before).total == WINDOW * 10 - 7 * HOUR
    assert capacity(sample(NOW - HOUR, 1 * HOUR, HOUR, size=3)).total == WINDOW * 10


def test_a_fixed_capacity_counts_whatever_is_there() -> None:
    found = fixed_capacity(64, now=NOW + 600, window=WINDOW, hour=HOUR)
    assert found.total == WINDOW * 64
    assert [h[1] for h in found.hours[:-1]] == [h[0] for h in found.hours[1:]]
    assert (found.hours[0][0], found.hours[-1][1], len(found.hours)) == (NOW + 600 - WINDOW, NOW + 600, 169)


@pytest.mark.parametrize(
    "state", ["DOWN", "DOWN*", "DRAIN", "IDLE+DRAIN", "DRAINED*", "FAIL", "DOWN~", "down", "IDLE+NOT_RESPONDING"]
)
def test_states_that_are_out(state: str) -> None:
    assert is_out(state)


@pytest.mark.parametrize(
    "state",
    [
        "IDLE",
        "IDLE~",
        "IDLE+POWERED_DOWN",
        "POWERING_UP",
        "PLANNED",
        "MIXED+PLANNED",
        "POWERED_DOWN+NOT_RESPONDING",
        "",
    ],
)
def test_states_that_are_in_service(state: str) -> None:
    assert not is_out(state)


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
