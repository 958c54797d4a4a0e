"""Capacity and allowance against a count second by second."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.budget import Budget, ShareSince
from pyslurm_budget.domain.capacity import HourSample, Outage, PoolCapacity, allowance, pool_capacity
from tests.build import tree

TICK = 12  # seconds of an "hour" here
WINDOW = 7 * TICK


@dataclass(frozen=True)
class Past:
    """Second by second: what was in service where it was sampled, what nodes were out, and the pool's size."""

    now: int
    size: int
    up: dict[int, int]
    sizes: dict[int, int]
    outages: tuple[Outage, ...]

    def samples(self) -> list[HourSample]:
        found = []
        for hour in range(0, self.now, TICK):
            inside = [s for s in range(hour, hour + TICK) if s in self.up]
            found.append(
                HourSample(hour, sum(self.up[s] for s in inside), len(inside), self.sizes.get(hour, self.size))
            )
        return found

    def sampled(self) -> list[tuple[int, int]]:
        stretches: list[tuple[int, int]] = []
        for second in sorted(self.up):
            if stretches and stretches[-1][1] == second:
                stretches[-1] = (stretches[-1][0], second + 1)
            else:
                stretches.append((second, second + 1))
        return stretches

    def capacity(self, in_service: int = 0) -> PoolCapacity:
        return pool_capacity(
            self.samples(),
            sampled=self.sampled(),
            outages=self.outages,
            now=self.now,
            window=WINDOW,
            hour=TICK,
            size=self.size,
            in_service=in_service,
        )

    def known(self, second: int) -> tuple[int, int]:
        """GPUs in service, and in the pool, at that second."""
        if second in self.up:
            return self.up[second], self.sizes.get(second - second % TICK, self.size)
        return self.size - sum(o.gpus for o in self.outages if o.begin <= second < o.end), self.size

    def by_second(self) -> dict[int, int]:
        """What each second of the window counts."""
        found = {}
        for second in range(self.now - WINDOW, self.now):
            hour = second - second % TICK
            told = [self.known(s) for s in range(hour, min(hour + TICK, self.now))]
            out = 2 * sum(up for up, _ in told) < sum(size for _, size in told)
            found[second] = self.size if out else self.known(second)[0]
        return found


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Samples steady within an hour, in any stretches; outages that together leave something of the pool."""
    now = draw(st.integers(10 * TICK, 12 * TICK))
    size = draw(st.integers(1, 12))
    up: dict[int, int] = {}
    sizes: dict[int, int] = {}
    stretches = draw(st.lists(st.tuples(st.integers(0, now), st.integers(1, 3 * TICK)), max_size=4))
    covered = {s for begin, length in stretches for s in range(begin, min(begin + length, now))}
    for hour in range(0, now, TICK):
        sizes[hour] = draw(st.integers(0, size + 2))
        level = draw(st.integers(0, sizes[hour]))
        up.update({s: level for s in range(hour, min(hour + TICK, now)) if s in covered})
    outages, left = [], size
    for _ in range(draw(st.integers(0, 4))):
        gpus = draw(st.integers(0, left))
        left -= gpus
        begin = draw(st.integers(-TICK, now + TICK))
        outages.append(Outage(begin, begin + draw(st.integers(0, 4 * TICK)), gpus))
    return Past(now, size, up, sizes, tuple(outages))


@settings(max_examples=300, deadline=None)
@given(pasts())
def test_capacity_is_the_sum_over_all_seconds(past: Past) -> None:
    found, expected = past.capacity(), past.by_second()
    for low, high, amount in found.hours:
        assert amount == sum(expected[s] for s in range(low, high)), (low, high)
    assert [h[0] for h in found.hours[1:]] == [h[1] for h in found.hours[:-1]]
    assert (found.hours[0][0], found.hours[-1][1]) == (past.now - WINDOW, past.now)


@settings(max_examples=100, deadline=None)
@given(pasts(), st.integers(0, 40))
def test_capacity_is_never_less_than_a_seventh_of_the_window_in_service(past: Past, in_service: int) -> None:
    assert past.capacity(in_service).total == max(past.capacity().total, WINDOW * in_service // 7)


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
    capacity = pool_capacity([], sampled=[], now=now, window=WINDOW, hour=TICK, size=size, in_service=0)
    total = Fraction(0)
    for second in range(now - WINDOW, now):
        hour = max(second - second % TICK, now - WINDOW)
        share = Fraction(1)
        for changes in (of_org, of_red):
            before = sorted((at, n) for at, n in dict(changes).items() if at <= hour)
            share *= Fraction(before[-1][1] if before else 0, 6)
        total += share * size
    assert allowance(budgets, "red", "a100", capacity) == int(1000 * total)
