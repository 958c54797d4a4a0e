"""Tricks that must gain nothing: one test for each row of the list that is about pure rules.

Rows are those of the project's list of what clever groups will try; the number is in the name of the test.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.budget import Budget
from pyslurm_budget.domain.candidate import candidates
from pyslurm_budget.domain.demand import Demand, demands
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.steps import BACKED_BASE, ladder
from tests.applying import after, cycles
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
    share,
    situation,
    tree,
    use,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.situation import Situation

FREE = replace(Policy(), ceiling_part=Fraction(10_000), overdraft=Fraction(0))
BOTH = {
    pair: frozenset({"backed", "spare"})
    for pair in (("red", "alice"), ("red", "carol"), ("blue", "bob"), ("org", "x"))
}


def plan(waiting: Sequence[Job], **changes: Any) -> Situation:
    """Red and blue have 672 GPU-hours a week each; no overdraft, and no ceiling unless a test is about it."""
    return situation(waiting, **{"policy": FREE, "allowed_qos": BOTH, **changes})


def backed(of: Situation) -> list[str]:
    return [a.ref for a in evaluate(of).plan.admissions if a.work_class is WorkClass.BACKED]


def test_row_1_one_second_contracts_are_priced_at_the_floor() -> None:
    """Ten GPU-hours are left: they back ten GPUs for an hour, and not 36,000 for a second."""
    jobs = [pending(i, 1, comment="min-runtime=1s") for i in range(1, 41)]
    honest = [pending(i, 1, comment="min-runtime=1h") for i in range(1, 41)]
    left = [use("red", 656 * HOUR), use("red", 6 * HOUR, rate=1000)]
    assert len(backed(plan(jobs, uses=left))) == len(backed(plan(honest, uses=left))) == 10


def test_row_2_always_the_cap_counts_at_once_and_is_no_shield() -> None:
    """It is in the load from its start, under the ceiling, and its loss is taken to be an hour at most."""
    long = live(running(101, held("n1", 8), account="red", user="alice", start=NOW), minimum=8 * HOUR)
    found = evaluate(plan((), runs=[long])).books
    assert found.load("red", "a100") == Fraction(64, 672)
    many = [pending(i, 8, comment="min-runtime=8h") for i in range(1, 41)]
    ceiling = replace(FREE, ceiling_part=Fraction(1, 2))
    tenth = tree(red="1/10", blue="9/10")
    assert len(backed(plan(many, policy=ceiling, on=nodes(10), tree=tenth))) == 5  # half of 80 GPUs
    past = live(running(101, held("n1", 8), start=NOW - 15 * HOUR), minimum=8 * HOUR)
    assert past.loss(NOW, Policy().loss_cap) == HOUR


def test_row_3_everything_spare_is_not_first_in_line_for_what_is_idle() -> None:
    """Its load is 0 for ever; spare work is ranked by all use."""
    cheat = pending(1, comment="min-runtime=0", submit=NOW - DAY)
    honest = pending(2, comment="min-runtime=0", account="blue", user="bob", submit=NOW)
    used = [use("red", 400 * HOUR, work_class=WorkClass.SPARE), use("blue", 80 * HOUR)]
    order = evaluate(plan([cheat, honest], uses=used)).classes.spare["a100"]
    assert [c.ref for c in order] == ["2", "1"]


def test_row_4_who_blocks_a_node_pays_for_the_node() -> None:
    all_cpus = pending(1, request=request(0, cpus=64))
    all_memory = pending(2, request=request(1, memory_mb=512_000))
    whole = pending(3, request=request(1, exclusive=True))
    found = candidates(plan([all_cpus, all_memory, whole]))
    assert [c.price.rate for c in found] == [8000, 8000, 8000]


def test_row_5_what_nobody_can_stop_pays_for_all_of_its_time() -> None:
    """``--no-requeue``, salloc: the contract is the time limit; above the cap it is spare."""
    shapes: list[dict[str, Any]] = [{"requeueable": False}, {"batch": False}]
    for shape in shapes:
        short = pending(1, 8, comment="min-runtime=1s", time_limit=8 * HOUR, **shape)
        (found,) = candidates(plan([short]))
        assert found.price.amount == 64_000 * HOUR
        endless = pending(1, 8, comment="min-runtime=1s", time_limit=8 * HOUR + 1, **shape)
        assert backed(plan([endless])) == []


def test_row_6_a_run_keeps_no_place_in_the_queue() -> None:
    """Its SiteFactor is reset when it starts: requeued by its owner, it stands behind those who wait."""
    steps = ladder(0)
    run = live(running(101, held("n1", 8), account="red", user="alice", priority=steps.factor(BACKED_BASE, 160)))
    of = plan([pending(1, 8, submit=NOW - 60, account="blue", user="bob")], runs=[run])
    of, _ = cycles(of, 1)
    (job,) = (r.job for r in of.runs)
    assert steps.read(job.priority, BACKED_BASE) == 0
    (waits,) = (j for j in of.snapshot.jobs if j.ref == "1")
    assert waits.priority > job.priority or steps.read(waits.priority, BACKED_BASE) == 0


def test_row_6_a_requeued_job_is_a_new_one() -> None:
    """Its admission was for the run before: it is asked anew."""
    first = plan([pending(1, 8, comment="min-runtime=8h")])
    of = after(first, evaluate(first).plan)
    again = tuple(replace(j, key=replace(j.key, submit=NOW), qos="spare") for j in of.snapshot.jobs)
    of = replace(of, snapshot=replace(of.snapshot, jobs=again), uses=(use("red", 616 * HOUR),))
    assert backed(of) == []


def test_row_9_what_grows_after_it_was_admitted_is_asked_anew() -> None:
    first = plan([pending(1, 1)], uses=[use("red", 640 * HOUR)])
    of = after(first, evaluate(first).plan)
    assert backed(of) == ["1"]
    for grown in (
        {"request": request(64, nodes_min=8, nodes_max=8, gpus_per_node=8)},
        {"comment": "min-runtime=8h", "request": request(8)},
        {"requeueable": False, "time_limit": 8 * HOUR, "request": request(8)},
    ):
        job = replace(of.snapshot.jobs[0], **grown)
        changed = replace(of, snapshot=replace(of.snapshot, jobs=(job,)))
        assert backed(changed) == []
        (move,) = evaluate(changed).plan.actions
        assert (move.kind, move.qos) == (ActionKind.SET_CLASS, "spare")


def test_row_12_flipping_shares_between_children_gives_no_second_budget() -> None:
    """Red's use stands in the programme's books; the hours before the flip are not blue's."""
    flip = NOW - DAY
    children = {
        "org": Budget("org", None, (share("1/2"),)),
        "red": Budget("red", "org", (share(1), share(0, since=flip))),
        "blue": Budget("blue", "org", (share(0), share(1, since=flip))),
    }
    of = tree(**children)
    jobs = [pending(i, 8, account="blue", user="bob", comment="min-runtime=8h") for i in range(1, 31)]
    fresh = plan(jobs, tree=of)
    assert len(backed(fresh)) == 1  # a day of half of eight GPUs: 96 GPU-hours, and not 672
    assert evaluate(fresh).books.books["blue", "a100"].allowance == 96_000 * HOUR
    spent = plan(jobs, tree=of, uses=[use("red", 640 * HOUR)])
    assert backed(spent) == []  # 32 are left of the programme, whoever has them


def test_row_14_what_cannot_start_locks_nobody_out() -> None:
    """Held, dependent, later, impossible: none of them holds headroom, nor keeps an admission for later."""
    mine = pending(99, 8, comment="min-runtime=8h", submit=NOW, user="carol")
    stops: list[dict[str, Any]] = [
        {"priority": 0, "reason": "JobHeldUser"},
        {"reason": "Dependency", "eligible": None},
        {"reason": "BeginTime", "eligible": NOW + DAY},
        {"reason": "BadConstraints"},
        {"reason": "PartitionTimeLimit"},
        {"reason": "QOSMaxGRESPerJob"},
    ]
    for stop in stops:
        dummies = [pending(i, 8, comment="min-runtime=8h", **stop) for i in range(1, 21)]
        assert backed(plan([*dummies, mine])) == ["99"], stop
        first = plan([pending(i, 8, comment="min-runtime=8h") for i in range(1, 11)])
        of = after(first, evaluate(first).plan)
        stopped = tuple(replace(j, **stop) for j in of.snapshot.jobs)
        of = replace(of, snapshot=replace(of.snapshot, jobs=(*stopped, mine)))
        assert backed(of) == ["99"], stop


def test_row_14_what_cannot_start_is_no_demand() -> None:
    """Held, dependent, later, impossible: nothing of it makes delivered against owed look worse."""
    jobs = [
        pending(1, 8, priority=0, reason="JobHeldUser"),
        pending(2, 8, eligible=None, reason="Dependency"),
        pending(3, 8, eligible=NOW + DAY, reason="BeginTime"),
        pending(4, 8, reason="BadConstraints"),
        pending(5, 800),
    ]
    assert demands(plan(jobs)) == {}


def test_row_21_a_long_queue_of_dummy_jobs_is_worth_no_more_than_the_pool() -> None:
    """Ten thousand jobs and tasks ask for the eight GPUs that there are; sent an hour ago or less, for nothing."""
    dummies = [pending(i, 8) for i in range(1, 51)] + [array(900, range(10_000))]
    assert demands(plan(dummies))["a100", "red"] == Demand(0, 8000)
    fresh = [replace(job, eligible=NOW - HOUR + 60) for job in dummies]
    assert demands(plan(fresh)) == {}


def test_row_26_a_huge_array_is_priced_task_by_task() -> None:
    """10,000 tasks: fifty are backed at a time, whatever QOS the array was submitted to."""
    big = [node(f"n{i}") for i in range(1, 41)]
    for qos in ("spare", "backed"):
        of = plan([array(7, range(10_000), qos=qos)], on=big)
        of, _ = cycles(of, 3)
        in_backed = [len(j.tasks) or 1 for j in of.snapshot.jobs if j.qos == "backed"]
        assert sum(in_backed) == 50
    few = plan([array(7, range(10_000), qos="spare")], on=big, uses=[use("red", 26_840 * HOUR, rate=320_000)])
    assert len(backed(few)) == 40  # of 26,880
