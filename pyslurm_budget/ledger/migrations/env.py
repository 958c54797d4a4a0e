"""Alembic's environment: works on the connection that it is given, in the caller's transaction."""

from __future__ import annotations

from alembic import context

from pyslurm_budget.ledger.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
)
with context.begin_transaction():
    context.run_migrations()
