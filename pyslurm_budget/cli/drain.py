"""``sbudget drain`` and ``sbudget maintenance plan``: when nodes will be empty."""

from __future__ import annotations

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, Output, data, host_now, output_options, pass_context, talk
from pyslurm_budget.errors import UsageError


@click.command(short_help="When draining nodes will be empty.")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@output_options
@pass_context
def drain(context: Context, nodes: tuple[str, ...], output: Output) -> None:
    """When each draining node will be empty, which run goes last, and what that one waits for.

    With NODE (a list as Slurm writes it, n[01-08]): these, as if they were drained now where they are not.
    """
    from pyslurm_budget.render import drain as pages
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.render.table import as_json, draw, help_format
    from pyslurm_budget.service.outlook import Outlooks

    if output.help_format:
        data(help_format(pages.COLUMNS))
        return
    config = context.config
    snapshot = wiring.OfCluster(wiring.queue(config), config).snapshot()
    view = Outlooks(wiring.ledger(config), snapshot, config.policy, config.mode)
    found = view.drain(wiring.node_names(nodes))
    if output.json:
        data(as_json(pages.document(found, snapshot.now)))
    elif found or output.style.parsable:
        data(draw(pages.COLUMNS, pages.lines(found, Clock(snapshot.now, config.timezone)), output.style))
    else:
        talk("sbudget: no node drains")


@click.group()
def maintenance() -> None:
    """Maintenance of nodes."""


@maintenance.command(short_help="The last moment to announce a maintenance, and what would still run.")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-S", "--start", required=True, metavar="TIME", help="When it is to begin, as sbatch --begin takes it.")
@output_options
@pass_context
def plan(context: Context, nodes: tuple[str, ...], start: str, output: Output) -> None:
    """The last moment at which the reservation for a maintenance must stand, and what would still run at its begin.

    What starts until then has a contract of at most the cap, so a reservation need not bind earlier than one cap
    before. Without NODE: all nodes. The reservation must have the MAINT flag; shortly before it begins the controller
    requeues what can be requeued.
    """
    from pyslurm_budget.render import drain as pages
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.render.table import as_json, draw, help_format
    from pyslurm_budget.service.outlook import Outlooks
    from pyslurm_budget.service.zones import Zone, read_moments

    if output.help_format:
        data(help_format(pages.COLUMNS))
        return
    config, now = context.config, host_now()
    try:
        begin = min(read_moments(start, now, Zone(config.timezone)))
    except (ValueError, OverflowError) as wrong:
        raise UsageError(f"--start: {wrong}") from None
    if begin <= now:
        raise UsageError("--start: the time is over already")
    snapshot = wiring.OfCluster(wiring.queue(config), config).snapshot()
    view = Outlooks(wiring.ledger(config), snapshot, config.policy, config.mode)
    found = view.maintenance(wiring.node_names(nodes), begin)
    clock = Clock(snapshot.now, config.timezone)
    if output.json:
        data(as_json(pages.plan_document(found, snapshot.now)))
        return
    if found.late or output.style.parsable:
        data(draw(pages.LATE, pages.late_lines(found, clock), output.style))
    talk(f"sbudget: {pages.summary(found, clock, ','.join(nodes))}")
