"""What ``reconcile`` prints: stages, each action with its reason, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from pyslurm_budget.domain.model import JobState, Mode, RunKey, WorkClass
from pyslurm_budget.domain.plan import Action, ActionKind, Plan, Reason
from pyslurm_budget.render.clock import Clock
from pyslurm_budget.render.cycle import document, text
from pyslurm_budget.service.reconcile import CycleResult
from tests.unit import made
from tests.unit.test_render_show import STATE

NOW = made.MONDAY + 9 * made.HOUR
CLOCK = Clock(NOW, "UTC")


def pending(kind: ActionKind, ref: str, reason: Reason, qos: str | None = None) -> Action:
    return Action(kind, ref, RunKey(int(ref), NOW - 60), reason, JobState.PENDING, "backed", qos=qos)


ADMITTED = Reason("admitted", {"price": 32 * 3_600_000, "budget": "dolma", "pool": "a100"})
PLAN = Plan(
    now=NOW,
    actions=(
        pending(ActionKind.SET_CLASS, "51", made.NOT_ADMITTED, "spare"),
        pending(ActionKind.SET_CLASS, "52", ADMITTED, "backed"),
        pending(ActionKind.SET_RANK, "53", Reason("order")),
        pending(ActionKind.SET_RANK, "54", Reason("order")),
        made.action(ActionKind.DISPLACE, made.MONDAY, made.GAVE_WAY, for_ref="48190"),
    ),
    admissions=(made.admission(NOW, WorkClass.SPARE, made.NOT_ADMITTED),),
    budgets=STATE.budgets,
    notes=(Reason("cannot-judge", {"what": "licences", "job": "60"}),),
)
RESULT = CycleResult(
    cycle=7,
    mode=Mode.OBSERVE,
    applied=False,
    plan=PLAN,
    closed=(),
    stages={"lease": 5, "read": 400_000, "accounting": 10_000, "budgets": 30_000, "plan": 120_000, "publish": 900},
    counts={"jobs": 20412, "nodes": 996, "rows": 1204},
    generation=88412,
    notes=PLAN.notes,
)

OBSERVED = """\
observe: nothing is changed
read      20,412 jobs, 996 nodes, 1,204 changed accounting rows                    0.41 s
budgets   6 evaluated, 1 over their allowance                                      0.03 s
plan      1 pending to spare, 1 pending to backed, 2 new order, 1 to requeue       0.12 s
   to spare 51: spare: its contract needs 384 GPU-h, olmo has nothing left
   to backed 52: backed: its contract of 32 GPU-h fits the budget of dolma
   requeue 48107: gives way to 48190 (bio, load 7 %): olmo was at load 105 %; contract of 6 h kept since 13:12
   note: 60: nothing is stopped for it: only Slurm can judge licences
published table generation 88412
"""


def test_an_observing_cycle() -> None:
    assert text(RESULT, Mode.OBSERVE, CLOCK) == OBSERVED


def test_an_acting_cycle_says_what_was_settled() -> None:
    acting = replace(RESULT, mode=Mode.ENFORCE, applied=True, stages={**RESULT.stages, "apply": 1_230_000})
    told = text(acting, Mode.ENFORCE, CLOCK)
    assert not told.startswith(("observe", "planned only"))
    assert "apply     0 actions settled" in told
    assert "1.23 s" in told


def test_a_dry_run_where_the_site_enforces_says_so() -> None:
    assert text(RESULT, Mode.ENFORCE, CLOCK).startswith("planned only: --apply was not given\n")
    assert text(RESULT, Mode.ADVISE, CLOCK).startswith("planned only: --apply was not given\n")
    advising = replace(RESULT, mode=Mode.ADVISE, applied=True)
    assert text(advising, Mode.ADVISE, CLOCK).startswith("advise: ")


def test_nothing_to_do_is_said() -> None:
    idle = replace(RESULT, plan=replace(PLAN, actions=()), generation=None, notes=())
    assert "plan      nothing to change" in text(idle, Mode.OBSERVE, CLOCK)
    assert "published" not in text(idle, Mode.OBSERVE, CLOCK)


def test_the_twins_of_the_site_tell_the_direction() -> None:
    moved = replace(PLAN, actions=(pending(ActionKind.SET_CLASS, "51", Reason("declared-spare"), "normal-low"),))
    told = text(replace(RESULT, plan=moved), Mode.OBSERVE, CLOCK, ("normal-low",))
    assert "1 pending to spare" in told
    assert "to normal-low 51: spare, as it asked to be" in told


def test_json_has_the_plan_and_the_result() -> None:
    told = json.loads(json.dumps(document(RESULT)))
    assert set(told) == {"cycle", "mode", "applied", "plan", "result"}
    assert (told["cycle"], told["mode"], told["applied"]) == (7, "observe", False)
    displaced = told["plan"]["actions"][-1]
    assert (displaced["kind"], displaced["for"], displaced["reason"]["numbers"]["load"]) == ("displace", "48190", 105)
    assert told["plan"]["admissions"][0]["class"] == "spare"
    assert told["plan"]["budgets"][0]["budget"] == "bio"
    assert told["result"]["stages"]["read"] == 400_000
    assert told["result"]["notes"] == [{"code": "cannot-judge", "numbers": {"what": "licences", "job": "60"}}]
