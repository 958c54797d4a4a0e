"""The schema: made and brought up to date by alembic, from migrations inside the package.

Alembic is imported only where the schema changes: a look at the revision is made by every command.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import column, inspect, select, table

from pyslurm_budget.errors import LedgerError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.engine import open_engine, shown, transaction
from pyslurm_budget.ledger.rollup import Rollup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection, Engine

NEWEST = "0004"
USAGE_SINCE = "0002"


def config() -> Config:
    """Alembic's configuration: no file, the scripts of this package."""
    from alembic.config import Config

    found = Config()
    found.set_main_option("script_location", "pyslurm_budget.ledger:migrations")
    found.set_main_option("path_separator", "os")
    return found


def newest() -> str:
    """The revision that this release works with: the last of ``scripts()`` (a test sees to that)."""
    return NEWEST


def scripts() -> ScriptDirectory:
    """The migrations of this package."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config())


def current(target: str | Engine) -> str | None:
    """The revision of the database (a URL or an engine), ``None`` for one that is not a ledger yet."""
    with _engine(target) as engine, transaction(engine, reading=True) as connection:
        return _revision(connection)


def upgrade(target: str | Engine) -> tuple[str | None, str]:
    """Bring the schema to this release; returns the revisions before and after. Nothing happens if it is there.

    Raises LedgerError for a ledger of a newer release, and for a database in which something else lives.
    SQLite and PostgreSQL undo an upgrade that failed; MariaDB cannot (its DDL has no transactions).
    """
    from alembic import command
    from alembic.util import CommandError

    settings = config()
    with _engine(target) as engine, transaction(engine) as connection:
        before = _revision(connection)
        _refuse(connection, before)
        settings.attributes["connection"] = connection
        try:
            command.upgrade(settings, "head")
        except CommandError as error:
            raise LedgerError(f"the ledger at {shown(engine.url)} cannot be upgraded: {error}") from error
        if before is not None and before < USAGE_SINCE:
            _count_usage(engine, connection)
    return before, newest()


def _count_usage(engine: Engine, connection: Connection) -> None:
    """Usage by hour of every cluster, from the runs that the ledger had before it kept that."""
    for cluster in connection.execute(select(tables.run.c.cluster).distinct()).scalars().all():
        Rollup(engine, cluster).rebuild_usage_in(connection)


def require_current(engine: Engine) -> None:
    """Refuse a ledger of another release; a new SQLite file is made ready at once."""
    found = current(engine)
    if found == newest():
        return
    if found is None and engine.dialect.name == "sqlite":
        upgrade(engine)
        return
    state = "is not made yet" if found is None else f"has schema {found}"
    raise LedgerError(f"the ledger at {shown(engine.url)} {state}, this release needs {newest()}; {_advice(found)}")


def _advice(found: str | None) -> str:
    return "run: sbudget db upgrade" if found is None or found in _known() else "install the release that made it"


def _known() -> set[str]:
    return {script.revision for script in scripts().walk_revisions()}


def _revision(connection: Connection) -> str | None:
    kept = table("alembic_version", column("version_num"))
    if not inspect(connection).has_table(kept.name):
        return None
    found: str | None = connection.execute(select(kept.c.version_num)).scalar()
    return found


def _refuse(connection: Connection, before: str | None) -> None:
    """What an upgrade must not touch."""
    where = shown(connection.engine.url)
    if before is not None and before not in _known():
        raise LedgerError(
            f"the ledger at {where} has schema {before}, which this release does not know; {_advice(before)}"
        )
    taken = sorted(set(inspect(connection).get_table_names()) & set(tables.metadata.tables))
    if before is None and taken:
        raise LedgerError(
            f"the database at {where} is no ledger, but has tables of a ledger's names ({', '.join(taken[:3])}...): "
            "another program's, or those of a first upgrade that was cut short; give the ledger an empty database"
        )


@contextmanager
def _engine(target: str | Engine) -> Iterator[Engine]:
    """The engine, closed again if it was opened here."""
    if not isinstance(target, str):
        yield target
        return
    engine = open_engine(target)
    try:
        yield engine
    finally:
        engine.dispose()
