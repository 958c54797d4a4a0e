"""``sbatch-budget``: everything but our two options reaches sbatch as it was written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.cli.sbatch import arguments, merged, script_comment
from pyslurm_budget.domain.comment import declared_minimum
from pyslurm_budget.errors import UsageError


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("-p gpu --gpus 8 train.sh --lr 3", "-p gpu --gpus 8 train.sh --lr 3"),
        ("--min-runtime=4h train.sh", "--comment=min-runtime=4h train.sh"),
        ("--min-runtime 4h -p gpu train.sh", "--comment=min-runtime=4h -p gpu train.sh"),
        ("--spare train.sh", "--comment=min-runtime=0 train.sh"),
        ("-Hp gpu --min-runtime 90m t.sh", "--comment=min-runtime=90m -Hp gpu t.sh"),
        ("-N4 --exclusive --min-runtime=1d t.sh", "--comment=min-runtime=1d -N4 --exclusive t.sh"),
        ("--requeue --min-runtime=4h t.sh", "--comment=min-runtime=4h --requeue t.sh"),
        ("--comment=x --min-runtime=4h t.sh", "--comment=x_min-runtime=4h t.sh"),
        ("--comment x --min-runtime=4h t.sh", "--comment=x_min-runtime=4h t.sh"),
        ("--comment=min-runtime=1h --min-runtime=4h t.sh", "--comment=min-runtime=4h t.sh"),
        ("t.sh --min-runtime=4h --spare", "t.sh --min-runtime=4h --spare"),
        ("-p gpu t.sh --spare", "-p gpu t.sh --spare"),
        ("-p --spare t.sh", "-p --spare t.sh"),
        ("--min-runtime=4h -- t.sh --spare", "--comment=min-runtime=4h -- t.sh --spare"),
        ("--min-runtime=4h --wrap hostname", "--comment=min-runtime=4h --wrap hostname"),
        ("", ""),
    ],
)
def test_what_sbatch_is_called_with(words: str, passed: str) -> None:
    assert arguments(words.split()) == [word.replace("_", " ") for word in passed.split()]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--min-runtime=soon", "t.sh"], "min-runtime=soon"),
        (["--min-runtime="], "min-runtime="),
        (["--min-runtime=4 h", "t.sh"], "min-runtime=4"),
        (["--min-runtime"], "needs a value"),
        (["--spare", "--min-runtime=4h", "t.sh"], "exclude each other"),
    ],
)
def test_what_cannot_be_read_is_refused_before_sbatch_is_called(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        arguments(words)


def test_a_comment_of_the_script_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "t.sh"
    script.write_text('#!/bin/bash\n#SBATCH -p gpu --comment="run 7" # why\n\nhostname\n#SBATCH --comment=late\n')
    assert arguments(["--min-runtime=4h", str(script)]) == ["--comment=run 7 min-runtime=4h", str(script)]
    assert arguments(["--comment=cli", "--spare", str(script)])[0] == "--comment=cli min-runtime=0"


def test_directives_end_at_the_first_command() -> None:
    assert (
        script_comment(["#!/bin/sh", "# note", "", "#SBATCH --comment=a", "hostname", "#SBATCH --comment=b"]) == "a"
    )
    assert script_comment(["#!/bin/sh", "#SBATCH --comment='broken"]) is None


@given(st.text("ab=,; min-runtime0123456789hm", max_size=40), st.sampled_from(["4h", "90m", "0", "1-00:00:00"]))
def test_the_merged_comment_declares_what_was_asked_for(comment: str, minimum: str) -> None:
    assert declared_minimum(merged(comment, minimum)) == declared_minimum(f"min-runtime={minimum}")


@given(st.lists(st.text("abc=-", min_size=1, max_size=8).filter(lambda w: "spare" not in w and "min-" not in w)))
def test_without_our_options_nothing_changes(words: list[str]) -> None:
    assert arguments(words) == words


def test_the_program_becomes_sbatch(tmp_path: Path) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IXUSR)
    program = [sys.executable, "-m", "pyslurm_budget.cli.sbatch"]
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run(
        [*program, "--min-runtime=4h", "a b", "*"], capture_output=True, text=True, env=env, check=False
    )
    assert (said.returncode, said.stdout.splitlines()) == (7, ["--comment=min-runtime=4h", "a b", "*"])
    said = subprocess.run([*program, "--min-runtime=x", "t"], capture_output=True, text=True, env=env, check=False)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("sbatch-budget: error: min-runtime=x")
    said = subprocess.run(
        [*program, "t"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(tmp_path / "none")},
        check=False,
    )
    assert (said.returncode, said.stderr) == (
        20,
        "sbatch-budget: error: sbatch is not installed here, or not in $PATH\n",
    )
