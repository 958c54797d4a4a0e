"""``verify`` finds each thing that must not be, names it, and says nothing about a ledger that is as it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Table, delete, insert, update

from pyslurm_budget.domain.budget import Budget
from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.ledger import tables
from pyslurm_budget.service.ports import SyncState
from tests.db.made import contract, run

if TYPE_CHECKING:
    from pyslurm_budget.ledger.store import SqlLedger

NOW = 1_000_000
START = 500_000


def fill(ledger: SqlLedger) -> None:
    """Runs with and without an end, a contract, two budgets."""
    ended = run(1, start=START, end=START + 9000)
    ledger.save_runs([ended, run(2, start=START)], SyncState(NOW, NOW, True))
    ledger.save_contracts([contract(1, start=START, protected_until=START + 3600)])
    ledger.save_budgets([Budget("lab", None, ()), Budget("nlp", "lab", ())], 1, "root", "")


def change(ledger: SqlLedger, table: Table, job_id: int | None = None, **values: Any) -> None:
    """Change rows behind the ledger's back."""
    statement = update(table).where(table.c.cluster == ledger._cluster).values(values)
    with ledger._begin() as connection:
        connection.execute(statement if job_id is None else statement.where(table.c.job_id == job_id))


def wrong(ledger: SqlLedger, where: str, now: int = NOW) -> list[str]:
    """The sentences; all must be of this place."""
    found = ledger.verify(now)[1]
    assert {place for place, _ in found} <= {where}
    return [says for _, says in found]


def test_a_ledger_that_is_as_it_must_be(ledger: SqlLedger) -> None:
    assert ledger.verify(NOW) == ({"cells": 0, "runs": 0, "contracts": 0}, ())
    fill(ledger)
    looked, found = ledger.verify(NOW)
    assert found == ()
    # Two hours and a day in the contract, three hours and a day after it.
    assert looked == {"cells": 7, "runs": 2, "contracts": 1}


def test_usage(ledger: SqlLedger) -> None:
    fill(ledger)
    u, hour = tables.usage_hour, START - START % 3600
    with ledger._begin() as connection:
        mine = (u.c.cluster == ledger._cluster, u.c.span == 3600, u.c.at == hour)
        connection.execute(update(u).where(*mine).values(gpu_seconds=u.c.gpu_seconds + 1))
    (says,) = wrong(ledger, "usage")
    seconds = 4 * (hour + 3600 - START)
    assert "usage in the hour 1970-01-06T18:00Z of budget=nlp account=nlp user=alice qos=backed pool=a100" in says
    assert f"has gpu_seconds={seconds + 1} " in says
    assert f"should have gpu_seconds={seconds} " in says
    ledger.rebuild_usage()
    assert wrong(ledger, "usage") == []


def test_usage_of_a_group_that_is_gone(ledger: SqlLedger) -> None:
    fill(ledger)
    g = tables.usage_group
    with ledger._begin() as connection:
        connection.execute(delete(g).where(g.c.cluster == ledger._cluster, g.c.run_on.is_(True)))
    assert any("which does not exist" in says for says in wrong(ledger, "usage"))
    ledger.rebuild_usage()
    assert wrong(ledger, "usage") == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"start": START, "end": START - 1}, "ends before it starts"),
        ({"gpus": -1}, "less than no GPUs"),
        ({"rate": -1}, "less than no GPUs"),
    ],
)
def test_runs(ledger: SqlLedger, values: dict[str, Any], says: str) -> None:
    fill(ledger)
    change(ledger, tables.run, 2, **values)
    (found,) = wrong(ledger, "run")
    assert found.startswith("run of job 2, submitted at 100, ")
    assert says in found


def test_contracts(ledger: SqlLedger) -> None:
    fill(ledger)
    for until in (None, START + 3601):
        change(ledger, tables.run, 1, protected_until=until)
        ledger.rebuild_usage()
        (says,) = wrong(ledger, "contract")
        assert "contract of job 1, submitted at 100, is not noted in its run" in says
    late = contract(3, start=NOW - 86400)
    ledger.save_contracts([contract(4, start=START), late])  # of one the run may come yet
    assert [says for says in wrong(ledger, "contract") if "job 3" in says] == []
    assert "contract of job 4, submitted at 100, has no run" in wrong(ledger, "contract")


def test_a_contract_that_was_known_before_its_run(ledger: SqlLedger) -> None:
    """As it is while accounting cannot be read: the run gets the end of it when it comes."""
    ledger.save_contracts([contract(1, start=START, protected_until=START + 3600)])
    ledger.save_runs([run(1, start=START, end=START + 9000)], SyncState(NOW, NOW, True))
    assert ledger.runs_of([RunKey(1, 100)])[RunKey(1, 100)].protected_until == START + 3600
    assert ledger.verify(NOW)[1] == ()


def test_sync(ledger: SqlLedger) -> None:
    ledger.save_runs([run(1)])
    (says,) = wrong(ledger, "sync")
    assert "no read of accounting was ever finished" in says
    ledger.save_runs([], SyncState(NOW, NOW, True))
    assert wrong(ledger, "sync", NOW - 300) == []
    (says,) = wrong(ledger, "sync", NOW - 301)
    assert "has not come yet" in says


def test_budgets(ledger: SqlLedger) -> None:
    fill(ledger)
    share = {"account": "gone", "pool": "*", "since": 0, "share": "1/2"}
    with ledger._begin() as connection:
        connection.execute(insert(tables.budget_share).values(cluster=ledger._cluster, **share))
        b = tables.budget
        connection.execute(delete(b).where(b.c.cluster == ledger._cluster, b.c.account == "lab"))
    assert wrong(ledger, "budget") == [
        "budget nlp is below lab, which does not exist",
        "there are shares of budget gone, which does not exist",
    ]
