"""What ended runs held since each of several times: the rollup against a sum over the runs, on every database."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from alembic import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from pyslurm_budget.domain.model import RunKey, WorkClass
from pyslurm_budget.ledger import migrate, tables
from pyslurm_budget.ledger.engine import open_engine, transaction
from pyslurm_budget.ledger.rollup import ARCHIVED
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.ports import RunFacts, RunPart
from tests.db import made, strategies
from tests.db.test_properties import Fresh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOUR = 3600
DAY = 86400
T0 = 1_700_000_000 - 800  # a whole hour
STARTS = st.integers(-30, 30).map(lambda n: T0 + n * 600) | st.integers(T0 - 20_000, T0 + 20_000)
LENGTHS = st.integers(0, 30).map(lambda n: n * 600) | st.integers(0, 200_000)
quick = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def fresh(database: str) -> Iterator[Fresh]:
    found = Fresh(database)
    yield found
    found.close()


@st.composite
def ended(draw: st.DrawFn, job_id: int) -> tuple[RunFacts, int | None]:
    """A run that ended, and the end of its contract if it had one."""
    start = draw(STARTS)
    rate = draw(st.integers(0, 9000))
    parts = draw(st.just(()) | st.just((RunPart("a100", "a100", 1, 1000), RunPart("v100", "v100", 2, rate))))
    run = made.run(
        job_id,
        start - 5,
        start=start,
        end=start + draw(LENGTHS),
        state="COMPLETED",
        rate=rate,
        user=draw(st.sampled_from(["alice", "bob"])),
        pool=draw(st.sampled_from(["a100", "v100"])),
        charged_as=draw(st.sampled_from(WorkClass)),
        parts=parts,
    )
    return run, draw(st.none() | LENGTHS.map(lambda length: start + length))


HISTORIES = st.integers(0, 6).flatmap(lambda n: st.tuples(*(ended(i) for i in range(1, n + 1))))


def _summed(
    runs: Sequence[tuple[RunFacts, int | None]], marks: Sequence[int], now: int
) -> dict[tuple[str, str, WorkClass, bool], list[int]]:
    """The same, run by run and second by second where it is told apart."""
    found: dict[tuple[str, str, WorkClass, bool], list[int]] = defaultdict(lambda: [0] * len(marks))
    for run, until in runs:
        for pool, rate in [(p.pool, p.rate) for p in run.parts] or [(run.pool, run.rate)]:
            for i, mark in enumerate(marks):
                begin, end = max(run.start or 0, mark), min(run.end or now, now)
                contract = max(0, min(end, max(until, run.start or 0)) - begin) if until is not None else end - begin
                contract = max(0, min(contract, end - begin))
                found[run.user, str(pool), run.charged_as, False][i] += rate * contract
                found[run.user, str(pool), run.charged_as, True][i] += rate * max(0, end - begin - contract)
    return {key: amounts for key, amounts in found.items() if any(amounts)}


@quick
@given(
    runs=HISTORIES, window=st.integers(1, 300_000), steps=st.lists(st.integers(0, 9000), max_size=5), data=st.data()
)
def test_it_is_the_sum_over_the_runs(
    fresh: Fresh,
    runs: Sequence[tuple[RunFacts, int | None]],
    window: int,
    steps: list[int],
    data: st.DataObject,
) -> None:
    now = data.draw(STARTS) + 100_000
    marks = [now - window]
    for step in steps:
        marks.append(min(marks[-1] + step, now))
    ledger = fresh()
    open_ones = [replace(run, end=None, state="RUNNING") for run, _ in runs]
    ledger.save_runs(data.draw(st.permutations(open_ones)), made.STATE)
    contracts = [
        made.contract(run.key.job_id, run.key.submit, protected_until=until)
        for run, until in runs
        if until is not None
    ]
    ledger.save_contracts(contracts[::2])
    for run, _ in data.draw(st.permutations(runs)):
        ledger.save_runs([run], made.STATE)
    ledger.save_contracts(contracts)
    found = {(h.user, h.pool, h.work_class, h.run_on): list(h.amounts) for h in ledger.history(marks, now)}
    assert found == _summed(runs, marks, now)
    assert ledger.verify_usage()[1] == ()


@quick
@given(runs=st.lists(strategies.facts(st.builds(RunKey, st.integers(1, 9), st.just(1))), max_size=5))
def test_counting_anew_gives_the_same(fresh: Fresh, runs: list[RunFacts]) -> None:
    ledger = fresh()
    ledger.save_runs(runs, made.STATE)
    ledger.rebuild_usage()
    assert ledger.verify_usage()[1] == ()
    ledger.save_runs([replace(run, end=None, state="RUNNING") for run in runs], made.STATE)
    ledger.save_runs(runs, made.STATE)
    assert ledger.verify_usage()[1] == ()


def test_verify_finds_what_is_wrong(database: str) -> None:
    ledger = SqlLedger(database, "verified")
    ledger.save_runs([made.run(start=T0, end=T0 + 2 * HOUR, state="COMPLETED")], made.STATE)
    looked, wrong = ledger.verify_usage()
    assert (looked, wrong) == (3, ())
    with transaction(ledger._engine) as connection:
        t = tables.usage_hour
        connection.execute(
            t.update().where(t.c.cluster == "verified", t.c.span == HOUR, t.c.at == T0).values(charge=7)
        )
    _, (sentence,) = ledger.verify_usage()
    assert "hour 2023-11-14T22:00Z of budget=nlp" in sentence
    assert "has gpu_seconds=14400 charge=7 gpus_at=0 rate_at=0, should have gpu_seconds=14400 " in sentence
    ledger.rebuild_usage()
    assert ledger.verify_usage() == (3, ())
    ledger.close()


def test_a_run_that_slurm_lost_is_charged_until_it_was_missed_or_to_its_limit(database: str) -> None:
    ledger = SqlLedger(database, "runaway")
    short, long, alive = (made.run(i, start=T0, time_limit=limit) for i, limit in ((1, 1000), (2, None), (3, 1000)))
    ledger.save_runs([short, long, alive], made.STATE)
    assert ledger.mark_absent([short.key, long.key], T0 + 5000) == 0
    assert ledger.mark_absent([short.key, long.key], T0 + 5060) == 2
    found = ledger.runs_of([short.key, long.key, alive.key])
    assert [found[r.key].charged_to for r in (short, long, alive)] == [T0 + 1000, T0 + 5000, None]
    ledger.save_runs([short, long], made.STATE)  # accounting goes on to show them as running
    assert ledger.runs_of([long.key])[long.key].charged_to == T0 + 5000
    assert ledger.mark_absent([], T0 + 5120) == 0  # slurmctld has them again
    assert ledger.runs_of([long.key])[long.key] == long
    ledger.mark_absent([long.key], T0 + 5180)
    repaired = replace(long, end=T0 + 300, state="FAILED")
    ledger.save_runs([repaired], made.STATE)
    assert ledger.runs_of([long.key])[long.key] == repaired
    ledger.close()


def test_an_upgrade_counts_the_runs_that_are_there(empty: str) -> None:
    """From the first schema: classes as they were decided then, usage from the runs."""
    engine = open_engine(empty)
    with transaction(engine) as connection:
        settings_ = migrate.config()
        settings_.attributes["connection"] = connection
        command.upgrade(settings_, "0001")
        row = {"cluster": "c", "submit": 1, "account": "nlp", "user": "alice", "qos": "normal", "suspended": 0}
        row |= {"budget": "nlp", "pool": "a100", "state": "COMPLETED", "gpus": 4, "rate": 4000, "nodes": "[]"}
        row |= {"work_class": "backed", "shadow": "spare"}
        old = [c for c in tables.run.c if c.name in {*row, "job_id", "job_ref", "start", "end"}]
        insert = tables.run.insert()
        for job, start, end in ((1, T0, T0 + HOUR), (2, T0, T0 + 3 * HOUR), (3, T0, None)):
            values = row | {"job_id": job, "job_ref": str(job), "start": start, "end": end}
            connection.execute(insert.values({c: values[c.name] for c in old}))
        put = text("INSERT INTO setting (cluster, name, value) VALUES ('c', 'enforced-since', :since)")
        connection.execute(put, {"since": str(T0 + 2 * HOUR)})
    engine.dispose()
    assert migrate.upgrade(empty) == ("0001", migrate.newest())
    ledger = SqlLedger(empty, "c")
    assert [ledger.runs_of_job(str(job))[0].charged_as for job in (1, 2, 3)] == ["spare", "backed", "backed"]
    assert ledger.verify_usage() == (7, ())
    assert {h.work_class: h.amounts for h in ledger.history([T0], T0 + 9 * HOUR)} == {
        WorkClass.SPARE: (4000 * HOUR,),
        WorkClass.BACKED: (4000 * 3 * HOUR,),
    }
    ledger.close()


def test_what_was_deleted_ends_within_a_day(database: str) -> None:
    """Months of a zone do not end with a UTC day: no run may be outside the period that its day's cell is in."""
    ledger = SqlLedger(database, "zoned")
    archived = T0 - T0 % DAY + 82_800  # 23:00 UTC
    ledger.put(ARCHIVED, str(archived))
    start = archived + 30 * DAY + 600
    ledger.save_runs([made.run(7, start - 5, start=start, end=start + 1, state="COMPLETED")], made.STATE)
    assert ledger.verify_usage() == (2, ())
    ledger.rebuild_usage()
    assert ledger.verify_usage() == (2, ())
    ledger.close()
