"""The schema: made and brought up to date by alembic, from migrations inside the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from pyslurm_budget.errors import LedgerError
from pyslurm_budget.ledger.engine import open_engine, transaction

if TYPE_CHECKING:
    from sqlalchemy import Engine


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "pyslurm_budget.ledger:migrations")
    config.set_main_option("path_separator", "os")
    return config


def newest() -> str:
    """The revision that this release works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise LedgerError("this installation has no migrations; install the package again")
    return head


def current(target: str | Engine) -> str | None:
    """The revision of the database (a URL or an engine), ``None`` for an empty one."""
    with transaction(_engine(target)) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(target: str | Engine) -> tuple[str | None, str]:
    """Bring the schema to this release; returns the revisions before and after."""
    config = _config()
    with transaction(_engine(target)) as connection:
        before = MigrationContext.configure(connection).get_current_revision()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return before, newest()


def require_current(engine: Engine) -> None:
    """Refuse a ledger of another release; an empty SQLite file is made ready at once."""
    found = current(engine)
    if found == newest():
        return
    if found is None and engine.dialect.name == "sqlite" and not inspect(engine).get_table_names():
        upgrade(engine)
        return
    shown = engine.url.render_as_string(hide_password=True)
    state = "is empty" if found is None else f"has schema {found}"
    raise LedgerError(f"the ledger at {shown} {state}, this release needs {newest()}; run: sbudget db upgrade")


def _engine(target: str | Engine) -> Engine:
    return open_engine(target) if isinstance(target, str) else target
