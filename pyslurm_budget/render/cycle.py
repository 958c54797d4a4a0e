"""``sbudget reconcile``: what a cycle read, found, planned and did, for the operator and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.domain.reasons import about, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyslurm_budget.domain.plan import Action, Plan
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.reconcile import CycleResult

_READ = ("read", "accounting")
_BUDGETS = ("settle", "budgets")
_WIDTH = 72


def text(result: CycleResult, configured: Mode, clock: Clock, twins: Iterable[str] = ("spare",)) -> str:
    """The cycle as lines, each ended. ``configured`` is the site's mode (a cycle that only plans observes); ``twins``
    are the spare QOS, to tell the two directions of moves apart."""
    counts = result.counts
    idle = head(result, configured)
    lines = [idle] if idle else []
    lines.append(
        _stage(
            "read",
            f"{counts.get('jobs', 0):,} jobs, {counts.get('nodes', 0):,} nodes, "
            f"{counts.get('rows', 0):,} changed accounting rows",
            result,
            _READ,
        )
    )
    if result.plan is not None:
        lines.append(_stage("budgets", _budgets(result.plan), result, _BUDGETS))
        lines.append(_stage("plan", _planned(result.plan, frozenset(twins)), result, ("plan",)))
        lines.extend(f"   {line}" for line in _actions(result.plan.actions, clock))
    lines.extend(f"   note: {about(note, clock.near)}" for note in result.notes)
    if result.applied and result.mode is Mode.ENFORCE:
        lines.append(_stage("apply", _applied(result), result, ("apply",)))
    if result.generation is not None:
        lines.append(f"published table generation {result.generation}")
    return "".join(f"{line}\n" for line in lines)


def head(result: CycleResult, configured: Mode) -> str:
    """The first line: why nothing is changed, where nothing is; empty where the cycle acted."""
    if configured is Mode.OBSERVE:
        return sentence(Reason("observe"))
    if not result.applied:
        return sentence(Reason("not-applied"))
    return sentence(Reason("advise")) if configured is Mode.ADVISE else ""


def _stage(name: str, says: str, result: CycleResult, stages: Iterable[str]) -> str:
    hundredths = sum(result.stages.get(stage, 0) for stage in stages) // 10_000
    return f"{name:<9} {says:<{_WIDTH}} {hundredths // 100}.{hundredths % 100:02d} s"


def _budgets(plan: Plan) -> str:
    over = sum(1 for b in plan.budgets if b.charged + b.outstanding > b.allowance)
    return f"{len(plan.budgets):,} evaluated, {over:,} over their allowance"


def _planned(plan: Plan, twins: frozenset[str]) -> str:
    counted = Counter(_kind(action, twins) for action in plan.actions)
    told = [f"{counted[kind]:,} {words}" for kind, words in _WORDS.items() if counted[kind]]
    return ", ".join(told) if told else "nothing to change"


def _kind(action: Action, twins: frozenset[str]) -> str:
    if action.kind is ActionKind.SET_CLASS:
        return "to spare" if action.qos in twins else "to backed"
    if action.kind is ActionKind.MOVE:
        return "move"
    if action.kind.is_requeue:
        return "requeue"
    return action.kind.value


_WORDS = {
    "to spare": "pending to spare",
    "to backed": "pending to backed",
    "set-rank": "new order",
    "reset-rank": "order of runs reset",
    "requeue": "to requeue",
    "move": "to move",
    "reserve": "places to keep",
    "enter": "into their places",
    "leave": "out of their places",
    "release": "places to give back",
}


def _actions(actions: Iterable[Action], clock: Clock) -> Iterator[str]:
    """One line an action; of changes of order only their number is told (the stage above)."""
    for action in actions:
        if action.kind in (ActionKind.SET_RANK, ActionKind.RESET_RANK):
            continue
        yield f"{_verb(action)} {action.ref}: {sentence(action.reason, clock.near)}"


def _verb(action: Action) -> str:
    if action.kind is ActionKind.SET_CLASS:
        return f"to {action.qos}"
    if action.kind.is_requeue and action.kind is not ActionKind.MOVE:
        return "requeue"
    return action.kind.value


def _applied(result: CycleResult) -> str:
    return f"{len(result.closed):,} actions settled"


def document(result: CycleResult) -> dict[str, Any]:
    """The cycle as JSON for tests and monitors: raw integers."""
    return {
        "cycle": result.cycle,
        "mode": result.mode.value,
        "applied": result.applied,
        "plan": None if result.plan is None else plan_document(result.plan),
        "result": {
            "closed": [
                {"id": i.id, "cycle": i.cycle, "at": i.at, "kind": i.action.kind.value, "ref": i.action.ref}
                for i in result.closed
            ],
            "stages": dict(result.stages),
            "counts": dict(result.counts),
            "generation": result.generation,
            "notes": [_reason(note) for note in result.notes],
        },
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    return {
        "now": plan.now,
        "actions": [_action(action) for action in plan.actions],
        "admissions": [
            {
                "ref": a.ref,
                "budget": a.budget,
                "pool": a.pool,
                "class": a.work_class.value,
                "rate": a.rate,
                "contract": a.contract,
                "price_length": a.price_length,
                "since": a.since,
                "sequence": a.sequence,
                "reason": _reason(a.reason),
            }
            for a in plan.admissions
        ],
        "budgets": [{name: getattr(b, name) for name in b.__dataclass_fields__} for b in plan.budgets],
        "notes": [_reason(note) for note in plan.notes],
    }


def _action(action: Action) -> dict[str, Any]:
    return {
        "kind": action.kind.value,
        "ref": action.ref,
        "job_id": action.key.job_id,
        "submit": action.key.submit,
        "expect_state": action.expect_state.value,
        "expect_qos": action.expect_qos,
        "qos": action.qos,
        "site_factor": action.site_factor,
        "time_limit": action.time_limit,
        "for": action.for_ref,
        "nodes": list(action.nodes),
        "until": action.until,
        "reason": _reason(action.reason),
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"code": reason.code, "numbers": dict(reason.numbers)}
