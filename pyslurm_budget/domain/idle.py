"""The idle part of reservations that were bought for accounts (design 4.2): holding costs.

Each second of each node is charged at most once. What runs there is charged to its own budget, and what is left of
the reservation is charged to the accounts that hold it, split evenly. Time in which a node was out of service is not
in the capacity, so nobody is charged for it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import Use
from pyslurm_budget.domain.holding import without
from pyslurm_budget.domain.model import Tres, WorkClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyslurm_budget.domain.capacity import Outage
    from pyslurm_budget.domain.holding import Holding
    from pyslurm_budget.domain.pool import PoolMap


@dataclass(frozen=True, slots=True)
class Occupant:
    """A run, or a part of it, on ``nodes`` in [begin, end): the rate that it takes there, and what is charged for it.
    Spare work takes, and is charged nothing."""

    account: str
    nodes: tuple[str, ...]
    begin: int
    end: int
    taken: int
    charged: int


@dataclass(frozen=True, slots=True)
class _Held:
    """What a holding has of one node."""

    holding: Holding
    rate: int


@dataclass(frozen=True, slots=True)
class _Idle:
    """What of it is idle in [begin, end)."""

    holding: Holding
    rate: int
    begin: int
    end: int


def idle_uses(
    holdings: Sequence[Holding],
    occupants: Iterable[Occupant],
    pools: PoolMap,
    budget_of: Callable[[str], str | None],
    belongs: Callable[[str, str], bool],
    *,
    out: Mapping[str, Sequence[Outage]],
) -> Iterator[Use]:
    """What the holdings charge to the budgets of their accounts, as time that nobody ran.

    ``belongs(account, holder)`` says whether an account is the holder or below it. Backed runs of the holders make a
    node's idle part smaller by what they are charged; spare runs of the holders do not, or a reservation filled with
    free work would be free; of runs of others, that began before or were let in, no second is charged again. While a
    node is ``out`` nothing of it is idle. The part of a run on each of its nodes is taken to be the same.
    """
    rates = [_by_node(h, pools) for h in holdings]
    held: dict[str, list[_Held]] = defaultdict(list)
    for holding, by_node in zip(holdings, rates, strict=True):
        for node, rate in by_node.items():
            held[node].append(_Held(holding, rate))
    there: dict[str, list[Occupant]] = defaultdict(list)
    for occupant in occupants:
        for node, share in _spread(occupant):
            if node in held:
                there[node].append(share)
    for node, on_it in held.items():
        pool = pools.of_nodes((node,))
        if pool is not None:
            for piece in _idle_of_node(pools.shape_of((node,)).rate, on_it, there[node], belongs):
                for begin, end in without((piece.begin, piece.end), [(o.begin, o.end) for o in out.get(node, ())]):
                    yield from _split(replace(piece, begin=begin, end=end), pool, budget_of)


def _by_node(holding: Holding, pools: PoolMap) -> dict[str, int]:
    """The rate that a holding takes of each of its nodes that are known and have GPUs."""
    nodes = [name for name in dict.fromkeys(holding.nodes) if name in pools.worth]
    whole = {name: pools.shape_of((name,)).rate for name in nodes}
    shape = pools.shape_of(nodes)
    total = sum(whole.values())
    wanted = total
    if holding.cpus is not None:
        gpus = pools.held(Tres(gpus=holding.gpus or 0), nodes)
        wanted = min(total, shape.charge(gpus, holding.cpus, 0))
    found: dict[str, int] = {}
    upto = given = 0
    for name, rate in whole.items():
        upto += rate
        found[name] = wanted * upto // total - given
        given += found[name]
    return found


def _spread(occupant: Occupant) -> Iterator[tuple[str, Occupant]]:
    """The occupant's part on each node; the parts add up."""
    count = len(occupant.nodes)
    for i, node in enumerate(occupant.nodes):
        taken, charged = (n * (i + 1) // count - n * i // count for n in (occupant.taken, occupant.charged))
        yield node, Occupant(occupant.account, (node,), occupant.begin, occupant.end, taken, charged)


def _idle_of_node(
    node_rate: int, held: Sequence[_Held], there: Iterable[Occupant], belongs: Callable[[str, str], bool]
) -> Iterator[_Idle]:
    """Wherever a holding has some of the node idle: one pass over all that begins and ends there."""
    starts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    changes: dict[int, list[tuple[int | None, int]]] = defaultdict(list)
    for place, h in enumerate(held):
        starts[h.holding.start].append((place, 1))
        starts[h.holding.end].append((place, -1))
    for o in there:
        for begin, end, owner in _owned(o, held, belongs):
            rate = o.taken if owner is None else o.charged
            changes[begin].append((owner, rate))
            changes[end].append((owner, -rate))
    active = [0] * len(held)
    taken, own = 0, [0] * len(held)
    for begin, end in pairwise(sorted(starts.keys() | changes.keys())):
        for place, sign in starts.get(begin, ()):
            active[place] += sign
        for owner, rate in changes.get(begin, ()):
            taken += rate
            if owner is not None:
                own[owner] += rate
        left = node_rate - taken
        for place in (i for i, there_is in enumerate(active) if there_is):
            idle = min(max(0, held[place].rate - own[place]), max(0, left))
            left -= idle
            if idle:
                yield _Idle(held[place].holding, idle, begin, end)


def _owned(
    o: Occupant, held: Sequence[_Held], belongs: Callable[[str, str], bool]
) -> Iterator[tuple[int, int, int | None]]:
    """The time of an occupant, by the first holding (its place) that there is and that it belongs to, if any."""
    taken: list[tuple[int, int]] = []
    for place, h in enumerate(held):
        begin, end = max(o.begin, h.holding.start), min(o.end, h.holding.end)
        if begin < end and any(belongs(o.account, account) for account in h.holding.accounts):
            for low, high in without((begin, end), taken):
                taken.append((low, high))
                yield low, high, place
    for low, high in without((o.begin, o.end), taken):
        yield low, high, None


def _split(idle: _Idle, pool: str, budget_of: Callable[[str], str | None]) -> Iterator[Use]:
    """A rate split over the accounts, the remainder to the first; the part of one without a budget is nobody's."""
    payers = idle.holding.payers(budget_of)
    each = idle.rate // len(payers)
    for i, budget in enumerate(payers):
        part = idle.rate - each * (len(payers) - 1) if i == 0 else each
        if budget is not None and part:
            yield Use(budget, f"({idle.holding.name})", pool, part, WorkClass.BACKED, idle.begin, idle.end)
