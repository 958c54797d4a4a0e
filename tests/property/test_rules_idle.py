"""What reservations charge for their idle part, against a count second by second and node by node."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.capacity import Outage
from pyslurm_budget.domain.holding import Holding, told_once
from pyslurm_budget.domain.idle import Occupant, idle_uses
from pyslurm_budget.domain.pool import PoolMap
from tests.build import CPUS_PER_GPU, node, pool_map

END = 30
NODES = ("n1", "n2", "n3")
SIZES = {"n1": 4, "n2": 4, "n3": 2}
PARENTS = {"red": "org", "blue": "org", "lab": "red", "org": None, "none": None}
BUDGETS = {"red": "red", "blue": "blue", "lab": "red", "org": "org"}


def pools() -> PoolMap:
    return pool_map([node(name, SIZES[name]) for name in NODES])


def belongs(account: str, holder: str) -> bool:
    at: str | None = account
    while at is not None and at != holder:
        at = PARENTS[at]
    return at == holder


@dataclass(frozen=True)
class Site:
    holdings: tuple[Holding, ...]
    occupants: tuple[Occupant, ...]
    out: dict[str, list[Outage]]

    def charged(self) -> dict[tuple[str, int], int]:
        """Idle charge by budget and second."""
        found: dict[tuple[str, int], int] = {}
        for use in idle_uses(self.holdings, self.occupants, pools(), BUDGETS.get, belongs, out=self.out):
            assert use.budget is not None
            assert use.end is not None
            for second in range(use.start, use.end):
                found[use.budget, second] = found.get((use.budget, second), 0) + use.rate
        return found


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Whole-node and partial reservations that may overlap; runs of one node, together no more than there is;
    times in which nodes are out (a node that drains still has its runs)."""
    holdings = []
    for i in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, END - 1))
        end = draw(st.integers(begin + 1, END))
        nodes = tuple(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)))
        accounts = tuple(draw(st.lists(st.sampled_from(sorted(BUDGETS)), min_size=1, max_size=3, unique=True)))
        accounts += ("none",) if draw(st.booleans()) else ()
        cpus = draw(st.none() | st.integers(1, CPUS_PER_GPU * sum(SIZES[n] for n in nodes)))
        holdings.append(Holding(i, f"r{i}", begin, end, accounts, (), nodes, None, cpus))
    free = {(n, s): 1000 * SIZES[n] for n in NODES for s in range(END)}
    occupants = []
    for _ in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(NODES))
        begin = draw(st.integers(0, END - 1))
        end = draw(st.integers(begin + 1, END))
        taken = 500 * draw(st.integers(1, 2 * SIZES[name]))
        if all(free[name, s] >= taken for s in range(begin, end)):
            free.update({(name, s): free[name, s] - taken for s in range(begin, end)})
            charged = draw(st.sampled_from((0, taken // 2, taken)))
            occupants.append(Occupant(draw(st.sampled_from(sorted(PARENTS))), (name,), begin, end, taken, charged))
    out: dict[str, list[Outage]] = {}
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, END))
        name = draw(st.sampled_from(NODES))
        out.setdefault(name, []).append(Outage(begin, draw(st.integers(begin, END)), SIZES[name]))
    return Site(tuple(holdings), tuple(occupants), out)


def held(holding: Holding, name: str) -> int:
    """The rate that a holding has of a node: a part of its CPUs is that part of its GPUs, rounded as a whole."""
    whole = {n: 1000 * SIZES[n] for n in holding.nodes}
    total = sum(whole.values())
    wanted = total
    if holding.cpus is not None:
        wanted = min(total, -(-total * holding.cpus // (CPUS_PER_GPU * sum(SIZES[n] for n in holding.nodes))))
    found = {}
    for i, n in enumerate(holding.nodes):
        upto, before = (sum(whole[m] for m in holding.nodes[:k]) for k in (i + 1, i))
        found[n] = wanted * upto // total - wanted * before // total
    return found.get(name, 0)


def by_second(site: Site) -> dict[tuple[str, int], int]:
    """Each second and node by itself, as the rule says it."""
    found: dict[tuple[str, int], int] = {}
    for second in range(END):
        for name in NODES:
            there = [h for h in site.holdings if name in h.nodes and h.start <= second < h.end]
            runs = [o for o in site.occupants if name in o.nodes and o.begin <= second < o.end]
            own = dict.fromkeys(range(len(there)), 0)
            if any(o.begin <= second < o.end for o in site.out.get(name, ())):
                continue
            left = 1000 * SIZES[name]
            for o in runs:
                mine = [i for i, h in enumerate(there) if any(belongs(o.account, a) for a in h.accounts)]
                left -= o.charged if mine else o.taken
                if mine:
                    own[mine[0]] += o.charged
            for i, h in enumerate(there):
                idle = min(max(0, held(h, name) - own[i]), max(0, left))
                left -= idle
                parts = [idle // len(h.accounts)] * len(h.accounts)
                parts[0] += idle - sum(parts)
                for account, part in zip(h.accounts, parts, strict=True):
                    if account in BUDGETS and part:
                        key = (BUDGETS[account], second)
                        found[key] = found.get(key, 0) + part
    return found


@settings(max_examples=300, deadline=None)
@given(sites())
def test_idle_time_is_charged_as_second_by_second(site: Site) -> None:
    assert site.charged() == by_second(site)


@settings(max_examples=200, deadline=None)
@given(sites())
def test_no_second_of_a_node_is_charged_twice(site: Site) -> None:
    """Idle parts and what runs are charged never come to more than the nodes that are reserved or run on."""
    idle = site.charged()
    for second in range(END):
        names = {n for h in site.holdings if h.start <= second < h.end for n in h.nodes}
        runs = [o for o in site.occupants if o.nodes[0] in names and o.begin <= second < o.end]
        total = sum(amount for (_, s), amount in idle.items() if s == second)
        assert total + sum(o.charged for o in runs) <= sum(1000 * SIZES[n] for n in names)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from((-7, 3)), st.sampled_from("ab"), st.integers(0, 20), st.integers(0, 9)), max_size=6
    )
)
def test_one_reservation_is_told_once(pieces: list[tuple[int, str, int, int]]) -> None:
    """For each name and second one piece: slurmctld's if it told of it, else slurmdbd's."""
    told = [Holding(i, name, start, start + length) for i, name, start, length in pieces]
    found = told_once(told)
    for name in "ab":
        for second in range(40):
            given_ = [h for h in told if h.name == name and h.start <= second < h.end]
            kept = [h for h in found if h.name == name and h.start <= second < h.end]
            assert len(kept) == min(1, len(given_))
            if kept:
                assert (kept[0].id < 0) == any(h.id < 0 for h in given_)
