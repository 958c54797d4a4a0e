"""``sbudget checkpoint``: a job says that its work is safe up to now."""

from __future__ import annotations

import os

import click

from pyslurm_budget.cli.options import Context, pass_context
from pyslurm_budget.errors import UsageError

JOB = "SLURM_JOB_ID"


@click.command(short_help="Report, from within a job, that a checkpoint was written.")
@click.argument("job", required=False)
@pass_context
def checkpoint(context: Context, job: str | None) -> None:
    """Report that the work of a job is safe up to now, from within it (or with its raw JOB id, as its user).

    Where runs past their contracts have to give way, those that lose least go first: who reports right after each
    checkpoint is stopped right after one, if at all. A report is one file; it may be made every few minutes.
    """
    from pyslurm_budget.errors import CheckpointError
    from pyslurm_budget.service.checkpoints import FolderCheckpoints

    name = job or os.environ.get(JOB, "")
    if not (name.isascii() and name.isdigit()):
        raise UsageError(f"checkpoint is for use in a job: ${JOB} is not set; outside, name the raw job id")
    folder = context.config.checkpoints
    if folder is None:
        raise CheckpointError(f"{context.config.source}: [checkpoints] folder is not set: this site takes no reports")
    FolderCheckpoints(folder).report(int(name))
