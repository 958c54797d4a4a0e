"""Which pending jobs are backed, and how long they stay so (design 4.3)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import Mode, WorkClass
from pyslurm_budget.domain.policy import Policy
from tests.applying import after, cycles
from tests.build import HOUR, NOW, array, node, nodes, pending, request, situation, tree, use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Plan
    from pyslurm_budget.domain.situation import Situation

FREE = replace(Policy(), ceiling_part=Fraction(100))
BOTH = {pair: frozenset({"backed", "spare"}) for pair in (("red", "alice"), ("red", "carol"), ("blue", "bob"))}


def plan(waiting: Sequence[Job], **changes: Any) -> Situation:
    """One node: each of red and blue has 672 GPU-hours a week, and 685 with its overdraft."""
    return situation(waiting, **{"policy": FREE, "allowed_qos": BOTH, **changes})


def classes(of: Situation) -> dict[str, str]:
    return {a.ref: str(a.work_class) for a in evaluate(of).plan.admissions}


def reasons(of: Plan) -> dict[str, str]:
    return {a.ref: a.reason.code for a in of.admissions}


def long(job_id: int, **changes: Any) -> Job:
    """Eight GPUs for eight hours: 64 GPU-hours."""
    return pending(job_id, 8, comment="min-runtime=8h", **changes)


def test_what_fits_is_backed_and_the_rest_spare() -> None:
    found = classes(plan([long(i, submit=NOW - HOUR + i) for i in range(1, 13)]))
    assert [ref for ref, c in found.items() if c == "backed"] == [str(i) for i in range(1, 11)]
    assert [ref for ref, c in found.items() if c == "spare"] == ["11", "12"]


def test_a_small_one_behind_a_big_one_that_does_not_fit_is_backed() -> None:
    of = plan([long(1), pending(2, 1, submit=NOW)], uses=[use("red", 660 * HOUR)])
    assert classes(of) == {"1": "spare", "2": "backed"}


def test_an_admission_says_what_it_was_priced_at() -> None:
    (found,) = evaluate(plan([long(1)])).plan.admissions
    assert (found.rate, found.contract, found.price_length, found.budget, found.pool) == (
        8000,
        8 * HOUR,
        8 * HOUR,
        "red",
        "a100",
    )
    assert found.reason.code == "admitted"
    assert found.reason.numbers["price"] == 64 * 1000 * HOUR


def test_a_refusal_says_where_and_by_how_much() -> None:
    of = plan([long(1)], uses=[use("red", 672 * HOUR)])
    (found,) = evaluate(of).plan.admissions
    assert found.reason.code == "not-admitted-headroom"
    left = int(Fraction(102, 100) * 672 * HOUR * 1000) - 672 * HOUR * 1000
    assert found.reason.numbers["limit"] == "red"
    assert found.reason.numbers["left"] == left
    assert found.reason.numbers["price"] == 64 * 1000 * HOUR


def test_every_ancestor_is_asked() -> None:
    of = tree(org="1/4", red=("org", "1"), blue="3/4")
    found = evaluate(plan([long(1)], tree=of, uses=[use("red", 300 * HOUR)])).plan.admissions
    assert found[0].work_class is WorkClass.SPARE
    assert found[0].reason.numbers["limit"] in ("red", "org")


def test_it_must_fit_in_every_pool_that_it_may_land_on() -> None:
    on = [node("n1"), node("n2", gpu_type="h100")]
    of = plan([long(1)], on=on, uses=[use("red", 672 * HOUR, pool="h100")])
    assert classes(of) == {"1": "spare"}
    typed = pending(1, request=request(8, gpu_type="a100"), comment="min-runtime=8h")
    assert classes(plan([typed], on=on, uses=[use("red", 672 * HOUR, pool="h100")])) == {"1": "backed"}


def test_it_is_promised_in_every_pool_that_it_may_land_on() -> None:
    on = [node("n1"), node("n2", gpu_type="h100")]
    of = plan([long(1)], on=on)
    books = evaluate(of).books
    assert [books.books["red", pool].committed[-1] for pool in ("a100", "h100")] == [64_000 * HOUR] * 2


def test_what_is_not_eligible_holds_nothing() -> None:
    held = [replace(long(i, submit=NOW - HOUR + i), reason="Dependency") for i in range(1, 21)]
    of = plan([*held, long(30, submit=NOW)])
    assert classes(of)["30"] == "backed"
    assert evaluate(of).books.books["red", "a100"].committed[-1] == 64_000 * HOUR


def test_the_ceiling_counts_what_is_admitted() -> None:
    """A tenth of the pool may have half of it inside contracts."""
    of = situation([pending(i, 1) for i in range(1, 7)], allowed_qos=BOTH, tree=tree(red="1/10", blue="9/10"))
    found = evaluate(of).plan
    assert [a.ref for a in found.admissions if a.work_class is WorkClass.BACKED] == ["1", "2", "3", "4"]
    assert reasons(found)["5"] == "not-admitted-ceiling"


# Promises


def test_an_admission_is_kept_though_a_more_deserving_job_comes() -> None:
    first = plan([long(1, user="alice")], uses=[use("red", 600 * HOUR)])
    of = after(first, evaluate(first).plan)
    carol = long(2, user="carol", submit=NOW - 2 * HOUR, qos="spare")
    of = replace(of, snapshot=replace(of.snapshot, jobs=(*of.snapshot.jobs, carol)))
    assert classes(of) == {"1": "backed", "2": "spare"}
    of = replace(of, admissions={})  # without the promise carol, who has used nothing, would be asked first
    of = replace(of, snapshot=replace(of.snapshot, jobs=tuple(replace(j, qos="spare") for j in of.snapshot.jobs)))
    assert classes(of) == {"1": "spare", "2": "backed"}


def test_an_admission_keeps_its_time_its_number_and_its_reason() -> None:
    first = plan([long(1)])
    (before,) = evaluate(first).plan.admissions
    later = after(first, evaluate(first).plan)
    clock = replace(later.snapshot.controller, now=NOW + 30)
    later = replace(later, snapshot=replace(later.snapshot, controller=clock))
    (now,) = evaluate(later).plan.admissions
    assert (now.since, now.sequence, now.reason.code) == (before.since, before.sequence, "admitted")


def over(of: Situation, gpu_hours: int) -> Situation:
    return replace(of, uses=(use("red", gpu_hours * HOUR),))


def test_a_promise_holds_while_the_budget_is_within_its_line_though_it_would_not_fit_any_more() -> None:
    first = plan([long(1)])
    kept = after(first, evaluate(first).plan)
    assert classes(over(kept, 680)) == {"1": "backed"}
    assert classes(over(plan([long(1)]), 680)) == {"1": "spare"}


def test_it_is_recalled_when_the_budget_has_used_more_than_its_line() -> None:
    first = plan([long(1)])
    kept = after(first, evaluate(first).plan)
    assert classes(over(kept, 685)) == {"1": "backed"}  # 685.44 is the line
    found = evaluate(over(kept, 686)).plan
    assert reasons(found) == {"1": "demoted-over-budget"}
    assert found.admissions[0].reason.numbers["budget"] == "red"


def test_a_recalled_promise_is_recalled_once() -> None:
    """It is spare then, and is backed again when it fits, as any other."""
    first = plan([long(1)])
    of, third = cycles(over(after(first, evaluate(first).plan), 686), 2)
    assert third.plan.actions == ()
    assert reasons(third.plan) == {"1": "not-admitted-headroom"}
    assert classes(over(of, 100)) == {"1": "backed"}


def test_a_job_that_comes_back_has_its_class_whatever_is_left() -> None:
    of = plan([long(1)], uses=[use("red", 686 * HOUR)], returning=frozenset({"1"}))
    assert reasons(evaluate(of).plan) == {"1": "returning"}


def test_a_job_that_comes_back_is_first_in_its_budget() -> None:
    of = plan([long(1), long(2, submit=NOW)], uses=[use("red", 580 * HOUR)], returning=frozenset({"2"}))
    found = evaluate(of)
    assert classes(of) == {"1": "spare", "2": "backed"}
    of = plan([long(1), long(2, submit=NOW)], returning=frozenset({"2"}))
    assert [c.ref for c in evaluate(of).classes.backed["a100"]] == ["2", "1"]
    assert found.plan.admissions[1].reason.code == "returning"


def test_a_spare_job_that_comes_back_asks_for_nothing() -> None:
    of = plan([pending(1, comment="min-runtime=0")], returning=frozenset({"1"}))
    assert classes(of) == {"1": "spare"}


def test_what_the_plugin_let_in_goes_before_what_waits() -> None:
    """Alice was told "backed" at submit; carol's spare job has waited for long."""
    alice = long(1, user="alice", submit=NOW)
    carol = long(2, user="carol", submit=NOW - HOUR, qos="spare")
    of = plan([alice, carol], uses=[use("red", 580 * HOUR, user="alice")])
    assert classes(of) == {"1": "backed", "2": "spare"}
    assert classes(replace(of, mode=Mode.OBSERVE)) == {"1": "spare", "2": "backed"}


def test_a_changed_job_is_asked_anew_and_by_its_turn() -> None:
    """Within a budget that has room for one more; carol waits for her turn since before the change."""
    first = plan([pending(1, 1, user="alice", submit=NOW)], uses=[use("red", 600 * HOUR, user="alice")])
    of = after(first, evaluate(first).plan)
    grown = replace(of.snapshot.jobs[0], request=request(8), comment="min-runtime=8h")
    carol = long(2, user="carol", submit=NOW - HOUR, qos="spare")
    of = replace(of, snapshot=replace(of.snapshot, jobs=(grown, carol)))
    assert classes(of) == {"1": "spare", "2": "backed"}


# Arrays


def test_as_many_of_the_lowest_tasks_as_fit() -> None:
    of = plan([array(7, range(20), request=request(8), comment="min-runtime=8h", qos="spare")])
    found = classes(of)
    assert [ref for ref, c in found.items() if c == "backed"] == [f"7_{i}" for i in range(10)]


def test_at_most_so_many_tasks_ahead_split_ones_included() -> None:
    policy = replace(FREE, array_ahead=3)
    of = plan([array(7, range(8), qos="spare")], policy=policy, on=nodes(9))
    for _ in range(3):
        found = evaluate(of).plan
        backed = [a.ref for a in found.admissions if a.work_class is WorkClass.BACKED]
        assert backed == ["7_0", "7_1", "7_2"]
        of = after(of, found)
    started = tuple(j for j in of.snapshot.jobs if j.ref != "7_1")
    of = replace(of, snapshot=replace(of.snapshot, jobs=started))
    found = evaluate(of).plan
    assert sorted(a.ref for a in found.admissions if a.work_class is WorkClass.BACKED) == ["7_0", "7_2", "7_3"]


# The orders


def test_spare_work_without_a_budget_or_not_eligible_stands_last() -> None:
    jobs = [
        pending(1, account="green", qos="spare", submit=NOW - 3 * HOUR),
        pending(2, comment="min-runtime=0", reason="Dependency", submit=NOW - 2 * HOUR),
        pending(3, comment="min-runtime=0", submit=NOW),
    ]
    assert [c.ref for c in evaluate(plan(jobs)).classes.spare["a100"]] == ["3", "1", "2"]


def test_spare_work_is_ranked_by_all_use_with_what_is_backed_counted() -> None:
    jobs = [
        pending(1, comment="min-runtime=0", submit=NOW - 2 * HOUR),
        pending(2, account="blue", user="bob", comment="min-runtime=0", submit=NOW),
        pending(3, 8),
    ]
    found = evaluate(plan(jobs)).classes
    assert [c.ref for c in found.backed["a100"]] == ["3"]
    assert [c.ref for c in found.spare["a100"]] == ["2", "1"]


def test_spare_work_is_ranked_by_spare_use() -> None:
    jobs = [pending(1, comment="min-runtime=0"), pending(2, account="blue", user="bob", comment="min-runtime=0")]
    used = [use("blue", 8 * HOUR, work_class=WorkClass.SPARE)]
    assert [c.ref for c in evaluate(plan(jobs)).classes.spare["a100"]] == ["2", "1"]
    assert [c.ref for c in evaluate(plan(jobs, uses=used)).classes.spare["a100"]] == ["1", "2"]


def test_every_managed_record_has_an_admission() -> None:
    jobs = [pending(1), pending(2, comment="min-runtime=soon"), pending(3, account="green"), pending(4, priority=0)]
    found = evaluate(plan(jobs)).plan.admissions
    assert [a.ref for a in found] == ["1", "2", "3", "4"]
    assert len({a.sequence for a in found}) == 4
