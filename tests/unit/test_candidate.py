"""A pending job as admission sees it (design 4.3, 4.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.books import Price
from pyslurm_budget.domain.candidate import Candidate, candidates, contract_of, could_start
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import Job, JobState, Mode, RunKey, WorkClass
from pyslurm_budget.domain.plan import Admission, Reason
from pyslurm_budget.domain.policy import ClassMap, Policy
from tests.build import DAY, HOUR, MINUTE, NOW, array, node, pending, request, running, situation

if TYPE_CHECKING:
    from collections.abc import Callable


def only(job: Job, **changes: Any) -> Candidate:
    (found,) = candidates(situation([job], **changes))
    return found


# The contract


@pytest.mark.parametrize(
    ("changes", "contract", "code"),
    [
        ({}, HOUR, None),
        ({"comment": "min-runtime=4h"}, 4 * HOUR, None),
        ({"comment": "wandb=x,min-runtime=90m"}, 90 * MINUTE, None),
        ({"comment": "min-runtime=4h", "time_limit": HOUR}, HOUR, None),
        ({"comment": "min-runtime=8h"}, 8 * HOUR, None),
        ({"comment": "min-runtime=8h1s"}, 0, "above-cap"),
        ({"comment": "min-runtime=9h"}, 0, "above-cap"),
        ({"comment": "min-runtime=9h", "time_limit": HOUR}, 0, "above-cap"),
        ({"comment": "min-runtime=soon"}, 0, "unreadable-contract"),
        ({"comment": "min-runtime=1h min-runtime=2h"}, 0, "unreadable-contract"),
        ({"comment": "min-runtime=0"}, 0, "declared-spare"),
        ({"marker": "sbudget:spare"}, 0, "declared-spare"),
        ({"marker": "sbudget:spare", "comment": "min-runtime=4h"}, 0, "declared-spare"),
        ({"time_limit": 10 * MINUTE}, 10 * MINUTE, None),
        ({"time_limit": None}, HOUR, None),
        # What Slurm cannot put back has its whole time limit as contract, whatever it declares.
        ({"batch": False, "time_limit": 3 * HOUR}, 3 * HOUR, None),
        ({"requeueable": False, "time_limit": 8 * HOUR, "comment": "min-runtime=1m"}, 8 * HOUR, None),
        ({"requeueable": False, "time_limit": 8 * HOUR + 1}, 0, "cannot-requeue-too-long"),
        ({"batch": False, "time_limit": None}, 0, "cannot-requeue-too-long"),
        ({"batch": False, "time_limit": DAY, "comment": "min-runtime=0"}, 0, "declared-spare"),
    ],
)
def test_contract(changes: dict[str, Any], contract: int, code: str | None) -> None:
    found, obstacle = contract_of(Policy(), pending(1, **changes))
    assert (found, obstacle.code if obstacle else None) == (contract, code)


def test_a_sites_default_and_cap() -> None:
    policy = replace(Policy(), default_contract=2 * HOUR, cap=HOUR)
    assert contract_of(policy, pending(1)) == (HOUR, None)


# The price


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({}, HOUR),
        ({"comment": "min-runtime=1s"}, HOUR),
        ({"comment": "min-runtime=4h"}, 4 * HOUR),
        ({"time_limit": 10 * MINUTE}, 10 * MINUTE),
        ({"time_limit": None, "comment": "min-runtime=2h"}, 2 * HOUR),
    ],
)
def test_the_price_is_the_contract_at_least_the_floor_at_most_the_limit(changes: dict[str, Any], length: int) -> None:
    assert only(pending(1, 2, **changes)).price == Price(2000, length)


def test_the_rate_is_the_dearest_that_it_may_land_on() -> None:
    on = [node("n1"), node("n2", gpu_type="h100", cpus=16)]
    found = only(pending(1, 1), on=on)
    assert (found.pools, found.price.rate) == (("a100", "h100"), 4000)


# Whom we decide about


@pytest.mark.parametrize(
    "job",
    [
        running(),
        pending(1, state=JobState.OTHER),
        pending(1, completing=True),
        pending(1, qos="debug"),
        pending(1, partitions=("cpu",)),
    ],
)
def test_these_are_left_alone(job: Job) -> None:
    """Also a requeued job that is still completing: its new QOS would be written into the run that has just ended."""
    assert candidates(situation([job])) == ()


@pytest.mark.parametrize("qos", ["backed", "spare"])
def test_both_classes_are_decided(qos: str) -> None:
    assert only(pending(1, qos=qos)).obstacle is None


# Eligible


@pytest.mark.parametrize(
    ("changes", "eligible"),
    [
        ({}, True),
        ({"reason": "Priority"}, True),
        ({"reason": ""}, True),
        ({"reason": "AssocGrpGRES"}, True),  # a limit of a group is met by waiting
        ({"eligible": NOW + 180}, True),  # a requeued job needs its class before its begin time
        ({"eligible": NOW + 181}, False),
        ({"eligible": None}, False),
        ({"priority": 0}, False),
        ({"reason": "Dependency"}, False),
        ({"reason": "DependencyNeverSatisfied"}, False),
        ({"reason": "JobHeldUser"}, False),
        ({"reason": "JobHeldAdmin"}, False),
        ({"reason": "JobArrayTaskLimit"}, False),
        ({"reason": "BadConstraints"}, False),
        ({"reason": "PartitionTimeLimit"}, False),
        ({"reason": "PartitionNodeLimit"}, False),
        ({"reason": "InvalidQOS"}, False),
        ({"reason": "QOSMaxGRESPerJob"}, False),
        ({"reason": "AssocMaxWallDurationPerJobLimit"}, False),
    ],
)
def test_eligible_is_what_slurm_could_start_now(changes: dict[str, Any], eligible: bool) -> None:
    assert only(pending(1, **changes)).eligible == eligible


# Obstacles


def code(job: Job, **changes: Any) -> str | None:
    found = only(job, **changes).obstacle
    return found.code if found else None


def test_an_account_without_a_budget() -> None:
    assert code(pending(1, account="green")) == "no-budget"
    below = {"green": "red", "red": "root", "root": None}
    assert code(pending(1, account="green"), parents=below) is None


def test_a_user_who_may_not_use_the_qos() -> None:
    some = {("red", "alice"): frozenset({"spare"})}
    assert code(pending(1, qos="spare"), allowed_qos=some) == "no-qos"
    assert code(pending(1, qos="spare"), allowed_qos={}) == "no-qos"
    assert code(pending(1, qos="spare"), allowed_qos=some, mode=Mode.OBSERVE) is None


def test_the_qos_that_is_asked_for_is_that_of_the_jobs_twin() -> None:
    classes = ClassMap({"normal": "normal-spare", "high": "high-spare"})
    some = {("red", "alice"): frozenset({"high"})}
    policy = replace(Policy(), classes=classes)
    assert code(pending(1, qos="high-spare"), allowed_qos=some, policy=policy) is None
    assert code(pending(1, qos="normal-spare"), allowed_qos=some, policy=policy) == "no-qos"


# What re-opens an admission


def admitted(
    job: Job, work_class: WorkClass = WorkClass.BACKED, was: str = "backed", reason: str = "admitted"
) -> Any:
    """The last cycle's admission of the job as it was then."""
    c = only(job)
    return {
        c.ref: Admission(
            ref=c.ref,
            key=job.key,
            budget=c.budget,
            pool=c.pools[0],
            work_class=work_class,
            rate=c.price.rate,
            contract=c.contract,
            price_length=c.price.length,
            signature=c.signature,
            since=NOW - HOUR,
            sequence=1,
            reason=Reason(reason, {"was": was}),
        )
    }


def test_an_unchanged_job_is_known() -> None:
    job = pending(1)
    assert only(job, admissions=admitted(job)).known is not None
    other = replace(job, priority=99, reason="Priority", qos="spare")
    assert only(other, admissions=admitted(job)).known is not None


CHANGES: list[Callable[[Job], Job]] = [
    lambda j: replace(j, key=RunKey(1, NOW)),
    lambda j: replace(j, account="blue"),
    lambda j: replace(j, time_limit=DAY + 1),
    lambda j: replace(j, time_limit=None),
    lambda j: replace(j, partitions=("gpu", "other")),
    lambda j: replace(j, reservation="course"),
    lambda j: replace(j, comment="min-runtime=2h"),
    lambda j: replace(j, requeueable=False, time_limit=2 * HOUR),
    *(
        lambda j, change=change: replace(j, request=replace(j.request, **change))
        for change in (
            {"gpus": 2, "gpus_per_node": 2},
            {"nodes_min": 2, "nodes_max": 2},
            {"nodes_max": 3},
            {"cpus": 9},
            {"memory_mb": 1},
            {"gpu_type": "a100"},
            {"exclusive": True},
            {"special": "features"},
        )
    ),
]


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_re_opens_the_admission(change: Callable[[Job], Job]) -> None:
    job = pending(1)
    assert only(change(job), admissions=admitted(job)).known is None


def test_a_job_that_its_user_moved_to_spare_stays_spare() -> None:
    job = pending(1)
    moved = replace(job, qos="spare")
    assert code(moved, admissions=admitted(job)) == "moved-by-user"
    then = admitted(job, WorkClass.SPARE, "spare", "moved-by-user")
    assert code(moved, admissions=then) == "moved-by-user"
    assert code(job, admissions=then) is None  # and moved back


def test_a_job_that_we_moved_to_spare_was_not_moved_by_its_user() -> None:
    moved = pending(1, qos="spare")
    assert code(moved, admissions=admitted(pending(1), WorkClass.SPARE, "backed")) is None
    assert code(moved, admissions=admitted(pending(1), WorkClass.BACKED, "spare")) is None


# Arrays


def refs(job: Job, **changes: Any) -> list[str]:
    return [c.ref for c in candidates(situation([job], **changes))]


def test_tasks_are_priced_one_by_one_lowest_first() -> None:
    job = array(7, [3, 4, 5])
    found = candidates(situation([job]))
    assert [c.ref for c in found] == ["7_3", "7_4", "7_5"]
    assert {c.price for c in found} == {Price(1000, HOUR)}
    assert sorted(found, key=lambda c: c.place) == list(found)


AHEAD = replace(Policy(), array_ahead=2)


def test_of_a_long_array_some_tasks_and_the_rest_as_one_record() -> None:
    job = array(7, [1, 2, 3, 4], qos="spare")
    found = candidates(situation([job], policy=AHEAD))
    assert [c.ref for c in found] == ["7_1", "7_2", "7_[1,2,3,4]"]
    assert [c.obstacle.code if c.obstacle else None for c in found] == [None, None, "array-ahead"]
    assert found[2].place > found[1].place


def test_a_long_array_in_a_backed_qos_goes_back_as_a_whole_first() -> None:
    """Else all its tasks could start as backed, before any of them was admitted."""
    job = array(7, [1, 2, 3])
    assert refs(job, policy=AHEAD) == ["7_[1,2,3]"]
    assert code(job, policy=AHEAD) == "array-ahead"
    assert refs(array(7, [1, 2]), policy=AHEAD) == ["7_1", "7_2"]


def test_where_nothing_is_changed_tasks_of_a_long_array_are_judged_at_once() -> None:
    assert refs(array(7, [1, 2, 3]), policy=AHEAD, mode=Mode.OBSERVE) == ["7_1", "7_2", "7_[1,2,3]"]


def test_a_job_that_comes_back_is_said_to() -> None:
    assert not only(pending(1)).returning
    assert only(pending(1), returning=frozenset({"1"})).returning


def test_a_request_for_no_gpus_is_priced_by_its_part_of_the_node() -> None:
    assert only(pending(1, request=request(0, cpus=64))).price.rate == 8000


def test_an_admitted_job_is_not_given_up_for_a_reason_that_comes_and_goes() -> None:
    """A node that it could use is down in one pass: it would lose its class, and get it back in the next."""
    job = pending(1, reason="ReqNodeNotAvail,_UnavailableNodes:n1")
    assert not could_start(job, NOW)
    assert could_start(job, NOW, admitted=True)
    before = situation([pending(1, reason="Resources")])
    after_it = situation([job], admissions={a.ref: a for a in evaluate(before).plan.admissions})
    (admission,) = evaluate(after_it).plan.admissions
    assert admission.work_class is WorkClass.BACKED
    (fresh,) = evaluate(situation([job])).plan.admissions
    assert fresh.work_class is WorkClass.SPARE
