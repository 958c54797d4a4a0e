"""Maintenance (design 4.7): what still runs on nodes of a reservation with the MAINT flag when it is about to begin.

Slurm starts nothing there that would run into the reservation, but what ran before it was made goes on. Shortly
before its begin, and in it, runs that may be requeued are: spare ones, and backed ones whose contracts have ended. A
contract is kept, whatever the calendar says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.drain import may_go
from pyslurm_budget.domain.plan import Reason

if TYPE_CHECKING:
    from pyslurm_budget.domain.model import Job, Reservation
    from pyslurm_budget.domain.situation import LiveRun, Situation

MAINT = "MAINT"


def is_maintenance(reservation: Reservation) -> bool:
    """Whether nodes are to be empty in it."""
    return MAINT in reservation.flags and not reservation.ours


def due(reservation: Reservation, now: int, before: int) -> bool:
    """Whether its nodes are emptied now: from ``before`` seconds ahead of its begin to its end."""
    return is_maintenance(reservation) and reservation.start - before <= now < reservation.end


def maintained_runs(situation: Situation) -> list[tuple[LiveRun, Reason]]:
    """Runs to requeue for maintenance, each with its reason; those that end in time by their time limit stay."""
    now, before = situation.now, situation.policy.maintenance_before
    reservations = [r for r in situation.snapshot.reservations if due(r, now, before)]
    found = []
    for run in situation.runs if reservations else ():
        nodes = {share.node for share in run.job.allocation}
        mine = next((r for r in reservations if nodes & set(r.nodes) and not ends_before(run.job, r.start)), None)
        if mine is not None and run.job.reservation != mine.name and may_go(run, now):
            numbers: dict[str, int | str] = {"name": mine.name, "start": mine.start, "contract": run.minimum}
            found.append((run, Reason("maintenance", numbers)))
    return found


def ends_before(job: Job, when: int) -> bool:
    """Whether its time limit ends it by then."""
    return job.time_limit is not None and job.start is not None and job.start + job.time_limit <= when


def latest_announcement(start: int, cap: int, before: int) -> int:
    """The last moment at which a reservation for maintenance must stand: all that starts until then has a contract of
    at most a cap, and is gone in time."""
    return start - cap - before
