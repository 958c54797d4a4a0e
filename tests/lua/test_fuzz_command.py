"""scripts/fuzz_plugin on a small scale: it finds nothing in the plugin, and something in one that was broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lua.harness import SCRIPT

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "scripts" / "fuzz_plugin"
LUAS = [name for name in ("lua5.1", "lua5.2", "lua5.3", "lua5.4") if shutil.which(name)]
BREAKS = [
    (
        "gave a class",
        ('fail("the text is cut")', "final = #text + 1"),
        ("if at > final or t.text:byte(at - 1) ~= 10 then", "if false then"),
        ("if at ~= final then", "if false then"),
    ),
    ("an error inside", ('if text:find("(", 1, true) then', "if text % 2 then")),
    ("returned nil", ("if ok then return result end", "if ok then return nil end")),
]

pytestmark = pytest.mark.skipif(not LUAS, reason="none of lua5.1 to lua5.4 is installed; scripts/test installs them")


def fuzz(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a plugin beside a copy of the scripts' folder. Any call may take its time: how
    long is not for a test. What it prints of a job may be any bytes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, str(script), "--seed", "7", "--limit", "1000", *options]
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, env=env, timeout=120)


def test_it_finds_nothing() -> None:
    done = fuzz(FUZZ, "--jobs", "20000", "--tables", "800")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(LUAS)
    assert all(", 0 found, " in line for line in lines)


@pytest.mark.parametrize(("words", "breaks"), [(words, breaks) for words, *breaks in BREAKS])
def test_it_finds_what_is_broken(tmp_path: Path, words: str, breaks: list[tuple[str, str]]) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "slurm_conf").mkdir()
    text = SCRIPT.read_text(encoding="utf-8")
    for old, new in breaks:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "slurm_conf" / "job_submit.lua").write_text(text, encoding="utf-8")
    done = fuzz(tmp_path / "scripts" / "fuzz_plugin", "--jobs", "8000", "--tables", "800", "--lua", LUAS[0])
    assert done.returncode == 1, done.stdout + done.stderr
    assert words in done.stdout
