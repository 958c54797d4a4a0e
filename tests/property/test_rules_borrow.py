"""Borrowing (design 4.1): it takes what is idle, and takes nothing from those who are entitled to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.books import Books, History, Price, Use
from pyslurm_budget.domain.budget import Budget, BudgetTree
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.policy import Policy
from tests.build import POOL, share

NOW, CAP = 1000, 20
LEAVES = ("red", "blue", "far")
TREE = BudgetTree(
    {
        "org": Budget("org", None, (share("1/2"),)),
        "far": Budget("far", None, (share("1/2"),)),
        "red": Budget("red", "org", (share("1/2"),), borrow=True),
        "blue": Budget("blue", "org", (share("1/2"),)),
    }
)


@dataclass(frozen=True)
class Moment:
    """What each leaf used just now, what it promised (rate, seconds), its allowance, and what red borrowed before."""

    used: dict[str, int]
    promised: dict[str, list[tuple[int, int]]]
    allowances: dict[str, int]
    borrowed: int

    def books(self, tree: BudgetTree = TREE) -> Books:
        policy = replace(Policy(), window=500, cap=CAP, overdraft=Fraction(0), ceiling_part=Fraction(10**9))
        given = {**self.allowances, "org": self.allowances["red"] + self.allowances["blue"]}
        found = Books(tree, policy, {(a, POOL): n for a, n in given.items()}, {POOL: 10**6}, NOW)
        found.charge(Use(n, "alice", POOL, amount, WorkClass.BACKED, NOW - 1, NOW) for n, amount in self.used.items())
        found.borrow([History("red", "", POOL, WorkClass.BACKED, run_on=False, amounts=(self.borrowed,) * CAP)])
        for name, contracts in self.promised.items():
            for rate, length in contracts:
                found.run_contract(name, "alice", POOL, Price(rate, length))
        return found

    def total(self, name: str, h: int) -> int:
        return self.used[name] + sum(rate * min(h, length) for rate, length in self.promised[name])


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    contracts = st.lists(st.tuples(st.integers(1, 8), st.integers(1, CAP)), max_size=2)
    return Moment(
        {name: draw(st.integers(0, 300)) for name in LEAVES},
        {name: draw(contracts) for name in LEAVES},
        {name: draw(st.integers(0, 300)) for name in LEAVES},
        draw(st.integers(0, 100)),
    )


PRICES = st.builds(Price, st.integers(1, 10), st.integers(1, CAP))
HORIZONS = range(1, CAP + 1)


@settings(max_examples=300, deadline=None)
@given(moments(), PRICES)
def test_nobody_is_refused_because_somebody_borrows(of: Moment, price: Price) -> None:
    """Blue is asked as if red had never used or promised more than its own."""
    fits = all(
        price.rate * min(h, price.length) + of.total("blue", h) <= of.allowances["blue"]
        and price.rate * min(h, price.length) + of.total("blue", h) + min(of.total("red", h), of.allowances["red"])
        <= of.allowances["red"] + of.allowances["blue"]
        for h in HORIZONS
    )
    assert (of.books().refusal("blue", POOL, price) is None) == fits


@settings(max_examples=300, deadline=None)
@given(moments(), PRICES)
def test_who_borrows_may_have_its_own_or_what_is_idle(of: Moment, price: Price) -> None:
    org = of.allowances["red"] + of.allowances["blue"]

    def fits(h: int, *names: str, line: int, more: int = 0) -> bool:
        return price.rate * min(h, price.length) + sum(of.total(n, h) for n in names) + more <= line

    own = all(fits(h, "red", line=of.allowances["red"]) for h in HORIZONS) and all(
        price.rate * min(h, price.length) + of.total("blue", h) + min(of.total("red", h), of.allowances["red"]) <= org
        or fits(h, "red", "blue", line=org)
        for h in HORIZONS
    )
    idle = all(
        fits(h, "red", "blue", line=org, more=of.borrowed)
        and fits(h, *LEAVES, line=org + of.allowances["far"], more=of.borrowed)
        for h in HORIZONS
    )
    admitted = of.books().refusal("red", POOL, price) is None
    assert admitted >= idle
    assert admitted <= (own or idle)


@settings(max_examples=200, deadline=None)
@given(moments(), PRICES)
def test_the_published_room_never_lets_in_what_is_refused(of: Moment, price: Price) -> None:
    books = of.books()
    for name in LEAVES:
        rooms = books.borrowing.best(name, POOL)
        fits = all(price.rate * min(h, price.length) <= left[h - 1] for _, left in rooms for h in HORIZONS)
        assert not fits or books.refusal(name, POOL, price) is None


@settings(max_examples=100, deadline=None)
@given(moments())
def test_what_is_borrowed_counts_in_the_load_and_not_in_the_headroom(of: Moment) -> None:
    with_, without = of.books(), replace(of, borrowed=0).books()
    for name in ("red", "org"):
        used, allowance = without.standing(name, POOL)
        assert with_.standing(name, POOL) == (used + of.borrowed, allowance)
        assert with_.books[name, POOL].headroom == without.books[name, POOL].headroom


@settings(max_examples=100, deadline=None)
@given(moments(), PRICES)
def test_without_borrowers_nothing_of_this_matters(of: Moment, price: Price) -> None:
    plain = BudgetTree({name: replace(b, borrow=False) for name, b in TREE.budgets.items()})
    books = replace(of, borrowed=0).books(plain)
    for name in LEAVES:
        path = [name, "org"] if name != "far" else [name]
        expected = all(
            price.rate * min(h, price.length) <= books.books[n, POOL].left()[h - 1] for n in path for h in HORIZONS
        )
        assert (books.refusal(name, POOL, price) is None) == expected
