"""The cheapest runs to stop for one request, while no run lies on more than one node.

Each node offers, for each number of units that it could give (:class:`pyslurm_budget.domain.place.Demand`), the
cheapest of its runs that make room for them; then the cheapest nodes that give all units together are taken. Both
are exact up to the sizes named below; beyond them what was found so far counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain.place import demands, need_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyslurm_budget.domain.model import Request
    from pyslurm_budget.domain.place import Amount, Demand, Room
    from pyslurm_budget.domain.situation import LiveRun

Cost = tuple[int, int, int, int]
"""Work lost, earlier requeues, number of runs, ends of their contracts: sums over the runs, in this order."""
NOTHING: Cost = (0, 0, 0, 0)
STEPS = 4000
"""Steps of the search for the cheapest runs of one node; 12 runs never need more."""
STATES = 400_000
"""Largest table of nodes x units; above it units are dealt one by one, each to the node where it costs least."""
COUNTS = 4
"""Of a request that is open in its number of nodes and has more than ``SMALL`` units, so many numbers are tried."""
SMALL = 16


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    """A run that may be stopped: what that costs, and what it gives back on each node that matters."""

    run: LiveRun
    cost: Cost
    gives: Mapping[str, Amount]


Offer = tuple[Cost, tuple[Stop, ...]]


def plus(a: Cost, b: Cost) -> Cost:
    """The sum."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _over(have: Amount, more: Amount) -> Amount:
    return have[0] + more[0], have[1] + more[1], have[2] + more[2]


class Cheapest:
    """Answers for one request on the nodes of one partition. What a node offers is remembered."""

    def __init__(self, request: Request, usable: Sequence[Room], single: Iterable[Stop]) -> None:
        """``single`` are the runs that hold something on exactly one of the usable nodes."""
        self._request = request
        self._rooms = {room.node: room for room in usable}
        self._on: dict[str, list[Stop]] = {name: [] for name in self._rooms}
        for stop in sorted(single, key=lambda s: (s.cost, s.run.job.ref)):
            self._on[next(node for node in stop.gives if node in self._rooms)].append(stop)
        self._known: dict[tuple[str, Amount, Amount], Offer | None] = {}

    def beside(self, forced: Iterable[Stop]) -> Offer | None:
        """The cheapest runs that make room once the ``forced`` ones (over several nodes) are gone; none needed is an
        empty set, ``None`` that no set will do."""
        have = {name: room.free_of(self._request.gpu_type) for name, room in self._rooms.items()}
        for stop in forced:
            for node, more in stop.gives.items():
                if node in have:
                    have[node] = _over(have[node], more)
        if not have.keys() >= set(self._request.required):
            return None
        best: Offer | None = None
        tried = 0
        for demand in demands(self._request, len(have)):
            found = self._on_count(demand, have)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
            tried += found is not None
            if best is not None and (best[0] == NOTHING or (tried >= COUNTS and demand.units > SMALL)):
                break
        return best

    def _on_count(self, demand: Demand, have: Mapping[str, Amount]) -> Offer | None:
        """The cheapest for exactly so many nodes."""
        required = self._request.required
        most = demand.units - demand.count + 1
        offers = {}
        for name in have:
            found = self._offers(demand, name, have[name], most)
            if found:
                offers[name] = found
        if any(name not in offers for name in required) or len(offers) < demand.count:
            return None
        if most == 1:
            order = sorted(offers, key=lambda n: (n not in required, offers[n][0][0], n))
            return _sum(offers[name][0] for name in order[: demand.count])
        return _dealt(demand, offers, required)

    def _offers(self, demand: Demand, name: str, have: Amount, most: int) -> list[Offer]:
        """What making room for 1, 2... units costs on the node, as far as it can."""
        found: list[Offer] = []
        room = self._rooms[name]
        for units in range(1, most + 1):
            need = need_on(self._request, demand, room, units)
            key = (name, have, need)
            if key not in self._known:
                self._known[key] = cheapest_on(have, need, name, self._on[name])
            offer = self._known[key]
            if offer is None:
                break
            found.append(offer)
        return found


def cheapest_on(have: Amount, need: Amount, name: str, stops: Sequence[Stop]) -> Offer | None:
    """The cheapest of a node's runs (cheapest first) that leave it with what is needed."""
    lack = tuple(max(0, n - h) for n, h in zip(need, have, strict=True))
    if not any(lack):
        return NOTHING, ()
    gives = [stop.gives[name] for stop in stops]
    after = [(0, 0, 0)]  # what all from this one on give
    for more in reversed(gives):
        after.append(_over(after[-1], more))
    after.reverse()
    if any(a < b for a, b in zip(after[0], lack, strict=True)):
        return None
    best: Offer | None = None
    steps = 0
    # Each entry: the next run, what is still lacking, the cost so far, and who was taken.
    stack: list[tuple[int, tuple[int, ...], Cost, tuple[Stop, ...]]] = [(0, lack, NOTHING, ())]
    while stack:
        at, lacking, spent, chosen = stack.pop()
        if best is not None and (spent >= best[0] or steps > STEPS):
            continue
        steps += 1
        if not any(lacking):
            best = spent, chosen
            continue
        rest = after[at]
        if rest[0] < lacking[0] or rest[1] < lacking[1] or rest[2] < lacking[2]:
            continue
        g, c, m = gives[at]
        left = max(0, lacking[0] - g), max(0, lacking[1] - c), max(0, lacking[2] - m)
        stack.append((at + 1, lacking, spent, chosen))
        if left != lacking:
            stack.append((at + 1, left, plus(spent, stops[at].cost), (*chosen, stops[at])))
    return best


def _sum(offers: Iterable[Offer]) -> Offer:
    spent = NOTHING
    chosen: list[Stop] = []
    for cost, stops in offers:
        spent = plus(spent, cost)
        chosen += stops
    return spent, tuple(chosen)


def _dealt(demand: Demand, offers: Mapping[str, list[Offer]], required: Sequence[str]) -> Offer | None:
    """All units on exactly ``count`` nodes, at least one on each, at the least cost."""
    names = _worth_a_look(demand, offers, required)
    most = demand.units - demand.count + 1
    if len(names) * demand.count * demand.units * min(most, 16) > STATES:
        return _one_by_one(demand, {name: offers[name] for name in names}, required)
    table: dict[tuple[int, int], Offer] = {(0, 0): (NOTHING, ())}
    for name in names:
        entered = dict(table) if name not in required else {}
        for (count, units), (spent, chosen) in table.items():
            if count == demand.count:
                continue
            for i, (cost, stops) in enumerate(offers[name]):
                key = (count + 1, min(units + i + 1, demand.units))
                total = plus(spent, cost)
                if key not in entered or total < entered[key][0]:
                    entered[key] = total, (*chosen, *stops)
        table = entered
    return table.get((demand.count, demand.units))


def _worth_a_look(demand: Demand, offers: Mapping[str, list[Offer]], required: Sequence[str]) -> list[str]:
    """For each number of units the cheapest nodes that give it, one more for each named one: no other node can be
    better than the one of these that is free to take its part."""
    found = set(required)
    for i in range(demand.units - demand.count + 1):
        giving = sorted((offer[i][0], name) for name, offer in offers.items() if i < len(offer))
        found.update(name for _, name in giving[: demand.count])
    return sorted(found)


def _one_by_one(demand: Demand, offers: Mapping[str, list[Offer]], required: Sequence[str]) -> Offer | None:
    """The roomiest and cheapest nodes first; each further unit goes where it costs least."""
    order = sorted(offers, key=lambda n: (n not in required, -len(offers[n]), offers[n][-1][0], n))[: demand.count]
    given = dict.fromkeys(order, 1)
    for _ in range(demand.units - demand.count):
        more = [n for n in order if given[n] < len(offers[n])]
        if not more:
            return None
        given[min(more, key=lambda n: (offers[n][given[n]][0], n))] += 1
    return _sum(offers[name][units - 1] for name, units in given.items())
