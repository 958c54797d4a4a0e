"""``sbudget sync --dump`` with no Slurm on the machine."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from pyslurm_budget.ledger.store import SqlLedger
from tests.cli.calling import Said, sbudget

HEADER = "JobID|Account|User|State|Submit|Start|End|AllocTRES|Cluster\n"
ENDED = "5|lab|alice|COMPLETED|2026-11-30T08:00:00|2026-11-30T08:00:00|2026-11-30T09:00:00|gres/gpu=2|alpha\n"
RUNNING = "6|lab|alice|RUNNING|2026-11-30T08:00:00|2026-11-30T08:00:00|Unknown|gres/gpu=1|alpha\n"
MORNING = 1796022000  # 2026-11-30 08:00 in Berlin


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", os.devnull)
    file = tmp_path / "sbudget.toml"
    file.write_text(
        f'cluster = "alpha"\n[ledger]\nurl = "sqlite:///{tmp_path}/ledger.sqlite"\n'
        '[reports]\ntimezone = "Europe/Berlin"\n'
    )
    return file


@pytest.fixture
def ledger(config: Path) -> Iterator[SqlLedger]:
    opened = SqlLedger(f"sqlite:///{config.parent}/ledger.sqlite", "alpha")
    yield opened
    opened.close()


def sync(config: Path, text: str, *words: object) -> Said:
    file = config.parent / "saved.txt"
    file.write_text(text)
    return sbudget("--config", config, "sync", "--dump", file, *words)


def test_a_dump_is_loaded_in_the_zone_of_the_site(config: Path, ledger: SqlLedger) -> None:
    said = sync(config, HEADER + ENDED + RUNNING, "--as-of", "2026-11-30T12:00:00")
    assert (said.status, said.out) == (0, "")
    assert "2 runs and 0 steps read, 2 rows of the ledger changed" in said.err
    found = {run.key.job_id: (run.start, run.end) for run in ledger.runs_between(0, 1 << 40)}
    assert found == {5: (MORNING, MORNING + 3600), 6: (MORNING, MORNING + 4 * 3600)}


def test_a_dump_from_stdin(config: Path, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((HEADER + ENDED).encode())))
    said = sbudget("--debug", "--config", config, "sync", "--dump", "-")
    assert said == Said(0, "", ANY), said.err
    assert len(ledger.runs_between(0, 1 << 40)) == 1


def test_a_file_without_gpus_was_read_all_the_same(config: Path) -> None:
    said = sync(config, HEADER + ENDED.replace("gres/gpu=2", "cpu=2"))
    assert "1 held no GPUs" in said.err
    said = sbudget("--config", config, "report", "usage")
    assert said.status == 0
    assert "that held GPUs then; it has no runs at all" in said.err


def test_runs_that_still_ran_ask_for_a_time(config: Path) -> None:
    assert "1 runs still ran" in sync(config, HEADER + RUNNING).err


def test_rejected_rows_are_told_with_the_line_and_the_reason(config: Path) -> None:
    said = sync(config, HEADER + ENDED + ENDED.replace("alpha", "beta") + ENDED.replace("=2", "=") + "rubbish\n")
    assert said.status == 0
    assert "1 rows rejected: of another cluster, first at line 3: beta, not alpha" in said.err
    assert "1 rows rejected: AllocTRES cannot be read, first at line 4" in said.err
    assert "1 rows rejected: not the shape of a record, first at line 5" in said.err


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("", 25, "empty"),
        ("JobID|State\n5|COMPLETED\n", 25, "lacks the columns Account"),
        (HEADER + "rubbish\n", 25, "none of its 1 rows can be read"),
        (HEADER, 0, "0 runs"),
        ('{"meta": {"plugin": {"data_parser": "data_parser/v0.0.99"}}}', 25, "v0.0.99"),
    ],
)
def test_dumps_that_cannot_be_used(config: Path, text: str, status: int, says: str) -> None:
    said = sync(config, text)
    assert (said.status, said.out) == (status, "")
    assert says in said.err


def test_wrong_words(config: Path, tmp_path: Path) -> None:
    said = sbudget("--config", config, "sync", "--dump", tmp_path / "nowhere")
    assert said.status == 2
    assert "nowhere: cannot be read" in said.err
    assert sync(config, HEADER, "--as-of", "yesterday").status == 2
    assert sync(config, HEADER, "--as-of", "Unknown").status == 2
    assert sbudget("--config", config, "sync", "--as-of", "5").status == 2
