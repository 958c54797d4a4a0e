"""Commands for everybody: where do we stand, and what happened to my job."""

from __future__ import annotations

import click

from pyslurm_budget import values
from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, Output, data, host_now, output_options, pass_context, talk
from pyslurm_budget.errors import NotFoundError, SlurmctldError, SlurmMissingError

EVERY_POOL = "all"


@click.command(short_help="Where the budgets stand.")
@click.argument("accounts", nargs=-1, metavar="[ACCOUNT]...")
@click.option("--pool", "pool", default=EVERY_POOL, metavar="POOL", help="One pool; by default all of them.")
@output_options
@pass_context
def show(context: Context, accounts: tuple[str, ...], pool: str, output: Output) -> None:
    """Where the budgets stand: allowance, charged, promised, headroom, load, GPUs now.

    Reads what the controller published; says how old that is. With ACCOUNT only these budgets and those below them.
    GPU-hours for people and with -P, thousandths of GPU-seconds with --json.
    """
    from pyslurm_budget.render import show as pages
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.render.table import as_json, draw, help_format

    if output.help_format:
        data(help_format(pages.COLUMNS))
        return
    config = context.config
    state = wiring.public_state(config)
    now = host_now()
    names = sorted({entry.pool for entry in state.budgets} | {p.name for p in state.pools})
    wanted = names if pool == EVERY_POOL else [pool]
    if pool != EVERY_POOL and pool not in names:
        raise NotFoundError(f"no pool {pool}{values.nearest(pool, names)}; known: {', '.join(names) or 'none'}")
    known = {entry.budget for entry in state.budgets}
    accounts = tuple(account.lower() for account in accounts)
    for account in accounts:
        if account not in known:
            raise NotFoundError(f"no budget {account}{values.nearest(account, known)}; `sbudget show` lists them all")
    clock = Clock(now, config.timezone)
    if output.json:
        data(as_json(pages.document(state, wanted, accounts, now)))
    elif output.style.parsable:
        rows = [row for p in wanted for row in pages.lines(state, p, accounts, fancy=False, remainder=False)]
        data(draw(pages.COLUMNS, rows, output.style))
    else:
        data("\n".join(pages.block(state, p, accounts, output.style, clock) for p in wanted))
    if now >= state.stale_after:
        talk(f"sbudget: these numbers are stale: the controller wrote them last at {clock.full(state.as_of)}")


@click.command(short_help="What happened to a job, and why.")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with exact integers.")
@pass_context
def why(context: Context, job: str, as_json: bool) -> None:
    """The story of one JOB: its class, its contract, what happened to it and why, and what comes next."""
    from pyslurm_budget.render import story as pages
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.render.table import as_json as json_text
    from pyslurm_budget.service.explain import story

    config = context.config
    live = None
    try:
        live = wiring.queue(config).job(job)
    except (SlurmctldError, SlurmMissingError) as failure:
        talk(f"sbudget: {failure} What follows is from the ledger alone.")
    now = host_now()
    told = story(wiring.ledger(config), live, job, now)
    data(json_text(pages.document(told, now)) if as_json else pages.text(told, Clock(now, config.timezone)))
