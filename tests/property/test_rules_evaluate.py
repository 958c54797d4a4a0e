"""Whole evaluations: what must hold for every plan, and that plans come to rest."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import Controller, JobState, Mode, WorkClass
from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.steps import BACKED_BASE
from tests.applying import after, updates
from tests.build import DAY, HOUR, NOW, array, held, live, node, pending, request, running, situation, tree, use

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.situation import LiveRun, Situation

USERS = [("red", "alice"), ("red", "carol"), ("blue", "bob"), ("org", "dave"), ("green", "erin")]
BUDGETS = tree(org="3/4", red=("org", "1/2"), blue=("org", "1/4"), far="1/4")
WEIGHTS = 100


@st.composite
def waiting(draw: st.DrawFn, number: int) -> Job:
    account, user = draw(st.sampled_from(USERS))
    submit = NOW - draw(st.integers(0, 3 * HOUR))
    shape: dict[str, Any] = {
        "request": request(draw(st.sampled_from([1, 2, 8])), exclusive=draw(st.sampled_from([False, False, True]))),
        "account": account,
        "user": user,
        "submit": submit,
        "qos": draw(st.sampled_from(["backed", "spare"])),
        "comment": draw(st.sampled_from(["", "", "min-runtime=8h", "min-runtime=0", "min-runtime=soon"])),
        "reason": draw(st.sampled_from(["Resources", "Priority", "", "Dependency", "AssocGrpGRES"])),
        "priority": draw(st.sampled_from([0, 1, 50, 5000, BACKED_BASE + 4000, BACKED_BASE + 16_000])),
        "requeueable": draw(st.sampled_from([True, True, False])),
        "eligible": draw(st.sampled_from([submit, submit, NOW + DAY, None])),
    }
    if draw(st.sampled_from([False, False, True])):
        tasks = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=7)))
        return array(number, tasks, **shape)
    return pending(number, **shape)


@st.composite
def runs_on(draw: st.DrawFn, count: int) -> list[LiveRun]:
    found = []
    for i in range(1, count + 1):
        for part in range(draw(st.integers(0, 2))):
            account, user = draw(st.sampled_from(USERS))
            job = running(
                100 * i + part,
                held(f"n{i}", draw(st.sampled_from([1, 2, 4]))),
                account=account,
                user=user,
                qos=draw(st.sampled_from(["backed", "backed", "spare"])),
                start=NOW - draw(st.integers(60, 20 * HOUR)),
                priority=draw(st.sampled_from([BACKED_BASE, BACKED_BASE + 5000])),
                requeueable=draw(st.sampled_from([True, True, False])),
                time_limit=DAY,
            )
            found.append(
                live(
                    job,
                    draw(st.sampled_from([0, HOUR, 8 * HOUR])),
                    budget=account if account in BUDGETS.budgets else None,
                )
            )
    return found


@st.composite
def situations(draw: st.DrawFn, *, enforce: bool = True) -> Situation:
    count = draw(st.integers(1, 3))
    jobs = [draw(waiting(i)) for i in range(1, 1 + draw(st.integers(0, 7)))]
    runs = draw(runs_on(count))
    drains = draw(st.sets(st.integers(1, count)))
    on = [
        node(
            f"n{i}",
            draining=i in drains,
            reason="gpu" if i in drains else "",
            reason_since=NOW - draw(st.sampled_from([60, HOUR])) if i in drains else None,
        )
        for i in range(1, count + 1)
    ]
    hours = {name: draw(st.sampled_from([0, 80, 320, 800])) for name in ("red", "blue", "org")}
    uses = [use(name, n * HOUR, user="alice", rate=32_000) for name, n in hours.items() if n]
    policy = replace(
        Policy(),
        array_ahead=draw(st.sampled_from([2, 50])),
        ceiling_part=draw(st.sampled_from([Fraction(1, 2), Fraction(9)])),
    )
    return situation(
        jobs,
        runs,
        on,
        tree=BUDGETS,
        uses=tuple(uses),
        policy=policy,
        mode=Mode.ENFORCE if enforce else Mode.OBSERVE,
        controller=Controller("alpha", NOW, (24, 11, 5), NOW - DAY, weights=WEIGHTS),
        parents={"org": None, "red": "org", "blue": "org", "far": None, "green": None},
        returning=frozenset(j.ref for j in jobs if not j.tasks and draw(st.sampled_from([False, False, True]))),
    )


@settings(max_examples=200, deadline=None)
@given(situations())
def test_plans_come_to_rest_within_two_cycles(of: Situation) -> None:
    """Without new events nothing is left to update after two cycles (three where an array must be split: it goes back
    to spare as a whole, is split, is ranked), and no class changes any more."""
    most = 3 if any(job.tasks for job in of.snapshot.jobs) else 2
    for _ in range(most):
        of = after(of, evaluate(of).plan)
    last = evaluate(of).plan
    assert updates(last) == []
    before = {a.ref: a.work_class for a in of.admissions.values()}
    assert {a.ref: a.work_class for a in last.admissions} == before


@settings(max_examples=200, deadline=None)
@given(situations())
def test_after_rest_every_record_is_in_the_qos_of_its_admission(of: Situation) -> None:
    for _ in range(3):
        of = after(of, evaluate(of).plan)
    qos = {job.ref: job.qos for job in of.snapshot.jobs if job.state is JobState.PENDING}
    qos |= {f"{j.array_job_id}_{t}": j.qos for j in of.snapshot.jobs for t in j.tasks}
    for admission in evaluate(of).plan.admissions:
        expected = "backed" if admission.work_class is WorkClass.BACKED else "spare"
        assert qos[admission.ref] == expected, admission


@settings(max_examples=200, deadline=None)
@given(situations())
def test_no_run_is_ever_stopped_that_must_not_be(of: Situation) -> None:
    """Backed runs inside their contract, and runs that Slurm cannot put back; nobody twice; and only for a reason."""
    found = [a for a in evaluate(of).plan.actions if a.kind.is_requeue]
    runs = {run.job.ref: run for run in of.runs}
    assert len({a.ref for a in found}) == len(found)
    for action in found:
        run = runs[action.ref]
        assert run.job.can_requeue
        if run.work_class is WorkClass.BACKED:
            assert run.start + run.minimum <= NOW
        else:  # Slurm itself makes room of spare runs, except by moving them
            assert action.kind in {ActionKind.DRAIN, ActionKind.MOVE}
        assert (action.for_ref is None) == (action.kind is ActionKind.DRAIN)


@settings(max_examples=100, deadline=None)
@given(situations())
def test_room_is_really_made_for_every_beneficiary(of: Situation) -> None:
    """Each has, with what idle, spare and stopped work holds of nodes that do not drain, a node that holds it."""
    plan = evaluate(of).plan
    jobs = {f"{j.array_job_id}_{t}": j for j in of.snapshot.jobs for t in j.tasks}
    jobs |= {j.ref: j for j in of.snapshot.jobs}
    stays = [r for r in of.runs if r.work_class is WorkClass.BACKED]
    for ref in {a.for_ref for a in plan.actions if a.kind is ActionKind.DISPLACE}:
        assert ref is not None
        gone = {a.ref for a in plan.actions if a.for_ref == ref}
        free = {n.name: 8 for n in of.snapshot.nodes if not n.draining}
        for run in stays:
            for share in run.job.allocation:
                if run.job.ref not in gone and share.node in free:
                    free[share.node] -= share.gpus
        wanted = 8 if jobs[ref].request.exclusive else jobs[ref].request.gpus
        assert max(free.values()) >= wanted


@settings(max_examples=100, deadline=None)
@given(situations(), st.sampled_from([Reason("kill-switch"), None]))
def test_halted_plans_decide_the_same_and_do_nothing(of: Situation, reason: Reason | None) -> None:
    free = evaluate(of).plan
    if reason is None:  # just restarted
        controller = replace(of.snapshot.controller, started=NOW - 1)
        of = replace(of, snapshot=replace(of.snapshot, controller=controller))
    halted = evaluate(of, halted=reason).plan
    assert halted.actions == ()
    assert len(halted.notes) == 1
    assert (halted.admissions, halted.budgets) == (free.admissions, free.budgets)


@settings(max_examples=100, deadline=None)
@given(situations(), st.randoms())
def test_the_order_of_reading_changes_nothing(of: Situation, random: Any) -> None:
    jobs, runs, uses = list(of.snapshot.jobs), list(of.runs), list(of.uses)
    for each in (jobs, runs, uses):
        random.shuffle(each)
    other = replace(of, snapshot=replace(of.snapshot, jobs=tuple(jobs)), runs=tuple(runs), uses=tuple(uses))
    mine, theirs = evaluate(of).plan, evaluate(other).plan
    assert {a.ref: a.work_class for a in mine.admissions} == {a.ref: a.work_class for a in theirs.admissions}
    assert _what(mine.actions) == _what(theirs.actions)


def _what(actions: Iterable[Action]) -> list[tuple[str, ...]]:
    """The actions without their reasons, which name what was left at the moment of the decision."""
    return sorted((a.kind, a.ref, a.qos or "-", str(a.site_factor), a.for_ref or "-") for a in actions)
