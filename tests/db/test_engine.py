"""URLs and failures of databases: one sentence each, and never a password."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.errors import LedgerError
from pyslurm_budget.ledger.engine import open_engine, transaction
from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from tests.db.conftest import SERVERS, new_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.db.servers import Server

SECRET = "s3cr3t-word"


def sentence(call: Callable[[], object]) -> str:
    """The message of the LedgerError that the call raises; not even the traceback may hold the password."""
    with pytest.raises(LedgerError) as raised:
        call()
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        SECRET,
        f"mysql+pymysql://sbudget:{SECRET}",
        f"mysql+pymysql://sbudget:a@{SECRET}:b@localhost:x/ledger",
        f"postgresql+psycopg://sbudget@host:{SECRET}/ledger",
        f"oracle://sbudget:{SECRET}@host/ledger",
        f"mysql+mysqldb://sbudget:{SECRET}@host/ledger",
        f"postgresql+asyncpg://sbudget:{SECRET}@host/ledger",
    ],
)
def test_a_url_that_cannot_be_used_says_which_can(url: str) -> None:
    assert "sqlite:////path/ledger.sqlite" in sentence(lambda: SqlLedger(url, "alpha"))


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_an_option_that_the_driver_does_not_know(scheme: str) -> None:
    told = sentence(lambda: SqlLedger(f"{scheme}://sbudget@127.0.0.1:1/ledger?color={SECRET}", "alpha"))
    assert "sbudget@127.0.0.1:1/ledger" in told
    assert "color" in told


@pytest.mark.parametrize(("scheme", "words"), [("mysql", "Can't connect"), ("postgresql", "Connection refused")])
def test_a_refused_connection_says_so(scheme: str, words: str) -> None:
    told = sentence(lambda: SqlLedger(f"{scheme}://sbudget:{SECRET}@127.0.0.1:1/ledger", "alpha"))
    assert "sbudget:***@127.0.0.1:1/ledger failed" in told
    assert words in told


@pytest.mark.parametrize("kind", SERVERS)
def test_a_wrong_password_or_database_is_told_without_it(kind: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(kind)
    assert "sbudget" in sentence(lambda: upgrade(server.url("ledger1", SECRET)))
    told = sentence(lambda: upgrade(server.url("nosuch")))
    assert "nosuch" in told
    assert "message" not in told


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_all_names_of_mariadb_are_one(scheme: str) -> None:
    engine = open_engine(f"{scheme}://sbudget@host/ledger")
    assert engine.url.drivername == "mysql+pymysql"
    engine.dispose()


@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("mysql", "pymysql", "mysql"), ("postgresql", "psycopg", "postgres")]
)
def test_a_driver_that_is_missing_is_named(
    scheme: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    told = sentence(lambda: open_engine(f"{scheme}://sbudget:{SECRET}@host/ledger"))
    assert f"pip install 'pyslurm_budget[{extra}]'" in told


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("nothing that SQLite wrote, and longer than a header" * 100)
    (tmp_path / "folder").mkdir()
    assert "not a database" in sentence(lambda: SqlLedger(f"sqlite:///{tmp_path}/text", "alpha"))
    assert "unable to open" in sentence(lambda: SqlLedger(f"sqlite:///{tmp_path}/folder", "alpha"))
    assert "cannot be made" in sentence(lambda: SqlLedger(f"sqlite:///{tmp_path}/text/ledger", "alpha"))


def test_text_that_no_database_keeps_is_a_sentence(database: str) -> None:
    ledger = SqlLedger(database, new_cluster())
    try:
        assert "failed" in sentence(lambda: ledger.put("name", "half a letter: \ud800"))
        assert ledger.get("name") is None
    finally:
        ledger.close()


def test_a_reader_waits_for_no_writer(database: str) -> None:
    """A long transaction of another process, such as a whole read of accounting, delays no `show`."""
    engine, cluster = open_engine(database), new_cluster()
    writer, reader = SqlLedger(database, cluster), SqlLedger(database, cluster)
    try:
        writer.put("name", "before")
        with writer._begin() as connection:
            writer._put(connection, "name", "after")
            assert reader.get("name") == "before"
        assert reader.get("name") == "after"
    finally:
        for each in (writer, reader):
            each.close()
        engine.dispose()


def test_commits_of_sqlite_reach_the_disk(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.sqlite")
    with transaction(engine) as connection:
        settings = [connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous")]
    engine.dispose()
    assert settings == ["wal", 2]
