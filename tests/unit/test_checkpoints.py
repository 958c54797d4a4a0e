"""Reported checkpoints: of the job's own user, never in the future, and of no use to who lies."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.errors import CheckpointError
from pyslurm_budget.service.checkpoints import FolderCheckpoints
from tests.build import HOUR, NOW, live, running
from tests.cli.calling import sbudget

if TYPE_CHECKING:
    from pathlib import Path

ME = getpass.getuser()


@given(st.integers(0, 20 * HOUR), st.integers(0, 8 * HOUR), st.none() | st.integers(-HOUR, 21 * HOUR))
def test_a_report_can_only_lower_what_is_lost(ran: int, minimum: int, ago: int | None) -> None:
    job = running(101, start=NOW - ran)
    silent = live(job, minimum).loss(NOW, HOUR)
    told = live(job, minimum, reported=None if ago is None else NOW - ago).loss(NOW, HOUR)
    assert 0 <= told <= silent
    if ago is not None and 0 <= ago <= ran:
        assert told == min(silent, ago)
    elif ago is None or ago > ran:
        assert told == silent


def test_reports_are_read_back(tmp_path: Path) -> None:
    folder = FolderCheckpoints(tmp_path)
    folder.report(101)
    folder.report(102)
    os.utime(tmp_path / "101", (NOW, NOW))
    (tmp_path / "notes").write_text("")
    mine, other, silent = running(101, user=ME), running(102, user="nobody-here"), running(103, user=ME)
    assert folder.reported([mine, other, silent]) == {101: NOW}
    (tmp_path / "103").symlink_to(tmp_path / "101")
    (tmp_path / "104").mkdir()
    assert folder.reported([mine, silent, running(104, user=ME)]) == {101: NOW}
    with pytest.raises(CheckpointError, match="103"):
        folder.report(103)
    assert FolderCheckpoints(tmp_path / "nowhere").reported([mine]) == {}
    with pytest.raises(CheckpointError, match="cannot be reported"):
        FolderCheckpoints(tmp_path / "nowhere").report(1)


def test_a_job_reports_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "sbudget.toml"
    config.write_text('cluster = "alpha"\n[checkpoints]\nfolder = "reports"\n')
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert sbudget("--config", config, "checkpoint").status == 2
    (tmp_path / "reports").mkdir()
    monkeypatch.setenv("SLURM_JOB_ID", "48107")
    said = sbudget("--config", config, "checkpoint")
    assert (said.status, said.out, said.err) == (0, "", "")
    assert (tmp_path / "reports" / "48107").is_file()
    config.write_text('cluster = "alpha"\n')
    said = sbudget("--config", config, "checkpoint")
    assert said.status == 15
    assert "takes no reports" in said.err
