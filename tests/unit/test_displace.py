"""Who may take whose place (design 4.6): rules 1, 2 and 3, one by one, through whole evaluations.

One node of 8 GPUs, full of bob's run of blue that is past its contract; alice of red waits with 8 GPUs. Each budget
has 672 GPU-hours a week; an hour of 8 GPUs is 1.2 % of it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import JobState, RunKey
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import LiveRun, Requeued, Situation
from tests.build import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
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

    from pyslurm_budget.domain.books import Use
    from pyslurm_budget.domain.model import Job

FREE = replace(Policy(), ceiling_part=Fraction(100))
FULL = live(running(101, held("n1", 8)))
OVER = (use("blue", 680 * HOUR),)


def plan(
    waiting: Sequence[Job] = (), runs: Sequence[LiveRun] = (FULL,), uses: Sequence[Use] = OVER, **changes: Any
) -> Situation:
    """By default without a ceiling: one node's worth would be the whole queue."""
    changes.setdefault("policy", FREE)
    return situation(waiting or [pending(1, 8)], runs, uses=tuple(uses), **changes)


def stopped(of: Situation) -> dict[str, list[str]]:
    """Who is stopped for whom."""
    found: dict[str, list[str]] = {}
    for action in evaluate(of).plan.actions:
        if action.kind is ActionKind.DISPLACE:
            found.setdefault(action.for_ref or "-", []).append(action.ref)
    return found


def notes(of: Situation) -> dict[str, str]:
    """The code that is noted for each job."""
    return {str(n.numbers["job"]): n.code for n in evaluate(of).plan.notes if "job" in n.numbers}


def test_a_run_of_a_side_over_its_allowance_gives_way() -> None:
    assert stopped(plan()) == {"1": ["101"]}


def test_the_action_says_for_whom_and_why() -> None:
    (action,) = (a for a in evaluate(plan()).plan.actions if a.kind is ActionKind.DISPLACE)
    numbers = action.reason.numbers
    assert action.reason.code == "displaced-for"
    assert (numbers["for"], numbers["for_budget"], numbers["budget"]) == ("1", "red", "blue")
    assert (numbers["for_load"], numbers["load"], numbers["gpus"]) == (0, 101, 8)
    assert (action.expect_state, action.expect_qos, action.nodes) == (JobState.RUNNING, "backed", ("n1",))


# Rule 1: it waits for resources, and neither idle nor spare GPUs can hold it.


def test_what_idle_gpus_can_hold_is_left_to_slurm() -> None:
    assert stopped(plan(on=nodes(2))) == {}


def test_what_spare_runs_hold_is_left_to_slurm() -> None:
    spare = live(running(102, held("n2", 8), qos="spare"))
    assert stopped(plan(runs=[FULL, spare], on=nodes(2))) == {}


def test_idle_and_spare_gpus_together_are_room() -> None:
    half = live(running(102, held("n2", 4), qos="spare"))
    assert stopped(plan(runs=[FULL, half], on=nodes(2))) == {}


def test_room_is_given_once() -> None:
    """Two jobs wait, one node is idle: only for one of them somebody must go."""
    assert stopped(plan([pending(1, 8), pending(2, 8)], on=nodes(2))) == {"2": ["101"]}


def test_idle_gpus_of_another_pool_that_it_may_use_are_room_too() -> None:
    on = [node("n1"), node("n2", gpu_type="h100")]
    assert stopped(plan(on=on)) == {}
    typed = pending(1, request=request(8, gpu_type="a100"))
    assert stopped(plan([typed], on=on)) == {"1": ["101"]}


def test_a_whole_node_is_not_held_by_a_part_of_one() -> None:
    half = live(running(102, held("n2", 4)))
    whole = pending(1, request=request(1, exclusive=True))
    assert stopped(plan([whole], [FULL, half], on=nodes(2))) == {"1": ["101"]}


@pytest.mark.parametrize("reason", ["AssocGrpGRES", "QOSMaxJobsPerUserLimit", "Licenses"])
def test_who_waits_for_something_else_is_passed_over(reason: str) -> None:
    of = plan([pending(1, 8, reason=reason), pending(2, 8, submit=NOW - 2 * HOUR + 1)])
    assert stopped(of) == {"2": ["101"]}
    assert notes(of)["1"] == "waits-for-slurm"


@pytest.mark.parametrize("reason", ["Resources", "Priority", "BeginTime"])
def test_who_waits_for_room(reason: str) -> None:
    assert stopped(plan([pending(1, 8, reason=reason)])) == {"1": ["101"]}


@pytest.mark.parametrize("reason", ["", "None"])
def test_a_job_that_slurm_has_not_looked_at_displaces_nobody_yet(reason: str) -> None:
    assert stopped(plan([pending(1, 8, reason=reason)])) == {}


def test_nobody_is_stopped_for_a_job_whose_begin_time_is_to_come() -> None:
    """It would find the GPUs gone, or hold them idle: only its class is decided before."""
    assert stopped(plan([pending(1, 8, reason="BeginTime", eligible=NOW + 60)])) == {}


def test_a_job_in_a_reservation_is_left_to_slurm_and_ends_nothing() -> None:
    assert stopped(plan([pending(1, 8, reservation="course"), pending(2, 8)])) == {"2": ["101"]}


def test_a_request_that_cannot_be_judged_ends_the_search() -> None:
    of = plan([pending(1, request=request(1, special="features")), pending(2, 8)])
    assert stopped(of) == {}
    assert notes(of)["1"] == "cannot-judge"


def test_a_job_that_cannot_be_served_ends_the_search() -> None:
    of = plan([pending(1, 16, submit=NOW - 2 * HOUR), pending(2, 8)])
    assert stopped(of) == {}
    assert notes(of) == {"1": "no-room"}


def test_a_spare_job_displaces_nobody() -> None:
    assert stopped(plan([pending(1, 8, comment="min-runtime=0")])) == {}


def in_two() -> tuple[Any, ...]:
    """Two partitions of one node each: the first has no run that may be stopped."""
    return node("n1", partitions=("one",)), node("n2", partitions=("two",))


def test_each_partition_is_searched_for_itself() -> None:
    """A job that nobody can serve closes its own partition; a job of another is served."""
    runs = [live(running(101, held("n1", 8)), minimum=DAY), live(running(102, held("n2", 8)))]
    stuck = pending(1, 8, partitions=("one",), submit=NOW - 2 * HOUR)
    of = plan([stuck, pending(2, 8, partitions=("two",))], runs, on=in_two())
    assert stopped(of) == {"2": ["102"]}
    assert notes(of) == {"1": "no-room"}
    behind = pending(3, 8, partitions=("one", "two"))
    assert stopped(plan([stuck, behind], runs, on=in_two())) == {"3": ["102"]}
    assert (
        stopped(plan([replace(stuck, partitions=("one", "two"), request=request(9)), behind], runs, on=in_two()))
        == {}
    )


def test_a_job_that_is_over_before_the_one_it_passes_is_expected_to_start_is_served() -> None:
    first = pending(1, 16, submit=NOW - 2 * HOUR, expected=NOW + 2 * HOUR)
    assert stopped(plan([first, pending(2, 8, time_limit=2 * HOUR)])) == {"2": ["101"]}
    assert stopped(plan([first, pending(2, 8, time_limit=2 * HOUR + 60)])) == {}
    assert stopped(plan([first, pending(2, 8, time_limit=None)])) == {}


def test_what_is_completing_is_room_soon_but_not_for_ever() -> None:
    def leaving(ended: int) -> Situation:
        done = replace(pending(7, 8), state=JobState.OTHER, completing=True, leaving=(held("n2", 8),), ended=ended)
        full = node("n2", gpus_used=8, cpus_used=64)
        return plan([pending(1, 8), done], on=[node("n1"), full])

    assert stopped(leaving(NOW - 30)) == {}
    assert stopped(leaving(NOW - 5 * MINUTE)) == {"1": ["101"]}


def test_a_run_on_another_pools_nodes_gives_way_too() -> None:
    """An untyped job may land on both; the loads compared are those of the pool where the run is."""
    on = [node("n1"), node("n2", gpu_type="h100")]
    inside = live(running(101, held("n1", 8)), minimum=DAY)
    other = live(running(102, held("n2", 8)), pool="h100")
    assert stopped(plan(runs=[inside, other], on=on, uses=[use("blue", 680 * HOUR, pool="h100")])) == {"1": ["102"]}
    assert stopped(plan(runs=[inside, other], on=on, uses=OVER)) == {}


# Rule 2: past its contract, requeueable, not bigger, not much lost.


def test_never_inside_the_contract() -> None:
    job = running(101, held("n1", 8), start=NOW - 2 * HOUR)
    assert stopped(plan(runs=[live(job, minimum=2 * HOUR + 1)])) == {}
    assert stopped(plan(runs=[live(job, minimum=2 * HOUR)])) == {"1": ["101"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"requeueable": False},
        {"batch": False},
        {"completing": True},
        {"het": True},
        {"state": JobState.SUSPENDED},
    ],
)
def test_never_a_run_that_slurm_would_not_put_back(changes: dict[str, Any]) -> None:
    """Also one whose owner took ``Requeue`` away after its contract was frozen: it would be killed or go on."""
    job = replace(FULL.job, **changes)
    assert stopped(plan(runs=[live(job, stoppable=True)])) == {}


def test_never_a_run_that_is_to_be_left_alone() -> None:
    assert stopped(plan(runs=[replace(FULL, stoppable=False)])) == {}


def test_a_bigger_run_is_safe_for_a_quarter_of_an_hour() -> None:
    fresh = pending(1, 4, submit=NOW - 15 * MINUTE + 1)
    assert stopped(plan([fresh])) == {}
    assert stopped(plan([replace(fresh, eligible=NOW - 15 * MINUTE)])) == {"1": ["101"]}


def test_a_run_of_the_same_size_is_not() -> None:
    assert stopped(plan([pending(1, 8, submit=NOW - 20)])) == {"1": ["101"]}


def test_in_the_first_hour_little_is_lost() -> None:
    """The run began 2 h 11 min ago: it would lose 11 minutes of work."""
    run = live(running(101, held("n1", 8), start=NOW - 2 * HOUR - 11 * MINUTE))
    assert stopped(plan([pending(1, 8, submit=NOW - HOUR + 1)], [run])) == {}
    assert stopped(plan([pending(1, 8, submit=NOW - HOUR)], [run])) == {"1": ["101"]}
    less = live(running(101, held("n1", 8), start=NOW - 2 * HOUR - 10 * MINUTE))
    assert stopped(plan([pending(1, 8, submit=NOW - HOUR + 1)], [less])) == {"1": ["101"]}


# Rule 3: the more deserving side.


def test_both_within_the_other_must_be_clearly_more_loaded() -> None:
    """5 % of 672 GPU-hours are 33.6."""
    assert stopped(plan(uses=[use("blue", 33 * HOUR)])) == {}
    assert stopped(plan(uses=[use("blue", 34 * HOUR)])) == {"1": ["101"]}


def test_both_within_the_beneficiary_must_not_be_more_loaded_after() -> None:
    """Eight GPUs for eight hours are 64 GPU-hours."""
    long = pending(1, 8, comment="min-runtime=8h")
    assert stopped(plan([long], uses=[use("blue", 63 * HOUR)])) == {}
    assert stopped(plan([long], uses=[use("blue", 64 * HOUR)])) == {"1": ["101"]}


def test_over_its_allowance_no_margin_is_asked() -> None:
    """Red is at 99 %, blue just over 100 %."""
    uses = [use("blue", 672 * HOUR), use("blue", 1), use("red", 664 * HOUR)]
    assert stopped(plan(uses=uses)) == {"1": ["101"]}
    assert stopped(plan(uses=[use("blue", 672 * HOUR), use("red", 664 * HOUR)])) == {}


def test_with_the_overdraft_it_may_still_displace_and_beyond_it_is_not_even_backed() -> None:
    uses = [*OVER, use("red", 676 * HOUR)]
    assert stopped(plan(uses=uses)) == {"1": ["101"]}
    assert stopped(plan(uses=[*OVER, use("red", 679 * HOUR)])) == {}


def test_what_only_waits_makes_nobody_over() -> None:
    """Blue has used 90 %, and jobs of another 11 % wait: its load is 90 %, red's 98 %."""
    queue = [pending(10 + i, 8, account="blue", user="bob", comment="min-runtime=8h") for i in range(1)]
    queue += [pending(20, 2, account="blue", user="bob", comment="min-runtime=5h")]
    uses = [use("blue", 605 * HOUR), use("red", 660 * HOUR)]
    assert "1" not in stopped(plan([pending(1, 8), *queue], uses=uses))


def test_a_long_queue_of_its_own_does_not_make_a_budget_less_deserving() -> None:
    queue = [pending(i, 8, comment="min-runtime=8h", submit=NOW - HOUR + i) for i in range(1, 6)]
    assert stopped(plan(queue, uses=[use("blue", 100 * HOUR)])) == {"1": ["101"]}


def test_those_who_were_served_before_count() -> None:
    """Three runs of blue, five jobs of red of 64 GPU-hours each: two of them make up for blue's lead."""
    runs = [live(running(100 + i, held(f"n{i}", 8))) for i in range(1, 4)]
    queue = [pending(i, 8, comment="min-runtime=8h", submit=NOW - HOUR + i) for i in range(1, 6)]
    # Three nodes: 2,016 GPU-hours each.
    uses = [use("blue", 200 * HOUR)]
    assert sorted(stopped(plan(queue, runs, on=nodes(3), uses=uses))) == ["1", "2"]


def test_a_displaced_job_does_not_displace_back_within_a_contract() -> None:
    def back(at: int) -> Situation:
        mine = Requeued(at, ActionKind.DISPLACE, "1", RunKey(1, 0), "done", "red", "7", "blue", 8)
        return plan([pending(1, 8, submit=at)], requeued=(mine,))

    assert stopped(back(NOW - HOUR + 1)) == {}
    assert stopped(back(NOW - HOUR)) == {"1": ["101"]}


def test_users_of_one_budget_are_sides_of_their_own() -> None:
    run = live(running(101, held("n1", 8), account="red", user="carol"))
    assert stopped(plan(runs=[run], uses=[use("red", 100 * HOUR, user="carol")])) == {"1": ["101"]}
    assert stopped(plan(runs=[run], uses=[use("red", 100 * HOUR, user="alice")])) == {}


def test_users_are_compared_by_their_equal_parts() -> None:
    """Each has 336 of 672: carol, just over hers, gives way to alice; and alice beyond her line gets nothing."""
    run = live(running(101, held("n1", 8), account="red", user="carol"))

    def used(alice: int) -> list[Use]:
        return [use("red", 344 * HOUR, user="carol"), use("red", alice * HOUR, user="alice")]

    assert stopped(plan(runs=[run], uses=used(320))) == {"1": ["101"]}
    free = replace(FREE, overdraft=Fraction(1, 2))
    assert stopped(plan(runs=[run], uses=used(496), policy=free)) == {"1": ["101"]}  # 504 is her line
    assert stopped(plan(runs=[run], uses=used(504), policy=free)) == {}


def test_nobody_displaces_himself() -> None:
    """The paths of one user's jobs do not part, whatever he has used."""
    run = live(running(101, held("n1", 8), account="red", user="alice"))
    assert stopped(plan(runs=[run], uses=[use("red", 674 * HOUR, user="alice")])) == {}


def test_a_run_that_nobodys_share_pays_for_gives_way() -> None:
    assert stopped(plan(runs=[replace(FULL, budget=None)], uses=())) == {"1": ["101"]}


def test_the_sides_are_those_where_the_paths_part() -> None:
    """Blue itself has used little, its programme much: the programmes are compared."""
    of = tree(red="1/2", org="1/2", blue=("org", "1/2"), green=("org", "1/2"))
    uses = [use("green", 200 * HOUR, user="carol")]
    assert stopped(plan(tree=of, uses=uses)) == {"1": ["101"]}
    assert stopped(plan(tree=of, uses=[*uses, use("red", 200 * HOUR)])) == {}


def test_jobs_of_a_parents_own_account_are_a_side_of_their_own() -> None:
    """Org has handed out half to blue: the other half is the direct jobs' own."""
    of = tree(org="1", blue=("org", "1/2"))
    mine = pending(1, 8, account="org")
    assert stopped(plan([mine], tree=of, uses=[use("blue", 100 * HOUR)])) == {"1": ["101"]}
    assert stopped(plan([mine], tree=of, uses=[use("org", 100 * HOUR), use("blue", 100 * HOUR)])) == {}
    theirs = live(running(101, held("n1", 8), account="org", user="carol"))
    other = pending(1, 8, account="blue")
    assert stopped(plan([other], [theirs], tree=of, uses=[use("org", 100 * HOUR)])) == {"1": ["101"]}


# Wide jobs need no better load, but their turn.

WIDE = request(16, nodes_min=2, nodes_max=2, gpus_per_node=8, cpus=128, memory_mb=1000)
TWO = [live(running(100 + i, held(f"n{i}", 8))) for i in (1, 2)]
EQUAL = [use("blue", 100 * HOUR), use("red", 100 * HOUR)]


def test_a_wide_job_that_is_first_and_has_waited_needs_no_better_load() -> None:
    of = plan([pending(1, request=WIDE, submit=NOW - 10 * MINUTE)], TWO, EQUAL, on=nodes(2))
    assert stopped(of) == {"1": ["101", "102"]}
    assert {a.reason.code for a in evaluate(of).plan.actions if a.kind is ActionKind.DISPLACE} == {
        "displaced-for-wide"
    }
    early = plan([pending(1, request=WIDE, submit=NOW - 10 * MINUTE + 1)], TWO, EQUAL, on=nodes(2))
    assert stopped(early) == {}


def test_a_wide_job_that_is_not_first_needs_it() -> None:
    wide = pending(1, request=WIDE, submit=NOW - 30 * MINUTE)
    first = pending(2, 8, user="carol", submit=NOW - 2 * HOUR)
    on = [*nodes(2), node("n3")]
    assert stopped(plan([first, wide], TWO, EQUAL, on=on)) == {}
    blocked = replace(first, reason="AssocGrpGRES")
    busy = live(running(103, held("n3", 8)), minimum=DAY)
    assert stopped(plan([blocked, wide], [*TWO, busy], EQUAL, on=on)) == {"1": ["101", "102"]}


def test_a_wide_job_keeps_rule_2() -> None:
    inside = [TWO[0], replace(TWO[1], protected_until=NOW + 1)]
    assert stopped(plan([pending(1, request=WIDE)], inside, EQUAL, on=nodes(2))) == {}


# After a displacement.


def past(*ago: int) -> tuple[Requeued, ...]:
    """Runs that were stopped for job 1, so many seconds ago."""
    return tuple(
        Requeued(NOW - a, ActionKind.DISPLACE, f"9{i}", RunKey(90 + i, 0), "done", "blue", "1", "red", 8)
        for i, a in enumerate(ago)
    )


@pytest.mark.parametrize(
    ("ago", "code"),
    [
        ((30,), "room-is-being-made"),
        ((89,), "room-is-being-made"),  # KillWait 30 s and two cycles
        ((90,), "backing-off"),
        ((90 + 599,), "backing-off"),
        ((90 + 600,), None),
        ((2000, 90 + 600), "backing-off"),  # wasted twice: twice as long
        ((2000, 90 + 1200), None),
    ],
)
def test_a_wasted_preemption_is_followed_by_a_pause(ago: tuple[int, ...], code: str | None) -> None:
    of = plan(requeued=past(*ago))
    assert stopped(of) == ({"1": ["101"]} if code is None else {})
    assert notes(of).get("1") == code


def test_what_was_stopped_for_an_earlier_run_of_the_job_does_not_count() -> None:
    assert stopped(plan([pending(1, 8, submit=NOW - 20)], requeued=past(30))) == {"1": ["101"]}


def test_nobody_is_stopped_twice() -> None:
    """Both would fit the same run's place."""
    of = plan([pending(1, 4), pending(2, 4), pending(3, 4)])
    assert stopped(of) == {"1": ["101"]}


def test_a_run_that_is_drained_is_not_displaced_too() -> None:
    """It holds two nodes; one drains, the other would be room for alice."""
    run = live(running(101, held("n1", 8), held("n2", 8)))
    on = [node("n1", draining=True, reason="gpu", reason_since=NOW - HOUR), node("n2")]
    found = [(a.kind, a.ref) for a in evaluate(plan(runs=[run], on=on)).plan.actions if a.kind.is_requeue]
    assert found == [(ActionKind.DRAIN, "101")]


def test_only_runs_of_the_pool_are_stopped() -> None:
    elsewhere = live(running(101, held("n1", 8)), pool="h100")
    assert stopped(plan(runs=[elsewhere])) == {}


def test_the_margin_is_the_sites() -> None:
    policy = replace(FREE, margin=Fraction(1, 2))
    assert stopped(plan(uses=[use("blue", 336 * HOUR)], policy=policy)) == {}
    assert stopped(plan(uses=[use("blue", 336 * HOUR), use("blue", 1)], policy=policy)) == {"1": ["101"]}


CLAIMS = replace(FREE, engine="claim")


def takings(of: Situation) -> list[tuple[str, list[str], list[str]]]:
    """Of each taking the job, the runs of our own placement, and the others."""
    found = evaluate(of).plan.takings
    return [(t.job.ref, [a.ref for a in t.first], [a.ref for a in t.others]) for t in found]


def test_with_claims_slurm_may_take_others_too_the_dearest_last() -> None:
    long, short = running(102, held("n2", 8)), running(103, held("n3", 8))
    runs = [FULL, live(long, start=NOW - 2 * HOUR - 30 * MINUTE), live(short, start=NOW - 2 * HOUR - 10 * MINUTE)]
    of = plan(runs=runs, on=nodes(3), policy=CLAIMS)
    ((job, first, others),) = takings(of)
    assert (job, len(first)) == ("1", 1)
    assert [*first, *others] == sorted(
        [r.job.ref for r in runs], key=lambda ref: next(r.loss(NOW, HOUR) for r in runs if r.job.ref == ref)
    )
    assert takings(plan(runs=runs, on=nodes(3)))[0][2] == [], "the requeue engine stops what was judged to fit"


def test_with_claims_slurm_judges_what_we_cannot() -> None:
    asks = request(1, special="features")
    waiting = [pending(1, request=asks), pending(2, 8)]
    assert takings(plan(waiting, policy=CLAIMS))[0] == ("1", [], ["101"])
    assert takings(plan([replace(waiting[0], reason="Priority")], policy=CLAIMS)) == []
    assert takings(plan([replace(waiting[0], het=True)], policy=CLAIMS)) == []


@pytest.mark.parametrize(("ago", "served"), [(9 * MINUTE, False), (11 * MINUTE, True)])
def test_a_job_for_which_slurm_found_no_place_waits_before_it_tries_again(ago: int, *, served: bool) -> None:
    of = plan([pending(1, 8, submit=NOW - HOUR)], policy=CLAIMS, tried=(("1", NOW - ago), ("7", NOW - 5)))
    assert bool(takings(of)) is served
    twice = plan([pending(1, 8, submit=NOW - HOUR)], policy=CLAIMS, tried=(("1", NOW - 1900), ("1", NOW - ago)))
    assert takings(twice) == [], "twice as long after the second time"


def test_nobody_claims_while_a_run_inside_its_contract_stands_open() -> None:
    young = running(102, held("n2", 8), priority=1000)
    of = plan(runs=[FULL, live(young, protected_until=NOW + 60)], on=nodes(2), policy=CLAIMS)
    assert takings(of) == []
    assert notes(of)["102"] == "stands-open"
    closed = live(replace(young, priority=2_000_000), protected_until=NOW + 60)
    assert takings(plan(runs=[FULL, closed], on=nodes(2), policy=CLAIMS)) != []


def test_a_job_that_claims_keeps_its_rank_and_its_qos() -> None:
    of = plan([pending(1, 8, qos="claim", priority=3_000_000)], policy=CLAIMS)
    assert [a.ref for a in evaluate(of).plan.actions if a.expect_state is JobState.PENDING] == []


def test_no_more_is_planned_than_a_cycle_carries_out() -> None:
    """Looking for victims for a thousand jobs takes a minute; and one that needs more than an hour's holds up
    nobody."""
    runs = [live(running(100 + i, held(f"n{i}", 8))) for i in range(1, 4)]
    queue = [pending(i, 8, submit=NOW - HOUR + i) for i in range(1, 4)]
    two = replace(FREE, requeues_per_cycle=2)
    of = plan(queue, runs, [use("blue", 1000 * HOUR, rate=16_000)], on=nodes(3), policy=two)
    assert stopped(of) == {"1": ["101"], "2": ["102"]}
    assert evaluate(of).plan.notes == ()  # nothing was refused afterwards
    halves = [live(running(200 + i, held("n1", 4))) for i in (1, 2)]
    one = replace(FREE, requeues_per_cycle=1)
    of = plan(queue[:2], [*halves, *runs[1:2]], [use("blue", 1000 * HOUR, rate=16_000)], on=nodes(2), policy=one)
    assert list(stopped(of).values()) == [["102"]]
    big = [pending(1, request=WIDE, submit=NOW - HOUR), pending(2, 8, submit=NOW)]
    of = plan(big, runs, [use("blue", 1100 * HOUR, rate=16_000)], on=nodes(3), policy=one)
    assert stopped(of) == {"1": ["101", "102"]}  # the first of a cycle may have more, or it would never be served
    later = replace(of, policy=replace(one, requeues_per_hour=1))
    assert list(stopped(later)) == ["2"]
    assert notes(later) == {"1": "too-many-runs"}
