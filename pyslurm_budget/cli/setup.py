"""``sbudget setup``: what Slurm needs for budgets, shown before it is done, and all of it taken back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, data, pass_context, talk
from pyslurm_budget.errors import SlurmSetupError

if TYPE_CHECKING:
    from pyslurm_budget.config import Config
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.ledger.store import SqlLedger
    from pyslurm_budget.service.setup import Point, Step
    from pyslurm_budget.slurm.install import PluginFile

RECORD = "setup-record"
ROUNDS = 5


@click.group()
def setup() -> None:
    """What Slurm needs for budgets: QOS, lists, slurm.conf, the submit plugin."""


@setup.command(name="check")
@pass_context
def check_command(context: Context) -> None:
    """Whether Slurm has all it needs, a line a point. Exit status 23 if something must change."""
    from pyslurm_budget.service.setup import Verdict, check

    facts = wiring.admin(context.config).facts()
    points = [*check(facts, context.config.policy.classes), _plugin_point(context.config)]
    data("".join(_line(point) for point in points))
    wrong = [p for p in points if p.verdict is Verdict.MUST]
    if wrong:
        raise SlurmSetupError(f"{len(wrong)} of {len(points)} points must change: {', '.join(p.name for p in wrong)}")


def _line(point: Point) -> str:
    text = f"{point.verdict:<11}  {point.name:<18}  {point.says}\n"
    return text + (f"{'':<33}{point.line}\n" if point.line else "")


def _plugin_point(config: Config) -> Point:
    from pyslurm_budget.service.setup import Point, Verdict

    plugin = _plugin(config)
    if plugin.is_installed():
        return Point("plugin file", Verdict.OK, f"{plugin.path} is that of this release")
    return Point("plugin file", Verdict.MUST, f"{plugin.path} is not that of this release", "sbudget setup apply")


def _plugin(config: Config) -> PluginFile:
    from pyslurm_budget.slurm.install import PluginFile

    conf = config.slurm_conf or Path(wiring.queue(config).controller().settings["SLURM_CONF"])
    return PluginFile(conf, config.table_path, config.state_dir)


def _missing(config: Config) -> list[Step]:
    """What apply would do; refuses where slurm.conf or the rights do not fit, since nothing would work then."""
    from pyslurm_budget.service.setup import Verdict, check, steps

    facts = wiring.admin(config).facts()
    ours = ("QOS and twins", "plugin file")
    wrong = [p for p in check(facts, config.policy.classes) if p.verdict is Verdict.MUST and p.name not in ours]
    if wrong:
        first = wrong[0]
        raise SlurmSetupError(
            f"{first.says}; write: {first.line} (sbudget setup check shows all {len(wrong)} points)"
        )
    return steps(facts, config.policy.classes)


@setup.command()
@pass_context
def plan(context: Context) -> None:
    """What `apply` would do, command by command; nothing is changed."""
    config = context.config
    missing = _missing(config)
    for step in missing:
        data(f"sacctmgr -i {' '.join(step.do)}    # {step.says}\n")
    plugin = _plugin(config)
    if not plugin.is_installed():
        data(f"install {plugin.path}{'    # NOT: it has rules of its own' if plugin.foreign() else ''}\n")
    if not missing and plugin.is_installed():
        talk("sbudget: nothing to do")


@setup.command()
@click.option("--replace", is_flag=True, help="Replace a submit plugin of the site that does something.")
@pass_context
def apply(context: Context, replace: bool) -> None:
    """Make QOS, lists and the plugin file as needed; what is there already is left alone."""
    config = context.config
    ledger, admin = wiring.ledger(config), wiring.admin(config)
    config.state_dir.mkdir(parents=True, exist_ok=True)
    for path in (config.table_path, config.state_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    made = 0
    for _ in range(ROUNDS):
        missing = _missing(config)
        if not missing:
            break
        for step in missing:
            _remember(ledger, step)
            admin.do(step.do)
            data(f"{step.says}\n")
            made += 1
    plugin = _plugin(config)
    if not plugin.is_installed():
        plugin.install(replace=replace)
        data(f"installed {plugin.path}\n")
        made += 1
    talk(f"sbudget: {made} changes made" if made else "sbudget: nothing to do")


def _remember(ledger: SqlLedger, step: Step) -> None:
    """Write the step's undoing down before it is made."""
    from pyslurm_budget.service.setup import record_of, record_text

    done = record_of(ledger.get(RECORD))
    if step not in done:
        ledger.put(RECORD, record_text([*done, step]))


@setup.command()
@pass_context
def remove(context: Context) -> None:
    """Give everything back: plugin file, pending jobs' QOS and order, our reservations, lists, QOS."""
    from pyslurm_budget.service.setup import record_of, record_text

    config = context.config
    ledger, admin = wiring.ledger(config), wiring.admin(config)
    plugin = _plugin(config)
    plugin.remove()
    data(f"gave back {plugin.path}\n")
    _give_back_jobs(config)
    done = record_of(ledger.get(RECORD))
    while done:
        step = done[-1]
        admin.do(step.undo)
        done.pop()
        ledger.put(RECORD, record_text(done) if done else None)
        data(f"undid: {step.says}\n")
    ledger.put("enforced-since", None)
    talk("sbudget: nothing of ours is left in Slurm")


def _give_back_jobs(config: Config) -> None:
    """Pending jobs leave the QOS that we made, and the order that we gave; our reservations go."""
    from pyslurm_budget.domain.model import JobState
    from pyslurm_budget.slurm.commands import SlurmCommands

    snapshot = wiring.queue(config).snapshot()
    commands = SlurmCommands(wiring.runner(config))
    for reservation in snapshot.reservations:
        if reservation.ours:
            commands.release(reservation.name)
    made = _made(config)
    for job in snapshot.jobs:
        if not config.policy.classes.is_managed(job.qos):
            continue
        if job.state is JobState.PENDING and not job.completing:
            home = _home(config, job, made)
            commands.update_job(job.ref, qos=home, site_factor=0, time_limit=job.time_limit,
                                unlimited=job.time_limit is None)  # fmt: skip
            data(f"job {job.ref}: QOS {home}\n")
        elif job.state is JobState.RUNNING:
            commands.update_job(job.ref, site_factor=0)


def _made(config: Config) -> frozenset[str]:
    """QOS that were made by setup."""
    from pyslurm_budget.service.setup import record_of

    return frozenset(s.do[2] for s in record_of(wiring.ledger(config).get(RECORD)) if s.do[:2] == ("add", "qos"))


def _home(config: Config, job: Job, made: frozenset[str]) -> str:
    """The QOS that a job goes back to: its managed one, or Slurm's own default where that was made by us."""
    managed = config.policy.classes.backed_of(job.qos)
    return "normal" if managed in made else managed
