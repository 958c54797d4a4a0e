"""``sbudget db``: verify, archive, pseudonymise, over saved accounting."""

from __future__ import annotations

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import create_engine, text

from pyslurm_budget.cli import archive, db
from pyslurm_budget.ledger.store import SqlLedger
from tests.cli.calling import Said, sbudget

LINES = """\
1|nlp|alice|normal|COMPLETED|2025-09-30T20:00:00|2025-09-30T20:00:00|2025-10-01T00:00:00|gres/gpu=2|gres/gpu=2
2|nlp|bob|spare|FAILED|2025-10-30T10:00:00|2025-10-30T10:00:00|2025-10-31T23:59:59|gres/gpu=1|gres/gpu=1
3|bio|dan|normal|COMPLETED|2026-09-02T10:00:00|2026-09-02T10:00:00|2026-09-02T12:00:00|gres/gpu=8|gres/gpu=8
4|bio|dan|normal|COMPLETED|2026-11-20T10:00:00|2026-11-20T10:00:00|2026-11-20T12:00:00|cpu=8|gres/gpu=8
5|bio|dan|normal|COMPLETED|2026-12-01T10:00:00|2026-12-01T10:00:00|2026-12-01T12:00:00|gres/gpu=8|gres/gpu=8
"""
DUMP = "JobID|Account|User|QOS|State|Submit|Start|End|AllocTRES|ReqTRES\n" + LINES
NOW = 1_796_468_400  # 2026-12-05 12:00 in Berlin


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", os.devnull)
    for module in (archive, db):
        monkeypatch.setattr(module, "host_now", lambda: NOW)
    file = tmp_path / "sbudget.toml"
    file.write_text(
        f'cluster = "alpha"\n[ledger]\nurl = "sqlite:///{tmp_path}/ledger.sqlite"\n'
        '[reports]\ntimezone = "Europe/Berlin"\n'
    )
    (tmp_path / "saved.txt").write_text(DUMP)
    (tmp_path / "archive").mkdir()
    said = sbudget("--config", file, "sync", "--dump", tmp_path / "saved.txt", "--as-of", NOW - 3600)
    assert "5 runs" in said.err, said
    return file


def call(config: Path, *words: object) -> Said:
    return sbudget("--config", config, "db", *words)


def into(config: Path, *words: object) -> Said:
    return call(config, "archive", config.parent / "archive", *words)


def files(config: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in (config.parent / "archive").iterdir()}


def runs_left(config: Path) -> int:
    ledger = SqlLedger(f"sqlite:///{config.parent}/ledger.sqlite", "alpha")
    try:
        return len(ledger.runs_between(0, NOW))
    finally:
        ledger.close()


def break_usage(config: Path) -> None:
    engine = create_engine(f"sqlite:///{config.parent}/ledger.sqlite")
    with engine.begin() as connection:
        connection.execute(text("UPDATE usage_hour SET gpu_seconds = gpu_seconds + 1"))
    engine.dispose()


def test_verify_says_one_line_when_all_is_well(config: Path) -> None:
    said = call(config, "verify")
    assert (said.status, said.err) == (0, "")
    assert said.out == "51 cells, 5 runs, 0 contracts looked at: all is well\n"
    told = json.loads(call(config, "verify", "--json").out)
    assert told == {
        "ok": True,
        "repaired": False,
        "looked_at": {"cells": 51, "runs": 5, "contracts": 0},
        "wrong": [],
    }


def test_verify_shows_what_is_wrong_and_repairs_it(config: Path) -> None:
    break_usage(config)
    said = call(config, "verify")
    assert said.status == 35
    lines = said.out.splitlines()
    assert lines[0] == "51 cells, 5 runs, 0 contracts looked at: 51 things are wrong"
    assert len(lines) == 1 + 20 + 1
    assert all(line.startswith("usage: usage in the ") for line in lines[1:-1])
    assert lines[-1] == "... and 31 more; --json lists them all"
    assert said.err == (
        "sbudget: the ledger is not as it must be in 51 places; `sbudget db verify --repair` counts usage anew\n"
    )
    said = call(config, "verify", "--json")
    assert said.status == 35
    assert len(json.loads(said.out)["wrong"]) == 51
    said = call(config, "verify", "--repair")
    assert (said.status, said.err) == (0, "")
    assert said.out == "usage was counted anew; 51 cells, 5 runs, 0 contracts looked at: all is well\n"
    assert call(config, "verify").status == 0


def test_repair_waits_for_no_other_controller_and_gives_the_lease_back(config: Path) -> None:
    ledger = SqlLedger(f"sqlite:///{config.parent}/ledger.sqlite", "alpha")
    break_usage(config)
    ledger.take_lease("other:1", NOW, NOW + 60)
    said = call(config, "verify", "--repair")
    assert (said.status, said.out) == (31, "")
    assert call(config, "verify").status == 35
    ledger.drop_lease("other:1")
    assert call(config, "verify", "--repair").status == 0
    ledger.take_lease("other:1", NOW, NOW + 60)
    ledger.close()


def test_archive_writes_closed_months_and_a_second_time_nothing(config: Path) -> None:
    said = into(config)
    assert (said.status, said.err) == (0, "")
    assert said.out == (
        "2025-10  written           2 runs           46.00 GPU-h\n"
        "2026-09  written           1 runs           16.00 GPU-h\n"
        "2026-11  written           1 runs            0.00 GPU-h\n"
    )
    before = files(config)
    assert set(before) == {f"runs-{m}.{e}" for m in ("2025-10", "2026-09", "2026-11") for e in ("parquet", "json")}
    frame = pd.read_parquet(config.parent / "archive" / "runs-2025-10.parquet")
    assert list(zip(frame.job_ref, frame.user, frame.gpus, frame.end - frame.start, strict=True)) == [
        ("1", "alice", 2, 4 * 3600),
        ("2", "bob", 1, 38 * 3600 - 1),
    ]
    said = into(config, "--json")
    told = json.loads(said.out)["months"]
    assert [(m["month"], m["state"], m["deleted"]) for m in told] == [
        (name, "same", None) for name in ("2025-10", "2026-09", "2026-11")
    ]
    assert told[2]["manifest"]["gpus_unknown"] == 1
    assert files(config) == before
    assert runs_left(config) == 5


def test_only_months_before_one(config: Path) -> None:
    assert into(config, "--before", "2026-09").out.startswith("2025-10")
    assert len(files(config)) == 2
    said = into(config, "--before", "September")
    assert (said.status, "2026-11" in said.err) == (2, True)
    said = into(config, "--before", "2025-10")
    assert (said.status, said.out, said.err) == (0, "", "sbudget: no closed month has runs in the ledger\n")


def test_delete_keeps_what_reports_must_know(config: Path) -> None:
    said = into(config, "--delete", "--before", "2026-01")
    assert (said.status, "--before 2025-11" in said.err, files(config)) == (2, True, {})
    said = into(config, "--delete")
    assert said.status == 0
    assert [line.endswith("2 deleted from the ledger") for line in said.out.splitlines()] == [True, False, False]
    assert said.err == "sbudget: 2026-09 and later stay in the ledger: reports must know it\n"
    assert runs_left(config) == 3
    assert call(config, "verify").status == 0
    said = into(config, "--delete", "--keep", "1")
    assert said.out.splitlines()[0].endswith("1 deleted from the ledger")
    assert said.err == "sbudget: 2026-11 and later stay in the ledger: reports must know it\n"
    said = sbudget("--config", config, "sync", "--dump", config.parent / "saved.txt")
    assert runs_left(config) == 2
    assert call(config, "verify").status == 0


def test_reports_say_that_runs_are_in_files_only(config: Path) -> None:
    words = ("--config", config, "report", "usage", "-S", "2025-09-01", "-E", "2026-12-01")
    assert "archive" not in sbudget(*words).err
    into(config, "--delete")
    said = sbudget(*words)
    assert "sbudget: 2 runs that ended before 2025-11-01 00:00 CET were archived and deleted" in said.err
    assert json.loads(sbudget(*words, "--json").out)["meta"]["archived_runs"] == 2
    assert "archive" not in sbudget(*words[:4], "-S", "2025-11-01", "-E", "2026-12-01").err
    into(config, "--delete", "--keep", "1")
    assert "sbudget: 3 runs that ended before" in sbudget(*words).err
    said = sbudget("--config", config, "sync", "--dump", config.parent / "saved.txt")
    assert "sbudget: 3 runs are of months that were archived and deleted: left out" in said.err


def test_the_examples_of_the_guide(config: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "howto" / "archive.md").read_text(encoding="utf-8")
    assert f"$ sbudget db verify\n{call(config, 'verify').out}" in guide
    assert f"$ sbudget db archive archive\n{into(config).out}" in guide
    said = (config.parent / "archive" / "runs-2025-10.json").read_text()
    for line in said.splitlines():
        assert line in guide or '"sha256"' in line or '"bytes"' in line
    said = into(config, "--delete")
    assert f"$ sbudget db archive archive --delete\n{said.out}{said.err}" in guide


def test_a_file_of_other_runs_is_left_alone(config: Path) -> None:
    into(config)
    before = files(config)
    (config.parent / "saved.txt").write_text(DUMP.replace("gres/gpu=2|", "gres/gpu=3|"))
    late = (
        DUMP
        + "9|nlp|alice|normal|COMPLETED|2025-10-02T20:00:00|2025-10-02T20:00:00|2025-10-03T00:00:00|gres/gpu=2|\n"
    )
    (config.parent / "saved.txt").write_text(late)
    sbudget("--config", config, "sync", "--dump", config.parent / "saved.txt")
    said = into(config, "--delete")
    assert said.status == 36
    assert said.out.splitlines()[0] == "2025-10  differs   runs-2025-10.parquet"
    assert "runs-2025-10.parquet: the ledger has other runs or names now" in said.err
    assert (files(config), runs_left(config)) == (before, 6)
    said = into(config, "--delete", "--replace")
    assert said.out.splitlines()[0].startswith("2025-10  replaced          3 runs ")
    assert runs_left(config) == 3


def test_a_folder_that_is_not_there(config: Path) -> None:
    (config.parent / "archive").rmdir()
    said = into(config)
    assert said.status == 36
    assert f"{config.parent}/archive cannot be used (No such file or directory)" in said.err


def test_the_library_may_be_missing(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pyslurm_budget.ledger.files":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    said = into(config)
    assert said.status == 36
    assert "pip install 'pyslurm_budget[parquet]'" in said.err


@pytest.mark.parametrize("words", [("archive", "archive", "--pseudonymise"), ("pseudonymise",)])
def test_pseudonyms_need_an_age(config: Path, words: tuple[str, ...]) -> None:
    said = call(config, *words)
    assert said.status == 10
    assert "privacy.pseudonymise_after is not set" in said.err


def test_pseudonyms_in_files_and_in_the_ledger(config: Path) -> None:
    with config.open("a") as file:
        file.write('[privacy]\npseudonymise_after = "365d"\n')
    usage = ("--config", config, "report", "usage", "-S", "2025-09-01", "-E", "2026-12-01", "--csv")
    accounts = sbudget(*usage).out
    assert into(config, "--pseudonymise").status == 0
    frame = pd.read_parquet(config.parent / "archive" / "runs-2025-10.parquet")
    assert frame.user.str.fullmatch("u-[0-9a-f]{10}").all()
    assert set(pd.read_parquet(config.parent / "archive" / "runs-2026-09.parquet").user) == {"dan"}
    assert "alice" in sbudget(*usage, "--by", "user").out
    said = call(config, "pseudonymise")
    assert said == Said(
        0, "", "sbudget: 2 runs, 0 contracts and 0 actions from before 2025-12-01 have pseudonyms now\n"
    )
    users = sbudget(*usage, "--by", "user").out
    assert "alice" not in users
    assert frame.user.iloc[0] in users
    assert "dan" in users
    assert sbudget(*usage).out == accounts
    assert call(config, "verify").status == 0
    assert call(config, "pseudonymise").err.startswith("sbudget: 0 runs, 0 contracts and 0 actions")
    assert all(line.split()[1] == "same" for line in into(config, "--pseudonymise").out.splitlines())


def test_the_age_must_leave_the_window_alone(config: Path) -> None:
    with config.open("a") as file:
        file.write('[privacy]\npseudonymise_after = "7d"\n')
    said = call(config, "verify")
    assert said.status == 10
    assert "privacy.pseudonymise_after is shorter than window.length and a day" in said.err
