"""Properties of the ledger over made facts, on every database."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.ledger.store import SqlLedger
from tests.db import made, strategies
from tests.db.conftest import new_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.budget import Budget
    from pyslurm_budget.domain.plan import Action, Admission
    from pyslurm_budget.service.ports import RunFacts

quick = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FEW = st.builds(RunKey, st.integers(1, 3), st.integers(1, 2))
BATCHES = st.lists(st.lists(strategies.facts(FEW), max_size=4), max_size=4)


class Fresh:
    """One open ledger that changes its cluster for every example: opening one each time would take far longer."""

    def __init__(self, url: str) -> None:
        self._ledger = SqlLedger(url, new_cluster())

    def __call__(self) -> SqlLedger:
        self._ledger._cluster = new_cluster()
        self._ledger._groups.clear()
        return self._ledger

    def close(self) -> None:
        self._ledger.close()


@pytest.fixture
def fresh(database: str) -> Iterator[Fresh]:
    found = Fresh(database)
    yield found
    found.close()


def _everything(ledger: SqlLedger) -> dict[RunKey, RunFacts]:
    return {run.key: run for job_id in ("1", "2", "3") for run in ledger.runs_of_job(job_id) if run.key.job_id <= 3}


def _told(batches: list[list[RunFacts]]) -> dict[RunKey, RunFacts]:
    """What the ledger must know, from the rules alone: each field from the first, the last or the last good row."""
    rows: dict[RunKey, list[RunFacts]] = {}
    for run in (run for batch in batches for run in batch):
        good = rows.setdefault(run.key, [])
        over_but_endless = run.end is None and run.state in ("COMPLETED", "PREEMPTED", "CANCELLED")
        if not (good and good[-1].end is not None and over_but_endless):
            good.append(run)
    told = {}
    for key, good in rows.items():
        work_class, charged_as = good[0].work_class, good[0].charged_as
        for before, after in pairwise(good):
            if before.end is None:
                work_class, charged_as = after.work_class, after.charged_as
        told[key] = replace(
            good[-1],
            shadow=good[0].shadow,
            budget=next((run.budget for run in good if run.budget), None),
            partition=next((run.partition for run in reversed(good) if run.partition), None),
            work_class=work_class,
            charged_as=charged_as,
        )
    return told


@quick
@given(batches=BATCHES)
def test_runs_are_as_told_however_they_are_cut_into_reads(fresh: Fresh, batches: list[list[RunFacts]]) -> None:
    told = _told(batches)
    ledger = fresh()
    changed = sum(ledger.save_runs(batch, made.STATE) for batch in batches)
    assert _everything(ledger) == told
    assert ledger.verify_usage()[1] == ()
    assert len(told) <= changed <= sum(map(len, batches))
    one_by_one = fresh()
    for batch in batches:
        for run in batch:
            one_by_one.save_runs([run], made.STATE)
    assert _everything(one_by_one) == told
    assert one_by_one.verify_usage()[1] == ()


@quick
@given(
    runs=st.lists(strategies.facts(FEW), min_size=1, max_size=6, unique_by=lambda run: run.key),
    data=st.data(),
)
def test_the_same_facts_in_any_order_and_number_change_nothing(
    fresh: Fresh, runs: list[RunFacts], data: st.DataObject
) -> None:
    ledger = fresh()
    again = data.draw(st.permutations(runs))
    for batch in (runs[::2], again, runs[1::2]):
        ledger.save_runs(batch, made.STATE)
    assert _everything(ledger) == {run.key: run for run in runs}
    assert ledger.save_runs([*again, *runs], made.STATE) == 0


@quick
@given(actions=st.lists(strategies.ACTIONS, min_size=1, max_size=4))
def test_actions_come_back_exactly(fresh: Fresh, actions: list[Action]) -> None:
    ledger = fresh()
    ledger.write_intents(1, 5, actions)
    ledger.record_plan(2, made.plan(6, *actions))
    assert [i.action for i in ledger.open_intents()] == actions
    assert [i.action for i in ledger.planned()] == actions
    of_first = [a for a in actions if a.ref == actions[0].ref]
    assert [i.action for i in ledger.intents(ref=actions[0].ref)] == of_first


@quick
@given(admissions=st.lists(strategies.ADMISSIONS, max_size=4, unique_by=lambda a: a.ref))
def test_admissions_come_back_exactly(fresh: Fresh, admissions: list[Admission]) -> None:
    ledger = fresh()
    ledger.save_admissions(admissions)
    assert {a.ref: a for a in ledger.admissions()} == {a.ref: a for a in admissions}
    assert [a.sequence for a in ledger.admissions()] == sorted(a.sequence for a in admissions)


@quick
@given(trees=st.lists(strategies.TREES, min_size=1, max_size=3))
def test_budgets_come_back_exactly(fresh: Fresh, trees: list[list[Budget]]) -> None:
    ledger = fresh()
    for at, tree in enumerate(trees):
        ledger.save_budgets(tree, at, "carol", "")
        known = ledger.budget_changes()
        assert ledger.budgets() == tuple(sorted(tree, key=lambda b: b.account))
        ledger.save_budgets(reversed(tree), at, "carol", "")
        assert ledger.budget_changes() == known


@quick
@given(outcomes=st.lists(st.none() | st.sampled_from(["kept", "ended", "broken:us"]), min_size=1, max_size=6))
def test_the_first_outcome_of_a_contract_stays(fresh: Fresh, outcomes: list[str | None]) -> None:
    ledger = fresh()
    for number, outcome in enumerate(outcomes):
        ledger.save_contracts([made.contract(rate=number, outcome=outcome)])
    first = next((o for o in outcomes if o is not None), None)
    assert ledger.contracts([RunKey(7, 100)]) == (made.contract(rate=0, outcome=first),)
