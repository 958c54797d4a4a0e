"""Whether the controller does its work: one point a line for a monitor, from the ledger and the published state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain import wording
from pyslurm_budget.errors import StaleDataError
from pyslurm_budget.service.reconcile import BREAKER

if TYPE_CHECKING:
    from pyslurm_budget.service.ports import CycleRecord, Ledger
    from pyslurm_budget.service.state import PublicState

CYCLES_MISSED = 3
INTENT_AGE = 120
DAY = 86400


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that was looked at; ``says`` is a sentence for people, what to do included where something is."""

    name: str
    ok: bool
    says: str


def check_health(
    ledger: Ledger,
    state: PublicState | StaleDataError,
    *,
    now: int,
    max_age: int,
    kill_switch: str | None,
    table_fault: str | None = None,
) -> tuple[Point, ...]:
    """All points at host time ``now``. ``state`` is the published state, or why it cannot be read; ``max_age`` the
    greatest good age of the last cycle in seconds; ``kill_switch`` the file's name if it is there; ``table_fault``
    what is wrong with the file of the decision table."""
    return (
        _cycle(ledger.last_cycle(), now, max_age),
        _failure(ledger.last_cycle(finished=False)),
        _table(state, now),
        _table_file(table_fault),
        _accounting(ledger, now, max_age),
        _intents(ledger, now),
        _lost(ledger, now),
        _breaker(ledger.get(BREAKER)),
        _kill_switch(kill_switch),
    )


def _cycle(last: CycleRecord | None, now: int, max_age: int) -> Point:
    if last is None or last.finished is None:
        return Point("cycle", False, "no cycle has finished yet: start sbudget reconcile --every 30s")
    age = now - last.finished
    words = f"last cycle {wording.span(age)} ago"
    if age > max_age:
        return Point("cycle", False, f"{words}, at most {wording.span(max_age)} is good: is the controller running?")
    return Point("cycle", True, words)


def _failure(last: CycleRecord | None) -> Point:
    if last is not None and last.error is not None:
        return Point("last cycle", False, f"the last cycle failed: {last.error}")
    return Point("last cycle", True, "the last cycle did not fail")


def _table(state: PublicState | StaleDataError, now: int) -> Point:
    if isinstance(state, StaleDataError):
        return Point("table", False, str(state))
    left = state.stale_after - now
    if left <= 0:
        ago = wording.span(-left)
        return Point("table", False, f"the decision table is stale since {ago}: new jobs are not judged by it")
    return Point("table", True, f"the decision table is good for {wording.span(left)} more")


def _table_file(fault: str | None) -> Point:
    return Point("table file", fault is None, fault or "the decision table is whole, and only its owner may write it")


def _accounting(ledger: Ledger, now: int, max_age: int) -> Point:
    known = ledger.sync_state()
    if known is None:
        return Point("accounting", False, "accounting was never read: run sbudget sync")
    age = wording.span(now - known.as_of)
    if not known.complete:
        return Point("accounting", False, f"the last read of accounting, {age} ago, was not complete")
    if now - known.as_of > max_age:
        return Point("accounting", False, f"accounting was read {age} ago: does slurmdbd answer?")
    return Point("accounting", True, f"accounting was read {age} ago")


def _intents(ledger: Ledger, now: int) -> Point:
    old = [intent for intent in ledger.open_intents() if now - intent.at > INTENT_AGE]
    if not old:
        return Point("actions", True, "every action is settled")
    oldest = min(old, key=lambda intent: intent.at)
    return Point(
        "actions",
        False,
        f"{len(old)} {'action is' if len(old) == 1 else 'actions are'} unsettled, the oldest "
        f"({oldest.action.kind} of {oldest.action.ref}) for {wording.span(now - oldest.at)}",
    )


def _lost(ledger: Ledger, now: int) -> Point:
    lost = [intent for intent in ledger.intents(since=now - DAY) if intent.state == "lost"]
    if not lost:
        return Point("lost jobs", True, "no job was lost in the last day")
    refs = ", ".join(intent.action.ref for intent in lost)
    return Point("lost jobs", False, f"lost after a requeue in the last day: {refs}; see sbudget why JOBID")


def _breaker(value: str | None) -> Point:
    if value is None:
        return Point("breaker", True, "the breaker is closed")
    return Point("breaker", False, f"the breaker is open ({value}): look into it, then run sbudget resume")


def _kill_switch(path: str | None) -> Point:
    if path is None:
        return Point("kill switch", True, "the kill switch is not set")
    return Point("kill switch", False, f"the kill switch is set: nothing is changed while {path} exists")
