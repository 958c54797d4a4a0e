"""From a situation to a plan: what is changed, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import Controller, JobState, Mode
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import ClassMap, Policy
from pyslurm_budget.domain.steps import BACKED_BASE, STEPS, ladder
from tests.applying import after, applied, cycles, updates
from tests.build import (
    DAY,
    HOUR,
    NOW,
    array,
    held,
    live,
    node,
    nodes,
    pending,
    request,
    running,
    situation,
    tree,
    use,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Action, BudgetState
    from pyslurm_budget.domain.situation import Situation

FREE = replace(Policy(), ceiling_part=Fraction(100))
WEIGHTS = 1000
SIZE = ladder(WEIGHTS).size
CONTROLLER = Controller("alpha", NOW, (24, 11, 5), NOW - DAY, weights=WEIGHTS)


def plan(waiting: Sequence[Job], **changes: Any) -> Situation:
    return situation(waiting, **{"policy": FREE, "controller": CONTROLLER, **changes})


def actions(of: Situation) -> list[Action]:
    return [a for a in evaluate(of).plan.actions if not a.kind.is_requeue]


def spare(job_id: int, **changes: Any) -> Job:
    return pending(job_id, comment="min-runtime=0", **changes)


# Classes


def test_a_move_between_the_classes_is_one_update() -> None:
    (action,) = actions(plan([pending(1, qos="spare", time_limit=2 * HOUR)]))
    assert action.kind is ActionKind.SET_CLASS
    assert (action.ref, action.qos, action.site_factor) == ("1", "backed", BACKED_BASE + STEPS * SIZE)
    assert (action.expect_state, action.expect_qos, action.time_limit) == (JobState.PENDING, "spare", 2 * HOUR)
    assert action.reason.code == "admitted"


def test_what_does_not_fit_is_moved_to_spare_with_its_rank_there() -> None:
    job = pending(1, 8, comment="min-runtime=8h", priority=BACKED_BASE + 9 * SIZE)
    (action,) = actions(plan([job], uses=[use("red", 672 * HOUR)]))
    assert (action.qos, action.site_factor, action.reason.code) == ("spare", STEPS * SIZE, "not-admitted-headroom")


def test_every_qos_goes_to_its_own_twin() -> None:
    classes = ClassMap({"normal": "normal-spare", "high": "high-spare"})
    allowed = {("red", "alice"): frozenset({"normal", "normal-spare", "high", "high-spare"})}
    policy = replace(FREE, classes=classes)
    jobs = [spare(1, qos="high"), pending(2, qos="normal-spare")]
    assert {a.ref: a.qos for a in actions(plan(jobs, policy=policy, allowed_qos=allowed))} == {
        "1": "high-spare",
        "2": "normal",
    }


def test_no_qos_is_set_that_the_user_may_not_have() -> None:
    """Slurm would refuse it, every cycle again."""
    only = {("red", "alice"): frozenset({"backed"})}
    assert actions(plan([spare(1)], allowed_qos=only)) == []


def test_a_job_that_is_not_eligible_is_spare_at_the_lowest_step() -> None:
    (action,) = actions(plan([pending(1, reason="Dependency", eligible=None)]))
    assert (action.qos, action.site_factor) == ("spare", 0)
    assert actions(plan([pending(1, qos="spare", reason="Dependency", eligible=None)])) == []


def test_promotions_come_before_demotions_and_both_before_ranks() -> None:
    jobs = [spare(1), pending(2, qos="spare"), pending(3)]
    assert [(a.kind, a.ref) for a in actions(plan(jobs))] == [
        (ActionKind.SET_CLASS, "2"),
        (ActionKind.SET_CLASS, "1"),
        (ActionKind.SET_RANK, "3"),
    ]


def test_at_most_so_many_updates_a_cycle_the_most_useful_first() -> None:
    jobs = [spare(1), pending(2, qos="spare"), pending(3)]
    few = replace(FREE, updates_per_cycle=2)
    assert [a.ref for a in actions(plan(jobs, policy=few))] == ["2", "1"]


def test_requeues_are_not_crowded_out_by_updates() -> None:
    on = [node("n1", draining=True, reason="x", reason_since=NOW - HOUR)]
    run = live(running(101, held("n1", 8)))
    of = plan([spare(i) for i in range(5)], runs=[run], on=on, policy=replace(FREE, updates_per_cycle=1))
    assert [a.kind for a in evaluate(of).plan.actions] == [ActionKind.SET_CLASS, ActionKind.DRAIN]


# Ranks


def test_a_job_in_its_place_is_left_alone() -> None:
    job = pending(1, priority=BACKED_BASE + 7 * SIZE + 500)
    assert actions(plan([job])) == []


def test_ranks_follow_the_fair_order() -> None:
    jobs = [pending(1), pending(2, account="blue", user="bob"), pending(3, submit=NOW - HOUR + 1)]
    assert {a.ref: a.site_factor for a in actions(plan(jobs))} == {
        "2": BACKED_BASE + 160 * SIZE,
        "1": BACKED_BASE + 159 * SIZE,
        "3": BACKED_BASE + 157 * SIZE,
    }


def test_a_run_that_starts_gets_the_lowest_step_once() -> None:
    """A requeued job must not jump the queue."""
    run = live(running(101, priority=BACKED_BASE + 160 * SIZE + 500))
    of = plan((), runs=[run])
    (action,) = actions(of)
    assert (action.kind, action.ref, action.site_factor) == (ActionKind.RESET_RANK, "101", BACKED_BASE)
    assert (action.expect_state, action.qos) == (JobState.RUNNING, None)
    assert actions(after(of, evaluate(of).plan)) == []


def test_a_spare_run_is_reset_to_the_lowest_step_of_spare() -> None:
    of = plan((), runs=[live(running(101, qos="spare", priority=9 * SIZE))])
    assert [(a.kind, a.site_factor) for a in actions(of)] == [(ActionKind.RESET_RANK, 0)]


def test_runs_of_other_qos_are_left_alone() -> None:
    assert actions(plan((), runs=[live(running(101, qos="debug", priority=77 * SIZE))])) == []


# Arrays


def test_an_array_that_is_wholly_moved_is_not_split() -> None:
    of = plan([array(7, range(5), qos="spare")])
    assert updates(evaluate(of).plan) == [(ActionKind.SET_CLASS, "7_[0,1,2,3,4]")]


def test_a_part_of_an_array_is_moved_task_by_task() -> None:
    job = array(7, range(12), request=request(8), comment="min-runtime=8h", qos="spare")
    of = plan([job])
    assert updates(evaluate(of).plan) == [(ActionKind.SET_CLASS, f"7_{i}") for i in range(10)]
    of, _ = cycles(of, 1)
    assert [(j.ref, j.qos) for j in of.snapshot.jobs] == [
        *((f"7_{i}", "backed") for i in range(10)),
        ("7_[10,11]", "spare"),
    ]


def test_a_rank_never_splits_an_array() -> None:
    of = plan([array(7, range(5)), spare(8)])
    assert updates(evaluate(of).plan) == [(ActionKind.SET_CLASS, "8"), (ActionKind.SET_RANK, "7_[0,1,2,3,4]")]


def test_an_array_that_is_split_is_not_ranked_by_its_old_name() -> None:
    """``scontrol update JobId=7_[0-11]`` would rank the tasks that have left it, too."""
    job = array(7, range(12), request=request(8), comment="min-runtime=8h", qos="spare", priority=BACKED_BASE)
    of = plan([job])
    assert {a.ref for a in actions(of)} == {f"7_{i}" for i in range(10)}


@pytest.mark.parametrize("text", ["3-6", "3,4-5,6", "3-6%2", "3-5:1,6"])
def test_slurms_forms_of_a_task_list_cover_all_tasks(text: str) -> None:
    job = replace(array(7, [3, 4, 5, 6], qos="spare"), ref=f"7_[{text}]")
    assert updates(evaluate(plan([job])).plan) == [(ActionKind.SET_CLASS, f"7_[{text}]")]


def test_a_list_that_slurm_cut_covers_nothing() -> None:
    job = replace(array(7, [3, 4], qos="spare"), ref="7_[3,...]")
    assert updates(evaluate(plan([job])).plan) == [(ActionKind.SET_CLASS, "7_3"), (ActionKind.SET_CLASS, "7_4")]


def test_a_long_array_ends_with_some_tasks_backed_and_the_rest_spare() -> None:
    """From a backed QOS over spare as a whole to what is admitted; never are more tasks backed than admitted."""
    policy = replace(FREE, array_ahead=3)
    of = plan([array(7, range(9))], policy=policy, on=nodes(9))
    first = evaluate(of).plan
    assert updates(first) == [(ActionKind.SET_CLASS, "7_[0,1,2,3,4,5,6,7,8]")]
    assert first.actions[0].qos == "spare"
    of, last = cycles(of, 3)
    assert [(j.ref, j.qos) for j in of.snapshot.jobs] == [
        ("7_0", "backed"),
        ("7_1", "backed"),
        ("7_2", "backed"),
        ("7_[3,4,5,6,7,8]", "spare"),
    ]
    assert last.plan.actions == ()


# The states of the budgets


def state(of: Situation, name: str) -> BudgetState:
    return next(s for s in evaluate(of).plan.budgets if s.budget == name)


def test_what_a_budget_is_said_to_have() -> None:
    runs = [
        live(running(101, held("n1", 2), start=NOW - HOUR), minimum=3 * HOUR),
        live(running(102, held("n1", 1), qos="spare")),
    ]
    jobs = [pending(1, 3, account="blue", user="bob"), spare(2, account="blue", user="bob")]
    of = plan(jobs, runs=runs, uses=[use("blue", 100 * HOUR)])
    blue = state(of, "blue")
    gpu_h = 1000 * HOUR
    assert (blue.pool, blue.share, blue.allowance) == ("a100", "1/2", 672 * gpu_h)
    assert blue.overdraft == int(Fraction(2, 100) * 672 * gpu_h)
    assert (blue.charged, blue.outstanding) == (100 * gpu_h, 7 * gpu_h)
    assert blue.headroom == 672 * gpu_h + blue.overdraft - 107 * gpu_h
    assert (blue.backed_now, blue.spare_now, blue.waiting) == (2000, 1000, 4000)


def test_a_programme_is_the_sum_of_its_budgets() -> None:
    of = tree(org="1", red=("org", "1/2"), blue=("org", "1/2"))
    jobs = [pending(1, 2), pending(2, 3, account="blue", user="bob")]
    found = state(plan(jobs, tree=of, uses=[use("red", 8 * HOUR), use("blue", 8 * HOUR)]), "org")
    assert (found.charged, found.waiting, found.share) == (16_000 * HOUR, 5000, "1/1")


def test_every_budget_has_a_state_in_every_pool() -> None:
    found = evaluate(plan((), on=[node("n1"), node("n2", gpu_type="h100")])).plan.budgets
    assert [(s.budget, s.pool) for s in found] == [
        ("blue", "a100"),
        ("blue", "h100"),
        ("red", "a100"),
        ("red", "h100"),
    ]


# Observing


def test_observing_plans_the_same_and_asks_for_no_qos() -> None:
    jobs = [pending(1, qos="spare"), spare(2)]
    seen = evaluate(plan(jobs, mode=Mode.OBSERVE, allowed_qos={})).plan
    assert updates(seen) == [(ActionKind.SET_CLASS, "1"), (ActionKind.SET_CLASS, "2")]


def test_a_situation_without_jobs_plans_nothing() -> None:
    found = evaluate(plan(())).plan
    assert (found.actions, found.admissions, found.notes) == ((), (), ())


# The applier of these tests


def test_the_applier_refuses_what_is_not_as_expected() -> None:
    job = pending(1, qos="spare")
    (action,) = actions(plan([job]))
    with pytest.raises(AssertionError):
        applied([replace(job, qos="backed")], [action])
    with pytest.raises(AssertionError):
        applied([], [action])
