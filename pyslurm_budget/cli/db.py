"""``sbudget db``: the ledger's database."""

from __future__ import annotations

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, data, pass_context, talk
from pyslurm_budget.config import masked


@click.group()
def db() -> None:
    """The ledger's database."""


@db.command()
@pass_context
def upgrade(context: Context) -> None:
    """Bring the database to the schema of this release; makes it where there is none."""
    from pyslurm_budget.ledger import migrate

    url = context.config.ledger_url
    before, after = migrate.upgrade(wiring.database(context.config))
    if before == after:
        talk(f"sbudget: {masked(url)} has the schema of this release ({after}) already")
    else:
        talk(f"sbudget: {masked(url)} upgraded from {before or 'nothing'} to {after}")


@db.command()
@pass_context
def current(context: Context) -> None:
    """The schema that the database has, and the one that this release works with."""
    from pyslurm_budget.ledger import migrate

    found, newest = migrate.current(wiring.database(context.config)), migrate.newest()
    data(f"{found or 'none'}\n")
    if found != newest:
        talk(f"sbudget: this release works with {newest}; run sbudget db upgrade")
