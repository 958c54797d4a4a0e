"""The health of the controller: each fault is found by itself, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.errors import StaleDataError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.health import check_health
from pyslurm_budget.service.ports import SyncState
from pyslurm_budget.service.reconcile import BREAKER
from pyslurm_budget.service.state import PublicState
from tests.unit import made
from tests.unit.test_render_show import STATE

NOW = made.MONDAY
GOOD = replace(STATE, as_of=NOW - 10, stale_after=NOW + 3600)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from made.open_ledger(tmp_path)


def bad(ledger: SqlLedger, state: PublicState | StaleDataError = GOOD, switch: str | None = None) -> dict[str, str]:
    points = check_health(ledger, state, now=NOW, max_age=90, kill_switch=switch)
    assert len({point.name for point in points}) == len(points) == 9
    return {point.name: point.says for point in points if not point.ok}


def test_all_is_well(ledger: SqlLedger) -> None:
    made.cycle(ledger, NOW - 10)
    assert bad(ledger) == {}


def test_an_empty_ledger_is_not_well(ledger: SqlLedger) -> None:
    assert set(bad(ledger)) == {"cycle", "accounting"}


def test_accounting_of_which_only_a_part_was_read(ledger: SqlLedger) -> None:
    ledger.save_runs([], SyncState(0, NOW, complete=False))
    assert "not complete" in bad(ledger)["accounting"]


def _requeue(ledger: SqlLedger, at: int, state: str) -> None:
    (intent,) = ledger.write_intents(1, at, [made.action(ActionKind.DRAIN, made.MONDAY, Reason("drain"))])
    ledger.move_intent(intent.id, "sent", "", at)
    if state != "sent":
        ledger.move_intent(intent.id, state, "", at)


FAULTS: list[tuple[str, Callable[[SqlLedger], object], str]] = [
    (
        "last cycle",
        lambda ledger: made.cycle(ledger, NOW - 5, "slurmdbd does not answer"),
        "slurmdbd does not answer",
    ),
    ("actions", lambda ledger: _requeue(ledger, NOW - 121, "sent"), "drain of 48107"),
    ("lost jobs", lambda ledger: _requeue(ledger, NOW - 86000, "lost"), "48107"),
    ("breaker", lambda ledger: ledger.put(BREAKER, "breaker-lost"), "sbudget resume"),
    ("accounting", lambda ledger: ledger.save_runs([], SyncState(0, NOW - 500, True)), "does slurmdbd answer?"),
]


@pytest.mark.parametrize(("name", "fault", "words"), FAULTS)
def test_each_fault_is_found_by_itself(
    ledger: SqlLedger, name: str, fault: Callable[[SqlLedger], object], words: str
) -> None:
    made.cycle(ledger, NOW - 10)
    fault(ledger)
    found = bad(ledger)
    assert list(found) == [name]
    assert words in found[name]


@pytest.mark.parametrize(
    "harmless",
    [
        lambda ledger: _requeue(ledger, NOW - 119, "sent"),
        lambda ledger: _requeue(ledger, NOW - 500, "done"),
        lambda ledger: _requeue(ledger, NOW - 86401, "lost"),
    ],
)
def test_what_is_no_fault(ledger: SqlLedger, harmless: Callable[[SqlLedger], None]) -> None:
    made.cycle(ledger, NOW - 10)
    harmless(ledger)
    assert bad(ledger) == {}


@pytest.mark.parametrize(("age", "well"), [(90, True), (91, False)])
def test_the_age_of_the_last_cycle(ledger: SqlLedger, age: int, well: bool) -> None:
    made.cycle(ledger, NOW - age)
    assert ("cycle" not in bad(ledger)) is well


def test_a_stale_or_absent_table(ledger: SqlLedger) -> None:
    made.cycle(ledger, NOW - 10)
    assert list(bad(ledger, replace(GOOD, stale_after=NOW))) == ["table"]
    assert bad(ledger, StaleDataError("nothing was published")) == {"table": "nothing was published"}


def test_the_kill_switch(ledger: SqlLedger) -> None:
    made.cycle(ledger, NOW - 10)
    assert "/etc/sbudget/stop" in bad(ledger, switch="/etc/sbudget/stop")["kill switch"]
