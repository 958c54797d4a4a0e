"""Which of the allowed runs give way: a set that makes room, and loses the least work.

Cheap means: no run at its cap of requeues, over-allowance sides only, then least work lost (GPUs x time since the
last multiple of the contract), then runs that were not requeued often, then fewest, then the longest past their
contracts. The first two are asked one after the other (``LEVELS``): the first level with any set that makes room is
the one, and among its sets all the rest adds up.

Runs on one node each leave the nodes independent of each other: the cheapest set of each node is found exactly, and
of these the cheapest that serve the request together (:mod:`pyslurm_budget.domain.cheapest`). Runs over several
nodes are taken out first: every set of them is tried while they are few, else they are added, and left out again, one
by one, as long as that helps.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from pyslurm_budget.domain.cheapest import NOTHING, Cheapest, Stop, plus
from pyslurm_budget.domain.place import suits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyslurm_budget.domain.cheapest import Cost
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.place import Room, Rooms
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.situation import LiveRun

LEVELS = ((0, 0), (0, 1), (1, 0), (1, 1))
FEW = 6
"""So many runs over several nodes are tried in every combination."""
Found = tuple["Cost", tuple[Stop, ...]]


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
    inside = [_inside(job, rooms, partitions.get(name, frozenset())) for name in job.partitions]
    known = {room.node for usable in inside for room in usable}
    at_level: dict[tuple[int, int], list[Stop]] = {level: [] for level in LEVELS}
    for run in sorted(allowed, key=lambda r: r.job.ref):
        if any(share.node in known for share in run.job.allocation):
            level = (int(run.requeued >= policy.requeues_per_job_day), int(run.job.ref not in over))
            at_level[level].append(_stop(run, job.request.gpu_type, known, now, policy))
    tried: list[set[Stop]] = []
    for most in LEVELS:
        stops = [s for level, some in at_level.items() if level[0] <= most[0] and level[1] <= most[1] for s in some]
        if set(stops) in tried:
            continue
        tried.append(set(stops))
        best = min((f for usable in inside if (f := _best(job, usable, stops)) is not None), key=_key, default=None)
        if best is not None:
            return tuple(stop.run for stop in sorted(best[1], key=lambda s: s.run.job.ref))
    return None


def _inside(job: Job, rooms: Rooms, names: Iterable[str]) -> list[Room]:
    """The rooms of one partition that the job may use."""
    return [room for name in sorted(names) if (room := rooms.get(name)) is not None and suits(job.request, room)]


def _stop(run: LiveRun, kind: str | None, known: set[str], now: int, policy: Policy) -> Stop:
    """The run with what its stop costs, and what it gives back on the nodes that matter."""
    lost = max(run.job.held_tres.gpus or 0, 1) * run.loss(now, policy.loss_cap)
    gives = {}
    for share in run.job.allocation:
        if share.node in known:
            gpus = dict(share.by_type).get(kind, 0) if kind is not None and share.by_type else share.gpus
            gives[share.node] = gpus, share.cpus, share.memory_mb
    return Stop(run, (lost, run.requeued, 1, run.protected_until), gives)


def _key(found: Found) -> tuple[Cost, list[str]]:
    return found[0], [stop.run.job.ref for stop in found[1]]


def _best(job: Job, usable: Sequence[Room], stops: Sequence[Stop]) -> Found | None:
    """The cheapest set for one partition."""
    names = {room.node for room in usable}
    single = [s for s in stops if sum(node in names for node in s.gives) == 1]
    multi = [s for s in stops if sum(node in names for node in s.gives) > 1]
    search = Cheapest(job.request, usable, single)
    if len(multi) <= FEW:
        sets: Iterable[tuple[Stop, ...]] = (
            chosen for size in range(len(multi) + 1) for chosen in combinations(multi, size)
        )
        return min((f for forced in sets if (f := _with(search, forced)) is not None), key=_key, default=None)
    return _improved(search, multi)


def _with(search: Cheapest, forced: Sequence[Stop]) -> Found | None:
    """The cheapest set in which exactly these of the runs over several nodes are."""
    spent = NOTHING
    for stop in forced:
        spent = plus(spent, stop.cost)
    found = search.beside(forced)
    return None if found is None else (plus(spent, found[0]), (*forced, *found[1]))


def _improved(search: Cheapest, multi: list[Stop]) -> Found | None:
    """From all of them on, leave out the dearest first, then add the cheapest first, while the whole gets cheaper."""
    forced = list(multi)
    best = _with(search, forced)
    if best is None:
        return None
    for stop in sorted(multi, key=lambda s: s.cost, reverse=True):
        fewer = [s for s in forced if s is not stop]
        found = _with(search, fewer)
        if found is not None and found[0] < best[0]:
            best, forced = found, fewer
    for stop in sorted(multi, key=lambda s: s.cost):
        if stop not in forced and stop.cost < best[0]:
            found = _with(search, [*forced, stop])
            if found is not None and found[0] < best[0]:
                best, forced = found, [*forced, stop]
    return best
