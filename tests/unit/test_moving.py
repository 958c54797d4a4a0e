"""Moving (design 4.6): who may be moved for whom, and that each run that is moved has somewhere to go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import JobState, Reservation, RunKey
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import LiveRun, Requeued, Situation
from tests.build import DAY, HOUR, MINUTE, NOW, held, live, node, nodes, pending, request, running, situation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job, NodeShare

# Runs that lose nothing: their contract of an hour has ended for the ninth time just now.
LIGHT = Policy()


def run(job_id: int, *on: NodeShare, minimum: int = HOUR, **changes: Any) -> LiveRun:
    """A backed run past its contract; of blue, which is not loaded, so nobody may be displaced."""
    return live(running(job_id, *on, **changes), minimum=minimum)


# Three GPUs of each of three nodes are idle: nine together, and eight on none.
SCATTERED = (
    run(101, held("n1", 3)),
    run(102, held("n1", 2)),
    run(103, held("n2", 4)),
    run(104, held("n2", 1)),
    run(105, held("n3", 3)),
    run(106, held("n3", 2)),
)


def spare(job_id: int, *on: NodeShare, **changes: Any) -> LiveRun:
    """A spare run."""
    return live(running(job_id, *on, qos="spare", **changes), minimum=0)


def of(waiting: Sequence[Job] = (), runs: Sequence[LiveRun] = SCATTERED, on: int = 3, **changes: Any) -> Situation:
    """By default a job of red that needs a whole node waits; red has used all that it may compare loads with."""
    return situation(waiting or [pending(1, 8, qos="spare")], runs, nodes(on), **changes)


def moved(at: Situation) -> dict[str, list[str]]:
    """Who is moved for whom."""
    found: dict[str, list[str]] = {}
    for action in evaluate(at).plan.actions:
        if action.kind is ActionKind.MOVE:
            found.setdefault(action.for_ref or "-", []).append(action.ref)
    return found


def made(at: Situation) -> list[tuple[str | None, tuple[str, ...]]]:
    """Places that are made."""
    return [(a.reservation, a.nodes) for a in evaluate(at).plan.actions if a.kind is ActionKind.RESERVE]


def waiting(job_id: int = 1, gpus: int = 8, **changes: Any) -> Job:
    """A spare job that waits."""
    return pending(job_id, gpus, qos="spare", comment="min-runtime=0", **changes)


def test_two_small_runs_go_where_gpus_are_idle() -> None:
    at = of([waiting()])
    assert moved(at) == {"1": ["101", "102"]}
    assert made(at) == [("sbudget_place_1", ("n1",))]


def test_a_place_for_a_spare_job_never_ends_before_the_job() -> None:
    (place,) = (a for a in evaluate(of([waiting(time_limit=2 * DAY)])).plan.actions if a.kind is ActionKind.RESERVE)
    assert (place.start, place.until) == (NOW, NOW + Policy().keep_room + 2 * DAY + DAY)


def test_the_set_that_loses_the_least_work() -> None:
    cheap = [r if r.job.allocation[0].node == "n3" else run_since(r, 20 * MINUTE) for r in SCATTERED]
    assert moved(of([waiting()], cheap)) == {"1": ["105", "106"]}


def run_since(given_run: LiveRun, ago: int) -> LiveRun:
    """The same run with its last contract ended ``ago``."""
    start = NOW - 9 * HOUR - ago
    return replace(given_run, start=start, job=replace(given_run.job, start=start))


def test_a_backed_job_needs_no_place_of_ours() -> None:
    """It is the first in Slurm's order; nobody is over his allowance here, and loads are not compared for a move."""
    at = of([pending(1, 8, user="bob", account="blue")])
    assert moved(at) == {"1": ["101", "102"]}
    assert made(at) == []


def test_what_spare_work_holds_is_slurms_to_give_to_a_backed_job() -> None:
    runs = (*SCATTERED[2:], spare(101, held("n1", 3)), spare(102, held("n1", 2)))
    assert moved(of([pending(1, 8, user="bob", account="blue")], runs)) == {}
    assert set(moved(of([waiting()], runs))) == {"1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": 3},
        {"eligible": NOW - 119},
        {"reason": "AssocGrpGRES"},
        {"reservation": "course"},
        {"request": request(8, special="features")},
        {"request": request(40, nodes_min=5, nodes_max=5, gpus_per_node=8)},
        {"partitions": ("nowhere",)},
    ],
)
def test_for_whom_nobody_is_moved(changes: dict[str, Any]) -> None:
    gpus = changes.pop("gpus", 8)
    job = replace(waiting(1, gpus), **changes)
    assert moved(of([job], on=3)) == {}


def test_it_needs_enough_idle_gpus() -> None:
    more = (*SCATTERED, run(107, held("n3", 2)))
    assert moved(of([waiting()], more)) == {}


def test_what_fits_already_is_left_to_slurm() -> None:
    assert moved(of([waiting()], on=4)) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"protected_until": NOW + 1},
        {"stoppable": False},
        {"job": {"requeueable": False}},
        {"job": {"batch": False}},
        {"job": {"het": True}},
        {"job": {"state": JobState.SUSPENDED}},
        {"job": {"reservation": "course"}},
        {"job": {"request": request(3, special="features")}},
        {"start": NOW - 9 * HOUR - 31 * MINUTE},
    ],
)
def test_who_is_never_moved(change: dict[str, Any]) -> None:
    """One run of each node, so that no pair of movable ones is enough."""

    def changed(r: LiveRun) -> LiveRun:
        inside = change.get("job", {})
        job = replace(r.job, **inside)
        return replace(r, job=job, **{k: v for k, v in change.items() if k != "job"})

    runs = [changed(r) if i % 2 == 0 else r for i, r in enumerate(SCATTERED)]
    assert moved(of([waiting()], runs)) == {}


def test_nobody_as_large_as_the_job_is_moved() -> None:
    """A run of four GPUs gives way to a job of five, not to one of four (which has no CPUs beside it)."""
    on = [node("n2"), node("n3", 5)]
    for gpus, expected in ((5, {"1": ["102"]}), (4, {})):
        job = waiting(1, request=request(gpus, cpus=60))
        assert moved(situation([job], [run(102, held("n2", 4))], on)) == expected


def test_a_moved_run_must_fit_elsewhere() -> None:
    """Nine GPUs are idle, but in threes: a run of four fits nowhere, so the node of the small ones is emptied."""
    four = tuple(r for r in SCATTERED if r.job.ref not in ("101", "102"))
    assert moved(of([waiting()], (*four, run(101, held("n1", 5))))) == {"1": ["105", "106"]}


def test_not_again_within_four_hours() -> None:
    before = Requeued(
        NOW - 4 * HOUR + 1, ActionKind.MOVE, "101", RunKey(101, NOW - 5 * HOUR), "done", "blue", "9", None, 3
    )
    again = replace(before, key=SCATTERED[0].job.key)
    assert moved(of([waiting()], requeued=(again,))) == {"1": ["105", "106"]}
    assert moved(of([waiting()], requeued=(replace(again, at=NOW - 4 * HOUR),))) == {"1": ["101", "102"]}


def test_at_most_so_many_a_cycle_and_none_at_all() -> None:
    two = [waiting(1), waiting(2)]
    runs = [*SCATTERED, run(107, held("n4", 5)), run(108, held("n5", 5))]
    assert sum(map(len, moved(of(two, runs, on=5)).values())) == 2
    assert sum(map(len, moved(of([waiting()], policy=replace(Policy(), moves_per_cycle=1))).values())) == 0
    assert moved(of([waiting()], policy=replace(Policy(), moves_per_cycle=0))) == {}


def test_a_job_over_nodes() -> None:
    """Two whole nodes: one is empty; of the others the one with the fewer runs is made so."""
    job = waiting(request=request(16, nodes_min=2, nodes_max=2, gpus_per_node=8))
    runs = [run(101, held("n1", 1)), run(102, held("n1", 1)), run(103, held("n2", 5))]
    assert moved(of([job], runs)) == {"1": ["103"]}
    assert made(of([job], runs)) == [("sbudget_place_1", ("n2", "n3"))]


def test_a_wasted_move_stops_moving_for_a_while() -> None:
    """A run that was moved still waits after five minutes."""
    still = pending(101, 3, user="bob", account="blue", submit=NOW - 299)
    old = Requeued(NOW - 301, ActionKind.MOVE, "101", RunKey(101, NOW - 9 * HOUR), "done", "blue", "9", None, 3)
    runs = (*SCATTERED[1:], run(109, held("n1", 3)))
    at = of([waiting(), still], runs, requeued=(old,))
    assert moved(at) == {}
    assert "moves-wasted" in {note.code for note in evaluate(at).plan.notes}
    assert moved(of([waiting(), still], runs, requeued=(replace(old, at=NOW - 299),))) != {}
    assert moved(of([waiting(), still], runs, requeued=(replace(old, at=NOW - 901),))) != {}


def test_nothing_goes_to_a_node_that_is_reserved_before_it_ends() -> None:
    """n2 and n3 are wanted for a course in an hour: runs with a week's limit cannot go there."""
    course = Reservation("course", ("n2", "n3"), NOW + HOUR, NOW + DAY)
    at = of([waiting()])
    assert moved(replace(at, snapshot=replace(at.snapshot, reservations=(course,)))) == {}


RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans(), st.integers(0, 100)), max_size=14)


@given(RUNS, st.integers(4, 8), st.integers(1, 3))
def test_after_a_move_everybody_has_a_place(drawn: list[tuple[int, int, bool, int]], gpus: int, count: int) -> None:
    """Whatever runs: once the moved are gone the job fits on its nodes, and all of them fit on the others."""
    room, runs = [8] * 4, []
    for i, (on, size, is_spare, ago) in enumerate(drawn):
        if room[on] >= size:
            room[on] -= size
            make = spare if is_spare else run
            one = make(101 + i, held(f"n{on + 1}", size), start=NOW - 9 * HOUR - ago * MINUTE)
            runs.append(replace(one, minimum=HOUR))
    wanted = request(gpus * count, nodes_min=count, nodes_max=count, gpus_per_node=gpus)
    at = situation([waiting(1, request=wanted)], runs, nodes(4))
    found = moved(at)
    if sum(1 for r in room if r >= gpus) >= count or sum(room) < gpus * count:
        assert found == {}
    for refs in found.values():
        gone = [r for r in runs if r.job.ref in refs]
        assert len(gone) <= 2
        ((_, names),) = made(at)
        after = list(room)
        for r in gone:
            assert (NOW - r.start) % HOUR <= 30 * MINUTE
            after[int(r.job.allocation[0].node[1:]) - 1] += r.job.allocation[0].gpus
        assert all(after[int(name[1:]) - 1] >= gpus for name in names)
        others = sorted((after[i] for i in range(4) if f"n{i + 1}" not in names), reverse=True)
        sizes = sorted((r.job.allocation[0].gpus for r in gone), reverse=True)
        assert _packs(sizes, others)


def _packs(sizes: list[int], rooms: list[int]) -> bool:
    """Whether all sizes fit into the rooms, by trying all ways."""
    if not sizes:
        return True
    return any(
        _packs(sizes[1:], [*rooms[:i], rooms[i] - sizes[0], *rooms[i + 1 :]])
        for i in range(len(rooms))
        if rooms[i] >= sizes[0]
    )
