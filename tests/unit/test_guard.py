"""When nothing may be done, or not so much (design 4.8)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.guard import breaker, capped, quiet
from pyslurm_budget.domain.model import Controller, JobState, RunKey
from pyslurm_budget.domain.plan import Action, ActionKind, Reason
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import Requeued, Situation
from tests.build import HOUR, NOW, held, live, node, nodes, pending, running, situation, use


def requeue(ago: int, number: int = 1, **changes: Any) -> Requeued:
    given: dict[str, Any] = {
        "at": NOW - ago,
        "kind": ActionKind.DISPLACE,
        "ref": str(number),
        "key": RunKey(number, 0),
        "state": "done",
        "budget": "blue",
        "for_ref": "9",
        "for_budget": "red",
        "gpus": 1,
    }
    return Requeued(**{**given, **changes})


# Quiet after a restart


def restarted(ago: int) -> Situation:
    return situation(
        [pending(1, 8)],
        [live(running(101, held("n1", 8)))],
        uses=(use("blue", 680 * HOUR),),
        controller=Controller("alpha", NOW, (24, 11, 5), NOW - ago),
    )


@pytest.mark.parametrize(("ago", "silent"), [(0, True), (59, True), (60, False), (HOUR, False)])
def test_the_first_cycles_after_a_restart_plan_nothing(ago: int, silent: bool) -> None:
    of = restarted(ago)
    plan = evaluate(of).plan
    assert (quiet(of) is not None) == silent
    assert bool(plan.actions) != silent
    assert [n.code for n in plan.notes] == (["controller-restarted"] if silent else [])
    assert len(plan.admissions) == 1


def test_a_restart_while_the_snapshot_was_read_is_a_restart() -> None:
    """The clock was read before, the start after."""
    assert quiet(restarted(-1)) is not None


# The breaker


def broken(*requeued: Requeued, since: int = 0, **changes: Any) -> str | None:
    found = breaker(situation(requeued=tuple(requeued), **changes), since)
    return None if found is None else found.code


def test_three_lost_jobs() -> None:
    lost = [requeue(10 * i, i, state="lost") for i in range(3)]
    assert broken(*lost) == "breaker-lost"
    assert broken(*lost[:2]) is None


def test_only_the_last_ten_minutes_count_and_what_came_after_the_operator_resumed() -> None:
    lost = [requeue(600, i, state="lost") for i in range(3)]
    assert broken(*lost) == "breaker-lost"
    assert broken(*(replace(r, at=NOW - 601) for r in lost)) is None
    assert broken(*lost, since=NOW - 599) is None


def drained(name: str, since: int = NOW - 20, reason: str = "Kill task failed", **changes: Any) -> Any:
    return node(name, draining=True, reason=reason, reason_since=since, **changes)


def test_three_nodes_that_slurm_drained_after_our_requeues() -> None:
    names = ["n1", "n2", "n3"]
    ours = [requeue(30, i, nodes=(n,)) for i, n in enumerate(names)]
    assert broken(*ours, on=[drained(n) for n in names]) == "breaker-drained"
    assert broken(*ours, on=[drained(n) for n in names[:2]] + [node("n3")]) is None
    assert broken(*ours[:2], on=[drained(n) for n in names]) is None
    assert broken(*ours, on=[drained(n, reason="Not responding") for n in names]) is None
    assert broken(*ours, on=[drained(n, since=NOW - 31) for n in names]) is None
    assert broken(*ours, on=[drained(n, since=NOW - 30) for n in names]) == "breaker-drained"


def test_emptying_such_a_node_afterwards_does_not_hide_it() -> None:
    names = ["n1", "n2", "n3"]
    first = [requeue(30, i, nodes=(n,)) for i, n in enumerate(names)]
    then = [requeue(5, 10 + i, nodes=(n,)) for i, n in enumerate(names)]
    assert broken(*first, *then, on=[drained(n) for n in names]) == "breaker-drained"


QUARTER = replace(Policy(), breaker_part=Fraction(1, 4))


@pytest.mark.parametrize("state", ["sent", "done"])
def test_more_than_a_part_of_the_running_gpus(state: str) -> None:
    """What was stopped a moment ago counts as running: its place is being taken."""
    runs = [live(running(i, held(f"n{i}", 8))) for i in range(1, 11)]
    on = nodes(10)
    assert broken(requeue(30, gpus=26, state=state), runs=runs[:9], on=on, policy=QUARTER) == "breaker-requeued"
    assert broken(requeue(30, gpus=20, state=state), runs=runs, on=on, policy=QUARTER) is None
    assert broken(requeue(601, gpus=80, state=state), runs=runs, on=on, policy=QUARTER) is None


def test_on_a_small_cluster_a_few_gpus_are_no_alarm() -> None:
    """A quarter of 64 at least."""
    assert broken(requeue(100, gpus=16), policy=QUARTER) is None
    assert broken(requeue(100, gpus=17), policy=QUARTER) == "breaker-requeued"
    assert broken(requeue(100, gpus=17, kind=ActionKind.DRAIN), policy=QUARTER) is None


def test_no_requeue_is_no_alarm() -> None:
    assert broken() is None


# Caps


def action(ref: str, for_ref: str | None = None, kind: ActionKind = ActionKind.DISPLACE) -> Action:
    return Action(kind, ref, RunKey(int(ref), 0), Reason("x"), JobState.RUNNING, "backed", for_ref=for_ref)


def kept(policy: Policy, *actions: Action, requeued: tuple[Requeued, ...] = ()) -> tuple[list[str], int]:
    found, note = capped(situation(policy=policy, requeued=requeued), list(actions))
    return [a.ref for a in found], 0 if note is None else int(note.numbers["refused"])


THREE = replace(Policy(), requeues_per_cycle=3)


def test_all_runs_of_a_beneficiary_or_none() -> None:
    groups = [action("1", "a"), action("2", "a"), action("3", "b"), action("4", "b"), action("5", "c")]
    assert kept(THREE, *groups) == (["1", "2", "5"], 2)


def test_a_drain_is_a_group_of_its_own() -> None:
    runs = [action(str(i), kind=ActionKind.DRAIN) for i in range(5)]
    assert kept(THREE, *runs) == (["0", "1", "2"], 2)


def test_the_cap_of_an_hour_counts_what_was_done() -> None:
    policy = replace(THREE, requeues_per_hour=4)
    past = tuple(requeue(HOUR - 1, i) for i in range(2))
    assert kept(policy, *(action(str(i)) for i in range(4)), requeued=past) == (["0", "1"], 2)
    older = tuple(requeue(HOUR, i) for i in range(2))
    assert kept(policy, *(action(str(i)) for i in range(3)), requeued=older) == (["0", "1", "2"], 0)
    many = tuple(requeue(10, i) for i in range(9))
    assert kept(policy, action("1"), requeued=many) == ([], 1)


def test_updates_are_not_capped_here() -> None:
    updates = [action(str(i), kind=ActionKind.SET_RANK) for i in range(9)]
    assert kept(THREE, *updates) == ([str(i) for i in range(9)], 0)


def test_a_plan_says_that_requeues_were_left_for_later() -> None:
    runs = [live(running(100 + i, held(f"n{i}", 8))) for i in (1, 2)]
    on = [node(f"n{i}", draining=True, reason="x", reason_since=NOW - HOUR) for i in (1, 2)]
    plan = evaluate(situation((), runs, on, policy=replace(Policy(), requeues_per_cycle=1))).plan
    assert [a.ref for a in plan.actions if a.kind.is_requeue] == ["101"]
    assert [n.code for n in plan.notes] == ["requeue-cap"]


# Halted


def test_a_halted_plan_shows_and_does_nothing() -> None:
    of = restarted(HOUR)
    free = evaluate(of).plan
    halted = evaluate(of, halted=Reason("kill-switch")).plan
    assert free.actions
    assert halted.actions == ()
    assert halted.notes == (Reason("kill-switch"),)
    assert halted.admissions == free.admissions
    assert halted.budgets == free.budgets
