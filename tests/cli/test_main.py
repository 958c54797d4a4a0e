"""How calls end: one sentence, one exit status; quick to start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from pyslurm_budget import errors
from pyslurm_budget.cli.main import BROKEN_PIPE, INTERRUPTED, cli, run
from tests.cli.calling import sbudget

EVERY = [errors.SbudgetError, *errors.SbudgetError.__subclasses__()]


@pytest.mark.parametrize("failure", EVERY, ids=lambda f: f.__name__)
def test_each_failure_has_its_exit_status_and_one_sentence(
    failure: type[errors.SbudgetError], capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fails() -> None:
        raise failure("it does not work: do this.")

    assert run(fails, "sbudget", []) == failure.exit_status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "sbudget: it does not work: do this.\n"


def test_exit_statuses_are_distinct() -> None:
    statuses = [failure.exit_status for failure in EVERY]
    assert len(set(statuses)) == len(statuses)
    assert not set(statuses) & {0, INTERRUPTED, BROKEN_PIPE}


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [
        (KeyboardInterrupt(), INTERRUPTED, ""),
        (ZeroDivisionError("by zero"), 1, "sbudget: unexpected failure: ZeroDivisionError: by zero (--debug"),
        (click.UsageError("no"), 2, "sbudget: no"),
    ],
)
def test_everything_else_ends_without_a_traceback(
    raised: BaseException, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fails() -> None:
        raise raised

    assert run(fails, "sbudget", []) == status
    err = capsys.readouterr().err
    assert err.startswith(words)
    assert "Traceback" not in err
    assert err.count("\n") <= 1


def test_the_traceback_is_for_those_who_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def fails() -> None:
        raise ZeroDivisionError

    monkeypatch.setenv("SBUDGET_DEBUG", "1")
    assert run(fails, "sbudget", []) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["shew"], ["why"], ["reconcile", "--every", "soon"], ["reconcile", "--cycles", "2"], ["--nonsense"]]
)
def test_wrong_use_says_where_help_is(words: list[str], tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("cluster = 'alpha'")
    said = sbudget("--config", config, *words)
    assert said.status == 2
    assert said.out == ""
    assert said.err.startswith("sbudget: ")
    assert "--help" in said.err


def test_help_works_without_a_configuration() -> None:
    for words in ([], ["show"], ["budget", "apply"], ["config", "show"]):
        said = sbudget(*words, "--help")
        assert (said.status, said.err) == (0, "")
        assert said.out.startswith("Usage: ")


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom pyslurm_budget.cli.main import main\nmain(['--help'])\n"
        "print(sorted({'pandas', 'sqlalchemy', 'alembic', 'rich', 'ClusterShell', 'numpy'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_noise(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("cluster = 'alpha'\n[pools.x]\nflavors = [" + ",".join(f"'f{i}'" for i in range(20000)) + "]")
    program = "import sys\nfrom pyslurm_budget.cli.main import main\nsys.exit(main())"
    words = [sys.executable, "-c", program, "--config", str(config), "config", "show"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == BROKEN_PIPE


def test_without_a_configuration_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SBUDGET_CONFIG", raising=False)
    monkeypatch.setattr("pyslurm_budget.config.USUAL_PLACE", Path("/nowhere/sbudget.toml"))
    said = sbudget("show")
    assert said.status == 10
    assert "--config" in said.err


def test_the_cluster_of_the_call_must_be_that_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("cluster = 'alpha'")
    said = sbudget("--config", config, "-M", "beta", "config", "check")
    assert said.status == 10
    assert "of cluster alpha, not of beta" in said.err


def test_config_check_and_show(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("cluster = 'alpha'\n[contract]\ncap = '4h'\n[ledger]\nurl = 'mysql+pymysql://a:geheim@h/d'")
    checked = sbudget("--config", config, "config", "check")
    assert (checked.status, checked.out) == (0, "")
    assert "is good: cluster alpha, mode observe" in checked.err
    shown = sbudget("--config", config, "config", "show")
    assert 'cap = "4h"' in shown.out
    assert "geheim" not in shown.out + checked.err
    again = tmp_path / "again.toml"
    again.write_text(shown.out)
    assert sbudget("--config", again, "config", "show").out == shown.out


def test_config_check_names_an_operator_that_is_no_user(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("operators = ['no-such-user-here']")
    said = sbudget("--config", config, "config", "check")
    assert said.status == 10
    assert "no-such-user-here" in said.err


def test_every_command_has_help() -> None:
    def walk(group: click.Group) -> None:
        for name, command in group.commands.items():
            assert command.help, name
            for parameter in command.params:
                if isinstance(parameter, click.Option):
                    assert parameter.help, (name, parameter.name)
            if isinstance(command, click.Group):
                walk(command)

    walk(cli)
