"""``sbudget db``: the ledger's database."""

from __future__ import annotations

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.archive import archive, pseudonymise
from pyslurm_budget.cli.options import Context, data, host_now, pass_context, talk
from pyslurm_budget.config import masked

SENTENCES = 20
REPAIR_SECONDS = 900


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


@db.command(short_help="Compute again what can be, and look whether all agrees.")
@click.option("--repair", is_flag=True, help="Count usage anew from the runs; needs the lease, so stop the service.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, with every sentence.")
@pass_context
def verify(context: Context, repair: bool, as_json: bool) -> None:
    """Count usage by hour again from the runs and compare, and look whether the ledger contradicts itself.

    Nothing is changed without --repair. Exit status 0 if all is well, 35 if not. What was archived and deleted cannot
    be counted again and is left alone.
    """
    import json

    from pyslurm_budget.errors import InconsistentError

    ledger = wiring.ledger(context.config)
    if repair:
        until = host_now() + max(context.config.lease_seconds, REPAIR_SECONDS)
        with wiring.lease(ledger, until):
            ledger.rebuild_usage()
    looked, wrong = ledger.verify(host_now())
    if as_json:
        told = [{"where": where, "says": says} for where, says in wrong]
        data(json.dumps({"ok": not wrong, "repaired": repair, "looked_at": looked, "wrong": told}, indent=2) + "\n")
    else:
        found = f"{len(wrong):,} {'thing is' if len(wrong) == 1 else 'things are'} wrong" if wrong else "all is well"
        what = ", ".join(f"{count:,} {name}" for name, count in looked.items())
        counted = "usage was counted anew; " if repair else ""
        data(f"{counted}{what} looked at: {found}\n")
        data("".join(f"{where}: {says}\n" for where, says in wrong[:SENTENCES]))
        if len(wrong) > SENTENCES:
            data(f"... and {len(wrong) - SENTENCES:,} more; --json lists them all\n")
    if wrong:
        usage = sum(where == "usage" for where, _ in wrong)
        advice = "; `sbudget db verify --repair` counts usage anew" if usage and not repair else ""
        places = "1 place" if len(wrong) == 1 else f"{len(wrong):,} places"
        raise InconsistentError(f"the ledger is not as it must be in {places}{advice}")


db.add_command(archive)
db.add_command(pseudonymise)
