"""The record of decisions: news only, kept, and told by `why`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain.journal import ROOM, Decision, new_classes, new_rooms
from pyslurm_budget.domain.model import JobState, RunKey, WorkClass
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.ledger.journal import KEPT
from pyslurm_budget.service.explain import story
from tests.unit.made import GAVE_WAY, MONDAY, NOT_ADMITTED, admission, job, open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyslurm_budget.ledger.store import SqlLedger

SPARE = admission(MONDAY, WorkClass.SPARE, NOT_ADMITTED)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from open_ledger(tmp_path)


def test_only_another_class_reason_or_run_is_news() -> None:
    less = replace(SPARE, reason=Reason(NOT_ADMITTED.code, {**NOT_ADMITTED.numbers, "left": 0}))
    assert new_classes([SPARE], [less], MONDAY) == []
    for changed in (
        replace(SPARE, work_class=WorkClass.BACKED),
        replace(SPARE, reason=Reason("no-budget")),
        replace(SPARE, key=RunKey(SPARE.key.job_id, MONDAY + 1)),
    ):
        assert [d.reason for d in new_classes([SPARE], [changed], MONDAY)] == [changed.reason]
    assert len(new_classes([], [SPARE], MONDAY)) == 1


def test_what_is_left_of_an_array_is_one_thing() -> None:
    whole, less = replace(SPARE, ref="48107_[3-9]"), replace(SPARE, ref="48107_[4-9]")
    assert new_classes([whole], [less], MONDAY) == []


def test_why_no_room_is_made_is_news_once() -> None:
    note = Reason("no-room", {"job": "48107", "pool": "a100"})
    first = new_rooms({}, [note, Reason("drain-limit")], {"48107": MONDAY}, MONDAY)
    assert [d.reason for d in first] == [note]
    last = {"48107": first[0]}
    assert new_rooms(last, [note], {"48107": MONDAY}, MONDAY) == []
    assert len(new_rooms(last, [note], {"48107": MONDAY + 1}, MONDAY)) == 1
    assert len(new_rooms(last, [replace(note, code="backing-off")], {"48107": MONDAY}, MONDAY)) == 1
    assert new_rooms({}, [note], {}, MONDAY) == []


def test_decisions_are_kept_and_told(ledger: SqlLedger) -> None:
    found = [Decision(MONDAY + i, ROOM, "48107", MONDAY, r) for i, r in enumerate((NOT_ADMITTED, GAVE_WAY))]
    ledger.add_decisions([*found, replace(found[0], ref="48108")], MONDAY)
    assert ledger.decisions_of(["48107"]) == tuple(found)
    assert ledger.last_decisions(ROOM, ["48107", "48109"]) == {"48107": found[1]}
    waiting = job(MONDAY, JobState.PENDING)
    assert [e.reason for e in story(ledger, waiting, "48107", MONDAY + 9).events][1:] == [NOT_ADMITTED, GAVE_WAY]
    ledger.add_decisions([], MONDAY + 1 + KEPT)
    assert ledger.decisions_of(["48107"]) == (found[1],)
