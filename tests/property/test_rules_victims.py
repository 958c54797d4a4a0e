"""Placement and the choice of victims against brute force on small clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import NodeShare, Request
from pyslurm_budget.domain.place import fit, rooms_of, take
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.victims import choose
from tests.build import HOUR, NOW, live, node, occupied, partitions_of, pending, running

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyslurm_budget.domain.model import Job, Node
    from pyslurm_budget.domain.situation import LiveRun

CPUS = 8
MEMORY = 8
GPUS = 4


@dataclass(frozen=True)
class Case:
    """Nodes without anything on them, the runs that may be stopped, and the job."""

    on: tuple[Node, ...]
    runs: tuple[LiveRun, ...]
    job: Job
    over: frozenset[str]

    def choose(self) -> tuple[LiveRun, ...] | None:
        at = occupied(self.on, [r.job for r in self.runs])
        partitions = {p.name: frozenset(p.nodes) for p in partitions_of(at)}
        return choose(self.job, rooms_of(at), partitions, self.runs, now=NOW, policy=Policy(), over=self.over)

    def left(self, stopped: Iterable[LiveRun]) -> dict[str, tuple[int, int, int]]:
        """GPUs, CPUs and memory of each node that are free when these runs are gone."""
        gone = {r.job.ref for r in stopped}
        free = {n.name: [n.gpus, n.cpus, n.memory_mb] for n in self.on}
        for run in self.runs:
            if run.job.ref not in gone:
                for s in run.job.allocation:
                    free[s.node] = [a - b for a, b in zip(free[s.node], (s.gpus, s.cpus, s.memory_mb), strict=True)]
        return {name: (a, b, c) for name, (a, b, c) in free.items()}

    def fits(self, stopped: Iterable[LiveRun]) -> bool:
        return can_place(self.job.request, self.left(stopped))


def can_place(asked: Request, free: dict[str, tuple[int, int, int]]) -> bool:
    """Brute force over node sets and over ways to deal the GPUs to them; CPUs and memory are dealt evenly."""
    most = asked.nodes_max if asked.nodes_max is not None else len(free)
    per_node = asked.gpus_per_node is not None
    for count in [asked.nodes_min] if per_node else range(asked.nodes_min, most + 1):
        cpus, memory = -(-asked.cpus // count), -(-asked.memory_mb // count)
        for names in combinations(sorted(free), count):
            if any(free[n][1] < cpus or free[n][2] < memory for n in names):
                continue
            least = 1 if asked.gpus and not per_node else 0
            ways = [[asked.gpus_per_node or 0]] * count if per_node else [range(least, GPUS + 1)] * count
            for deal in product(*ways):
                enough = per_node or sum(deal) == asked.gpus
                if enough and all(free[n][0] >= g for n, g in zip(names, deal, strict=True)):
                    return True
    return False


@st.composite
def shares(draw: st.DrawFn, names: list[str]) -> tuple[NodeShare, ...]:
    width = draw(st.sampled_from([1, 1, 1, 2]))
    on = draw(st.permutations(names))[: min(width, len(names))]
    return tuple(
        NodeShare(n, draw(st.integers(0, GPUS)), draw(st.integers(1, 3)), draw(st.integers(0, 3))) for n in sorted(on)
    )


def per_node_requests(nodes: int) -> st.SearchStrategy[Request]:
    return st.builds(
        lambda count, gpus, cpus, memory: Request(
            nodes_min=count,
            nodes_max=count,
            gpus=count * gpus,
            gpus_per_node=gpus,
            cpus=cpus * count,
            memory_mb=memory * count,
        ),
        st.integers(1, nodes),
        st.integers(0, GPUS),
        st.integers(1, CPUS),
        st.integers(0, MEMORY),
    )


def total_requests(nodes: int) -> st.SearchStrategy[Request]:
    return st.builds(
        lambda low, more, gpus, cpus, memory: Request(
            nodes_min=low,
            nodes_max=None if more is None else low + more,
            gpus=max(gpus, low),
            cpus=max(cpus, low),
            memory_mb=memory,
        ),
        st.integers(1, nodes),
        st.one_of(st.none(), st.integers(0, 2)),
        st.integers(1, 8),
        st.integers(1, 12),
        st.integers(0, 12),
    )


@st.composite
def cases(draw: st.DrawFn, requests: st.SearchStrategy[Request], most: int = 6) -> Case:
    on = tuple(node(f"n{i}", GPUS, cpus=CPUS, memory_mb=MEMORY) for i in range(draw(st.integers(1, 3))))
    left = {n.name: [n.gpus, n.cpus, n.memory_mb] for n in on}
    runs: list[LiveRun] = []
    for i in range(draw(st.integers(0, most))):
        wanted = draw(shares([n.name for n in on]))
        parts = []
        for s in wanted:
            gpus, cpus, memory = (
                min(x, room) for x, room in zip((s.gpus, s.cpus, s.memory_mb), left[s.node], strict=True)
            )
            if cpus:
                left[s.node] = [a - b for a, b in zip(left[s.node], (gpus, cpus, memory), strict=True)]
                parts.append(NodeShare(s.node, gpus, cpus, memory))
        if parts:
            ran = HOUR * draw(st.integers(1, 3)) + draw(st.integers(0, HOUR - 1))
            runs.append(live(running(i, *parts, start=NOW - ran), requeued=draw(st.sampled_from([0, 0, 0, 1, 3]))))
    over = draw(st.sets(st.sampled_from([r.job.ref for r in runs]))) if runs else set()
    return Case(on, tuple(runs), pending(99, request=draw(requests)), frozenset(over))


def sets_of(runs: Sequence[LiveRun]) -> Iterable[tuple[LiveRun, ...]]:
    return (chosen for size in range(len(runs) + 1) for chosen in combinations(runs, size))


def price(case: Case, chosen: Iterable[LiveRun]) -> tuple[bool, bool, int]:
    """What the design asks to be least: a run at its cap, a side within its allowance, GPUs x seconds lost."""
    runs = list(chosen)
    lost = 0
    for run in runs:
        gpus = sum(s.gpus for s in run.job.allocation)
        lost += max(gpus, 1) * min((NOW - run.start) % run.minimum, HOUR)
    return any(r.requeued >= 3 for r in runs), any(r.job.ref not in case.over for r in runs), lost


def any_request() -> st.SearchStrategy[Request]:
    return st.one_of(per_node_requests(3), total_requests(3))


@settings(max_examples=400, deadline=None)
@given(st.one_of(per_node_requests(3), total_requests(3)), st.data())
def test_fit_agrees_with_brute_force(asked: Request, data: st.DataObject) -> None:
    free = {
        f"n{i}": (data.draw(st.integers(0, GPUS)), data.draw(st.integers(0, CPUS)), data.draw(st.integers(0, MEMORY)))
        for i in range(data.draw(st.integers(1, 4)))
    }
    on = [
        node(n, GPUS, cpus=CPUS, memory_mb=MEMORY, gpus_used=GPUS - g, cpus_used=CPUS - c, memory_used_mb=MEMORY - m)
        for n, (g, c, m) in free.items()
    ]
    found = fit(asked, list(rooms_of(on).values()))
    assert (found is not None) == can_place(asked, free)
    for share in found or ():
        gpus, cpus, memory = free[share.node]
        assert 0 <= share.gpus <= gpus
        assert share.cpus <= cpus
        assert share.memory_mb <= memory
    if found is not None:
        assert len({s.node for s in found}) == len(found) >= asked.nodes_min
        assert sum(s.gpus for s in found) == asked.gpus
        assert sum(s.cpus for s in found) >= asked.cpus


@settings(max_examples=300, deadline=None)
@given(cases(any_request()))
def test_a_set_is_found_if_and_only_if_there_is_one(case: Case) -> None:
    assert (case.choose() is not None) == case.fits(case.runs)


@settings(max_examples=300, deadline=None)
@given(cases(any_request()))
def test_the_set_makes_room_and_nobody_in_it_is_needless(case: Case) -> None:
    found = case.choose()
    assume(found is not None)
    assert found is not None
    assert case.fits(found)
    for run in found:
        assert not case.fits([r for r in found if r is not run]), run.job.ref


@settings(max_examples=600, deadline=None)
@given(cases(any_request(), most=8))
def test_no_set_is_cheaper(case: Case) -> None:
    """On one node or several, with runs over several nodes among those that may be stopped."""
    found = case.choose()
    assume(found is not None)
    assert found is not None
    best = min(price(case, chosen) for chosen in sets_of(case.runs) if case.fits(chosen))
    assert price(case, found) == best


def cheapest_of(case: Case) -> int:
    """The least work lost by any set that makes room, by branch and bound over all runs: no limits, no levels."""
    runs = sorted(case.runs, key=lambda run: price(case, [run])[2])
    best = price(case, runs)[2] + 1

    def look(at: int, chosen: list[LiveRun], lost: int) -> None:
        nonlocal best
        if lost >= best or not case.fits([*chosen, *runs[at:]]):
            return
        if case.fits(chosen):
            best = lost
            return
        look(at + 1, [*chosen, runs[at]], lost + price(case, [runs[at]])[2])
        look(at + 1, chosen, lost)

    look(0, [], 0)
    return best


@st.composite
def larger_cases(draw: st.DrawFn) -> Case:
    """Six nodes full of runs of a GPU or two, half of them over two nodes: more than are tried in every
    combination. All are of sides over their allowance."""
    count = 6
    on = tuple(node(f"n{i}", GPUS, cpus=CPUS, memory_mb=MEMORY) for i in range(count))
    left = {n.name: GPUS for n in on}
    runs: list[LiveRun] = []
    for i in range(18):
        first = draw(st.integers(0, count - 1))
        names = {f"n{first}"} | ({f"n{(first + draw(st.integers(1, count - 1))) % count}"} if i % 2 == 0 else set())
        gpus = draw(st.integers(1, 2))
        if all(left[name] >= gpus for name in names):
            for name in names:
                left[name] -= gpus
            ran = HOUR + draw(st.integers(1, 6)) * 600
            parts = [NodeShare(name, gpus, gpus, 1) for name in sorted(names)]
            runs.append(live(running(i, *parts, start=NOW - ran), 2 * HOUR, protected_until=NOW - HOUR))
    request = draw(st.one_of(per_node_requests(4), total_requests(4)))
    return Case(on, tuple(runs), pending(99, request=request), frozenset(r.job.ref for r in runs))


@settings(max_examples=40, deadline=None)
@given(larger_cases())
def test_many_runs_over_several_nodes_cost_at_most_a_fifth_more_than_the_cheapest_set(case: Case) -> None:
    found = case.choose()
    assume(found is not None)
    assert found is not None
    assert price(case, found)[2] <= cheapest_of(case) * 12 // 10


# Requests with everything that placement can judge, on nodes that differ.

KINDS = ("a100", "h100")


@st.composite
def mixed_nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """One to three nodes with features, some with GPUs of two types."""
    found = []
    for i in range(draw(st.integers(1, 3))):
        of = draw(st.sampled_from([{"a100": 4}, {"h100": 4}, {"a100": 2, "h100": 2}]))
        found.append(
            node(
                f"n{i}",
                GPUS,
                cpus=CPUS,
                memory_mb=MEMORY,
                gpu_type=next(iter(of)),
                gpus_by_type=of if len(of) > 1 else {},
                features=frozenset(draw(st.sets(st.sampled_from("ab")))),
            )
        )
    return tuple(found)


@st.composite
def dressed(draw: st.DrawFn, names: list[str]) -> Request:
    """Any request, with a type, features, named and excluded nodes, whole nodes, or in units."""
    asked = draw(st.one_of(any_request(), unit_requests()))
    required = draw(st.sampled_from([(), (), (names[0],), tuple(names[:2])]))
    return replace(
        asked,
        gpu_type=draw(st.sampled_from([None, None, *KINDS])) if asked.gpus else None,
        features=draw(
            st.sampled_from([(), (), (frozenset("a"),), (frozenset("ab"),), (frozenset("a"), frozenset("b"))])
        ),
        required=required,
        excluded=frozenset(draw(st.sampled_from([(), (), (names[-1],)]))),
        exclusive=draw(st.sampled_from([False, False, True])),
    )


def unit_requests() -> st.SearchStrategy[Request]:
    return st.builds(
        lambda units, each, cpus, memory, low, most, node_memory: Request(
            nodes_min=min(low, units),
            nodes_max=most,
            gpus=units * each,
            cpus=units * cpus,
            memory_mb=units * memory,
            units=units,
            node_memory_mb=node_memory,
        ),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(0, 3),
        st.integers(1, 2),
        st.sampled_from([None, 2, 3]),
        st.sampled_from([None, None, 3, 8]),
    )


@st.composite
def mixed_cases(draw: st.DrawFn) -> Case:
    """Runs of one type each on such nodes, and a dressed request."""
    on = draw(mixed_nodes())
    runs: list[LiveRun] = []
    left = {n.name: {k: c for k, c in n.types.items() if k} for n in on}
    for i in range(draw(st.integers(0, 6))):
        n = draw(st.sampled_from(on))
        kind = draw(st.sampled_from(sorted(left[n.name])))
        gpus = min(draw(st.integers(1, 2)), left[n.name][kind])
        if gpus:
            left[n.name][kind] -= gpus
            part = NodeShare(n.name, gpus, 1, 1, ((kind, gpus),) if n.gpus_by_type else ())
            ran = HOUR + draw(st.integers(0, 3)) * 600
            runs.append(live(running(i, part, start=NOW - ran)))
    names = [n.name for n in on]
    over = frozenset(r.job.ref for r in runs)
    return Case(on, tuple(runs), pending(99, request=draw(dressed(names))), over)


def could(case: Case, stopped: Iterable[LiveRun]) -> bool:
    """Brute force over node sets and deals, from the words of the request and the counts of the runs alone."""
    asked, gone = case.job.request, {r.job.ref for r in stopped}
    stays = [r for r in case.runs if r.job.ref not in gone]
    free = {n.name: _free_on(n, asked, stays) for n in case.on if _may_use(n, asked, stays)}
    if not set(asked.required) <= set(free):
        return False
    least = max(asked.nodes_min, len(asked.required))
    most = least if asked.gpus_per_node is not None else asked.nodes_max or len(free)
    return any(
        _deals(asked, {n: free[n] for n in names})
        for count in range(least, most + 1)
        for names in combinations(sorted(free), count)
        if set(asked.required) <= set(names)
    )


def _may_use(n: Node, asked: Request, stays: Sequence[LiveRun]) -> bool:
    kinds = n.gpus_by_type or {n.gpu_type: n.gpus}
    featured = not asked.features or any(group <= n.features for group in asked.features)
    busy = any(s.node == n.name for r in stays for s in r.job.allocation)
    typed = asked.gpu_type is None or asked.gpu_type in kinds
    return featured and typed and n.name not in asked.excluded and not (asked.exclusive and busy)


def _free_on(n: Node, asked: Request, stays: Sequence[LiveRun]) -> tuple[int, int, int]:
    here = [s for r in stays for s in r.job.allocation if s.node == n.name]
    kinds: dict[Any, int] = dict(n.gpus_by_type) or {n.gpu_type: n.gpus}
    of = [asked.gpu_type] if asked.gpu_type else list(kinds)
    used = sum(c for s in here for k, c in (s.by_type or ((n.gpu_type, s.gpus),)) if k in of)
    gpus = sum(kinds[k] for k in of) - used
    return gpus, n.cpus - sum(s.cpus for s in here), n.memory_mb - sum(s.memory_mb for s in here)


def _deals(asked: Request, free: dict[str, tuple[int, int, int]]) -> bool:
    """Whether exactly these nodes hold it."""
    if asked.units is None:
        return can_place(replace(asked, nodes_min=len(free), nodes_max=len(free)), free)
    part = asked.gpus // asked.units, asked.cpus // asked.units, asked.memory_mb // asked.units
    if asked.node_memory_mb is not None:
        free = {n: (g, c, 99 * part[2] if m >= asked.node_memory_mb else -1) for n, (g, c, m) in free.items()}
    return any(
        sum(deal) == asked.units
        and all(
            u * p <= f for u, have in zip(deal, free.values(), strict=True) for p, f in zip(part, have, strict=True)
        )
        for deal in product(range(1, asked.units + 1), repeat=len(free))
    )


@settings(max_examples=200, deadline=None)
@given(mixed_cases())
def test_what_fits_and_what_is_cheapest_with_features_types_and_named_nodes(case: Case) -> None:
    found = case.choose()
    assert (found is not None) == could(case, case.runs)
    if found is not None:
        assert could(case, found)
        best = min(price(case, chosen) for chosen in sets_of(case.runs) if could(case, chosen))
        assert price(case, found) == best


@settings(max_examples=200, deadline=None)
@given(mixed_cases())
def test_a_placement_is_one_that_brute_force_knows(case: Case) -> None:
    at = occupied(case.on, [r.job for r in case.runs])
    rooms = rooms_of(at)
    found = fit(case.job.request, list(rooms.values()))
    assert (found is not None) == could(case, ())
    if found is not None:
        take(rooms, found)
        for room in rooms.values():
            assert min(room.gpus, room.cpus, room.memory_mb, *(room.by_type or {"": 0}).values()) >= 0
        assert set(case.job.request.required) <= {s.node for s in found}
