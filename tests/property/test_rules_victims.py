"""Placement and the choice of victims against brute force on small clusters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import NodeShare, Request
from pyslurm_budget.domain.place import fit, rooms_of
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


@settings(max_examples=300, deadline=None)
@given(cases(per_node_requests(1), most=8))
def test_for_one_node_no_set_loses_less(case: Case) -> None:
    found = case.choose()
    assume(found is not None)
    assert found is not None
    best = min(price(case, chosen) for chosen in sets_of(case.runs) if case.fits(chosen))
    assert price(case, found) == best


@settings(max_examples=200, deadline=None)
@given(cases(st.one_of(per_node_requests(3), total_requests(3)), most=6))
def test_over_several_nodes_nobody_of_a_better_protected_kind_is_stopped_needlessly(case: Case) -> None:
    """The search is greedy there, but it never takes a run at its cap, or of a side within its allowance, if there is
    a set without one."""
    found = case.choose()
    assume(found is not None)
    assert found is not None
    best = min(price(case, chosen) for chosen in sets_of(case.runs) if case.fits(chosen))
    assert price(case, found)[:2] == best[:2]
