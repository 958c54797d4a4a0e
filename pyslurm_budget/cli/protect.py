"""``sbudget protect`` and ``unprotect``: single jobs that nobody stops."""

from __future__ import annotations

import getpass

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, Output, data, host_now, output_options, pass_context, talk
from pyslurm_budget.errors import UsageError


@click.command(short_help="Protect a job: nobody stops it, until a time.")
@click.argument("job", required=False)
@click.option("--until", metavar="TIME", help="When it ends, in Slurm's forms: 2027-01-15T18:00, now+5days.")
@click.option("--why", default="", metavar="TEXT", help="The reason, for everybody to see.")
@output_options
@pass_context
def protect(context: Context, job: str | None, until: str | None, why: str, output: Output) -> None:
    """Protect JOB until a time: it is charged as ever, and stopped by nobody, also not for a drain.

    A waiting job becomes backed whatever its budget has left; one that runs as spare cannot be protected. Protected
    jobs are few: together they are capped, and each has a reason and an end. Without JOB: those that are protected.
    """
    from pyslurm_budget.domain.exempt import Protection
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.protections import protect as protect_job
    from pyslurm_budget.service.zones import Zone, read_moments

    config, now = context.config, host_now()
    if job is None or output.help_format:
        _list(context, output, now)
        return
    if until is None:
        raise UsageError("protect needs --until TIME; see sbudget protect --help")
    try:
        ends = max(read_moments(until, now, Zone(config.timezone)))
    except (ValueError, OverflowError) as wrong:
        raise UsageError(f"--until: {wrong}") from None
    snapshot = wiring.OfCluster(wiring.queue(config), config).snapshot()
    asked = Protection(job, 0, now, ends, getpass.getuser(), why)
    found, room = protect_job(wiring.ledger(config), snapshot, config.policy, asked)
    talk(f"sbudget: job {found.ref} is protected until {Clock(now, config.timezone).full(ends)}; {room}")


@click.command(short_help="Take the protection of a job back.")
@click.argument("job")
@pass_context
def unprotect(context: Context, job: str) -> None:
    """Take the protection of JOB back: from the next cycle on it is as any other."""
    from pyslurm_budget.service.protections import unprotect as unprotect_job

    unprotect_job(wiring.ledger(context.config), job, host_now(), getpass.getuser())
    talk(f"sbudget: job {job} is not protected any more")


def _list(context: Context, output: Output, now: int) -> None:
    """The protections in force."""
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.render.protections import COLUMNS, document, lines
    from pyslurm_budget.render.table import as_json, draw, help_format

    if output.help_format:
        data(help_format(COLUMNS))
        return
    config = context.config
    found = wiring.ledger(config).protections(since=now)
    if output.json:
        data(as_json(document(found)))
    elif found or output.style.parsable:
        clock = None if output.style.parsable else Clock(now, config.timezone)
        data(draw(COLUMNS, lines(found, clock), output.style))
    else:
        talk("sbudget: no job is protected")
