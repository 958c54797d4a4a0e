"""Does a request fit (design 4.6, rule 4)? Example by example; brute force is in the property tests."""

from __future__ import annotations

from pyslurm_budget.domain.model import Node, NodeShare, Request
from pyslurm_budget.domain.place import candidates, copy_rooms, fit, free, place, rooms_of, take
from tests.build import held, node, nodes, partitions_of, pending, request


def shares(asked: Request, *on: Node) -> tuple[NodeShare, ...] | None:
    return fit(asked, list(rooms_of(on).values()))


def where(asked: Request, *on: Node) -> list[tuple[str, int]] | None:
    found = shares(asked, *on)
    return None if found is None else [(s.node, s.gpus) for s in found]


def test_only_nodes_that_take_work_have_room() -> None:
    on = [node("a"), node("b", draining=True), node("c", up=False), node("d", reserved=True), node("e", gpus_used=3)]
    assert {n: r.gpus for n, r in rooms_of(on).items()} == {"a": 8, "e": 5}


def test_the_tightest_room_is_taken() -> None:
    assert where(request(2), node("a"), node("b", gpus_used=6), node("c", gpus_used=5)) == [("b", 2)]


def test_cpus_and_memory_must_fit_too() -> None:
    assert where(request(1), node("a", cpus_used=60)) is None
    assert where(request(1), node("a", memory_used_mb=511_000)) is None
    assert where(request(1), node("a", cpus_used=56)) == [("a", 1)]


def test_gpus_on_each_of_several_nodes() -> None:
    asked = request(16, nodes_min=2, nodes_max=2, gpus_per_node=8, cpus=128, memory_mb=1000)
    assert where(asked, *nodes(2)) == [("n1", 8), ("n2", 8)]
    assert where(asked, node("a"), node("b", gpus_used=1)) is None


def test_a_total_is_spread_over_as_few_nodes_as_it_can() -> None:
    asked = request(10, nodes_max=None, gpus_per_node=None, cpus=10)
    assert where(asked, *nodes(3)) == [("n1", 8), ("n2", 2)]
    assert where(asked, *nodes(1)) is None
    assert where(request(10, nodes_max=1, gpus_per_node=None), *nodes(3)) is None


def test_every_node_of_a_total_gets_a_gpu() -> None:
    asked = request(8, nodes_min=3, nodes_max=3, gpus_per_node=None, cpus=3)
    assert where(asked, *nodes(3)) == [("n1", 6), ("n2", 1), ("n3", 1)]


def test_no_node_of_a_total_is_without_a_gpu() -> None:
    """Slurm refuses fewer GPUs than nodes."""
    asked = request(1, nodes_min=3, nodes_max=3, gpus_per_node=None, cpus=3)
    assert where(asked, *nodes(3)) is None


def test_whole_nodes_need_nodes_on_which_nobody_runs() -> None:
    whole = request(1, exclusive=True)
    assert where(whole, node("a", gpus_used=1, cpus_used=1)) is None
    assert shares(whole, node("a", gpus_used=1, cpus_used=1), node("b")) == (NodeShare("b", 8, 64, 512_000),)


def test_work_without_gpus_may_spread_if_it_is_not_bound_to_one_node() -> None:
    asked = request(0, nodes_max=None, gpus_per_node=None, cpus=100, memory_mb=1000)
    assert where(asked, *nodes(2)) == [("n1", 0), ("n2", 0)]
    assert where(request(0, cpus=100, gpus_per_node=None), *nodes(2)) is None
    assert where(request(0, cpus=60, gpus_per_node=None), node("a", gpus_used=8, cpus_used=1)) == [("a", 0)]


def test_rooms_are_freed_and_taken() -> None:
    rooms = rooms_of([node("a", gpus_used=8, cpus_used=64, memory_used_mb=512_000)])
    copy = copy_rooms(rooms)
    free(copy, [held("a", 2), held("gone", 8)])
    assert (copy["a"].gpus, copy["a"].cpus, copy["a"].memory_mb) == (2, 16, 128_000)
    assert rooms["a"].gpus == 0
    take(copy, [held("a", 2)])
    assert copy == rooms
    free(copy, [held("a", 8)])
    assert copy["a"].idle


def test_only_nodes_of_the_partitions_and_of_the_type_are_asked() -> None:
    on = [node("a"), node("b", gpu_type="h100"), node("c", partitions=("other",))]
    partitions = {p.name: frozenset(p.nodes) for p in partitions_of(on)}
    rooms = rooms_of(on)
    assert [r.node for r in candidates(pending(), rooms, partitions)] == ["a", "b"]
    assert [r.node for r in candidates(pending(request=request(1, gpu_type="h100")), rooms, partitions)] == ["b"]
    assert [r.node for r in candidates(pending(partitions=("other", "gpu")), rooms, partitions)] == ["a", "b", "c"]


def test_slurm_never_spreads_a_job_over_two_partitions() -> None:
    on = [node("a"), node("c", partitions=("other",))]
    partitions = {p.name: frozenset(p.nodes) for p in partitions_of(on)}
    wide = request(16, nodes_min=2, nodes_max=2, gpus_per_node=8, cpus=2)
    assert place(pending(request=wide, partitions=("gpu", "other")), rooms_of(on), partitions) is None
    narrow = pending(request=request(8), partitions=("gpu", "other"))
    assert place(narrow, rooms_of(on[1:]), partitions) == (held("c", 8),)
