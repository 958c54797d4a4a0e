"""Which implementation stands behind a port, as the configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyslurm_budget.cli import wiring
from pyslurm_budget.config import Config, read_config, setting_lines
from pyslurm_budget.errors import ConfigError
from pyslurm_budget.slurm.sacct import SacctAccounting
from pyslurm_budget.slurm.slurmdb import DatabaseAccounting
from pyslurm_budget.slurm.slurmdb_failures import Login

SQL = """\
cluster = "demo"
[slurm]
accounting = "sql"
timeout = "7s"
[slurm.database]
host = "db1"
port = 3307
name = "acct"
user = "reader"
password_file = "secret"
"""


def test_accounting_is_sacct_unless_the_database_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(DatabaseAccounting, "__init__", lambda _, *given: asked.extend(given))
    assert isinstance(wiring.accounting(Config()), SacctAccounting)
    assert isinstance(wiring.accounting(read_config(SQL, Path("/etc/s/sbudget.toml"))), DatabaseAccounting)
    assert asked == [Login("db1", 3307, "reader", "acct", Path("/etc/s/secret"), None, 7), "demo"]


def test_the_database_holds_all_clusters_so_one_must_be_named() -> None:
    with pytest.raises(ConfigError, match="cluster is not set"):
        wiring.accounting(Config(accounting="sql"))


def test_no_setting_shows_the_password(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    config = read_config(SQL, tmp_path / "sbudget.toml")
    assert "hunter2" not in "\n".join(setting_lines(config)) + repr(config)
