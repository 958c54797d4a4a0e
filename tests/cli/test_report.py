"""``sbudget report`` over saved accounting, with no Slurm on the machine."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from pyslurm_budget.cli import report
from tests.cli.calling import Said, sbudget

# Berlin puts its clocks back on 2026-10-25: this run has the 25 hours of that day, and 1 hour of each neighbour.
TEN = "2026-10-26T10:00:00"
DUMP = f"""\
JobID|Account|User|QOS|State|Submit|Start|End|Suspended|AllocTRES|ReqTRES
1|NLP|alice|normal|COMPLETED|2026-10-24T23:00:00|2026-10-24T23:00:00|2026-10-26T01:00:00|00:00:00\
|gres/gpu=2,gres/gpu:a100=2|gres/gpu=2
2|nlp|bob|spare|FAILED|2026-10-25T10:00:00|2026-10-25T10:00:00|2026-10-25T10:20:00|00:10:00\
|gres/gpu=1,gres/gpu:h100=1|gres/gpu=1
3||carol|normal|COMPLETED|{TEN}|{TEN}|2026-10-26T11:00:00|00:00:00|gres/gpu=4|gres/gpu=4
4|bio|dan|normal|COMPLETED|{TEN}|{TEN}|2026-10-26T12:00:00|00:00:00|cpu=8|gres/gpu=8
5|bio|dan|normal|CANCELLED by 7|{TEN}|{TEN}|{TEN}|00:00:00|gres/gpu=8|gres/gpu=8
"""
NOW = 1793059200  # 2026-10-27 01:00 in Berlin
PERIOD = ("-S", "2026-10-24", "-E", "2026-10-27")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(report, "host_now", lambda: NOW)
    file = tmp_path / "sbudget.toml"
    file.write_text(
        f'cluster = "alpha"\n[ledger]\nurl = "sqlite:///{tmp_path}/ledger.sqlite"\n'
        '[reports]\ntimezone = "Europe/Berlin"\n'
    )
    return file


@pytest.fixture
def config(empty: Path) -> Path:
    saved = empty.parent / "saved.txt"
    saved.write_text(DUMP)
    said = sbudget("--config", empty, "sync", "--dump", saved)
    assert "5 runs" in said.err, said
    return empty


def ask(config: Path, *words: object, what: str = "usage") -> Said:
    return sbudget("--config", config, "report", what, *words)


def rows(config: Path, *words: object, what: str = "usage") -> list[dict[str, Any]]:
    said = ask(config, "--json", *words, what=what)
    assert said.status == 0, said
    document = json.loads(said.out)
    assert set(document) == {"meta", "rows"}
    found: list[dict[str, Any]] = document["rows"]
    return found


def hours(config: Path, by: str, *words: object) -> dict[tuple[str, ...], float]:
    found = rows(config, "--by", by, *PERIOD, *words)
    return {tuple(row[name] for name in by.split(",")): row["gpu_hours"] for row in found}


def test_the_table_for_people(config: Path) -> None:
    said = ask(config, *PERIOD)
    assert said.out == (
        "Account  GPU-h  Charged  Suspended  Runs  Unknown\n"
        "(none)    4.00     4.00       0.00     1        0\n"
        "bio       0.00     0.00       0.00     1        1\n"
        "nlp      54.33    54.00       0.17     2        0\n"
        "Total    58.33    58.00       0.17     4        1\n"
    )
    heading, unknown = said.err.splitlines()
    assert heading == "Cluster alpha, 2026-10-24 00:00 CEST to 2026-10-27 00:00 CET"
    assert unknown.startswith("sbudget: 1 run asked for GPUs that accounting does not show; it is not in GPU-h.")


def test_each_row_of_the_json(config: Path) -> None:
    assert rows(config, "--by", "user,class", *PERIOD, "-A", "Nlp") == [
        {
            "user": "alice",
            "class": "backed",
            "gpu_hours": 54.0,
            "charged_gpu_hours": 54.0,
            "suspended_gpu_hours": 0.0,
            "runs": 1,
            "unknown_runs": 0,
        },
        {
            "user": "bob",
            "class": "spare",
            "gpu_hours": 0.3333,
            "charged_gpu_hours": 0.0,
            "suspended_gpu_hours": 0.1667,
            "runs": 1,
            "unknown_runs": 0,
        },
    ]


def test_what_the_json_says_of_itself(config: Path) -> None:
    document = json.loads(
        ask(config, "--json", "--by", "qos", "-u", "dan,bob", "-S", "2026-10-26", "--tz", "UTC").out
    )
    assert document["meta"] == {
        "cluster": "alpha",
        "start": 1792972800,
        "end": NOW,
        "open_until": NOW,
        "timezone": "UTC",
        "accounts": [],
        "users": ["dan", "bob"],
        "archived_until": None,
        "archived_runs": 0,
        "by": ["qos"],
    }


def test_days_are_those_of_the_zone(config: Path) -> None:
    assert hours(config, "day", "-u", "alice") == {("2026-10-24",): 2.0, ("2026-10-25",): 50.0, ("2026-10-26",): 2.0}
    in_utc = hours(config, "day", "-u", "alice", "--tz", "UTC")
    assert in_utc == {("2026-10-24",): 6.0, ("2026-10-25",): 48.0}


def test_groups_in_the_order_asked_for(config: Path) -> None:
    assert list(hours(config, "account,day")) == [
        ("(none)", "2026-10-26"),
        ("bio", "2026-10-26"),
        ("nlp", "2026-10-24"),
        ("nlp", "2026-10-25"),
        ("nlp", "2026-10-26"),
    ]
    assert list(hours(config, "month,flavor,day"))[:2] == [
        ("2026-10", "a100", "2026-10-24"),
        ("2026-10", "a100", "2026-10-25"),
    ]
    assert hours(config, "day,account") == {(d, a): n for (a, d), n in hours(config, "account,day").items()}
    assert hours(config, "pool,flavor") == {("(none)", "gpu"): 0.0, ("a100", "a100"): 54.0,
                                            ("gpu", "gpu"): 4.0, ("h100", "h100"): 0.3333}  # fmt: skip


def test_gpus_of_two_flavors_in_one_run(empty: Path) -> None:
    saved = empty.parent / "saved.txt"
    held = "gres/gpu=3,gres/gpu:a100=2,gres/gpu:h100=1"
    saved.write_text(f"JobID|Account|User|State|Submit|Start|End|AllocTRES\n"
                     f"1|nlp|ann|COMPLETED|{TEN}|{TEN}|2026-10-26T11:00:00|{held}\n")  # fmt: skip
    sbudget("--config", empty, "sync", "--dump", saved)
    assert hours(empty, "flavor,pool") == {("a100", "a100"): 2.0, ("h100", "h100"): 1.0}
    assert hours(empty, "account") == {("nlp",): 3.0}
    assert ask(empty, *PERIOD, "--by", "flavor").out.splitlines()[-1].split() == [
        "Total",
        "3.00",
        "3.00",
        "0.00",
        "1",
        "0",
    ]


def test_parsable_and_csv_hold_the_same(config: Path) -> None:
    parsable = ask(config, "-P", *PERIOD).out
    assert parsable == (
        "Account|GPU_Hours|Charged_GPU_Hours|Suspended_GPU_Hours|Runs|Unknown_Runs\n"
        "(none)|4.0000|4.0000|0.0000|1|0\n"
        "bio|0.0000|0.0000|0.0000|1|1\n"
        "nlp|54.3333|54.0000|0.1667|2|0\n"
    )
    table = list(csv.reader(io.StringIO(ask(config, "--csv", *PERIOD).out)))
    assert table == [line.split("|") for line in parsable.splitlines()]
    assert ask(config, "-P", "-n", "--delimiter=;", *PERIOD).out == "".join(
        f"{';'.join(line)}\n" for line in table[1:]
    )


def test_columns_and_widths(config: Path) -> None:
    assert ask(config, "--format=account%4,gpu_hours%8", "-n", *PERIOD, "-A", "(none)").out == (
        "(no+      4.00\nTot+      4.00\n"
    )
    assert ask(config, "--helpformat", "--by=day").out.split() == [
        *("Day", "GPU_Hours", "Charged_GPU_Hours", "Suspended_GPU_Hours", "Runs", "Unknown_Runs")
    ]


def test_the_command_that_is_pointed_to_lists_the_unknown_runs(config: Path) -> None:
    said = ask(config, "-P", *PERIOD, "-A", "bio,nlp", "--tz", "UTC")
    words = shlex.split(said.err.partition("List: ")[2])
    listed = sbudget(*words[1:])
    why = "GPUs were asked for, but AllocTRES has none (is gres/gpu in AccountingStorageTRES?)"
    assert listed.out.splitlines()[1].split(maxsplit=6) == [
        *("4", "bio", "dan", "2026-10-26T09:00:00", "2026-10-26T11:00:00", "COMPLETED"), why
    ]  # fmt: skip
    (row,) = rows(config, *PERIOD, what="unknown")
    assert row == {
        "job_id": "4",
        "account": "bio",
        "user": "dan",
        "start": 1793005200,
        "end": 1793012400,
        "state": "COMPLETED",
        "why": why,
        "counted_until": None,
    }
    assert ask(config, *PERIOD, "--csv", what="unknown").out.startswith("JobID,Account,User,Start,End,State,Why\n4,")


def test_the_examples_of_the_guide(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs/howto/reports.md").read_text(encoding="utf-8")
    monkeypatch.chdir(empty.parent)
    monkeypatch.setenv("SBUDGET_CONFIG", "reports.toml")
    monkeypatch.setattr(report, "host_now", lambda: NOW + 30 * 86400)
    Path("reports.toml").write_text(empty.read_text())
    Path("saved.txt").write_text(
        "".join(line for line in DUMP.splitlines(keepends=True) if not line.startswith("5|"))
    )
    calls = [shlex.split(line.removeprefix("$ ")) for line in guide.splitlines() if line.startswith("$ sbudget ")]
    assert len(calls) == 5
    for _, *words in calls:
        said = sbudget(*words)
        assert said.status == 0
        assert said.out in guide
        assert all(line in guide for line in said.err.splitlines()), said.err


def test_no_unknown_runs(config: Path) -> None:
    said = ask(config, *PERIOD, "-A", "nlp", what="unknown")
    assert (said.status, said.out) == (0, "")
    assert "the GPUs of every run of this period are known" in said.err


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_spare_work_of_saved_accounting_is_free(config: Path, mode: str) -> None:
    config.write_text(f'mode = "{mode}"\n' + config.read_text())
    charged = {row["class"]: row["charged_gpu_hours"] for row in rows(config, "--by", "class", *PERIOD)}
    assert charged == {"backed": 58.0, "spare": 0.0}


def test_the_usual_period_is_the_window(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for days, total in ((4, "54.3333"), (5, "48.3333")):  # the window begins on the 24th and 25th, at 00:00 UTC
        monkeypatch.setattr(report, "host_now", lambda now=NOW + days * 86400: now)
        said = ask(config, "-P", "-A", "nlp")
        assert (said.out.splitlines()[1].split("|")[1], said.err) == (total, "")


def test_a_file_that_is_older_than_the_window_is_shown_whole(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "host_now", lambda: NOW + 90 * 86400)
    said = ask(config, "-P")
    assert "nlp|54.3333|" in said.out
    assert "only saved accounting was loaded, and it is older: this is all of it" in said.err


def test_nothing_in_the_period_says_where_there_is_something(config: Path) -> None:
    said = ask(config, "-S", "2026-01-01", "-E", "2026-02-01")
    assert (said.status, said.out.splitlines()) == (0, ["Account  GPU-h  Charged  Suspended  Runs  Unknown"])
    assert "no run that held GPUs then; its runs are from 2026-10-24 23:00 CEST to 2026-10-26 12:00 CET" in said.err


def test_a_run_that_still_runs_counts_to_now_or_its_limit(empty: Path) -> None:
    saved = empty.parent / "saved.txt"
    line = "|nlp|alice|RUNNING|2026-10-26T22:00:00|2026-10-26T22:00:00|Unknown"
    saved.write_text(
        "JobID|Account|User|State|Submit|Start|End|Timelimit|AllocTRES\n"
        f"6{line}|UNLIMITED|gres/gpu=1\n7{line}|01:00:00|gres/gpu=1\n"
    )
    assert "2 runs still ran" in sbudget("--config", empty, "sync", "--dump", saved).err
    # Loaded just now by the clock of this machine, which is later than NOW: it counts until NOW.
    assert [row["gpu_hours"] for row in rows(empty)] == [3.0 + 1.0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--by", "acount"], "--by: no group 'acount' (did you mean account?); write some of account, user, flavor"),
        (["--by", "day,account,day"], "--by: day comes twice"),
        (["--by", ""], "--by: no group ''"),
        (["--format", "user"], "--format: no column 'user'"),
        (
            ["-S", "2026-10-27", "-E", "2026-10-26"],
            "--start 2026-10-27 00:00 CET is after --end 2026-10-26",
        ),
        (["-S", "yesterday"], "--start: 'yesterday' is no time; write 2026-12-01"),
        (["-E", "99999999999999"], "--end: '99999999999999' is no time"),
        (["--tz", "Mars/Phobos"], "--tz: no time zone 'Mars/Phobos' is known here; write one such as"),
        (["--json", "--csv"], "--csv, --json and --parsable2 exclude each other"),
    ],
)
def test_what_cannot_be_understood_is_a_wrong_use(config: Path, words: list[str], says: str) -> None:
    said = ask(config, *words)
    assert (said.status, said.out) == (2, "")
    assert says in said.err


def test_an_empty_ledger_is_not_no_usage(empty: Path) -> None:
    for what in ("usage", "unknown"):
        said = ask(empty, what=what)
        assert (said.status, said.out) == (32, "")
        assert "the ledger has no accounting yet; run `sbudget sync`" in said.err
