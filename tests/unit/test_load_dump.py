"""Saved accounting into a real SQLite ledger: who is charged what, and what the ledger knows better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyslurm_budget.domain.model import RunKey, WorkClass
from pyslurm_budget.domain.policy import Policy, PoolRule
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service import dump
from pyslurm_budget.service.budgets import read_budget_file
from pyslurm_budget.service.dump import load_dump
from pyslurm_budget.service.ports import RunFacts, SyncState
from pyslurm_budget.slurm.dump import DumpAccounting
from tests.unit import made

HEADER = "JobIDRaw|JobID|Account|User|QOS|State|Submit|Start|End|ElapsedRaw|AllocTRES|ReqTRES\n"
T = 1_796_000_000


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from made.open_ledger(tmp_path)


def row(job: int = 5, *, end: int | str = T + 60, tres: str = "cpu=1,gres/gpu=2", **changes: str) -> str:
    elapsed = end - T if isinstance(end, int) else 30
    cells = {"account": "lab", "user": "alice", "qos": "normal", "state": "COMPLETED", "start": str(T)} | changes
    return (
        f"{job}|{job}|{cells['account']}|{cells['user']}|{cells['qos']}|{cells['state']}|{T - 5}|{cells['start']}"
        f"|{end}|{elapsed}|{tres}|gres/gpu=2\n"
    )


def load(ledger: SqlLedger, text: str, policy: Policy | None = None, as_of: int | None = None) -> dump.DumpCounts:
    return load_dump(DumpAccounting(HEADER + text, as_of=as_of), ledger, policy or Policy(), T + 1000)


def runs(ledger: SqlLedger) -> dict[int, RunFacts]:
    return {run.key.job_id: run for run in ledger.runs_between(0, 1 << 40)}


def test_a_run_is_charged_to_its_own_account_as_backed(ledger: SqlLedger) -> None:
    counts = load(ledger, row())
    run = runs(ledger)[5]
    assert (run.pool, run.gpus, run.rate, run.start, run.end) == ("gpu", 2, 2000, T, T + 60)
    assert (run.work_class, run.shadow, run.account) == (WorkClass.BACKED, WorkClass.BACKED, "lab")
    assert (counts.loaded, counts.changed, counts.without_budget) == (1, 1, 1)


def test_the_budget_is_the_one_of_the_very_account(ledger: SqlLedger) -> None:
    ledger.save_budgets(read_budget_file('[budgets.lab]\nshare = "100%"\n', T), T, "alice", "first")
    counts = load(ledger, row(5, account="LAB") + row(6, account="lab_sub"))
    assert {job: run.budget for job, run in runs(ledger).items()} == {5: "lab", 6: None}
    assert counts.without_budget == 1


def test_the_pool_is_the_type_of_the_gpus_or_the_pool_that_joins_it(ledger: SqlLedger) -> None:
    typed = row(tres="cpu=64,gres/gpu=2,gres/gpu:a100=2,mem=1000G")
    load(ledger, typed)
    assert (runs(ledger)[5].pool, runs(ledger)[5].rate, runs(ledger)[5].gpu_type) == ("a100", 2000, "a100")
    load(ledger, row(6, tres="gres/gpu:a100=2"), Policy(pools=(PoolRule("big", flavors=("a100", "h100")),)))
    assert runs(ledger)[6].pool == "big"


def test_spare_history_is_spare_by_its_qos_and_backed_in_the_shadow(ledger: SqlLedger) -> None:
    load(ledger, row(qos="spare"))
    assert (runs(ledger)[5].work_class, runs(ledger)[5].shadow) == (WorkClass.SPARE, WorkClass.BACKED)


def test_what_cannot_be_charged_is_counted(ledger: SqlLedger) -> None:
    never = row(7, state="CANCELLED by 5", start="None")
    cpu = "8|8|lab|alice|normal|COMPLETED|1|10|20|10|cpu=1|cpu=1\n"
    unknown = row(9, tres="cpu=1")
    counts = load(ledger, row() + never + cpu + unknown)
    assert (counts.loaded, counts.never_started, counts.without_gpus, counts.unknown_gpus) == (2, 1, 1, 1)
    assert runs(ledger)[9].gpus is None
    assert runs(ledger)[9].unknown
    assert sorted(runs(ledger)) == [5, 9]


def test_the_same_dump_twice_changes_nothing_and_a_newer_one_ends_the_run(ledger: SqlLedger) -> None:
    running = row(state="RUNNING", end="Unknown")
    assert load(ledger, running, as_of=T + 30).changed == 1
    again = load(ledger, running, as_of=T + 30)
    assert (again.changed, again.kept) == (0, 1)
    assert runs(ledger)[5].end == T + 30
    assert load(ledger, running, as_of=T + 40).changed == 1
    assert load(ledger, row()).changed == 1
    assert (runs(ledger)[5].state, runs(ledger)[5].end) == ("COMPLETED", T + 60)
    assert load(ledger, running, as_of=T + 50).kept == 1
    assert runs(ledger)[5].end == T + 60


def test_what_the_cluster_itself_told_is_kept(ledger: SqlLedger) -> None:
    live = made.run(
        T - 5, T, None, "RUNNING", key=RunKey(5, T - 5), rate=8000, gpus=2, nodes=("n1",), time_limit=None
    )
    state = SyncState(watermark=T + 10, as_of=T + 10, complete=True)
    ledger.save_runs([live], state)
    assert load(ledger, row(state="RUNNING", end="Unknown"), as_of=T + 30).kept == 1
    assert runs(ledger)[5] == live
    load(ledger, row())
    assert runs(ledger)[5] == replace(live, state="COMPLETED", end=T + 60)
    assert ledger.sync_state() == state


def test_other_gpus_in_a_later_dump_are_taken(ledger: SqlLedger) -> None:
    load(ledger, row(tres="gres/gpu=2,gres/gpu:a100=2"))
    assert load(ledger, row(tres="gres/gpu=3,gres/gpu:a100=3")).changed == 1
    run = runs(ledger)[5]
    assert (run.gpus, run.rate, run.pool, run.gpu_type) == (3, 3000, "a100", "a100")
    assert load(ledger, row(tres="gres/gpu=3")).changed == 0
    load(ledger, row(tres="gres/gpu=1"))
    assert (runs(ledger)[5].gpus, runs(ledger)[5].rate, runs(ledger)[5].pool) == (1, 1000, "a100")
    mixed = "gres/gpu=4,gres/gpu:a100=1,gres/gpu:h100=3"
    load(ledger, row(tres=mixed))
    assert [(part.flavor, part.gpus, part.rate) for part in runs(ledger)[5].parts] == [
        ("a100", 1, 1000),
        ("h100", 3, 3000),
    ]
    assert ledger.verify_usage()[1] == ()


def test_a_rate_that_came_from_the_nodes_stays(ledger: SqlLedger) -> None:
    """8 GPUs for the memory of the node; then one of its GPUs was taken away in accounting, or all were given."""
    live = made.run(T - 5, T, T + 60, "COMPLETED", key=RunKey(5, T - 5), rate=8000, gpus=2, nodes=("n1",))
    ledger.save_runs([live], SyncState(watermark=T + 10, as_of=T + 10, complete=True))
    load(ledger, row(tres="gres/gpu=1"))
    assert (runs(ledger)[5].gpus, runs(ledger)[5].rate, runs(ledger)[5].pool) == (1, 8000, live.pool)
    load(ledger, row(tres="gres/gpu=9"))
    assert (runs(ledger)[5].gpus, runs(ledger)[5].rate) == (9, 9000)


def test_runs_of_other_times_in_one_batch_are_known_too(ledger: SqlLedger) -> None:
    far = f"6|6|lab|alice|normal|RUNNING|{T + 900_000}|{T + 900_000}|Unknown|50|gres/gpu=1|\n"
    early = row(state="RUNNING", end="Unknown")
    assert load(ledger, early + far).changed == 2
    again = load(ledger, early + far)
    assert (again.changed, again.kept) == (0, 2)


def test_identical_rows_count_once_and_of_two_runs_under_one_key_the_longer(ledger: SqlLedger) -> None:
    counts = load(ledger, row() + row() + row(end=T + 90) + row(end=T + 20))
    assert (counts.loaded, counts.twice) == (1, 3)
    assert runs(ledger)[5].end == T + 90


def test_batches_are_all_saved(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "BATCH", 3)
    counts = load(ledger, "".join(row(job) for job in range(1, 11)))
    assert (counts.loaded, sorted(runs(ledger))) == (10, list(range(1, 11)))


def test_a_dump_that_cannot_be_read_raises_and_writes_nothing(ledger: SqlLedger) -> None:
    with pytest.raises(SlurmOutputError, match="empty"):
        load_dump(DumpAccounting(""), ledger, Policy(), T)
    assert runs(ledger) == {}
    assert ledger.sync_state() is None
