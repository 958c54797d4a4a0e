"""Parts of a GPU: what MIG slices and shards come to in charges, prices, capacity, and at submission."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyslurm_budget.config import read_config, setting_lines
from pyslurm_budget.domain.capacity import pool_capacity
from pyslurm_budget.domain.carry import Carry
from pyslurm_budget.domain.holding import Holding
from pyslurm_budget.domain.idle import idle_uses
from pyslurm_budget.domain.model import Job, JobState, Mode, Node, Request, RunKey, RunRecord, Tres, WorkClass
from pyslurm_budget.domain.policy import Policy, PoolRule
from pyslurm_budget.domain.slices import asked, held, of_node, thousandths
from pyslurm_budget.domain.submit import SubmitRequest, decide
from pyslurm_budget.domain.table import parse, render
from pyslurm_budget.domain.tres import parse_tres
from pyslurm_budget.errors import ConfigError
from pyslurm_budget.service.facts import NO_FRACTION, FactMaker
from pyslurm_budget.service.tabledata import decision_table
from pyslurm_budget.slurm.nodes import nodes_of
from pyslurm_budget.slurm.request import request_of
from tests.build import NOW, node, pending, pool_map, request, situation, snapshot, tree

G1, G3 = "a100_1g.5gb", "a100_3g.20gb"
PARTS = {G1: Fraction(1, 7), G3: Fraction(1, 2), "shard": Fraction(1, 8)}
RULES = Policy(fractions=MappingProxyType(PARTS), pools=(PoolRule("a100", flavors=("a100", G1, G3)),))
KINDS = st.sampled_from([G1, G3, "a100", "h100"])
COUNTS = st.dictionaries(KINDS, st.integers(0, 60), max_size=4)


def sliced(name: str = "n1", **changes: object) -> Node:
    """A node of 28 slices: 4 GPUs."""
    return node(name, 28, gpu_type=G1, cpus=56, memory_mb=280_000, **changes)


def mixed(name: str = "n2", **changes: object) -> Node:
    """A node of two whole GPUs and four halves: 4 GPUs."""
    types = {"a100": 2, G3: 4}
    return node(name, 6, gpu_type=G3, gpus_by_type=types, cpus=56, memory_mb=280_000, **changes)


# What is held


@given(COUNTS)
def test_what_is_held_is_the_sum_of_the_parts_rounded_up_once(counts: dict[str, int]) -> None:
    total = sum(counts.values())
    exact = sum((n * PARTS.get(kind, Fraction(1)) for kind, n in counts.items()), Fraction(0))
    assert held(Tres(gpus=total, gpus_by_type=counts), PARTS) == ceil(1000 * exact)
    assert held(Tres(gpus=total, gpus_by_type=counts), {}) == 1000 * total


@given(COUNTS, st.integers(0, 5), st.sets(KINDS))
def test_devices_of_no_type_count_as_the_dearest_that_they_may_be(
    counts: dict[str, int], more: int, kinds: set[str]
) -> None:
    total = sum(counts.values()) + more
    assume(total)
    dearest = max((PARTS.get(kind, Fraction(1)) for kind in kinds), default=Fraction(1))
    exact = sum((n * PARTS.get(kind, Fraction(1)) for kind, n in counts.items()), more * dearest)
    assert held(Tres(gpus=total, gpus_by_type=counts), PARTS, kinds) == ceil(1000 * exact)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (f"gres/gpu=1,gres/gpu:{G1}=1", 143),
        (f"gres/gpu:{G1}=7", 1000),
        (f"gres/gpu=9,gres/gpu:{G1}=7,gres/gpu:a100=2", 3000),
        ("gres/gpu=2", 2000),
        ("gres/shard=4", 500),
        ("gres/shard=4,gres/shard:a100=4", 500),
        ("gres/shard:a100=3", 375),
        ("gres/gpu=1,gres/gpu:a100=1,gres/shard=8", 1000),  # a whole GPU: its shards are the same GPU
        (f"gres/gpu=1,gres/gpu:{G1}=2", 143),  # more of a type than in all: the total is believed
        ("gres/shard=18446744073709551614", 0),
        ("cpu=4", 0),
    ],
)
def test_what_is_held_by_example(text: str, rate: int) -> None:
    assert held(parse_tres(text), PARTS) == rate


@given(st.integers(0, 200), st.integers(0, 200), KINDS | st.none())
def test_what_is_asked_for_costs_what_holding_it_will(gpus: int, shards: int, kind: str | None) -> None:
    by_type = {} if kind is None or not gpus else {kind: gpus}
    got = Tres(gpus=gpus, shards=shards, gpus_by_type=by_type)
    assert asked(gpus, shards, kind, PARTS) == held(got, PARTS, [kind])


@given(COUNTS, st.integers(1, 60))
def test_a_node_never_holds_more_than_it_is(counts: dict[str, int], length: int) -> None:
    """Every device of a node taken, one job each, is charged the whole node and what was rounded up; all by one job
    exactly the node."""
    assume(sum(counts.values()))
    whole = of_node(node("n", sum(counts.values()), gpu_type=None, gpus_by_type=counts), PARTS)
    assert held(Tres(gpus=sum(counts.values()), gpus_by_type=counts), PARTS) == thousandths(whole)
    single = sum(n * held(Tres(gpus=1, gpus_by_type={kind: 1}), PARTS) for kind, n in counts.items())
    assert 0 <= single - 1000 * whole < sum(counts.values())


# Pools, prices and capacity


def test_a_pool_is_the_sum_of_its_parts() -> None:
    pools = pool_map([sliced(), mixed(), node("n3", 8), sliced("n4", up=False)], RULES)
    assert (pools.size("a100"), pools.in_service("a100")) == (20, 16)
    odd = pool_map([node("n1", 2, gpu_type=G1)], RULES)
    assert odd.size("a100") == Fraction(2, 7)


def test_capacity_of_a_pool_of_parts_is_exact_to_a_gpu_second_an_hour() -> None:
    size = Fraction(2, 7)
    hours = pool_capacity((), sampled=(), now=NOW, window=7 * 86400, hour=3600, size=size, in_service=size).hours
    assert {amount for _, _, amount in hours} == {1028}  # 3600 x 2 / 7 = 1028.57
    least = pool_capacity((), sampled=(), now=NOW, window=7 * 86400, hour=3600, size=0, in_service=size)
    assert least.total == 7 * 86400 * 2 // 49


@pytest.mark.parametrize(
    ("asks", "rate"),
    [
        (request(1, gpu_type=G1, cpus=1, memory_mb=1), 143),
        (request(7, gpu_type=G1, cpus=1, memory_mb=1), 1000),
        (request(1, gpu_type=G1, cpus=56, memory_mb=1), 4000),  # all CPUs of four GPUs
        (request(1, gpu_type=G3, cpus=1, memory_mb=1), 500),
        (request(1, gpu_type="a100", cpus=1, memory_mb=1), 1000),
        (request(1, cpus=1, memory_mb=1), 1000),  # any type: the dearest
        (request(0, shards=4, cpus=1, memory_mb=1), 500),
        (request(1, gpu_type=G1, cpus=1, memory_mb=1, exclusive=True), 4000),
    ],
)
def test_prices(asks: Request, rate: int) -> None:
    pools = pool_map([sliced(), mixed()], RULES)
    assert pools.of_request(pending(request=asks)) == ("a100",)
    assert pools.price(asks, ["a100"], ["gpu"], largest=True) == rate


def test_a_type_that_a_node_has_beside_others_may_be_asked_for() -> None:
    pools = pool_map([mixed()], RULES)
    assert pools.of_request(pending(request=request(1, gpu_type="a100"))) == ("a100",)
    assert pools.of_request(pending(request=request(1, gpu_type=G1))) == ()


# Runs


def record(text: str, nodes: tuple[str, ...] = ("n1",)) -> RunRecord:
    given = (RunKey(1, NOW), "1", "red", "ann", "backed", "gpu", "COMPLETED", NOW, NOW, NOW + 60, 0, None)
    return RunRecord(*given, parse_tres(text), 0, nodes)


def maker(rules: Policy = RULES, *of: Node) -> FactMaker:
    nodes = of or (sliced(), mixed())
    return FactMaker(rules, tree(), snapshot((), nodes), pool_map(nodes, rules))


@pytest.mark.parametrize(
    ("text", "on", "gpus", "rate", "flavor"),
    [
        (f"cpu=1,gres/gpu=2,gres/gpu:{G1}=2", ("n1",), 2, 286, G1),
        ("cpu=1,gres/gpu=2", ("n1",), 2, 286, G1),  # types are not accounted: by the node
        ("cpu=1,gres/gpu=2", ("n2",), 2, 2000, G3),  # the dearest of the node's
        ("cpu=1,gres/gpu=1,gres/gpu:a100=1", ("n2",), 1, 1000, "a100"),
        ("cpu=28,gres/gpu=2", ("n1",), 2, 2000, G1),  # half of the CPUs
        ("cpu=1,gres/shard=4", ("n2",), 0, 500, G3),
        ("cpu=1,gres/shard=4", ("gone",), 0, 500, None),
        (f"cpu=1,gres/gpu=3,gres/gpu:{G1}=3", ("gone",), 3, 429, G1),
    ],
)
def test_a_run_keeps_its_devices_and_is_charged_their_parts(
    text: str, on: tuple[str, ...], gpus: int, rate: int, flavor: str | None
) -> None:
    run = maker().from_record(record(text, on), WorkClass.BACKED)
    assert run is not None
    assert (run.gpus, run.rate, run.gpu_type, run.unknown) == (gpus, rate, flavor, None)
    assert run.pool == ("a100" if flavor else "gpu")


def test_the_charge_of_several_types_is_split_by_their_parts() -> None:
    run = maker().from_record(record(f"gres/gpu=3,gres/gpu:a100=1,gres/gpu:{G3}=2", ("n2",)), WorkClass.BACKED)
    assert run is not None
    assert [(part.flavor, part.gpus, part.rate) for part in run.parts] == [("a100", 1, 1000), (G3, 2, 1000)]
    assert run.rate == 2000


def test_shards_of_which_nobody_says_how_much_they_are_are_unknown() -> None:
    facts = maker(replace(RULES, fractions=MappingProxyType({G1: Fraction(1, 7)})))
    run = facts.from_record(record("cpu=1,gres/shard=4"), WorkClass.BACKED)
    assert run is not None
    assert (run.gpus, run.unknown) == (None, NO_FRACTION)
    job = Job(
        **{
            **{name: getattr(pending(), name) for name in Job.__slots__},
            "state": JobState.RUNNING,
            "start": NOW,
            "held_tres": parse_tres("cpu=1,gres/shard=4"),
        }
    )
    live = maker().from_job(replace(job, allocation=()), WorkClass.BACKED)
    assert live is not None
    assert (live.gpus, live.rate, live.unknown) == (0, 500, None)


@pytest.mark.parametrize(
    ("gpus", "cpus", "rate"),
    [(2, 1, 286), (28, 1, 4000), (1, 28, 2000), (1, 56, 4000), (None, None, 4000)],
)
def test_a_reservation_of_slices_charges_its_idle_part_as_slices(
    gpus: int | None, cpus: int | None, rate: int
) -> None:
    held = Holding(1, "course", NOW - 60, NOW, ("red",), (), ("n1",), gpus, cpus)
    (use,) = idle_uses([held], [], pool_map([sliced()], RULES), lambda account: account, lambda a, b: a == b, out={})
    assert (use.rate, use.pool, use.budget) == (rate, "a100", "red")


# What Slurm prints


def test_types_of_a_node_as_slurm_prints_them() -> None:
    text = (
        "NodeName=n1 CPUAlloc=0 CPUEfctv=16 CPUTot=16 "
        f"Gres=gpu:a100:2(S:0),gpu:{G3}:4(S:1),shard:a100:16(S:0) GresUsed=gpu:a100:0(IDX:N/A) OS=Linux "
        "RealMemory=64000 AllocMem=0 State=IDLE Partitions=gpu CfgTRES=cpu=16,mem=64000M,gres/gpu=6,gres/shard=16 "
        "AllocTRES=\n"
    )
    (found,) = nodes_of(text)
    assert dict(found.types) == {"a100": 2, G3: 4}
    assert of_node(found, PARTS) == 4  # shards are shares of GPUs that are there anyway


@pytest.mark.parametrize(
    ("fields", "shards"),
    [
        ({"ReqTRES": "cpu=1,gres/shard=4", "TresPerNode": "gres/shard:4"}, 4),
        ({"ReqTRES": "cpu=2", "NumNodes": "2-2", "TresPerNode": "gres/shard:3"}, 6),
        ({"ReqTRES": "cpu=2", "NumTasks": "3", "TresPerTask": "gres/shard=2"}, 6),
        ({"ReqTRES": "cpu=2,gres/gpu=1", "TresPerNode": "gres/gpu:1"}, 0),
    ],
)
def test_shards_that_a_job_asks_for(fields: dict[str, str], shards: int) -> None:
    found = request_of({"NumNodes": "1-1", "NumCPUs": "1", **fields})
    assert found.shards == shards
    assert (found.special is not None) == bool(shards)  # our own placement knows no shards


# At submission


FEW = st.integers(0, 30)
NODES = st.sampled_from([(sliced(),), (mixed(),), (sliced(), mixed())])


@given(NODES, st.sampled_from([G1, G3, "a100", None]), FEW, FEW, st.integers(1, 56), st.booleans())
def test_the_table_prices_as_the_controller(
    of: tuple[Node, ...], kind: str | None, gpus: int, shards: int, cpus: int, exclusive: bool
) -> None:
    """What the submit rules calculate from the published table is what the controller calculates from the nodes."""
    asks = request(gpus, gpu_type=kind, shards=shards, cpus=cpus, memory_mb=0, exclusive=exclusive)
    job = pending(request=asks)
    here = situation([job], on=of, policy=RULES, mode=Mode.ENFORCE)
    from pyslurm_budget.domain.evaluate import evaluate

    table = parse(render(decision_table(here, evaluate(here), 1, ())))
    assert table.fractions == PARTS
    submitted = SubmitRequest("red", "alice", "backed", gpus=gpus, gpu_type=kind, shards=shards, cpus=cpus,
                              exclusive=exclusive, time_limit=3600, partition="gpu")  # fmt: skip
    decision = decide(table, submitted, now=NOW, carry=Carry())
    if not here.pools.of_request(job):
        assert decision.code == "undecided"
        return
    assert decision.numbers["rate"] == here.pools.price(asks, ["a100"], ["gpu"], largest=True)


# The configuration


def read(text: str) -> Policy:
    return read_config(text, Path("/etc/sbudget/sbudget.toml")).policy


def test_the_configuration() -> None:
    text = f'[gpus.fractions]\n"{G1}" = "1/7"\nshard = "2/8"\nwhole = "1/1"\n'
    fractions = read(text).fractions
    assert fractions == {G1: Fraction(1, 7), "shard": Fraction(1, 4), "whole": 1}
    assert read("").fractions == {}
    lines = setting_lines(read_config(text, Path("x")))
    assert read("\n".join(lines)).fractions == fractions


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus = 3", "gpus: found 3; accepted is a section [gpus]"),
        ("[gpus]\nfractoins = {}", "unknown key gpus.fractoins (did you mean gpus.fractions?)"),
        ("[gpus.fractions]", "gpus.fractions: found a table; accepted is a section with entries"),
        (
            "[gpus.fractions]\nshard = 0.125",
            "gpus.fractions.shard: found 0.125; accepted is a part of a GPU in quotes",
        ),
        ("[gpus.fractions]\nshard = 1", "gpus.fractions.shard: found 1; accepted"),
        *(
            (f'[gpus.fractions]\nshard = "{bad}"', f"gpus.fractions.shard: found '{bad}'; accepted is a part")
            for bad in ("1/0", "0/8", "9/8", "-1/8", "0.5", "12%", "1/1001", "a", "1/8/2", "")
        ),
        ('[gpus.fractions]\n"a b" = "1/8"', "gpus.fractions: found 'a b'; accepted is a GPU type"),
    ],
)
def test_what_is_no_fraction_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert says in str(refused.value)
