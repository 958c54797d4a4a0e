"""The database behind a URL: SQLite, MariaDB or PostgreSQL, with the settings that the ledger relies on."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from pyslurm_budget.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

BUSY_SECONDS = 30


def open_engine(url: str) -> Engine:
    """An engine for the URL. Raises LedgerError for one that cannot be understood or has no driver here."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(url, parsed.database)
        engine = create_engine(parsed, pool_pre_ping=True, isolation_level="READ COMMITTED")
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise LedgerError(
            f"the ledger's URL cannot be used ({error}); write sqlite:////path/ledger.sqlite, "
            "mysql+pymysql://user@host/database or postgresql+psycopg://user@host/database"
        ) from error
    return engine


def _sqlite(url: str, database: str | None) -> Engine:
    if database:
        folder = Path(database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"the ledger's folder {folder} cannot be made: {error.strerror}") from error
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        # The driver's own transaction handling begins too late for us: a read that is followed by a write must hold.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction; the database's failures become a LedgerError that names the database and no password."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        shown = engine.url.render_as_string(hide_password=True)
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise LedgerError(f"the ledger at {shown} failed: {cause}") from error
