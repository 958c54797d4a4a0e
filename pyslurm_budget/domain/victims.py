"""Which of the allowed runs give way: a set that makes room, and loses the least work.

Per node the cheapest runs are taken until the job fits there, then what proved needless is given back; over several
nodes the cheapest nodes are taken. Over-allowance sides go first, then least work lost (GPUs x time since the last
multiple of the contract), then runs that were not requeued often, then the longest past its contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.place import candidates, copy_rooms, fit, free, per_node
from pyslurm_budget.domain.pool import ceil_div

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.place import Rooms
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.situation import LiveRun

Cost = tuple[int, int, int, int]


def choose(
    job: Job,
    rooms: Rooms,
    partitions: Mapping[str, frozenset[str]],
    allowed: Sequence[LiveRun],
    *,
    now: int,
    policy: Policy,
    over: frozenset[str],
) -> tuple[LiveRun, ...] | None:
    """The runs to stop so that the job fits into ``rooms`` plus what they hold; ``None`` if no set will do."""

    def key(run: LiveRun) -> tuple[int, int, int, int, str]:
        capped = 1 if run.requeued >= policy.requeues_per_job_day else 0
        gpus = run.job.held_tres.gpus or 0
        return (
            capped,
            0 if run.job.ref in over else 1,
            max(gpus, 1) * run.loss(now, policy.loss_cap),
            run.protected_until,
            run.job.ref,
        )

    ordered = sorted(allowed, key=key)
    best: tuple[tuple[int, int, int, int], tuple[LiveRun, ...]] | None = None
    for group in _groups(job, rooms, partitions, ordered):
        found = _enough(job, rooms, partitions, group)
        if found is not None:
            cost = _cost(found, now, policy, over)
            if best is None or cost < best[0]:
                best = (cost, found)
    return best[1] if best else None


def _cost(runs: Sequence[LiveRun], now: int, policy: Policy, over: frozenset[str]) -> Cost:
    """Comparable cost of a set: runs at their cap, runs of sides within their allowance, work lost, number."""
    return (
        sum(1 for r in runs if r.requeued >= policy.requeues_per_job_day),
        sum(1 for r in runs if r.job.ref not in over),
        sum(max(r.job.held_tres.gpus or 0, 1) * r.loss(now, policy.loss_cap) for r in runs),
        len(runs),
    )


def _groups(
    job: Job, rooms: Rooms, partitions: Mapping[str, frozenset[str]], ordered: Sequence[LiveRun]
) -> list[list[LiveRun]]:
    """Runs in the order in which to try them: node by node for a job of one node, else cheapest nodes first."""
    usable = [r.node for r in candidates(job, rooms, partitions)]
    on_node = {n: [r for r in ordered if any(s.node == n for s in r.job.allocation)] for n in usable}
    if job.request.nodes_min == 1 and _one_node_holds(job):
        return [runs for runs in on_node.values() if runs]
    by_cost = sorted(usable, key=lambda n: (_missing(job, rooms, n, on_node[n]), n))
    flat: list[LiveRun] = []
    for node in by_cost:
        flat.extend(r for r in on_node[node] if r not in flat)
    return [flat, list(ordered)]


def _one_node_holds(job: Job) -> bool:
    """Whether the job's GPUs are asked on one node (or can only be: at most one node)."""
    return job.request.gpus_per_node is not None or job.request.nodes_max == 1 or not job.request.gpus


def _missing(job: Job, rooms: Rooms, node: str, runs: Sequence[LiveRun]) -> int:
    """GPUs that runs on this node must give up for the job's part there; large where they cannot give enough."""
    wanted = per_node(job.request)[0] or ceil_div(job.request.gpus, job.request.nodes_min)
    missing = max(0, wanted - rooms[node].gpus)
    given = sum(s.gpus for r in runs for s in r.job.allocation if s.node == node)
    return missing if given >= missing else missing + 1_000_000


def _enough(
    job: Job, rooms: Rooms, partitions: Mapping[str, frozenset[str]], group: Sequence[LiveRun]
) -> tuple[LiveRun, ...] | None:
    """The shortest beginning of the group that makes room, without what proves needless."""
    chosen: list[LiveRun] = []
    for run in group:
        chosen.append(run)
        if _fits(job, rooms, partitions, chosen):
            break
    else:
        return None
    for run in reversed(chosen[:-1]):
        fewer = [r for r in chosen if r is not run]
        if _fits(job, rooms, partitions, fewer):
            chosen = fewer
    return tuple(chosen)


def _fits(job: Job, rooms: Rooms, partitions: Mapping[str, frozenset[str]], stopped: Sequence[LiveRun]) -> bool:
    """Whether the job fits once these runs are gone."""
    after = copy_rooms(rooms)
    for run in stopped:
        free(after, run.job.allocation)
    return fit(job.request, candidates(job, after, partitions)) is not None
