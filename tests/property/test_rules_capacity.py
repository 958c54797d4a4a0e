"""Capacity and allowance against a count second by second."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.budget import Budget, ShareSince
from pyslurm_budget.domain.capacity import HourSample, allowance, pool_capacity
from tests.build import tree

TICK = 12  # seconds of an "hour" here
WINDOW = 7 * TICK


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, int, list[HourSample], dict[int, int]]:
    """now, today's size, samples, and the size in service of each second that was sampled.

    A sample covers the first seconds of its hour at a steady size.
    """
    now = draw(st.integers(10 * TICK, 12 * TICK))
    size = draw(st.integers(1, 12))
    samples: list[HourSample] = []
    seconds: dict[int, int] = {}
    for hour in range(0, now, TICK):
        covered = draw(st.one_of(st.just(TICK), st.integers(0, TICK), st.none()))
        up = draw(st.integers(0, size + 2))
        if covered is None:
            continue
        samples.append(HourSample(hour, up * covered, covered))
        seconds.update(dict.fromkeys(range(hour, hour + covered), up))
    return now, size, samples, seconds


def second_by_second(now: int, size: int, seconds: dict[int, int]) -> dict[int, int]:
    """GPUs of every second of the window: sampled ones as sampled unless more than half of the pool was out."""
    found = {}
    for second in range(now - WINDOW, now):
        up = seconds.get(second, size)
        found[second] = size if 2 * up < size else up
    return found


@settings(max_examples=150, deadline=None)
@given(histories())
def test_capacity_is_the_sum_over_all_seconds(given_: tuple[int, int, list[HourSample], dict[int, int]]) -> None:
    now, size, samples, seconds = given_
    found = pool_capacity(samples, now=now, window=WINDOW, hour=TICK, size=size, in_service=0)
    expected = second_by_second(now, size, seconds)
    whole = [h for h in found.hours if h[1] - h[0] == TICK]
    for low, high, amount in whole:
        assert amount == sum(expected[s] for s in range(low, high))
    # In an hour that the window's edges cut, samples are taken to lie in the part that counts.
    for low, high, amount in found.hours:
        least = min(size, *(expected[s] for s in range(low, high)), *_sampled(seconds, low))
        most = max(size, *(expected[s] for s in range(low, high)), *_sampled(seconds, low))
        assert least * (high - low) <= amount <= most * (high - low)
    assert [h[0] for h in found.hours[1:]] == [h[1] for h in found.hours[:-1]]
    assert (found.hours[0][0], found.hours[-1][1]) == (now - WINDOW, now)


def _sampled(seconds: dict[int, int], low: int) -> list[int]:
    begin = low - low % TICK
    return [seconds[s] for s in range(begin, begin + TICK) if s in seconds]


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(0, 40))
def test_capacity_is_never_less_than_a_seventh_of_the_window_in_service(
    given_: tuple[int, int, list[HourSample], dict[int, int]], in_service: int
) -> None:
    now, size, samples, _ = given_
    plain = pool_capacity(samples, now=now, window=WINDOW, hour=TICK, size=size, in_service=0)
    found = pool_capacity(samples, now=now, window=WINDOW, hour=TICK, size=size, in_service=in_service)
    assert found.total == max(plain.total, WINDOW * in_service // 7)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12 * TICK), st.integers(0, 6)), max_size=4),
    st.lists(st.tuples(st.integers(0, 12 * TICK), st.integers(0, 6)), max_size=4),
    st.integers(8 * TICK, 12 * TICK),
    st.integers(1, 9),
)
def test_allowance_takes_every_second_at_the_share_of_its_hour(
    of_org: list[tuple[int, int]], of_red: list[tuple[int, int]], now: int, size: int
) -> None:
    """Later changes win; the share of an hour is the one in force where its part of the window begins."""
    budgets = tree(
        org=Budget("org", None, tuple(ShareSince(at, Fraction(n, 6)) for at, n in dict(of_org).items())),
        red=Budget("red", "org", tuple(ShareSince(at, Fraction(n, 6)) for at, n in dict(of_red).items())),
    )
    capacity = pool_capacity([], now=now, window=WINDOW, hour=TICK, size=size, in_service=0)
    total = Fraction(0)
    for second in range(now - WINDOW, now):
        hour = max(second - second % TICK, now - WINDOW)
        share = Fraction(1)
        for changes in (of_org, of_red):
            before = sorted((at, n) for at, n in dict(changes).items() if at <= hour)
            share *= Fraction(before[-1][1] if before else 0, 6)
        total += share * size
    assert allowance(budgets, "red", "a100", capacity) == int(1000 * total)
