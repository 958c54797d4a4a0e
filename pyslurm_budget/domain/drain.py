"""Emptying draining nodes (design 4.7): spare runs at once, backed ones when their contract ends, within limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.plan import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyslurm_budget.domain.model import Node
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.situation import LiveRun, Situation


def emptied(situation: Situation, pool: str) -> tuple[tuple[Node, ...], Reason | None]:
    """Nodes of the pool that are to be emptied now; or none, and the reason, where too many drain at once.

    A health check that flaps must not requeue the cluster: above the limit nothing is requeued at all.
    """
    policy, now = situation.policy, situation.now
    members = situation.pools.members.get(pool, ())
    draining = draining_nodes(members, policy, now)
    limit = too_many(members, pool, policy, now)
    return ((), limit) if limit else (draining, None)


def draining_nodes(members: Iterable[Node], policy: Policy, now: int) -> tuple[Node, ...]:
    """Those of the nodes that drain for long enough, for a reason that the site allows, and hold work."""
    pattern = re.compile(policy.drain_reason)
    found = (
        node
        for node in members
        if node.up
        and node.draining
        and (node.gpus_used or node.cpus_used)
        and node.reason_since is not None
        and now - node.reason_since >= policy.drain_after
        and pattern.search(node.reason)
    )
    return tuple(sorted(found, key=lambda n: n.name))


def too_many(members: Collection[Node], pool: str, policy: Policy, now: int) -> Reason | None:
    """Why none of the pool's nodes is emptied, if more of them drain than are emptied at one time."""
    count = len(draining_nodes(members, policy, now))
    limit = max(policy.drain_min_nodes, int(policy.drain_at_once * len(members)))
    return Reason("drain-limit", {"pool": pool, "nodes": count, "limit": limit}) if count > limit else None


def drained_runs(situation: Situation, pool: str) -> tuple[list[tuple[LiveRun, Reason]], list[Reason]]:
    """Runs of the pool to requeue because their node drains, each with its reason, and what people should know."""
    nodes, limit = emptied(situation, pool)
    found: list[tuple[LiveRun, Reason]] = []
    names = {node.name: node for node in nodes}
    seen: set[str] = set()
    for run in situation.runs:
        on = next((s.node for s in run.job.allocation if s.node in names), None)
        if on is None or run.job.ref in seen or not may_go(run, situation.now):
            continue
        seen.add(run.job.ref)
        numbers: dict[str, int | str] = {"node": on, "reason": names[on].reason, "contract": run.minimum}
        found.append((run, Reason("drain", numbers)))
    return found, [limit] if limit else []


def could_go(run: LiveRun) -> bool:
    """Whether we may ever requeue the run for a repair; one that Slurm cannot requeue would be killed."""
    if run.withheld or run.job.state is not JobState.RUNNING or run.job.completing:
        return False
    if not run.job.can_requeue or run.job.het:
        return False
    return run.work_class is WorkClass.SPARE or run.stoppable or run.exempt_until is not None


def goes_at(run: LiveRun) -> int:
    """From when on a run that could go may: spare at once, backed when its contract ends, none while it is exempt."""
    contract = 0 if run.work_class is WorkClass.SPARE else run.protected_until
    return max(contract, run.exempt_until or 0)


def may_go(run: LiveRun, now: int) -> bool:
    """Whether a run may be requeued for a repair now."""
    return could_go(run) and now >= goes_at(run)


def pools_of(situation: Situation) -> Iterator[str]:
    """Every pool of the cluster, by name."""
    yield from situation.pools.members
