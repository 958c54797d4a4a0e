"""Runs and contracts, on every database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from pyslurm_budget.domain.model import RunKey, WorkClass
from pyslurm_budget.errors import LedgerError
from pyslurm_budget.service.ports import SyncState
from tests.db.conftest import SERVERS, new_cluster
from tests.db.made import STATE, contract, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger


def only(ledger: SqlLedger, job_ref: str = "7") -> object:
    (found,) = ledger.runs_of_job(job_ref)
    return found


def test_a_new_ledger_knows_nothing(ledger: SqlLedger) -> None:
    assert ledger.sync_state() is None
    assert ledger.runs_between(0, 2**40) == ledger.open_runs() == ledger.runs_of_job("7") == ()
    assert ledger.contracts() == ledger.contracts([RunKey(7, 100)]) == ()
    assert ledger.capacity(0) == ((), ())
    assert ledger.demand(0, 2**40) == ()


def test_only_rows_that_changed_are_counted(ledger: SqlLedger) -> None:
    assert ledger.save_runs([run(7), run(8)], STATE) == 2
    assert ledger.save_runs([run(8), run(7)], STATE) == 0
    assert ledger.save_runs([run(7), run(8, end=900, state="COMPLETED"), run(9)], STATE) == 2
    assert ledger.save_runs([run(9, rate=1), run(9)], STATE) == 0


def test_the_watermark_moves_with_the_rows(ledger: SqlLedger) -> None:
    ledger.save_runs([run(7)], STATE)
    assert ledger.sync_state() == STATE
    later = replace(STATE, watermark=2000, as_of=2010)
    ledger.save_runs([], later)
    assert ledger.sync_state() == later


def test_a_part_that_was_read_is_not_more_than_the_whole(ledger: SqlLedger) -> None:
    part = SyncState(watermark=0, as_of=2010, complete=False)
    ledger.save_runs([], part)
    assert ledger.sync_state() == part
    ledger.save_runs([run(7)], STATE)
    ledger.save_runs([], replace(part, as_of=3000))
    assert ledger.sync_state() == STATE


def test_the_shadow_class_and_a_known_budget_are_kept_as_first_written(ledger: SqlLedger) -> None:
    first = run(shadow=WorkClass.SPARE, budget=None)
    ledger.save_runs([first], STATE)
    newer = run(shadow=WorkClass.BACKED, budget="bio", rate=8000, qos="spare", work_class=WorkClass.SPARE)
    ledger.save_runs([newer], STATE)
    assert only(ledger) == replace(newer, shadow=WorkClass.SPARE)
    ledger.save_runs([replace(newer, budget="nlp")], STATE)
    assert only(ledger) == replace(newer, shadow=WorkClass.SPARE)


def test_the_class_is_kept_once_the_run_has_ended(ledger: SqlLedger) -> None:
    ended = run(end=900, state="PREEMPTED")
    ledger.save_runs([ended], STATE)
    ledger.save_runs([replace(ended, end=950, work_class=WorkClass.SPARE)], STATE)
    assert only(ledger) == replace(ended, end=950)


def test_a_row_without_an_end_does_not_reopen_an_ended_run(ledger: SqlLedger) -> None:
    ended = run(end=900, state="COMPLETED")
    ledger.save_runs([ended], STATE)
    assert ledger.save_runs([run(state="COMPLETED", rate=1), run(state="FAILED")], STATE) == 0
    assert only(ledger) == ended


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "PENDING"])
def test_a_run_that_is_alive_after_all_is_open_again(ledger: SqlLedger, state: str) -> None:
    ledger.save_runs([run(end=900, state="NODE_FAIL")], STATE)
    ledger.save_runs([run(state=state)], STATE)
    assert only(ledger) == run(state=state)


def test_a_repaired_row_replaces_what_was_known(ledger: SqlLedger) -> None:
    """`sacctmgr show runawayjobs` sets the end of a run to its start."""
    ledger.save_runs([run(end=90000, state="COMPLETED")], STATE)
    repaired = run(end=200, state="COMPLETED")
    assert ledger.save_runs([repaired], STATE) == 1
    assert only(ledger) == repaired


def test_a_run_overlaps_half_open_intervals(ledger: SqlLedger) -> None:
    ended, going, waiting = run(1, start=200, end=300, state="COMPLETED"), run(2, start=250), run(3, start=None)
    ledger.save_runs([ended, going, waiting], STATE)
    assert ledger.runs_between(0, 200) == ()
    assert ledger.runs_between(0, 201) == ledger.runs_between(299, 250) == ledger.runs_between(199, 250) == (ended,)
    assert ledger.runs_between(299, 300) == (ended, going)
    assert ledger.runs_between(300, 400) == (going,)
    assert ledger.open_runs() == (going,)


def test_runs_of_a_job_are_found_by_both_of_its_names(ledger: SqlLedger) -> None:
    again, first, other = run(48, 500, job_ref="40_7"), run(48, 100, job_ref="40_7"), run(40, 90, job_ref="40_8")
    ledger.save_runs([again, first, other], STATE)
    assert ledger.runs_of_job("40_7") == ledger.runs_of_job("48") == (first, again)
    assert ledger.runs_of_job("40") == (other,)
    for unknown in ("4", "", "x", "9" * 30, "²", "48 "):
        assert ledger.runs_of_job(unknown) == ()


def test_names_differ_by_case_and_accent(ledger: SqlLedger) -> None:
    names = ["joe", "Joe", "jöe", "joé", "ﬆ", "st"]
    runs = [run(i, job_ref=f"{name}", user=name) for i, name in enumerate(names)]
    ledger.save_runs(runs, STATE)
    for one in runs:
        assert ledger.runs_of_job(one.job_ref) == (one,)
    for name in names:
        ledger.put(name, name)
    assert [ledger.get(name) for name in names] == names


def test_a_cluster_sees_nothing_of_another(opened: Callable[[str], SqlLedger]) -> None:
    ours, theirs = opened(new_cluster()), opened(new_cluster())
    ours.save_runs([run(7)], STATE)
    ours.save_contracts([contract(7)])
    theirs.save_runs([run(7, rate=1)], replace(STATE, watermark=5))
    assert (ours.open_runs(), ours.sync_state()) == ((run(7, protected_until=3800),), STATE)
    assert theirs.contracts() == ()


@pytest.mark.parametrize("kind", SERVERS)
def test_text_that_is_too_long_fails_and_is_not_cut(kind: str, request: pytest.FixtureRequest) -> None:
    """Also on a MariaDB that is not strict by itself; nothing of the batch is kept."""
    from pyslurm_budget.ledger.migrate import upgrade
    from pyslurm_budget.ledger.store import SqlLedger

    url = request.getfixturevalue(kind).new()
    upgrade(url)
    ledger = SqlLedger(url, "alpha")
    try:
        longest = run(1, account="ü" * 255)
        ledger.save_runs([longest], STATE)
        with pytest.raises(LedgerError, match="too long"):
            ledger.save_runs([run(2), run(3, account="a" * 256)], replace(STATE, watermark=9))
        assert (ledger.open_runs(), ledger.sync_state()) == ((longest,), STATE)
    finally:
        ledger.close()


def test_rows_are_written_many_at_a_time(ledger: SqlLedger) -> None:
    """10,000 rows are about a second because they are 20 chunks and not 10,000 statements; here half of that."""
    runs = [run(i) for i in range(5000)]
    counted: list[str] = []
    event.listen(ledger._engine, "before_cursor_execute", lambda *a: counted.append("x"))
    assert ledger.save_runs(runs, STATE) == 5000
    assert len(counted) < 5000 / 100
    assert len(ledger.runs_between(0, 900)) == 5000


def test_two_that_save_at_once_both_succeed(opened: Callable[[str], SqlLedger]) -> None:
    """A transaction reads before it writes: what the other writes in between must neither fail nor be lost."""
    cluster = new_cluster()
    ledgers = {number: opened(cluster) for number in (1, 2)}

    def save(number: int) -> None:
        for turn in range(15):
            ledgers[number].save_runs([run(number * 100 + turn)], STATE)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, ledgers))
    assert len(ledgers[1].open_runs()) == 30


def test_a_contract_is_frozen_but_for_its_outcome(ledger: SqlLedger) -> None:
    first = contract()
    ledger.save_contracts([first, contract(minimum=1, rate=1)])
    ledger.save_contracts([contract(minimum=7200, protected_until=9999)])
    assert ledger.contracts() == ledger.contracts([first.key]) == (first,)
    ledger.save_contracts([contract(outcome="kept", minimum=1)])
    ledger.save_contracts([contract(outcome="broken:us"), contract(outcome=None)])
    assert ledger.contracts() == ()
    assert ledger.contracts([first.key]) == (replace(first, outcome="kept"),)


def test_contracts_are_found_by_run_also_many_and_twice(ledger: SqlLedger) -> None:
    all_of_them = [contract(i, s) for i in range(300) for s in (100, 200)]
    ledger.save_contracts(all_of_them)
    wanted = [c.key for c in all_of_them if c.key.submit == 200]
    assert [c.key for c in ledger.contracts([*wanted, *wanted])] == wanted
    assert len(ledger.contracts()) == 600
