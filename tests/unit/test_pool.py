"""Pools and prices (design 4.1, 4.2): which nodes are interchangeable, and what a piece of work costs there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyslurm_budget.domain.policy import Policy, PoolRule
from pyslurm_budget.domain.pool import Shape, ceil_div
from tests.build import node, nodes, pending, pool_map, request

NODE = Shape(8000, 64, 512_000)


@pytest.mark.parametrize(
    ("gpus", "cpus", "memory_mb", "rate"),
    [
        (1, 8, 64_000, 1000),
        (1, 1, 1, 1000),
        (1, 8, 512_000, 8000),  # all the memory: the node
        (1, 64, 1, 8000),  # all the CPUs: the node
        (0, 64, 1, 8000),  # no GPU at all
        (0, 1, 1, 125),  # a 64th of eight GPUs
        (0, 0, 1, 1),  # rounded up, never to nothing
        (2, 17, 1, 2125),
    ],
)
def test_the_charge_is_by_the_largest_part(gpus: int, cpus: int, memory_mb: int, rate: int) -> None:
    assert NODE.charge(1000 * gpus, cpus, memory_mb) == rate


def test_a_site_may_charge_gpus_only() -> None:
    assert NODE.charge(1000, 64, 512_000, largest=False) == 1000


def test_parts_that_slurm_does_not_count_are_not_charged() -> None:
    assert Shape(8000, 0, 0).charge(1000, 64, 512_000) == 1000
    assert Shape(0, 64, 512_000).charge(0, 64, 512_000) == 0


@pytest.mark.parametrize(("a", "b", "quotient"), [(0, 3, 0), (1, 3, 1), (3, 3, 1), (4, 3, 2)])
def test_ceil_div(a: int, b: int, quotient: int) -> None:
    assert ceil_div(a, b) == quotient


def test_one_pool_per_flavor_and_none_without_gpus() -> None:
    pools = pool_map(
        [node("a"), node("b", gpu_type="h100"), node("c", gpus=4, gpu_type=None), node("d", gpus=0, gpu_type=None)]
    )
    assert {n.name: pools.pool_of(n) for n in pools.nodes} == {"a": "a100", "b": "h100", "c": "gpu", "d": None}
    assert {pool: [n.name for n in of] for pool, of in pools.members.items()} == {
        "a100": ["a"],
        "gpu": ["c"],
        "h100": ["b"],
    }


def test_a_site_may_join_flavors_and_name_partitions() -> None:
    rules = (PoolRule("owned", partitions=("owner",)), PoolRule("ampere", flavors=("a100", "a40")))
    pools = pool_map(
        [node("a"), node("b", gpu_type="a40"), node("c", partitions=("gpu", "owner")), node("d", gpu_type="h100")],
        Policy(pools=rules),
    )
    assert [pools.pool_of(n) for n in pools.nodes] == ["ampere", "ampere", "owned", "h100"]
    assert pools.pool_of_flavor("a40") == "ampere"
    assert pools.pool_of_flavor(None) == "gpu"


def test_size_counts_all_and_in_service_what_is_up() -> None:
    out = [
        node("a"),
        node("b", up=False),
        node("c", draining=True),  # drained: empty
        node("d", draining=True, gpus_used=1),  # still works
        node("e", reserved=True),
    ]
    pools = pool_map(out)
    assert pools.size("a100") == 40
    assert pools.in_service("a100") == 24
    assert pools.size("nowhere") == 0


def test_a_run_is_in_the_pool_of_its_first_known_gpu_node() -> None:
    pools = pool_map([node("a"), node("b", gpu_type="h100"), node("c", gpus=0, gpu_type=None)])
    assert pools.of_nodes(["gone", "c", "b", "a"]) == "h100"
    assert pools.of_nodes(["gone", "c"]) is None


def test_a_job_may_land_in_every_pool_of_its_partitions() -> None:
    pools = pool_map([node("a"), node("b", gpu_type="h100"), node("c", gpu_type="l40", partitions=("other",))])
    assert pools.of_request(pending()) == ("a100", "h100")
    assert pools.of_request(pending(partitions=("gpu", "other"))) == ("a100", "h100", "l40")
    assert pools.of_request(pending(partitions=("unknown",))) == ()


def test_a_typed_request_lands_on_its_type_only() -> None:
    pools = pool_map([node("a"), node("b", gpu_type="h100")])
    assert pools.of_request(pending(request=request(1, gpu_type="h100"))) == ("h100",)
    assert pools.of_request(pending(request=request(1, gpu_type="l40"))) == ()


def test_shape_of_several_nodes_is_their_sum() -> None:
    pools = pool_map(nodes(3))
    assert pools.shape_of(["n1", "n3", "gone"]) == Shape(16_000, 128, 1_024_000)


def test_the_price_is_that_of_the_dearest_shape() -> None:
    pools = pool_map([node("thin", 4, cpus=64), node("fat", 8, cpus=64)])
    assert pools.price(request(1, cpus=32), ["a100"], ["gpu"], largest=True) == 4000
    assert pools.price(request(1, cpus=32), ["a100"], ["gpu"], largest=False) == 1000


def test_only_nodes_of_the_partitions_make_the_price() -> None:
    pools = pool_map([node("a", 4, cpus=64), node("b", 8, cpus=64, partitions=("other",))])
    wide = request(1, cpus=32)
    assert pools.price(wide, ["a100"], ["gpu"], largest=True) == 2000
    assert pools.price(wide, ["a100"], ["gpu", "other"], largest=True) == 4000


def test_whole_nodes_cost_all_their_gpus() -> None:
    pools = pool_map(nodes(2))
    whole = request(1, exclusive=True)
    assert pools.price(whole, ["a100"], ["gpu"], largest=True) == 8000
    assert pools.price(replace(whole, nodes_min=2, nodes_max=2), ["a100"], ["gpu"], largest=True) == 16_000


def test_whole_nodes_never_cost_less_than_the_gpus_asked_for() -> None:
    """``--exclusive --gpus=16`` says one node at least, and takes two."""
    pools = pool_map(nodes(2))
    two = request(16, exclusive=True, nodes_min=1, nodes_max=None, gpus_per_node=None)
    assert pools.price(two, ["a100"], ["gpu"], largest=True) == 16_000


def test_a_typed_request_is_priced_on_its_type_only() -> None:
    """In a pool of joined flavors, as the submit plugin prices it: else both would never agree."""
    joined = Policy(pools=(PoolRule("all", flavors=("a100", "h100")),))
    pools = pool_map([node("a", 8), node("b", 8, gpu_type="h100", cpus=16)], joined)
    assert pools.price(request(1, gpu_type="a100"), ["all"], ["gpu"], largest=True) == 1000
    assert pools.price(request(1), ["all"], ["gpu"], largest=True) == 4000


def test_a_request_that_fits_no_known_shape_costs_its_gpus() -> None:
    assert pool_map(()).price(request(3), ["a100"], ["gpu"], largest=True) == 3000
