"""The database behind a URL: SQLite, MariaDB or PostgreSQL, with the settings that the ledger relies on.

No message of this module holds a password: neither the URL as given nor what a library says of it is repeated.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from sqlite3 import OperationalError
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from pyslurm_budget.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Connection, Engine

# How long a statement waits for another writer, and a connection for an answer.
BUSY_SECONDS = 30
CONNECT_SECONDS = 10

# The drivers that the ledger is tested with, and the extra of this package that brings each.
DRIVERS = {
    "sqlite": "sqlite",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg",
}
EXTRAS = {"mysql": "mysql", "postgresql": "postgres"}
FORMS = "sqlite:////path/ledger.sqlite, mysql+pymysql://user@host/database or postgresql+psycopg://user@host/database"

_READING = "sbudget_reading"


def open_engine(url: str) -> Engine:
    """An engine for the URL; connects to nothing yet. Raises LedgerError for one that cannot be understood, has no
    driver here, or (SQLite) lies in a folder that cannot be made."""
    parsed = _parsed(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed)
    try:
        return _mariadb(parsed) if backend == "mysql" else _postgresql(parsed)
    except ImportError:
        raise LedgerError(
            f"the ledger at {shown(parsed)} needs a driver that is not installed; run: "
            f"pip install 'pyslurm_budget[{EXTRAS[backend]}]'"
        ) from None


def _parsed(url: str) -> URL:
    """The URL with our driver. Libraries repeat the URL, or a part of its password, in what they raise: cut off."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise LedgerError(f"the ledger's URL cannot be read; write {FORMS} (with % signs for @ : / in it)") from None
    wanted = DRIVERS.get(parsed.get_backend_name())
    if wanted is None or parsed.drivername not in (*DRIVERS, "sqlite+pysqlite", "mariadb+pymysql", wanted):
        raise LedgerError(f"the ledger cannot be kept in {parsed.drivername}; write {FORMS}")
    return parsed.set(drivername=wanted)


def shown(url: URL) -> str:
    """The URL for people: without password, and without options, which may hold one."""
    return url.set(query={}).render_as_string(hide_password=True)


def _sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        folder = Path(url.database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"the ledger's folder {folder} cannot be made: {error.strerror}") from error
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        # The driver's own transaction handling begins too late for us: a read that is followed by a write must hold.
        connection.isolation_level = None
        _use_wal(connection)
        # An intent must survive a power cut once we act on it, so every commit reaches the disk.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING, False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _use_wal(connection: Any) -> None:
    """Change the journal; SQLite does not wait by itself where two processes make a new file at once."""
    deadline = monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except OperationalError as error:
            if "locked" not in str(error) or monotonic() > deadline:
                raise
            sleep(0.02)
        else:
            return


def _mariadb(url: URL) -> Engine:
    """Strict whatever the server's default is: a text that is too long must fail, not be cut."""
    return create_engine(
        url,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args={
            "charset": "utf8mb4",
            "connect_timeout": CONNECT_SECONDS,
            "sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
            "init_command": f"SET SESSION innodb_lock_wait_timeout={BUSY_SECONDS}",
        },
    )


def _postgresql(url: URL) -> Engine:
    arguments = {"connect_timeout": CONNECT_SECONDS, "client_encoding": "utf8"}
    engine = create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED", connect_args=arguments)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        connection.execute(f"SET lock_timeout = '{BUSY_SECONDS}s'")
        connection.commit()

    return engine


@contextmanager
def transaction(engine: Engine, *, reading: bool = False) -> Iterator[Connection]:
    """One transaction; the database's failures become a LedgerError that names the database and no password.

    ``reading`` sees one state of the database however many statements it takes, and keeps no writer waiting.
    """
    try:
        with _connected(engine) as connection:
            if reading:
                connection.execution_options(**_read_options(engine))
            with connection.begin():
                yield connection
    except (SQLAlchemyError, UnicodeError, OverflowError) as error:
        raise LedgerError(f"the ledger at {shown(engine.url)} failed: {_cause(engine.url, error)}") from error


def _connected(engine: Engine) -> Connection:
    """A connection. Drivers raise errors of Python's own for options that they do not know or cannot follow."""
    try:
        return engine.connect()
    except (RuntimeError, TypeError, ValueError) as error:
        cause = _cause(engine.url, error)
        raise LedgerError(f"the ledger at {shown(engine.url)} cannot be connected to: {cause}") from error


def _read_options(engine: Engine) -> dict[str, Any]:
    if engine.dialect.name == "sqlite":
        return {_READING: True}
    return {"isolation_level": "REPEATABLE READ"}


def _cause(url: URL, error: Exception) -> str:
    """The database's own words, one line of them."""
    origin = getattr(error, "orig", None) or error
    words = [a for a in origin.args if isinstance(a, str) and a] if isinstance(origin, Exception) else []
    lines = (words[-1] if words else str(origin)).strip().splitlines() or [type(origin).__name__]
    return lines[0].replace(url.password, "***") if url.password else lines[0]
