"""``sbudget drain`` and ``maintenance plan``: nodes and the last of their runs, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyslurm_budget.render.table import Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.outlook import Leaving, NodeOutlook
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.outlook import MaintenancePlan

WAITS = {
    "contract": "its contract",
    "exempt": "its protection",
    "requeue": "its requeue",
    "limit": "its time limit",
    "unlimited": "it has no time limit",
    "completing": "its end",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One node."""

    of: NodeOutlook
    clock: Clock

    @property
    def last(self) -> Leaving | None:
        """The run that goes last."""
        return self.of.leaving[0] if self.of.leaving else None


def _state(line: Line) -> str:
    node = line.of.node
    if not node.up:
        return "down"
    return "up" if not node.draining else "draining" if line.of.leaving else "drained"


def _empty(line: Line) -> str:
    if not line.of.leaving:
        since = line.of.node.reason_since
        return f"since {line.clock.near(since)}" if since is not None else "now"
    return "nobody knows" if line.of.empty_at is None else line.clock.near(line.of.empty_at)


def _run(leaving: Leaving | None) -> str:
    return "" if leaving is None else f"{leaving.job.ref} ({leaving.job.account}, {leaving.gpus} GPUs)"


def _plain_time(when: int | None) -> str:
    return "" if when is None else str(when)


COLUMNS: tuple[Column[Line], ...] = (
    Column("Node", lambda x: x.of.node.name, lambda x: x.of.node.name, left=True),
    Column("State", _state, _state, left=True),
    Column("Runs", lambda x: str(len(x.of.leaving)), lambda x: str(len(x.of.leaving))),
    Column("EmptyAt", _empty, lambda x: _plain_time(x.of.empty_at), left=True, heading="Empty at"),
    Column(
        "LastRun", lambda x: _run(x.last), lambda x: x.last.job.ref if x.last else "", left=True, heading="Last run"
    ),
    Column(
        "WaitingFor",
        lambda x: WAITS[x.last.waits] if x.last else "",
        lambda x: x.last.waits if x.last else "",
        left=True,
        heading="Waiting for",
    ),
)


def lines(found: Iterable[NodeOutlook], clock: Clock) -> list[Line]:
    """The rows."""
    return [Line(outlook, clock) for outlook in found]


@dataclass(frozen=True, slots=True)
class LateLine:
    """One run that will not be gone in time."""

    of: Leaving
    clock: Clock


LATE: tuple[Column[LateLine], ...] = (
    Column("Job", lambda x: x.of.job.ref, lambda x: x.of.job.ref, left=True),
    Column("User", lambda x: x.of.job.user, lambda x: x.of.job.user, left=True),
    Column("Account", lambda x: x.of.job.account, lambda x: x.of.job.account, left=True),
    Column(
        "GoneAt",
        lambda x: "nobody knows" if x.of.at is None else x.clock.near(x.of.at),
        lambda x: _plain_time(x.of.at),
        left=True,
        heading="Gone at",
    ),
    Column("WaitingFor", lambda x: WAITS[x.of.waits], lambda x: x.of.waits, left=True, heading="Waiting for"),
)


def late_lines(plan: MaintenancePlan, clock: Clock) -> list[LateLine]:
    """The rows, the last to go on top."""
    late = sorted(plan.late, key=lambda x: (x.at is not None, -(x.at or 0), x.job.ref))
    return [LateLine(leaving, clock) for leaving in late]


def summary(plan: MaintenancePlan, clock: Clock, nodes: str) -> str:
    """What to do, in sentences."""
    late = f"{len(plan.late)} jobs would still run then" if plan.late else "nothing would still run then"
    if plan.announce > clock.now:
        when = f"the reservation must stand at {clock.full(plan.announce)} at the latest"
    else:
        when = (
            "the reservation should stand now: what starts from now on may have a contract that ends after the begin"
        )
    begin = datetime.fromtimestamp(plan.start, UTC).astimezone()
    command = (
        "scontrol create reservation reservationname=maintenance "
        f"starttime={begin:%Y-%m-%dT%H:%M:%S} duration=4:00:00 nodes={nodes or 'ALL'} "
        "users=root flags=MAINT,IGNORE_JOBS"
    )
    return f"maintenance from {clock.full(plan.start)}: {when}; {late}. For example:\n  {command}"


def _leaving(leaving: Leaving) -> dict[str, Any]:
    job = leaving.job
    return {"job": job.ref, "user": job.user, "account": job.account, "at": leaving.at, "waits": leaving.waits}


def document(found: Iterable[NodeOutlook], now: int) -> dict[str, Any]:
    """The same for programs: seconds since the epoch, ``null`` where nobody knows."""
    return {
        "now": now,
        "nodes": [
            {
                "node": x.node.name,
                "draining": x.node.draining,
                "up": x.node.up,
                "empty_at": x.empty_at,
                "runs": [_leaving(leaving) for leaving in x.leaving],
            }
            for x in found
        ],
    }


def plan_document(plan: MaintenancePlan, now: int) -> dict[str, Any]:
    """The plan for programs."""
    own = {"start": plan.start, "announce": plan.announce, "empty_at": plan.empty_at}
    return {**document(plan.nodes, now), **own, "late": [_leaving(leaving) for leaving in plan.late]}
