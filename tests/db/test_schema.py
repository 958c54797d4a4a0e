"""The schema: what the migrations make, and what is refused."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, String, Table, event, inspect, text
from sqlalchemy.exc import OperationalError

from pyslurm_budget.errors import LedgerError
from pyslurm_budget.ledger import migrate, tables
from pyslurm_budget.ledger.engine import open_engine, transaction
from pyslurm_budget.ledger.store import SqlLedger
from tests.db import other

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine


@pytest.fixture
def engine(empty: str) -> Iterator[Engine]:
    found = open_engine(empty)
    yield found
    found.dispose()


def test_an_upgrade_makes_the_schema_once(empty: str) -> None:
    assert migrate.current(empty) is None
    assert migrate.upgrade(empty) == (None, migrate.newest())
    assert migrate.current(empty) == migrate.newest()
    assert migrate.upgrade(empty) == (migrate.newest(), migrate.newest())
    SqlLedger(empty, "alpha").close()


def test_the_newest_revision_is_that_of_the_migrations() -> None:
    assert migrate.scripts().get_heads() == [migrate.newest()]


def test_the_migrations_make_what_the_tables_say(engine: Engine) -> None:
    migrate.upgrade(engine)
    with transaction(engine) as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, tables.metadata) == []
        wider = MetaData()
        for table in tables.metadata.tables.values():
            table.to_metadata(wider)
        Table("run", wider, Column("more", Integer), extend_existing=True)
        wider.tables["lease"].c.holder.type = String(300)
        assert len(compare_metadata(context, wider)) == 2


def test_text_is_compared_byte_by_byte(engine: Engine) -> None:
    if engine.dialect.name != "mysql":
        return
    migrate.upgrade(engine)
    query = "SELECT table_name, collation_name FROM information_schema.columns WHERE table_schema = DATABASE()"
    with transaction(engine) as connection:
        found = {(t, c) for t, c in connection.execute(text(query)) if c is not None and t in tables.metadata.tables}
    assert {t for t, _ in found} == set(tables.metadata.tables)
    assert {c for _, c in found} == {"utf8mb4_bin"}


def test_a_new_file_is_made_ready_and_a_new_server_is_not(empty: str) -> None:
    if empty.startswith("sqlite"):
        SqlLedger(empty, "alpha").close()
        assert migrate.current(empty) == migrate.newest()
    else:
        with pytest.raises(LedgerError, match=r"is not made yet.*run: sbudget db upgrade"):
            SqlLedger(empty, "alpha")
        assert migrate.current(empty) is None


def _pretend(engine: Engine, revision: str) -> None:
    migrate.upgrade(engine)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :r"), {"r": revision})


def test_a_ledger_of_a_newer_release_is_refused(empty: str, engine: Engine) -> None:
    _pretend(engine, "9999")
    for refused in (lambda: SqlLedger(empty, "alpha"), lambda: migrate.upgrade(empty)):
        with pytest.raises(LedgerError, match=r"has schema 9999.*install the release that made it"):
            refused()
    assert migrate.current(empty) == "9999"


def test_a_ledger_of_an_older_release_says_how_to_upgrade(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate.upgrade(empty)
    monkeypatch.setattr(migrate, "newest", lambda: "0099")
    with pytest.raises(LedgerError, match=r"has schema 0004, this release needs 0099; run: sbudget db upgrade"):
        SqlLedger(empty, "alpha")


def test_another_programs_database_is_left_alone(empty: str, engine: Engine) -> None:
    with transaction(engine) as connection:
        connection.execute(text("CREATE TABLE run (distance INTEGER)"))
    for refused in (lambda: SqlLedger(empty, "alpha"), lambda: migrate.upgrade(engine)):
        with pytest.raises(LedgerError, match=r"is not made yet|is no ledger, but has tables .*\(run"):
            refused()
    assert inspect(engine).get_table_names() == ["run"]


def test_an_upgrade_that_fails_leaves_nothing_behind(engine: Engine) -> None:
    """MariaDB cannot do that; what is left there is not taken for a ledger."""

    def fail(_c: object, _u: object, statement: str, *_: object) -> None:
        if "CREATE TABLE setting" in statement:
            raise OperationalError(statement, None, Exception("disk full"))

    event.listen(engine, "before_cursor_execute", fail)
    with pytest.raises(LedgerError, match="disk full"):
        migrate.upgrade(engine)
    event.remove(engine, "before_cursor_execute", fail)
    if engine.dialect.name == "mysql":
        with pytest.raises(LedgerError, match="a first upgrade that was cut short"):
            migrate.upgrade(engine)
    else:
        assert inspect(engine).get_table_names() == []
        assert migrate.upgrade(engine) == (None, migrate.newest())


def test_processes_that_open_a_new_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/ledger.sqlite"
    other.race(url, "alpha", "open", [[], [], []])
    assert migrate.current(url) == migrate.newest()


def test_a_file_that_another_is_writing_is_waited_for(tmp_path: Path) -> None:
    """SQLite does not wait by itself to change the journal, as it must for a file that was restored from a dump."""
    other_writer = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None, check_same_thread=False)
    other_writer.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, other_writer.execute, ["COMMIT"])
    timer.start()
    SqlLedger(f"sqlite:///{tmp_path}/ledger.sqlite", "alpha").close()
    timer.join()
    other_writer.close()


def test_what_overlaps_is_found_by_an_index(tmp_path: Path) -> None:
    ledger = SqlLedger(f"sqlite:///{tmp_path}/ledger.sqlite", "alpha")
    seen: list[str] = []

    def explain(connection: object, cursor: object, statement: str, parameters: object, *_: object) -> None:
        if statement.startswith("SELECT"):
            raw = cursor.connection.cursor()  # type: ignore[attr-defined]
            seen.extend(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    event.listen(ledger._engine, "before_cursor_execute", explain)
    ledger.runs_between(5, 10)
    ledger.open_runs()
    ledger.runs_of_job("7")
    ledger.intents(ref="7")
    ledger.intents(since=7)
    ledger.open_intents()
    ledger.contracts()
    ledger.close()
    assert len(seen) >= 7
    assert [line for line in seen if line.startswith("SCAN")] == []
