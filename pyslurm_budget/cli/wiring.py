"""Where the edges meet the use cases: the only module that knows which class stands behind which port.

Everything heavy is imported inside the functions, so that ``sbudget --help`` and ``sbudget show`` stay quick.
"""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from pyslurm_budget.cli.options import host_now
from pyslurm_budget.errors import ConfigError, SlurmSetupError, StaleDataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from pyslurm_budget.config import Config
    from pyslurm_budget.domain.model import Job, Snapshot
    from pyslurm_budget.ledger.store import SqlLedger
    from pyslurm_budget.service.ports import Accounting, LiveCluster
    from pyslurm_budget.service.reconcile import Reconciler
    from pyslurm_budget.service.state import PublicState
    from pyslurm_budget.slurm.admin import SlurmAdmin
    from pyslurm_budget.slurm.queue import SlurmQueue
    from pyslurm_budget.slurm.run import Runner


def runner(config: Config) -> Runner:
    """What starts Slurm's commands."""
    from pyslurm_budget.slurm.run import Runner

    return Runner(config.slurm_conf, timeout=config.slurm_timeout)


def queue(config: Config) -> SlurmQueue:
    """Live reads of slurmctld."""
    from pyslurm_budget.slurm.queue import SlurmQueue

    return SlurmQueue(runner(config))


class OfCluster:
    """Live reads that refuse another cluster than the configured one: its jobs must not reach this one's ledger."""

    def __init__(self, live: LiveCluster, config: Config) -> None:
        self._live = live
        self._config = config

    def snapshot(self) -> Snapshot:
        """As the live cluster's; raises SlurmSetupError if it is another cluster."""
        found = self._live.snapshot()
        if found.controller.cluster != cluster_name(self._config):
            raise SlurmSetupError(
                f"slurmctld is of cluster {found.controller.cluster}, {self._config.source} is of "
                f"{self._config.cluster}; correct cluster or slurm.conf there"
            )
        return found

    def jobs(self) -> tuple[Job, ...]:
        """As the live cluster's."""
        return self._live.jobs()

    def job(self, ref: str) -> Job | None:
        """As the live cluster's."""
        return self._live.job(ref)


def admin(config: Config) -> SlurmAdmin:
    """Slurm's accounting, as an administrator sees it."""
    from pyslurm_budget.slurm.admin import SlurmAdmin

    return SlurmAdmin(runner(config), queue(config))


def ledger(config: Config) -> SqlLedger:
    """The ledger of the configured cluster, closed when the command ends; raises LedgerError, ConfigError."""
    from pyslurm_budget.ledger.store import SqlLedger

    opened = SqlLedger(config.ledger_url, cluster_name(config))
    click.get_current_context().call_on_close(opened.close)
    return opened


def database(config: Config) -> Engine:
    """The ledger's database alone, whatever schema it has; given back when the command ends."""
    from pyslurm_budget.ledger.engine import open_engine

    engine = open_engine(config.ledger_url)
    click.get_current_context().call_on_close(engine.dispose)
    return engine


def cluster_name(config: Config) -> str:
    """The cluster; it is part of every key of the ledger, so it is never guessed."""
    if config.cluster is None:
        raise ConfigError(f'{config.source}: cluster is not set; write cluster = "NAME" as Slurm\'s ClusterName says')
    return config.cluster


def accounting(config: Config) -> Accounting:
    """Runs as slurmdbd has them: by sacct, or from its database."""
    if config.accounting == "sacct":
        from pyslurm_budget.slurm.sacct import SacctAccounting

        return SacctAccounting(runner(config))
    from pyslurm_budget.slurm.slurmdb import DatabaseAccounting
    from pyslurm_budget.slurm.slurmdb_failures import Login

    login = Login(
        host=config.database_host,
        port=config.database_port,
        user=config.database_user,
        name=config.database_name,
        password_file=config.database_password_file,
        socket=config.database_socket,
        timeout=config.slurm_timeout,
    )
    return DatabaseAccounting(login, cluster_name(config))


def reconciler(config: Config, on_step: Callable[[str], None] = lambda _: None) -> Reconciler:
    """The cycle over the real edges."""
    from pyslurm_budget.service.checkpoints import FolderCheckpoints, NoCheckpoints
    from pyslurm_budget.service.publish import FilePublisher
    from pyslurm_budget.service.reconcile import Ports, Reconciler, Settings
    from pyslurm_budget.slurm.commands import SlurmCommands
    from pyslurm_budget.slurm.events import SlurmHistory

    commands = runner(config)
    ports = Ports(
        live=OfCluster(queue(config), config),
        accounting=accounting(config),
        commands=SlurmCommands(commands),
        ledger=ledger(config),
        publisher=FilePublisher(config.table_path, config.state_path),
        host_clock=host_now,
        kill_switch=lambda: is_set(config.kill_switch),
        history=SlurmHistory(commands, cluster_name(config)),
        checkpoints=NoCheckpoints() if config.checkpoints is None else FolderCheckpoints(config.checkpoints),
    )
    settings = Settings(
        policy=config.policy,
        mode=config.mode,
        holder=_holder(),
        lease_seconds=config.lease_seconds,
        operators=operators(config),
    )
    return Reconciler(settings, ports, on_step)


def _holder() -> str:
    """How the lease names this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def lease(ledger: SqlLedger, until: int) -> Iterator[None]:
    """Hold the lease, until that time at most; raises LeaseHeldError where a controller is at work."""
    ledger.take_lease(_holder(), host_now(), until)
    try:
        yield
    finally:
        ledger.drop_lease(_holder())


def operators(config: Config) -> tuple[tuple[str, int], ...]:
    """(name, uid) of each configured operator; raises ConfigError for a name that this host does not know."""
    found = []
    for name in config.operators:
        try:
            found.append((name, pwd.getpwnam(name).pw_uid))
        except KeyError:
            raise ConfigError(f"{config.source}: operators: this host knows no user {name}") from None
    return tuple(found)


def node_names(given: Iterable[str]) -> tuple[str, ...]:
    """Nodes of a command line, each a list as Slurm writes it; raises UsageError."""
    from pyslurm_budget.slurm.fields import node_names as expanded

    found: dict[str, None] = {}
    for text in given:
        try:
            found |= dict.fromkeys(expanded(text))
        except ValueError as wrong:
            raise UsageError(f"{text!r} is no list of nodes ({wrong}); write n[01-08]") from None
    return tuple(found)


def is_set(switch: Path) -> bool:
    """Whether the kill switch is set. A folder that cannot be looked into counts as set: better to do nothing."""
    try:
        switch.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def public_state(config: Config) -> PublicState:
    """The published state; raises StaleDataError where there is none or it cannot be read."""
    from pyslurm_budget.service.state import from_json

    path = config.state_path
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StaleDataError(
            f"{path}: nothing has been published yet; `sbudget reconcile` writes it at the end of a cycle"
        ) from None
    except (OSError, UnicodeDecodeError) as failure:
        raise StaleDataError(f"{path}: the published state cannot be read ({failure})") from failure
    return from_json(text, str(path))
