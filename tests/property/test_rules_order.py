"""The order against a naive Fair Tree, and what must not change it."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.books import Books
from pyslurm_budget.domain.order import FairOrder, Waiting
from tests.build import NOW, POOL, books, tree, use

TREE = tree(org="1/2", far="1/2", red=("org", "1/2"), blue=("org", "1/4"), sub=("red", "1/2"))
PARENT = {"org": None, "far": None, "red": "org", "blue": "org", "sub": "red"}
NAMES = sorted(PARENT)
USERS = ["alice", "bob", "carol"]

Job = tuple[str, str, str, int, bool, int]  # ref, budget, user, submitted, comes back, price
Used = dict[tuple[str, str], int]


@st.composite
def queues(draw: st.DrawFn, pool: str = POOL) -> tuple[dict[str, int], Used, list[Job]]:
    """Allowances (parents never less than their children), what each (budget, user) used, and who waits."""
    own = {name: draw(st.integers(0, 30)) for name in NAMES}
    allowances = {
        "far": own["far"],
        "sub": own["sub"],
        "blue": own["blue"],
        "red": own["red"] + own["sub"],
        "org": own["org"] + own["red"] + own["sub"] + own["blue"],
    }
    pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(USERS))
    used = draw(st.dictionaries(pairs, st.integers(1, 20), max_size=6))
    jobs = draw(
        st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.sampled_from(USERS),
                st.integers(0, 9),
                st.booleans(),
                st.integers(1, 12),
            ),
            max_size=8,
        )
    )
    return allowances, used, [(f"j{i}", *job) for i, job in enumerate(jobs)]


def naive(allowances: dict[str, int], used: Used, jobs: list[Job]) -> list[str]:
    """Job by job, everything counted anew each time from (budget, user) alone."""
    used = dict(used)
    left = list(jobs)
    order: list[str] = []
    while left:
        chosen = _descend(None, allowances, used, left)
        left.remove(chosen)
        order.append(chosen[0])
        key = (chosen[1], chosen[2])
        used[key] = used.get(key, 0) + chosen[5]
    return order


def _below(name: str) -> set[str]:
    return {name} | {n for child, parent in PARENT.items() if parent == name for n in _below(child)}


def _descend(at: str | None, allowances: dict[str, int], used: Used, left: list[Job]) -> Job:
    groups: list[tuple[bool, Fraction, str, bool]] = []
    children = [n for n, parent in PARENT.items() if parent == at]
    for child in children:
        inside = _below(child)
        if any(job[1] in inside for job in left):
            amount = sum(v for (budget, _), v in used.items() if budget in inside)
            groups.append((*_load(amount, allowances[child]), child, False))
    if at is not None and any(job[1] == at for job in left):
        amount = sum(v for (budget, _), v in used.items() if budget == at)
        rest = allowances[at] - sum(allowances[child] for child in children)
        groups.append((*_load(amount, rest), at, True))
    _, _, name, direct = min(groups)
    if not direct:
        return _descend(name, allowances, used, left)
    mine = [job for job in left if job[1] == name]
    back = [job for job in mine if job[4]]
    if back:
        return min(back, key=lambda job: (job[3], job[0]))
    firsts = [min((j for j in mine if j[2] == u), key=lambda j: (j[3], j[0])) for u in sorted({j[2] for j in mine})]
    return min(firsts, key=lambda job: (used.get((name, job[2]), 0), job[3], job[2]))


def _load(amount: int, allowance: int) -> tuple[bool, Fraction]:
    return (True, Fraction(0)) if allowance <= 0 else (False, Fraction(amount, allowance))


def ledger(allowances: dict[str, int], used: Used, scale: int = 1) -> Books:
    found = books(TREE, allowances={name: n * scale * 1000 for name, n in allowances.items()})
    found.charge(use(b, n * scale, user=u, start=NOW - n, end=NOW, rate=1000 * scale) for (b, u), n in used.items())
    return found


def ordered(of: Books, jobs: list[Job], scale: int = 1, pool: str = POOL) -> list[str]:
    waiting = [Waiting(ref, budget, user, pool, (at,), back) for ref, budget, user, at, back, _ in jobs]
    price = {job[0]: job[5] for job in jobs}
    found: list[str] = []
    for job in FairOrder(of, pool, waiting):
        found.append(job.ref)
        of.add_load(job.budget, job.user, pool, price[job.ref] * scale * 1000)
    return found


@settings(max_examples=300, deadline=None)
@given(queues())
def test_the_order_is_that_of_a_naive_fair_tree(given_: tuple[dict[str, int], Used, list[Job]]) -> None:
    allowances, used, jobs = given_
    assert ordered(ledger(allowances, used), jobs) == naive(allowances, used, jobs)


@settings(max_examples=100, deadline=None)
@given(queues(), st.integers(2, 1000), st.randoms())
def test_neither_scale_nor_the_order_of_reading_changes_the_order(
    given_: tuple[dict[str, int], Used, list[Job]], scale: int, random: object
) -> None:
    allowances, used, jobs = given_
    shuffled = list(jobs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    before = ordered(ledger(allowances, used), jobs)
    assert ordered(ledger(allowances, used, scale), shuffled, scale) == before


@settings(max_examples=50, deadline=None)
@given(queues(), queues())
def test_pools_do_not_influence_each_other(
    here: tuple[dict[str, int], Used, list[Job]], there: tuple[dict[str, int], Used, list[Job]]
) -> None:
    """The same books with another pool's use and queue worked off first."""
    allowances, used, jobs = here
    alone = ordered(ledger(allowances, used), jobs)
    both = ledger(allowances, used)
    other = ledger(there[0], there[1])
    both.books.update({(name, "h100"): book for (name, _), book in other.books.items()})
    both.directs.update({(name, "h100"): book for (name, _), book in other.directs.items()})
    ordered(both, there[2], pool="h100")
    both.charge(use(b, n, user=u, pool="h100") for (b, u), n in there[1].items())
    assert ordered(both, jobs) == alone
