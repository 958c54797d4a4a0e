"""Emptying draining nodes (design 4.7): spare runs at once, backed ones when their contract ends, within limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.plan import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.model import Node
    from pyslurm_budget.domain.situation import LiveRun, Situation


def emptied(situation: Situation, pool: str) -> tuple[tuple[Node, ...], Reason | None]:
    """Nodes of the pool that are to be emptied now; or none, and the reason, where too many drain at once.

    A health check that flaps must not requeue the cluster: above the limit nothing is requeued at all.
    """
    policy = situation.policy
    members = situation.pools.members.get(pool, ())
    pattern = re.compile(policy.drain_reason)
    draining = [
        node
        for node in members
        if node.up
        and node.draining
        and (node.gpus_used or node.cpus_used)
        and node.reason_since is not None
        and situation.now - node.reason_since >= policy.drain_after
        and pattern.search(node.reason)
    ]
    limit = max(policy.drain_min_nodes, int(policy.drain_at_once * len(members)))
    if len(draining) > limit:
        return (), Reason("drain-limit", {"pool": pool, "nodes": len(draining), "limit": limit})
    return tuple(sorted(draining, key=lambda n: n.name)), None


def drained_runs(situation: Situation, pool: str) -> tuple[list[tuple[LiveRun, Reason]], list[Reason]]:
    """Runs of the pool to requeue because their node drains, each with its reason, and what people should know."""
    nodes, limit = emptied(situation, pool)
    found: list[tuple[LiveRun, Reason]] = []
    names = {node.name: node for node in nodes}
    seen: set[str] = set()
    for run in situation.runs:
        on = next((s.node for s in run.job.allocation if s.node in names), None)
        if on is None or run.job.ref in seen or not _may_go(run, situation.now):
            continue
        seen.add(run.job.ref)
        numbers: dict[str, int | str] = {"node": on, "reason": names[on].reason, "contract": run.minimum}
        found.append((run, Reason("drain", numbers)))
    return found, [limit] if limit else []


def _may_go(run: LiveRun, now: int) -> bool:
    """Whether a run may be requeued for a drain now; one that Slurm cannot requeue would be killed: never."""
    if (
        run.withheld
        or run.job.state is not JobState.RUNNING
        or run.job.completing
        or not run.job.can_requeue
        or run.job.het
    ):
        return False
    if run.exempt_until is not None and now < run.exempt_until:
        return False
    if run.work_class is WorkClass.SPARE:
        return True
    return run.stoppable and now >= run.protected_until


def pools_of(situation: Situation) -> Iterator[str]:
    """Every pool of the cluster, by name."""
    yield from situation.pools.members
