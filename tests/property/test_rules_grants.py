"""Grants and loans (design 4.1): used once, made of nothing, and never more than was given.

The oracle plays hours: what a budget used in each, what is in its window, what was booked. It knows no books and no
histories; the books are asked separately whether what they hold adds up to the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain import grant as rules
from pyslurm_budget.domain.books import Books, Price, Use
from pyslurm_budget.domain.grant import Booking, Grant
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.policy import Policy
from tests.build import POOL, tree

HOUR = 10
WINDOW = 5  # hours
CAP = 2 * HOUR
BUDGETS = tree(org="1/2", far="1/2", red=("org", "1/2"), blue=("org", "1/2"))
LEAVES = ("red", "blue", "far")


@dataclass(frozen=True)
class Past:
    """Hourly use of each leaf, its allowance, and the grants that there are."""

    used: dict[str, list[int]]
    allowances: dict[str, int]
    grants: tuple[Grant, ...]


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    hours = draw(st.integers(1, 15))
    grants = []
    for i in range(draw(st.integers(0, 5))):
        budget = draw(st.sampled_from(LEAVES))
        lender = draw(st.sampled_from([None, *(name for name in LEAVES if name != budget)]))
        begin = draw(st.integers(0, hours * HOUR))
        end = draw(st.one_of(st.none(), st.integers(0, 100).map(lambda n, b=begin: b + n)))
        grants.append(Grant(i + 1, budget, POOL, draw(st.integers(0, 150)), begin, end, lender))
    return Past(
        {name: draw(st.lists(st.integers(0, 60), min_size=hours, max_size=hours)) for name in LEAVES},
        {name: draw(st.integers(0, 150)) for name in LEAVES},
        tuple(grants),
    )


class Clerk:
    """Books hour by hour, as the controller does; ``skip`` says in which hours it did not run."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.booked: list[Booking] = []

    def net(self, name: str, hour: int) -> int:
        """Charge of an hour: used, less what was booked for it, and more what others booked of a loan."""
        begin = hour * HOUR
        less = sum(b.amount for b in self.booked if b.budget == name and b.begin == begin)
        more = sum(b.amount for b in self.booked if b.lender == name and b.begin == begin)
        return (self.past.used[name][hour] if hour >= 0 else 0) - less + more

    def window(self, name: str, upto: int) -> list[int]:
        return [self.net(name, hour) for hour in range(upto - WINDOW, upto)]

    def left(self, grant: Grant) -> int:
        return grant.amount - sum(b.amount for b in self.booked if b.grant == grant.id)

    def turn(self, upto: int) -> list[Booking]:
        """Book at the end of hour ``upto - 1``."""
        totals = Counter[int]()
        for b in self.booked:
            totals[b.grant] += b.amount
        found = rules.bookings(
            [replace(g, booked=totals[g.id]) for g in self.past.grants],
            [(h * HOUR, (h + 1) * HOUR) for h in range(upto - WINDOW, upto)],
            {(name, POOL): self.window(name, upto) for name in LEAVES},
            {(name, POOL): n for name, n in self.past.allowances.items()},
            CAP,
        )
        self.booked += found
        return found

    def open(self, grant: Grant, upto: int) -> bool:
        now = upto * HOUR
        return grant.begin < now and (grant.end is None or now <= grant.end + CAP)


@settings(max_examples=200, deadline=None)
@given(pasts(), st.sets(st.integers(1, 15)))
def test_a_grant_is_used_once_and_only_beyond_the_allowance(past: Past, skipped: set[int]) -> None:
    clerk = Clerk(past)
    for upto in range(1, 1 + len(past.used["red"])):
        if upto in skipped:
            continue
        before = {name: sum(clerk.window(name, upto)) for name in LEAVES}
        lent = defaultdict[str, int](int)
        for g in past.grants:
            if g.lender is not None and clerk.open(g, upto):
                lent[g.lender] += clerk.left(g)
        line = {name: max(0, past.allowances[name] - lent[name]) for name in LEAVES}
        new = clerk.turn(upto)
        for name in LEAVES:
            taken = sum(b.amount for b in new if b.budget == name)
            left = sum(clerk.left(g) for g in past.grants if g.budget == name and clerk.open(g, upto))
            own = before[name] - taken
            assert own <= line[name] or left == 0, "it was not used though there was something left"
            assert taken == 0 or own >= line[name], "it was used before the allowance was"
        assert clerk.turn(upto) == [] or any(b.lender in LEAVES for b in new), "the same hour was booked twice"
    for g in past.grants:
        assert 0 <= clerk.left(g) <= g.amount
    for name in LEAVES:
        assert all(clerk.net(name, hour) >= 0 for hour in range(len(past.used[name])))


@settings(max_examples=200, deadline=None)
@given(pasts())
def test_what_expires_first_is_used_first(past: Past) -> None:
    clerk = Clerk(past)
    for upto in range(1, 1 + len(past.used["red"])):
        open_ = [g for g in past.grants if clerk.open(g, upto) and clerk.left(g)]
        for b in clerk.turn(upto):
            mine = next(g for g in open_ if g.id == b.grant)
            for g in open_:
                sooner = g.end is not None and (mine.end is None or g.end < mine.end)
                assert not (g.budget == mine.budget and sooner and clerk.left(g)), "a later one was used first"


@settings(max_examples=100, deadline=None)
@given(pasts())
def test_a_loan_moves_time_and_makes_none(past: Past) -> None:
    """The sum of all charges is what was used less what grants paid for, however loans are booked."""
    clerk = Clerk(past)
    for upto in range(1, 1 + len(past.used["red"])):
        clerk.turn(upto)
    hours = range(len(past.used["red"]))
    gifts = sum(b.amount for b in clerk.booked if b.lender is None)
    assert sum(clerk.net(n, h) for n in LEAVES for h in hours) == sum(map(sum, past.used.values())) - gifts


@dataclass(frozen=True)
class Moment:
    """Books of one moment, with grants."""

    now: int
    used: dict[str, int]
    promised: dict[str, int]
    allowances: dict[str, int]
    grants: tuple[Grant, ...]

    def books(self, times: int = 1) -> Books:
        policy = replace(Policy(), window=WINDOW * HOUR, cap=CAP, ceiling_part=Fraction(10**9))
        given = {name: n * times for name, n in self.allowances.items()}
        found = Books(BUDGETS, policy, {(a, POOL): n for a, n in given.items()}, {POOL: 10**6}, self.now)
        uses = (
            Use(name, "alice", POOL, n * times, WorkClass.BACKED, self.now - 1, None) for name, n in self.used.items()
        )
        found.charge(uses)
        for name, n in self.promised.items():
            found.run_contract(name, "alice", POOL, Price(n * times, 1))
        rules.enter(found, [replace(g, amount=g.amount * times, booked=g.booked * times) for g in self.grants])
        return found


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    past = draw(pasts())
    below = {name: draw(st.integers(0, 200)) for name in LEAVES}
    org = below["red"] + below["blue"] + draw(st.integers(0, 50))
    grants = tuple(replace(g, booked=draw(st.integers(0, g.amount))) for g in past.grants)
    return Moment(
        draw(st.integers(0, 200)),
        {name: draw(st.integers(0, 200)) for name in LEAVES},
        {name: draw(st.integers(0, 100)) for name in LEAVES},
        {**below, "org": org},
        grants,
    )


@settings(max_examples=200, deadline=None)
@given(moments())
def test_loans_never_change_the_sum_of_the_allowances(of: Moment) -> None:
    plain = replace(of, grants=()).books()
    lent = replace(of, grants=tuple(g for g in of.grants if g.lender is not None)).books()
    for what in ("allowance", "line"):
        for names in (("org", "far"), LEAVES):
            sums = [sum(getattr(b.books[name, POOL], what) for name in names) for b in (plain, lent)]
            assert sums[0] == sums[1], what
    direct = [b.direct("org", POOL) for b in (plain, lent)]
    assert direct[0].allowance == direct[1].allowance


@settings(max_examples=200, deadline=None)
@given(moments())
def test_what_is_in_force_is_what_was_not_booked(of: Moment) -> None:
    """In force: all that is left. In the time of one cap after the end: no more than is used or promised. Then: 0."""
    books = of.books()
    for name in LEAVES:
        whole = sum(g.amount - g.booked for g in of.grants if g.budget == name and g.in_force(of.now))
        late = [g for g in of.grants if g.budget == name and g.in_grace(of.now, CAP)]
        lent = sum(g.amount - g.booked for g in of.grants if g.lender == name)
        granted = books.books[name, POOL].granted
        assert whole - lent <= granted <= whole + sum(g.amount - g.booked for g in late)
        if late and not lent:
            needed = max(0, of.used[name] + of.promised[name] - of.allowances[name])
            assert granted == whole + min(needed, sum(g.amount - g.booked for g in late))


@settings(max_examples=100, deadline=None)
@given(moments(), st.sampled_from([1000, 3_600_000]))
def test_scaling_all_numbers_changes_no_load_and_no_refusal(of: Moment, times: int) -> None:
    small, large = of.books(1000), of.books(1000 * times)
    for name in LEAVES:
        assert small.load(name, POOL) == large.load(name, POOL)
        for rate in (1000, 7000):
            one = small.refusal(name, POOL, Price(rate, CAP))
            many = large.refusal(name, POOL, Price(rate * times, CAP))
            assert (one is None) == (many is None)
