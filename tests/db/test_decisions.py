"""Admissions, intents and cycles, on every database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.errors import LedgerError
from pyslurm_budget.ledger import decisions
from pyslurm_budget.service.ports import CycleRecord, Intent
from tests.db.conftest import new_cluster
from tests.db.made import MANY, action, admission, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger


def test_admissions_are_replaced_as_a_whole(ledger: SqlLedger) -> None:
    assert ledger.admissions() == ()
    first = [admission(str(i), sequence=i % 7) for i in range(MANY)]
    ledger.save_admissions(first)
    assert ledger.admissions() == tuple(sorted(first, key=lambda a: (a.sequence, a.ref)))
    ledger.save_admissions([admission("9")])
    assert ledger.admissions() == (admission("9"),)
    ledger.save_admissions([])
    assert ledger.admissions() == ()


def test_admissions_that_cannot_be_saved_leave_those_before(ledger: SqlLedger) -> None:
    ledger.save_admissions([admission("1")])
    with pytest.raises(LedgerError):
        ledger.save_admissions([admission("2"), admission("2")])
    assert ledger.admissions() == (admission("1"),)


def test_intents_are_written_in_order_and_returned(ledger: SqlLedger) -> None:
    actions = [action(str(i % 9)) for i in range(MANY)]
    written = ledger.write_intents(3, 500, actions)
    assert [i.action for i in written] == actions
    assert [i.id for i in written] == sorted({i.id for i in written})
    assert {(i.cycle, i.at, i.state, i.outcome, i.closed) for i in written} == {(3, 500, "intent", "", None)}
    assert ledger.open_intents() == ledger.intents() == written
    assert ledger.write_intents(4, 501, []) == ()


def test_an_intent_is_sent_then_closed(ledger: SqlLedger) -> None:
    one, other = ledger.write_intents(1, 500, [action("7"), action("8")])
    ledger.move_intent(one.id, "sent", "", 501)
    assert ledger.open_intents() == (replace(one, state="sent"), other)
    ledger.move_intent(one.id, "done", "as wanted", 502)
    closed = replace(one, state="done", outcome="as wanted", closed=502)
    assert ledger.open_intents() == (other,)
    assert ledger.intents() == (closed, other)


def test_a_closed_intent_stays_as_it_is(ledger: SqlLedger) -> None:
    (one,) = ledger.write_intents(1, 500, [action()])
    ledger.move_intent(one.id, "lost", "gone", 502)
    ledger.move_intent(one.id, "lost", "gone again", 503)
    for state in ("done", "intent", "sent"):
        with pytest.raises(LedgerError, match=rf"closed \(lost\) and cannot become {state}"):
            ledger.move_intent(one.id, state, "", 504)
    ledger.move_intents([(one.id, "done", "")], 505)
    assert ledger.intents() == (replace(one, state="lost", outcome="gone", closed=502),)


def test_many_intents_move_together(ledger: SqlLedger) -> None:
    written = ledger.write_intents(1, 500, [action(str(i)) for i in range(MANY)])
    ledger.move_intents([], 501)
    ledger.move_intents([(i.id, "sent" if i.id % 2 else "skipped", str(i.id)) for i in written], 502)
    assert ledger.intents() == tuple(
        replace(i, state="sent", outcome=str(i.id))
        if i.id % 2
        else replace(i, state="skipped", outcome=str(i.id), closed=502)
        for i in written
    )


def test_what_is_not_there_cannot_move(opened: Callable[[str], SqlLedger]) -> None:
    ours, theirs = opened(new_cluster()), opened(new_cluster())
    (one,) = ours.write_intents(1, 500, [action()])
    with pytest.raises(LedgerError, match="is not in the ledger"):
        theirs.move_intent(one.id, "done", "", 501)
    theirs.move_intents([(one.id, "done", "")], 501)
    with pytest.raises(LedgerError, match="its states are"):
        ours.move_intent(one.id, "finished", "", 501)
    with pytest.raises(LedgerError, match="its states are"):
        ours.move_intents([(one.id, "planned", "")], 501)
    assert ours.open_intents() == (one,)


def test_intents_are_found_by_job_time_and_kind(ledger: SqlLedger) -> None:
    (a,) = ledger.write_intents(1, 500, [action("7_1", ActionKind.DRAIN)])
    b, c = ledger.write_intents(2, 600, [action("7", ActionKind.SET_RANK), action("7_1", ActionKind.DISPLACE)])
    assert ledger.intents(ref="7_1") == (a, c)
    assert ledger.intents(since=501) == (b, c)
    assert ledger.intents(since=500, kinds=["drain", "set-rank"]) == (a, b)
    assert ledger.intents(ref="7_1", since=600, kinds=iter(["displace"])) == (c,)
    assert ledger.intents(kinds=[]) == ()


def test_a_plan_is_stored_and_is_no_intent(ledger: SqlLedger) -> None:
    ledger.record_plan(4, plan(700, action("7"), action("8")))
    assert ledger.intents() == ledger.open_intents() == ()
    first, second = ledger.planned()
    assert first == Intent(first.id, 4, 700, action("7"), "planned")
    assert second.action == action("8")
    with pytest.raises(LedgerError, match="closed"):
        ledger.move_intent(first.id, "done", "", 701)


def test_observing_for_long_keeps_the_newest_plans_only(
    opened: Callable[[str], SqlLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PLANNED_KEPT", 5)
    ledger, other = opened(new_cluster()), opened(new_cluster())
    (intent,) = ledger.write_intents(1, 1, [action("intent")])
    other.record_plan(1, plan(1, action("other")))
    for cycle in range(10):
        ledger.record_plan(cycle, plan(cycle, action("a"), action("b")))
    assert [(p.cycle, p.action.ref) for p in ledger.planned()] == [(7, "b"), (8, "a"), (8, "b"), (9, "a"), (9, "b")]
    assert ledger.intents() == (intent,)
    assert len(other.planned()) == 1


def test_a_cycle_begins_and_ends(ledger: SqlLedger) -> None:
    assert ledger.last_cycle() is None
    first = ledger.begin_cycle(100, Mode.OBSERVE, False)
    assert ledger.last_cycle() is None
    assert ledger.last_cycle(finished=False) == CycleRecord(first, 100, None, Mode.OBSERVE, False, {}, {})
    ended = CycleRecord(first, 100, 105, Mode.OBSERVE, False, {"read": 12}, {"jobs": 3})
    ledger.end_cycle(ended)
    second = ledger.begin_cycle(130, Mode.ENFORCE, True)
    assert second > first
    assert ledger.last_cycle() == ended
    failed = CycleRecord(second, 130, 131, Mode.ENFORCE, True, {}, {}, "slurmctld does not answer")
    ledger.end_cycle(failed)
    assert ledger.last_cycle() == ledger.last_cycle(finished=False) == failed


def test_a_cycle_that_was_not_begun_cannot_end(opened: Callable[[str], SqlLedger]) -> None:
    ours, theirs = opened(new_cluster()), opened(new_cluster())
    number = ours.begin_cycle(100, Mode.ENFORCE, True)
    with pytest.raises(LedgerError, match=f"cycle {number} is not in the ledger"):
        theirs.end_cycle(CycleRecord(number, 100, 105, Mode.ENFORCE, True, {}, {}))
    assert ours.last_cycle() is None


def test_old_cycles_are_forgotten(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "CYCLES_KEPT", 3)
    numbers = [ledger.begin_cycle(at, Mode.ENFORCE, True) for at in range(6)]
    for number in numbers[:3]:
        with pytest.raises(LedgerError):
            ledger.end_cycle(CycleRecord(number, 0, 1, Mode.ENFORCE, True, {}, {}))
    for number in numbers[3:]:
        ledger.end_cycle(CycleRecord(number, 0, 1, Mode.ENFORCE, True, {}, {}))
