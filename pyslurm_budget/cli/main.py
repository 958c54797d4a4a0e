"""``sbudget``: the group of all commands, and how failures end.

Every :class:`~pyslurm_budget.errors.SbudgetError` is one sentence on stderr and the exit status of its class
(``docs/reference/exit-status.md``). Anything else that goes wrong is one sentence too; the traceback is for those
who ask for it with ``--debug`` or ``$SBUDGET_DEBUG``.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from pyslurm_budget import __version__
from pyslurm_budget.cli.budget import budget
from pyslurm_budget.cli.budget_change import CHANGES
from pyslurm_budget.cli.checkpoint import checkpoint
from pyslurm_budget.cli.db import db
from pyslurm_budget.cli.drain import drain, maintenance
from pyslurm_budget.cli.operate import config, health, reconcile, resume, sync
from pyslurm_budget.cli.options import DEBUG_VARIABLE, Context
from pyslurm_budget.cli.people import show, why
from pyslurm_budget.cli.protect import protect, unprotect
from pyslurm_budget.cli.report import report
from pyslurm_budget.cli.setup import setup
from pyslurm_budget.errors import SbudgetError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
BROKEN_PIPE = 141
UNEXPECTED = 1
_COMPLETE = "_SBUDGET_COMPLETE"
# Python looks for cycles in memory after so many new objects (700 by itself). Ours make none, and a sync makes
# millions of objects: that is a seventh of its time.
OBJECTS = 50_000


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "given", metavar="FILE", help="Configuration; else $SBUDGET_CONFIG, /etc/sbudget/sbudget.toml."
)
@click.option("-M", "--cluster", metavar="CLUSTER", help="Cluster, where the configuration does not name it.")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected failure.")
@click.version_option(__version__, "-V", "--version", prog_name="sbudget")
@click.pass_context
def cli(context: click.Context, given: str | None, cluster: str | None, debug: bool) -> None:
    """Rolling GPU-hour budgets for Slurm: who is entitled to protected GPUs, and why a job waits or had to go.

    Without a command: the state of all budgets, as `sbudget show` tells it.
    """
    context.obj = Context(given, cluster, debug)
    if context.invoked_subcommand is None:
        context.invoke(show)


for _command in (
    show,
    why,
    report,
    checkpoint,
    drain,
    maintenance,
    protect,
    unprotect,
    health,
    resume,
    sync,
    reconcile,
    budget,
    db,
    config,
    setup,
):
    cli.add_command(_command)
for _command in CHANGES:
    budget.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``sbudget`` and return its exit status."""
    gc.set_threshold(OBJECTS)
    return run(cli, "sbudget", sys.argv[1:] if arguments is None else arguments)


def run(command: click.Command, name: str, arguments: Sequence[str]) -> int:
    """Run a click command; whatever happens becomes an exit status, and one sentence on stderr if it failed."""
    debug = "--debug" in arguments or bool(os.environ.get(DEBUG_VARIABLE))
    if _COMPLETE in os.environ:
        command.main(list(arguments), prog_name=name)
    try:
        with command.make_context(name, list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except Exception as failure:  # the last net: whatever it is, people get one sentence and a status
        if debug and not isinstance(failure, click.ClickException):
            traceback.print_exc()
        words, status = _told(failure, debug=debug)
        click.echo(f"{name}: {words}", err=True)
        return status
    return 0


def _told(failure: Exception, *, debug: bool) -> tuple[str, int]:
    """The sentence and the exit status of a failure."""
    if isinstance(failure, SbudgetError):
        return str(failure), failure.exit_status
    if isinstance(failure, click.UsageError):
        see = f"; see {failure.ctx.command_path} --help" if failure.ctx else ""
        return f"{failure.format_message().rstrip('.')}{see}", failure.exit_code
    if isinstance(failure, click.ClickException):
        return failure.format_message(), failure.exit_code
    hint = "" if debug else f" (--debug or {DEBUG_VARIABLE}=1 shows where)"
    return f"unexpected failure: {type(failure).__name__}: {failure}{hint}", UNEXPECTED


def _silence_stdout() -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere instead of complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
