"""``sbudget setup``: what Slurm needs for budgets, shown before it is done, and all of it taken back."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, data, pass_context, talk
from pyslurm_budget.errors import SlurmSetupError

if TYPE_CHECKING:
    from pyslurm_budget.config import Config
    from pyslurm_budget.domain.budget import Budget
    from pyslurm_budget.ledger.store import SqlLedger
    from pyslurm_budget.service.setup import SlurmFacts
    from pyslurm_budget.service.setup_apply import Setup
    from pyslurm_budget.service.setup_point import Point
    from pyslurm_budget.slurm.install import PluginFile

ENFORCED = "enforced-since"


@click.group()
def setup() -> None:
    """What Slurm needs for budgets: QOS, lists, slurm.conf, the submit plugin."""


@setup.command(name="check")
@pass_context
def check_command(context: Context) -> None:
    """Whether Slurm has all it needs, a line a point. Exit status 23 if something must change."""
    from pyslurm_budget.service.setup_verify import point

    config = context.config
    facts = wiring.admin(config).facts()
    accepts, classes = wiring.admin(config).accepts, config.policy.classes
    points = [*_points(config, facts), point(facts, classes, accepts, may_ask=os.geteuid() == 0)]
    data("".join(_line(point) for point in points))
    if wrong := [point for point in points if point.wrong]:
        raise SlurmSetupError(f"{len(wrong)} of {len(points)} points must change: {', '.join(p.name for p in wrong)}")


def _line(point: Point) -> str:
    text = f"{point.verdict:<11}  {point.name:<20}  {point.says}\n"
    return text + (f"{'':<35}{point.line}\n" if point.line else "")


def _points(config: Config, facts: SlurmFacts) -> list[Point]:
    """Slurm's points, and those of this host: the plugin's file and the folder of the table."""
    from pyslurm_budget.service.setup_check import check
    from pyslurm_budget.slurm.admin import user_of
    from pyslurm_budget.slurm.folders import table_point
    from pyslurm_budget.slurm.install import plugin_point

    wired = _setup(config, facts, _memory(config))
    return [
        *check(facts, config.policy.classes, wired.bound, wired.record().made, engine=config.policy.engine),
        plugin_point(_plugin(config, facts)),
        table_point(config.table_path, *user_of(facts.settings.get("SlurmUser", ""))),
    ]


class Nothing:
    """The memory of a site that has no ledger yet; looking must not make one."""

    def get(self, _name: str) -> None:
        """Nothing is remembered."""

    def put(self, name: str, value: str | None) -> None:
        """Never called: who looks changes nothing."""
        raise AssertionError(name, value)

    def budgets(self) -> tuple[Budget, ...]:
        """No budgets either."""
        return ()


def _memory(config: Config) -> SqlLedger | Nothing:
    """The ledger for looking; one in SQLite is not made for that."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(config.ledger_url)
    except ArgumentError:
        return wiring.ledger(config)  # says what is wrong with it
    missing = url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists()
    return Nothing() if missing else wiring.ledger(config)


def _setup(config: Config, facts: SlurmFacts, ledger: SqlLedger | Nothing) -> Setup:
    """The use cases over the real edges. Refuses the facts of another cluster than the configured one."""
    from pyslurm_budget.service.setup_apply import Setup

    if facts.cluster != wiring.cluster_name(config):
        raise SlurmSetupError(
            f"slurmctld is of cluster {facts.cluster}, {config.source} is of {config.cluster}; correct cluster or "
            "slurm.conf there"
        )
    bound = [budget.account for budget in ledger.budgets()] or None
    plugin, say = _plugin(config, facts), lambda text: data(f"{text}\n")
    return Setup(config.policy.classes, bound, wiring.admin(config), plugin, ledger, say, engine=config.policy.engine)


def _plugin(config: Config, facts: SlurmFacts) -> PluginFile:
    from pyslurm_budget.slurm.install import PluginFile

    named = config.slurm_conf or facts.settings.get("SLURM_CONF")
    if named is None:
        raise SlurmSetupError("slurmctld does not say where its slurm.conf is; name it as conf in [slurm]")
    return PluginFile(Path(named), config.table_path, config.state_dir, wiring.runner(config))


@setup.command()
@click.option("--replace", is_flag=True, help="Replace a submit plugin of the site that does something.")
@pass_context
def plan(context: Context, replace: bool) -> None:
    """What `apply` would do, command by command; nothing is changed."""
    from pyslurm_budget.service.setup import step_of
    from pyslurm_budget.service.setup_check import refuse
    from pyslurm_budget.slurm.folders import missing_folders

    config = context.config
    facts = wiring.admin(config).facts()
    refuse(_points(config, facts))
    changes = _setup(config, facts, _memory(config)).missing(facts)
    folders = missing_folders(config.state_dir, config.table_path, config.state_path)
    for folder in folders:
        data(f"mkdir -p {shlex.quote(str(folder))}\n")
    for change in changes:
        step = step_of(change, facts.cluster)
        for words in step.commands:
            data(f"{shlex.join(('sacctmgr', '-i', *words))}    # {step.says}\n")
    plugin = _plugin(config, facts)
    if not plugin.is_ready():
        data(f"{plugin.would_do(replace=replace)}\n")
    elif not changes and not folders:
        talk("sbudget: nothing to do")


@setup.command()
@click.option("--replace", is_flag=True, help="Replace a submit plugin of the site that does something.")
@pass_context
def apply(context: Context, replace: bool) -> None:
    """Make QOS, lists and the plugin file as needed; what is there already is left alone."""
    from pyslurm_budget.service.setup_check import refuse
    from pyslurm_budget.slurm.folders import make_folders

    config = context.config
    facts = wiring.admin(config).facts()
    refuse(_points(config, facts))
    made = make_folders(config.state_dir, config.table_path, config.state_path)
    made += _setup(config, facts, wiring.ledger(config)).apply(facts, replace=replace)
    talk(f"sbudget: {made} changes made" if made else "sbudget: nothing to do")
    if made and os.geteuid() != 0:
        talk("sbudget: only root may ask slurmctld whether it accepts the QOS: run sbudget setup check as root")
    if "lua" not in facts.settings.get("JobSubmitPlugins", "").split(","):
        talk("sbudget: now write JobSubmitPlugins=lua in slurm.conf and restart slurmctld")


@setup.command()
@pass_context
def remove(context: Context) -> None:
    """Give everything back: plugin file, pending jobs' QOS and order, our reservations, lists, QOS.

    Exit status 27 if jobs still use a QOS that we made: it stays until they end; then run it again. A controller at
    work must be stopped first (status 31).
    """
    from pyslurm_budget.slurm.commands import SlurmCommands

    config = context.config
    ledger, queue = wiring.ledger(config), wiring.queue(config)
    facts = wiring.admin(config).facts()
    wired = _setup(config, facts, ledger)
    holder, now = f"setup:{socket.gethostname()}:{os.getpid()}", queue.controller().now
    ledger.take_lease(holder, now, now + config.lease_seconds)
    try:
        wired.remove(queue, SlurmCommands(wiring.runner(config)))
        ledger.put(ENFORCED, None)
    finally:
        ledger.drop_lease(holder)
    talk("sbudget: nothing of ours is left in Slurm")
