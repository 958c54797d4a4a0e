"""Collecting windows and places that are kept for a job (design 4.6): when, where, and how a job goes in and out."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.candidate import candidates, could_start
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.holding import Holding
from pyslurm_budget.domain.kept import kept_from
from pyslurm_budget.domain.model import JobState, Reservation
from pyslurm_budget.domain.plan import Action, ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.settle import settle
from tests.build import DAY, HOUR, MINUTE, NOW, held, live, nodes, pending, request, running, situation, use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.situation import LiveRun, Situation

ABOUT_PLACES = (ActionKind.RESERVE, ActionKind.ENTER, ActionKind.LEAVE, ActionKind.RELEASE)
ALL = replace(Policy(), window_part=Fraction(1), ceiling_part=Fraction(10))
NAME = "sbudget_window_1"


def wide(job_id: int = 1, count: int = 2, **changes: Any) -> Job:
    """A backed job of red over whole nodes that has waited two hours."""
    asked = request(8 * count, nodes_min=count, nodes_max=count, gpus_per_node=8)
    given: dict[str, Any] = {"request": asked, "submit": NOW - 2 * HOUR, "time_limit": DAY, **changes}
    return pending(job_id, **given)


def until(job_id: int, on: str, ends: int, gpus: int = 8, **changes: Any) -> LiveRun:
    """A backed run of blue whose contract of eight hours ends so many seconds from now."""
    start = NOW + ends - 8 * HOUR
    return live(running(job_id, held(on, gpus), start=start, **changes), minimum=8 * HOUR)


# Of three nodes n2 and n3 are free of contracts first, in two and in three hours.
BUSY = (until(101, "n1", 5 * HOUR), until(102, "n2", 2 * HOUR), until(103, "n3", 3 * HOUR))


def of(waiting: Sequence[Job] = (), runs: Sequence[LiveRun] = BUSY, on: int = 3, **changes: Any) -> Situation:
    """A wide job waits on three full nodes."""
    kept = changes.pop("reservations", ())
    changes.setdefault("policy", ALL)
    at = situation(waiting or [wide()], runs, nodes(on), **changes)
    inside = {n for r in kept if r.start <= at.now for n in r.nodes}
    on_them = tuple(replace(n, reserved=n.name in inside) for n in at.snapshot.nodes)
    return replace(at, snapshot=replace(at.snapshot, reservations=tuple(kept), nodes=on_them))


def planned(at: Situation) -> list[Action]:
    """Actions about places."""
    return [a for a in evaluate(at).plan.actions if a.kind in ABOUT_PLACES]


def told(at: Situation) -> dict[str, str]:
    """The code noted for each job."""
    return {str(n.numbers["job"]): n.code for n in evaluate(at).plan.notes if "job" in n.numbers}


def stopped(at: Situation) -> list[str]:
    """Who is stopped at the start of a window."""
    return [a.ref for a in evaluate(at).plan.actions if a.kind is ActionKind.COLLECT]


def kept(start: int = NOW + 3 * HOUR, on: Sequence[str] = ("n2", "n3"), name: str = NAME) -> Reservation:
    """A window that is there already."""
    return Reservation(name, tuple(on), start, start + 3 * DAY, ("red",), ("IGNORE_JOBS",), ours=True)


# Opening


def test_the_nodes_whose_last_contract_ends_first() -> None:
    (action,) = planned(of())
    assert (action.kind, action.reservation, action.nodes) == (ActionKind.RESERVE, NAME, ("n2", "n3"))
    assert action.start == NOW + 3 * HOUR
    assert action.until == NOW + 3 * HOUR + ALL.keep_room + DAY + DAY
    assert action.reason.code == "window-opened"


def test_then_the_least_work_lost() -> None:
    """All can be had in three hours; at that moment what ends its contract just then has nothing to lose."""
    runs = [until(103, "n3", 150 * MINUTE), until(104, "n1", 3 * HOUR), until(102, "n2", 3 * HOUR)]
    assert planned(of(runs=runs))[0].nodes == ("n1", "n2")


def test_a_run_that_cannot_be_requeued_counts_to_its_time_limit() -> None:
    last = until(103, "n3", 3 * HOUR, requeueable=False, time_limit=12 * HOUR)
    assert planned(of(runs=[*BUSY[:2], last]))[0].nodes == ("n1", "n2")


def test_a_run_without_an_end_keeps_its_node_out() -> None:
    ever = [until(100 + i, f"n{i}", HOUR, requeueable=False, time_limit=None) for i in (2, 3)]
    at = of(runs=[BUSY[0], *ever])
    assert planned(at) == []
    assert told(at)["1"] == "window-nowhere"


def test_spare_work_is_no_obstacle() -> None:
    runs = [BUSY[0], live(running(102, held("n2", 8), qos="spare"), minimum=0), BUSY[2]]
    assert planned(of(runs=runs))[0].start == NOW + 3 * HOUR


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": replace(ALL, window_part=Fraction(0))},
        {"policy": replace(ALL, cap=HOUR)},
        {"policy": replace(ALL, window_part=Fraction(1, 2))},
        {"given_up": frozenset({"red"})},
        {"uses": (use("red", 2100 * HOUR, rate=24000),)},
        {"waiting": [pending(1, 8)]},
        {"waiting": [wide(qos="spare", comment="min-runtime=0")]},
        {"waiting": [wide(reason="AssocGrpGRES")]},
        {"waiting": [wide(reservation="course")]},
        {"waiting": [wide(request=request(16, nodes_min=2, gpus_per_node=8, special="features"))]},
        {"waiting": [wide(), pending(2, 8, user="zoe", submit=NOW - DAY)], "uses": (use("red", HOUR, user="alice"),)},
    ],
)
def test_for_whom_no_window_is_opened(changes: dict[str, Any]) -> None:
    assert [a for a in planned(of(changes.pop("waiting", ()), **changes)) if a.ref == "1"] == []


def test_one_window_a_budget() -> None:
    at = of([wide(1), wide(2)], reservations=[kept()])
    assert planned(at) == []
    other = wide(2, 1 + 1, account="blue", user="bob", submit=NOW - DAY)
    more = of([wide(1), other], [*BUSY, until(104, "n4", HOUR), until(105, "n5", HOUR)], 5, reservations=[kept()])
    assert all(not set(a.nodes) & {"n2", "n3"} for a in planned(more))


def test_what_can_be_displaced_now_needs_no_window() -> None:
    past = [until(101, "n1", 5 * HOUR), until(102, "n2", -HOUR), until(103, "n3", -HOUR)]
    assert planned(of(runs=past)) == []


# A window that is there


def test_it_is_kept_and_why_tells_so() -> None:
    at = of(reservations=[kept()])
    assert planned(at) == []
    assert told(at)["1"] == "window-waits"


def test_others_are_not_stopped_for_a_place_in_it() -> None:
    """A job of a day cannot start on n2 before the window: the run there is past its contract, and stays."""
    past = [BUSY[0], until(102, "n2", -HOUR), BUSY[2]]
    small = pending(2, 8, account="blue", user="bob", submit=NOW - DAY)
    at = of([wide(), small], past, uses=(use("red", HOUR),), reservations=[kept()])
    assert kept_from(at, small) == {"n2", "n3"}
    assert kept_from(at, replace(small, time_limit=HOUR)) == frozenset()
    assert kept_from(at, wide(), "1") == frozenset()
    assert [a.ref for a in evaluate(at).plan.actions if a.kind is ActionKind.DISPLACE] == []


@pytest.mark.parametrize(
    ("waiting", "changes", "code"),
    [
        ([pending(9, 1)], {}, "window-given-up"),
        ([wide(qos="spare", comment="min-runtime=0")], {}, "window-given-up"),
        ([wide()], {"uses": (use("red", 2100 * HOUR, rate=24000),)}, "window-given-up"),
        ([wide()], {"runs": [BUSY[0]]}, "place-not-needed"),
        ([replace(wide(), state=JobState.RUNNING, start=NOW)], {}, "place-not-needed"),
    ],
)
def test_when_it_is_given_back(waiting: list[Job], changes: dict[str, Any], code: str) -> None:
    (action,) = [a for a in planned(of(waiting, reservations=[kept()], **changes)) if a.reservation == NAME]
    assert (action.kind, action.reason.code) == (ActionKind.RELEASE, code)


def test_a_node_that_is_lost_ends_it() -> None:
    at = of(reservations=[kept()])
    down = tuple(replace(n, draining=n.name == "n2", reason="fan") for n in at.snapshot.nodes)
    (action,) = planned(replace(at, snapshot=replace(at.snapshot, nodes=down)))
    assert (action.kind, action.reason.code) == (ActionKind.RELEASE, "window-broken")


# Its start


BEGUN = kept(NOW - MINUTE)
OVER = (BUSY[0], until(102, "n2", -HOUR), until(103, "n3", -MINUTE))


def test_at_its_start_what_is_past_its_contract_is_stopped() -> None:
    at = of(runs=OVER, reservations=[BEGUN])
    assert (sorted(stopped(at)), planned(at)) == (["102", "103"], [])


def test_never_what_is_inside_its_contract() -> None:
    at = of(runs=[OVER[0], OVER[1], until(103, "n3", 1)], reservations=[BEGUN])
    assert stopped(at) == []
    assert told(at)["1"] == "window-not-free"


def test_at_most_so_many_a_cycle() -> None:
    many = [until(110 + i, "n2", -HOUR, 1) for i in range(8)]
    at = of(runs=[OVER[0], *many, OVER[2]], reservations=[BEGUN], policy=replace(ALL, requeues_per_cycle=5))
    assert len(stopped(at)) == 5


def test_it_goes_in_when_there_is_room() -> None:
    (action,) = planned(of(runs=[OVER[0]], reservations=[BEGUN]))
    assert (action.kind, action.reservation, action.expect_state) == (ActionKind.ENTER, NAME, JobState.PENDING)


def test_it_is_taken_out_in_the_action_that_sees_it_run() -> None:
    job = replace(wide(), state=JobState.RUNNING, start=NOW - 5, reservation=NAME)
    (action,) = planned(of([job], [OVER[0]], reservations=[BEGUN]))
    assert (action.kind, action.reason.code) == (ActionKind.LEAVE, "place-taken")


def test_it_does_not_wait_there_for_ever() -> None:
    old = kept(NOW - ALL.keep_room)
    for job, kind in ((wide(reservation=NAME), ActionKind.LEAVE), (wide(), ActionKind.RELEASE)):
        (action,) = planned(of([job], OVER, reservations=[old]))
        assert (action.kind, action.reason.code) == (kind, "place-wasted")


def test_the_reservation_does_not_open_its_admission_again() -> None:
    """It goes in, and keeps what it was promised; a reservation of somebody else is another request."""
    (before,) = candidates(of([wide()]))
    special = replace(wide().request, special="a reservation")
    (after,) = candidates(of([wide(reservation=NAME, request=special)]))
    (other,) = candidates(of([wide(reservation="course", request=special)]))
    assert before.signature == after.signature != other.signature


@pytest.mark.parametrize(
    "word", ["ReqNodeNotAvail, May be reserved for other job", "ReqNodeNotAvail,_May_be_reserved"]
)
def test_who_waits_for_reserved_nodes_waits(word: str) -> None:
    """Or a window would take the class of all who cannot start beside it, and of its own job."""
    assert could_start(pending(1, reason=word), NOW)
    assert not could_start(pending(1, reason="ReqNodeNotAvail, UnavailableNodes:n1"), NOW)


def test_idle_time_in_a_window_is_charged() -> None:
    """To the budget of its job; what else is ours is charged to nobody."""
    one = Holding(1, NAME, NOW, NOW + HOUR, ("red",), ("IGNORE_JOBS",), ("n1",))
    assert one.payers(lambda account: account) == ("red",)
    assert replace(one, name="sbudget_place_1").payers(lambda account: account) == ()


def test_what_became_of_an_action_about_a_place() -> None:
    """Whatever became of the job: the next cycle sees the reservation itself."""
    (action,) = planned(of())
    at = {"ended_as": None, "now": NOW, "policy": ALL}
    assert settle(action, "sent", NOW, None, **at) == ("done", "")
    assert settle(action, "intent", NOW, None, **at) == ("undone", "not carried out, decided anew")
