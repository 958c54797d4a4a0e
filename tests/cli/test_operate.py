"""The operator's and the researcher's commands over a real SQLite ledger and published files, without a Slurm."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pyslurm_budget.cli.operate import _loop
from pyslurm_budget.domain.table import render
from pyslurm_budget.errors import SlurmdbdError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.publish import FilePublisher
from pyslurm_budget.service.reconcile import BREAKER
from pyslurm_budget.service.state import state_json
from tests.cli.calling import Said, sbudget
from tests.unit import made
from tests.unit.tables import TABLE
from tests.unit.test_render_show import PARSABLE, STATE

BUDGETS = '[budgets.lab]\nshare = "100%"\n[budgets.nlp]\nparent = "lab"\nshare = "35%"\n'


@dataclass(frozen=True)
class Site:
    """A configuration with its folder; a PATH without Slurm but for what a test puts there."""

    folder: Path
    config: Path
    commands: Path

    def sbudget(self, *words: object) -> Said:
        """Call with this configuration."""
        return sbudget("--config", self.config, *words)

    def ledger(self) -> SqlLedger:
        """The site's ledger; the test closes it."""
        return SqlLedger(f"sqlite:///{self.folder}/ledger.sqlite", "alpha")

    def publish(self, age: int, good_for: int = 3600) -> None:
        """Publish the state of the show tests, ``age`` seconds old."""
        now = int(time.time())
        state = replace(STATE, as_of=now - age, stale_after=now - age + good_for)
        FilePublisher(self.folder / "public/table", self.folder / "public/state.json").publish(
            render(TABLE), state_json(state)
        )

    def answers(self, command: str, text: str, fails: str = "") -> None:
        """Let a Slurm command answer this text, or fail with these words."""
        file = self.commands / command
        end = f"echo '{fails}' >&2\nexit 1\n" if fails else ""
        file.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}EOF\n{end}")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    config, commands = tmp_path / "sbudget.toml", tmp_path / "commands"
    commands.mkdir()
    (tmp_path / "public").mkdir()
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    config.write_text(
        f"""
        cluster = "alpha"
        state_dir = "."
        kill_switch = "stop"
        [ledger]
        url = "sqlite:///{tmp_path}/ledger.sqlite"
        [reports]
        timezone = "Europe/Berlin"
        """
    )
    return Site(tmp_path, config, commands)


@pytest.fixture
def ledger(site: Site) -> Iterator[SqlLedger]:
    opened = site.ledger()
    yield opened
    opened.close()


def test_show_before_anything_was_published(site: Site) -> None:
    said = site.sbudget("show")
    assert (said.status, said.out) == (32, "")
    assert "sbudget reconcile" in said.err


def test_show_without_a_command_and_with_one_say_the_same(site: Site) -> None:
    site.publish(38)
    said, named = site.sbudget(), site.sbudget("show")
    assert said.status == named.status == 0
    assert "not given   30 %     24,192" in said.out
    assert "(data 3" in said.out
    assert said.err == ""


def test_show_for_programs(site: Site) -> None:
    site.publish(38)
    assert site.sbudget("show", "-P", "NLP").out == PARSABLE
    assert site.sbudget("show", "-P", "-n", "--delimiter=,", "--format=Budget,Load", "nlp").out == (
        "nlp,100\ndolma,92\nolmo,105\n"
    )
    told = json.loads(site.sbudget("show", "--json", "bio").out)
    assert [entry["budget"] for entry in told["budgets"]] == ["bio"]
    assert 38 <= told["age"] <= 60


def test_show_says_that_the_numbers_are_stale_on_stderr_alone(site: Site) -> None:
    site.publish(7200)
    said = site.sbudget("show")
    assert said.status == 0
    assert "stale" in said.err
    assert "stale" not in said.out


@pytest.mark.parametrize(("words", "says"), [(["olmi"], "did you mean olmo?"), (["--pool", "a10"], "mean a100?")])
def test_show_of_what_is_not_there(site: Site, words: list[str], says: str) -> None:
    site.publish(1)
    said = site.sbudget("show", *words)
    assert (said.status, said.out) == (12, "")
    assert says in said.err


def test_helpformat_needs_no_configuration() -> None:
    said = sbudget("--config", "/nowhere", "show", "--helpformat")
    assert said.status == 0
    assert said.out.startswith("Budget")


def test_why_works_without_slurm_from_the_ledger_alone(site: Site, ledger: SqlLedger) -> None:
    made.told_life(ledger)
    said = site.sbudget("why", "48107")
    assert said.status == 0
    assert "gives way to 48190" in said.out
    assert "from the ledger alone" in said.err
    told = json.loads(site.sbudget("why", "48107", "--json").out)
    assert [run["gpu_seconds"] for run in told["runs"]] == [64 * (9 * 3600 + 29 * 60), 0]


def test_why_of_an_unknown_job(site: Site) -> None:
    said = site.sbudget("why", "4711")
    assert (said.status, said.out) == (12, "")
    assert "job 4711 is not known" in said.err


def test_health_of_a_site_that_is_well(site: Site, ledger: SqlLedger) -> None:
    made.cycle(ledger, int(time.time()) - 5)
    site.publish(5)
    said = site.sbudget("health")
    assert (said.status, said.err) == (0, "")
    assert len(said.out.splitlines()) == 9
    assert all(line.startswith("ok ") for line in said.out.splitlines())
    assert json.loads(site.sbudget("health", "--json").out)["ok"] is True


def test_health_of_a_site_that_is_not(site: Site, ledger: SqlLedger) -> None:
    made.cycle(ledger, int(time.time()) - 300)
    ledger.put(BREAKER, "breaker-lost")
    (site.folder / "stop").touch()
    said = site.sbudget("health")
    assert said.status == 40
    assert (
        said.err
        == "sbudget: 6 of 9 points need a person: cycle, table, table file, accounting, breaker, kill switch\n"
    )
    assert "BAD  breaker" in said.out
    site.publish(5)
    told = json.loads(site.sbudget("health", "--json", "--max-age", "10m").out)
    assert [point["name"] for point in told["points"] if not point["ok"]] == ["breaker", "kill switch"]


def test_resume_closes_the_breaker_once(site: Site, ledger: SqlLedger) -> None:
    assert "nothing to resume" in site.sbudget("resume").err
    ledger.put(BREAKER, "breaker-lost")
    said = site.sbudget("resume")
    assert (said.status, said.out) == (0, "")
    assert "(breaker-lost) is closed again" in said.err
    assert ledger.get(BREAKER) is None


def test_budget_apply_and_tree(site: Site) -> None:
    assert "no budgets yet" in site.sbudget("budget", "tree").err
    site.answers(
        "sacctmgr", "root|||normal\nlab||root|backed,spare\nnlp||lab|backed,spare\nnlp|alice||backed,spare\n"
    )
    file = site.folder / "budgets.toml"
    file.write_text(BUDGETS)
    dry = site.sbudget("budget", "apply", "--dry-run", file)
    assert (dry.status, dry.out) == (0, "+ lab: 100 % of the cluster\n+ nlp: 35 % of lab\n")
    assert "no budgets yet" in site.sbudget("budget", "tree").err
    assert "2 changes made" in site.sbudget("budget", "apply", file, "--why", "first").err
    assert site.sbudget("budget", "tree").out == "lab  100 %\n  nlp  35 %\n"
    assert "nothing changes" in site.sbudget("budget", "apply", file).err
    file.write_text(BUDGETS.replace("35%", "1/3"))
    assert site.sbudget("budget", "apply", file).out == "~ nlp: 35 % -> 1/3 of lab\n"
    with_history = site.ledger()
    nlp = next(b for b in with_history.budgets() if b.account == "nlp")
    with_history.close()
    assert [s.since == 0 for s in sorted(nlp.shares, key=lambda s: s.since)] == [True, False]


@pytest.mark.parametrize(
    ("answer", "fails", "expected"),
    [
        ("root|||normal\nlab||root|backed\n", "", 11),
        ("", "sacctmgr: error: Sending PersistInit msg: Connection refused", 24),
        ("", "", 25),
    ],
)
def test_budget_apply_changes_nothing_where_slurm_says_no(site: Site, answer: str, fails: str, expected: int) -> None:
    site.answers("sacctmgr", answer, fails)
    file = site.folder / "budgets.toml"
    file.write_text(BUDGETS)
    said = site.sbudget("budget", "apply", file)
    assert (said.status, said.out) == (expected, "")
    assert "no budgets yet" in site.sbudget("budget", "tree").err


def test_budget_apply_of_a_file_that_is_not_there(site: Site) -> None:
    said = site.sbudget("budget", "apply", site.folder / "none.toml")
    assert said.status == 11
    assert "cannot be read" in said.err


@pytest.mark.parametrize("words", [["reconcile"], ["reconcile", "--apply"], ["sync"], ["budget", "apply", "FILE"]])
def test_without_slurm_nothing_is_done(site: Site, words: list[str]) -> None:
    file = site.folder / "budgets.toml"
    file.write_text(BUDGETS)
    said = site.sbudget(*[str(file) if word == "FILE" else word for word in words])
    assert (said.status, said.out) == (20, "")
    assert not (site.folder / "public/table").exists()


def test_a_failed_cycle_does_not_end_the_loop(site: Site) -> None:
    said = site.sbudget("reconcile", "--every", "1s", "--cycles", "2")
    assert (said.status, said.out) == (0, "")
    assert said.err.count("cycle failed") == 2


def test_the_ledger_of_no_named_cluster_is_refused(site: Site) -> None:
    site.config.write_text("state_dir = '.'")
    said = site.sbudget("health")
    assert said.status == 10
    assert "cluster is not set" in said.err


def test_db_upgrade_and_current(site: Site) -> None:
    assert site.sbudget("db", "current").out == "none\n"
    assert "upgraded from nothing" in site.sbudget("db", "upgrade").err
    assert "already" in site.sbudget("db", "upgrade").err
    current = site.sbudget("db", "current")
    assert current.out != "none\n"
    assert current.err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_cycle_at_hand_finish_and_ends_the_loop(number: signal.Signals) -> None:
    finished = []

    def cycle() -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        finished.append(True)

    before = signal.getsignal(number)
    began = time.monotonic()
    _loop(cycle, 60, None)
    assert finished == [True]
    assert time.monotonic() - began < 10
    assert signal.getsignal(number) is before


def test_the_loop_goes_on_after_a_failure_and_rests_as_long_as_it_worked(capsys: pytest.CaptureFixture[str]) -> None:
    began = []

    def cycle() -> None:
        began.append(time.monotonic())
        time.sleep(0.2)
        raise SlurmdbdError("slurmdbd does not answer")

    _loop(cycle, 1, 2)
    assert capsys.readouterr().err == "sbudget: cycle failed: slurmdbd does not answer\n" * 2
    assert began[1] - began[0] >= 0.99


def test_what_is_unexpected_ends_the_loop() -> None:
    def cycle() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _loop(cycle, 1, 3)
