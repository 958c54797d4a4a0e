"""Which of the allowed runs give way: a set that makes room, and loses the least work.

For a job of one node the cheapest set of all is found exactly (a node holds few runs); over several nodes the
cheapest nodes are taken until the job fits, then what proved needless is given back. Cheap means: over-allowance
sides only, then least work lost (GPUs x time since the last multiple of the contract), then runs that were not
requeued often, then fewest, then the longest past their contracts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.place import candidates, copy_rooms, fit, free, place
from pyslurm_budget.domain.pool import ceil_div

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyslurm_budget.domain.model import Job, Request
    from pyslurm_budget.domain.place import Room, Rooms
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.situation import LiveRun

# Whether a run is at its cap of requeues, whether one is of a side within its allowance; then sums over the runs:
# work lost, earlier requeues, their number, and the ends of their contracts.
Cost = tuple[int, int, int, int, int, int]
NOTHING: Cost = (0, 0, 0, 0, 0, 0)
Found = tuple[Cost, tuple["LiveRun", ...]]

# On a node with more runs than this the cheapest ones are taken in turn instead of looking at all sets.
EXACT = 12


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

    def cost(run: LiveRun) -> Cost:
        capped = 1 if run.requeued >= policy.requeues_per_job_day else 0
        lost = max(run.job.held_tres.gpus or 0, 1) * run.loss(now, policy.loss_cap)
        return capped, 0 if run.job.ref in over else 1, lost, run.requeued, 1, run.protected_until

    ordered = sorted(allowed, key=lambda run: (cost(run), run.job.ref))
    usable = candidates(job, rooms, partitions)
    on_node: dict[str, list[LiveRun]] = {room.node: [] for room in usable}
    for run in ordered:
        for share in run.job.allocation:
            if share.node in on_node:
                on_node[share.node].append(run)
    best: Found | None = None
    if _one_node_holds(job):
        for room in usable:
            best = _of_one_node(job.request, room, on_node[room.node], cost, best)
    else:
        for group in (_cheapest_nodes_first(job, usable, on_node, cost), ordered):
            found = _enough(group, lambda runs: _fits(job, rooms, partitions, runs))
            best = _better(best, found, cost)
    return best[1] if best else None


def _one_node_holds(job: Job) -> bool:
    """Whether one node must hold the whole job."""
    request = job.request
    return request.nodes_min == 1 and (request.gpus_per_node is not None or request.nodes_max == 1)


def _sum(a: Cost, b: Cost) -> Cost:
    return max(a[0], b[0]), max(a[1], b[1]), a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5]


def _better(best: Found | None, runs: Sequence[LiveRun] | None, cost: Callable[[LiveRun], Cost]) -> Found | None:
    """The cheaper of both; the first, if they cost the same."""
    if runs is None:
        return best
    total = NOTHING
    for run in runs:
        total = _sum(total, cost(run))
    return (total, tuple(runs)) if best is None or total < best[0] else best


def _of_one_node(
    request: Request, room: Room, runs: Sequence[LiveRun], cost: Callable[[LiveRun], Cost], best: Found | None
) -> Found | None:
    """The best set of this node, if it is better than ``best``."""

    def fits(stopped: Sequence[LiveRun]) -> bool:
        after = copy_rooms({room.node: room})
        for run in stopped:
            free(after, run.job.allocation)
        return fit(request, list(after.values())) is not None

    if len(runs) > EXACT:
        return _better(best, _enough(runs, fits), cost)

    def search(at: int, chosen: list[LiveRun], spent: Cost, best: Found | None) -> Found | None:
        """With the runs from ``at`` on open: leave what cannot become better or cannot make room."""
        if (best is not None and spent >= best[0]) or not fits([*chosen, *runs[at:]]):
            return best
        if fits(chosen):
            return spent, tuple(chosen)
        best = search(at + 1, [*chosen, runs[at]], _sum(spent, cost(runs[at])), best)
        return search(at + 1, chosen, spent, best)

    return search(0, [], NOTHING, best)


def _cheapest_nodes_first(
    job: Job, usable: Sequence[Room], on_node: Mapping[str, Sequence[LiveRun]], cost: Callable[[LiveRun], Cost]
) -> list[LiveRun]:
    """Of every node the best set for one node's part of the job, the cheapest nodes first."""
    count = job.request.nodes_min
    gpus = job.request.gpus_per_node if job.request.gpus_per_node is not None else ceil_div(job.request.gpus, count)
    part = replace(
        job.request,
        nodes_min=1,
        nodes_max=1,
        gpus=gpus,
        gpus_per_node=gpus,
        cpus=ceil_div(job.request.cpus, count),
        memory_mb=ceil_div(job.request.memory_mb, count),
    )
    found = [
        (best, room.node)
        for room in usable
        if (best := _of_one_node(part, room, on_node[room.node], cost, None)) is not None
    ]
    runs = (run for (_, chosen), _ in sorted(found, key=lambda f: (f[0][0], f[1])) for run in chosen)
    return list({run.job.ref: run for run in runs}.values())


def _enough(group: Sequence[LiveRun], fits: Callable[[Sequence[LiveRun]], bool]) -> tuple[LiveRun, ...] | None:
    """The shortest beginning of the group that makes room, without what proves needless, dearest first."""
    chosen: list[LiveRun] = []
    for run in group:
        if fits(chosen):
            break
        chosen.append(run)
    if not fits(chosen):
        return None
    for run in reversed(chosen):
        fewer = [r for r in chosen if r is not run]
        if fits(fewer):
            chosen = fewer
    return tuple(chosen)


def _fits(job: Job, rooms: Rooms, partitions: Mapping[str, frozenset[str]], stopped: Sequence[LiveRun]) -> bool:
    """Whether the job fits once these runs are gone."""
    after = copy_rooms(rooms)
    for run in stopped:
        free(after, run.job.allocation)
    return place(job, after, partitions) is not None
