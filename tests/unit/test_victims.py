"""Which runs give way (design 4.6): example by example; brute force is in the property tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.place import rooms_of
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.victims import choose
from tests.build import HOUR, NOW, held, live, nodes, occupied, partitions_of, pending, request, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job, Node
    from pyslurm_budget.domain.situation import LiveRun


def run(job_id: int, on: str = "n1", gpus: int = 8, ran: int = 10 * HOUR, **changes: int) -> LiveRun:
    """A run that has ran seconds, with a contract of an hour: it would lose what it ran beyond a full hour."""
    return live(running(job_id, held(on, gpus), start=NOW - ran), **changes)


def chosen(
    job: Job, runs: Sequence[LiveRun], on: Sequence[Node] | None = None, over: Sequence[str] = ()
) -> list[str]:
    """Refs of the chosen runs; ``["none"]`` if no set will do."""
    at = occupied(on if on is not None else nodes(3), [r.job for r in runs])
    partitions = {p.name: frozenset(p.nodes) for p in partitions_of(at)}
    found = choose(job, rooms_of(at), partitions, runs, now=NOW, policy=Policy(), over=frozenset(over))
    return ["none"] if found is None else sorted(r.job.ref for r in found)


def test_the_run_that_loses_least_gives_way() -> None:
    runs = [run(1, "n1", ran=2 * HOUR + 600), run(2, "n2", ran=3 * HOUR + 60), run(3, "n3", ran=5 * HOUR + 1200)]
    assert chosen(pending(9, 8), runs) == ["2"]


def test_runs_of_sides_over_their_allowance_go_first_whatever_they_lose() -> None:
    runs = [run(1, "n1", ran=2 * HOUR + 3000), run(2, "n2"), run(3, "n3")]
    assert chosen(pending(9, 8), runs, over=["1"]) == ["1"]


def test_a_run_at_its_cap_of_requeues_goes_last_and_is_not_immune() -> None:
    runs = [run(1, "n1", requeued=3), run(2, "n2", ran=2 * HOUR + 3000), run(3, "n3", ran=2 * HOUR + 3100)]
    assert chosen(pending(9, 8), runs) == ["2"]
    assert chosen(pending(9, 8), runs[:1], nodes(1)) == ["1"]


def test_among_equal_losses_the_run_that_was_requeued_less_often() -> None:
    assert chosen(pending(9, 8), [run(1, "n1", requeued=2), run(2, "n2", requeued=1)], nodes(2)) == ["2"]


def test_then_the_longest_past_its_contract() -> None:
    assert chosen(pending(9, 8), [run(1, "n1", ran=2 * HOUR), run(2, "n2", ran=3 * HOUR)], nodes(2)) == ["2"]


def test_one_wide_run_is_better_than_several_dear_narrow_ones() -> None:
    """The sum counts, not the cheapest first one."""
    narrow = [run(i, "n1", gpus=1, ran=2 * HOUR + 3000) for i in range(1, 5)]
    wide = run(5, "n1", gpus=4, ran=2 * HOUR + 800)
    assert chosen(pending(9, 4), [*narrow, wide], nodes(1)) == ["5"]


def test_idle_gpus_are_used_before_anybody_is_stopped() -> None:
    runs = [run(1, "n1", gpus=2), run(2, "n1", gpus=2, ran=2 * HOUR + 1)]
    assert chosen(pending(9, 4), runs, nodes(1)) == []
    assert chosen(pending(9, 6), runs, nodes(1)) == ["1"]
    assert chosen(pending(9, 8), runs, nodes(1)) == ["1", "2"]


def test_no_set_where_none_would_do() -> None:
    assert chosen(pending(9, 16), [run(1), run(2, "n2")]) == ["none"]
    draining = nodes(1, draining=True)
    assert chosen(pending(9, 8), [run(1)], draining) == ["none"]


def test_whole_nodes_are_emptied_of_everybody() -> None:
    runs = [run(1, "n1", gpus=1), run(2, "n1", gpus=1), run(3, "n2", gpus=8, ran=2 * HOUR + 3000)]
    whole = pending(9, request=request(1, exclusive=True))
    assert chosen(whole, runs, nodes(2)) == ["1", "2"]


def test_of_several_nodes_the_cheapest_are_taken() -> None:
    on = nodes(4)
    runs = [run(i, f"n{i}", ran=2 * HOUR + lost) for i, lost in enumerate([900, 30, 800, 20], start=1)]
    wide = pending(9, request=request(16, nodes_min=2, nodes_max=2, gpus_per_node=8, cpus=128, memory_mb=1000))
    assert chosen(wide, runs, on) == ["2", "4"]


def test_a_total_over_any_number_of_nodes() -> None:
    runs = [run(i, f"n{i}", ran=2 * HOUR + lost) for i, lost in enumerate([900, 30, 800], start=1)]
    total = pending(9, request=request(16, nodes_max=None, gpus_per_node=None, cpus=16, memory_mb=1000))
    assert chosen(total, runs) == ["2", "3"]


def test_a_run_over_several_nodes_frees_all_of_them() -> None:
    two = live(running(1, held("n1", 8), held("n2", 8)))
    wide = pending(9, request=request(16, nodes_min=2, nodes_max=2, gpus_per_node=8, cpus=128, memory_mb=1000))
    assert chosen(wide, [two], nodes(2)) == ["1"]


def test_on_a_crowded_node_nobody_needless_is_stopped() -> None:
    """More runs than whose sets can all be looked at: the cheapest are taken in turn."""
    crowd = [run(i, "n1", gpus=1, ran=2 * HOUR + 10 * i) for i in range(1, 17)]
    on = nodes(1, 16)
    assert chosen(pending(99, 3), crowd, on) == ["1", "2", "3"]
    assert chosen(pending(99, 16), crowd, on) == sorted(r.job.ref for r in crowd)
