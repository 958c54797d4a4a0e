"""Carrying out what was decided about a place that is kept for a job (:mod:`pyslurm_budget.domain.kept`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.plan import ActionKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.service.ports import Commands


def carry_out(commands: Commands, action: Action, jobs: Mapping[str, Job], idle: int) -> None:
    """Make, enter, leave or give back a reservation of ours; raises SlurmRefusedError with Slurm's words.

    A job is out before its reservation goes: Slurm does not delete one with jobs in it, and ends a job that is still
    in it at its end.
    """
    name = action.reservation
    if name is None:
        raise ValueError(f"{action.kind} of {action.ref} names no reservation")
    if action.kind is ActionKind.RESERVE:
        if action.start is None or action.until is None:
            raise ValueError(f"reservation {name} has no beginning or no end")
        who = (jobs[action.ref].account,)
        commands.reserve(name, nodes=action.nodes, start=action.start, end=action.until, accounts=who, idle=idle)
    elif action.kind is ActionKind.ENTER:
        commands.update_job(action.ref, reservation=name)
    else:
        if action.kind is ActionKind.LEAVE:
            commands.update_job(action.ref, reservation="")
        commands.release(name)
