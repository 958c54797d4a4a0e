"""The admission rule of design 4.3 at every single second, against the 32 segments of the books.

The oracle counts seconds; it knows nothing of grids. Windows and caps are tiny so that every horizon can be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.books import Books, Price, Use, horizons
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.policy import Policy
from tests.build import POOL, tree

NOW = 1000
PATHS = {
    "org": ("org",),
    "red": ("red", "org"),
    "sub": ("sub", "red", "org"),
    "blue": ("blue", "org"),
    "far": ("far",),
}
CHILDREN = {"org": ("red", "blue"), "red": ("sub",)}
# What a job of each budget is asked of: "red!" is the implicit child of red for jobs of its own account.
ASKED = {name: ((f"{name}!",) if name in CHILDREN else ()) + path for name, path in PATHS.items()}
BUDGETS = tree(org="1/2", far="1/2", red=("org", "1/2"), blue=("org", "1/2"), sub=("red", "1"))


def pays(limit: str, budget: str | None) -> bool:
    """Whether what is charged to the budget counts at the limit."""
    return budget == limit[:-1] if limit.endswith("!") else limit in PATHS.get(budget or "", ())


@dataclass(frozen=True)
class World:
    """What was used, what runs (budget, rate, rest of its contract), and the limits."""

    window: int
    cap: int
    allowances: dict[str, int]
    overdraft: Fraction
    uses: tuple[Use, ...]
    running: tuple[tuple[str, int, int], ...]

    def books(self) -> Books:
        policy = replace(
            Policy(), window=self.window, cap=self.cap, overdraft=self.overdraft, ceiling_part=Fraction(10**9)
        )
        found = Books(BUDGETS, policy, {(a, POOL): n for a, n in self.allowances.items()}, {POOL: 10**6}, NOW)
        found.charge(self.uses)
        for budget, rate, rest in self.running:
            found.run_contract(budget, "alice", POOL, Price(rate, rest))
        return found

    def over(self, contracts: list[tuple[str, int, int]], name: str, h: int, *, line: Fraction) -> bool:
        """Whether the budget is over its line ``h`` seconds from now, counted second by second."""
        charged = sum(
            use.rate
            for use in self.uses
            if use.work_class is WorkClass.BACKED and pays(name, use.budget) and use.pool == POOL
            for second in range(use.start, NOW if use.end is None else use.end)
            if NOW + h - self.window <= second < NOW
        )
        promised = sum(
            rate
            for budget, rate, length in [*self.running, *contracts]
            if pays(name, budget)
            for second in range(h)
            if second < length
        )
        return charged + promised > line

    def line(self, name: str) -> Fraction:
        """Allowance and overdraft of a limit."""
        own = name.removesuffix("!")
        given = self.allowances[own]
        if own != name:
            given = max(0, given - sum(self.allowances[child] for child in CHILDREN[own]))
        return given + Fraction(int(self.overdraft * given))


def rates(most: int = 8) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    window = draw(st.integers(10, 50))
    cap = draw(st.integers(1, 40))
    uses = draw(
        st.lists(
            st.builds(
                lambda budget, rate, start, length, kind, pool: Use(
                    budget, "alice", pool, rate, kind, NOW - start, None if length is None else NOW - start + length
                ),
                st.sampled_from([*PATHS, "unknown", None]),
                rates(),
                st.integers(0, 2 * window),
                st.one_of(st.none(), st.integers(0, 2 * window)),
                st.sampled_from([WorkClass.BACKED, WorkClass.BACKED, WorkClass.SPARE]),
                st.sampled_from([POOL, POOL, POOL, "h100"]),
            ),
            max_size=5,
        )
    )
    return World(
        window=window,
        cap=cap,
        allowances={name: draw(st.integers(0, 400)) for name in PATHS},
        overdraft=draw(st.sampled_from([Fraction(0), Fraction(1, 50), Fraction(1, 3)])),
        uses=tuple(uses),
        running=tuple(
            draw(st.lists(st.tuples(st.sampled_from(list(PATHS)), rates(), st.integers(0, cap)), max_size=3))
        ),
    )


def wishes() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    return st.lists(st.tuples(st.sampled_from(list(PATHS)), rates(), st.integers(1, 60)), max_size=6)


@settings(max_examples=250, deadline=None)
@given(worlds(), wishes())
def test_what_is_admitted_is_within_the_line_at_every_second(world: World, asked: list[tuple[str, int, int]]) -> None:
    """At no moment up to the cap is a budget that was promised something new, or one above it, over its line."""
    books = world.books()
    admitted: list[tuple[str, int, int]] = []
    for budget, rate, length in asked:
        if books.refusal(budget, POOL, Price(rate, length)) is not None:
            continue
        books.commit(budget, POOL, Price(rate, length))
        admitted.append((budget, rate, length))
        for name in ASKED[budget]:
            for h in range(1, world.cap + 1):
                assert not world.over(admitted, name, h, line=world.line(name)), (name, h)


@settings(max_examples=250, deadline=None)
@given(worlds(), wishes())
def test_what_is_refused_is_over_a_line_that_is_one_segment_lower(
    world: World, asked: list[tuple[str, int, int]]
) -> None:
    """How sharp the grid is: what it refuses is over the line at some second, or would be if the line were lower by
    what the budget at which it is refused uses in one segment: what leaves its window there, what it has promised
    there, and the contract itself there."""
    books = world.books()
    admitted: list[tuple[str, int, int]] = []
    segment = -(-world.cap // len(horizons(world.cap)))
    for budget, rate, length in asked:
        refusal = books.refusal(budget, POOL, Price(rate, length))
        if refusal is None:
            books.commit(budget, POOL, Price(rate, length))
            admitted.append((budget, rate, length))
            continue
        trial = [*admitted, (budget, rate, length)]
        assert any(
            world.over(trial, name, h, line=world.line(name) - segment * _in_one_second(world, trial, name))
            for name in ASKED[budget]
            if name.removesuffix("!") == refusal.limit
            for h in range(1, world.cap + 1)
        )


def _in_one_second(world: World, contracts: list[tuple[str, int, int]], name: str) -> int:
    """The most by which a limit's sums can change from one second to the next."""
    leaving = sum(u.rate for u in world.uses if pays(name, u.budget))
    return leaving + sum(rate for budget, rate, _ in [*world.running, *contracts] if pays(name, budget))


@settings(max_examples=100, deadline=None)
@given(worlds(), wishes())
def test_with_a_second_a_segment_the_grid_is_exact_but_for_what_leaves(
    world: World, asked: list[tuple[str, int, int]]
) -> None:
    """Up to 32 seconds of cap every second has a segment: only the charge is taken a second earlier."""
    small = replace(world, cap=min(world.cap, 32), uses=())
    books = small.books()
    admitted: list[tuple[str, int, int]] = []
    for budget, rate, length in asked:
        trial = [*admitted, (budget, rate, length)]
        exact = any(
            small.over(trial, name, h, line=small.line(name))
            for name in ASKED[budget]
            for h in range(1, small.cap + 1)
        )
        assert (books.refusal(budget, POOL, Price(rate, length)) is not None) == exact
        if not exact:
            books.commit(budget, POOL, Price(rate, length))
            admitted = trial


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 100_000))
def test_horizons_end_at_the_cap_and_leave_no_gap(cap: int) -> None:
    found = horizons(cap)
    assert found[-1] == cap
    assert len(found) <= 32
    begins = (0, *found[:-1])
    assert all(0 < high - low <= -(-cap // len(found)) for low, high in zip(begins, found, strict=True))


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_the_books_of_a_budget_hold_those_below_it(world: World) -> None:
    """Charge and outstanding of every budget are the sums over the budgets whose path it is on."""
    books = world.books()
    for name in PATHS:
        charged = sum(
            u.rate * max(0, min(NOW if u.end is None else u.end, NOW) - max(u.start, NOW - world.window))
            for u in world.uses
            if u.pool == POOL and u.work_class is WorkClass.BACKED and name in PATHS.get(u.budget or "", ())
        )
        promised = sum(rate * rest for b, rate, rest in world.running if name in PATHS[b])
        book = books.books[name, POOL]
        assert (book.charged_now, book.outstanding) == (charged, promised)
        load = books.load(name, POOL)
        if world.allowances[name] == 0:
            assert load is None
        else:
            assert load == Fraction(charged + promised, world.allowances[name])
