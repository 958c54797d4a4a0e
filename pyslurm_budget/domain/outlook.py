"""When nodes will be empty (design 4.7): of every run the moment at which it is gone at the latest, and why then.

A run is gone when its time limit ends it, or, where nodes are emptied by us, when it may be requeued: spare at once,
backed when its contract ends. Nothing here decides anything; :mod:`pyslurm_budget.domain.drain` does, and a test
holds both against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain.drain import could_go, goes_at
from pyslurm_budget.domain.model import LIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyslurm_budget.domain.model import Job, Node, RunKey
    from pyslurm_budget.domain.situation import LiveRun


@dataclass(frozen=True, slots=True)
class Leaving:
    """One job on a node, gone ``at`` (``None``: nobody knows). ``waits`` says for what: ``contract``, ``exempt``,
    ``requeue`` (it may go as soon as the node is emptied), ``limit`` (its time limit), ``unlimited``, or
    ``completing``."""

    job: Job
    gpus: int
    at: int | None
    waits: str


@dataclass(frozen=True, slots=True)
class NodeOutlook:
    """One node: its runs, the last to go first. ``empty_at`` is ``None`` where nobody knows; ``now`` if it is."""

    node: Node
    leaving: tuple[Leaving, ...]
    empty_at: int | None


def outlook(
    nodes: Iterable[Node],
    jobs: Sequence[Job],
    runs: Mapping[RunKey, LiveRun],
    *,
    now: int,
    emptied_from: Mapping[str, int | None],
) -> tuple[NodeOutlook, ...]:
    """The nodes by name. ``emptied_from`` says from when on we empty each of them, ``None``: never."""
    on: dict[str, list[tuple[Job, int]]] = {}
    for job in jobs:
        if job.state in LIVE or job.completing:
            for share in job.allocation:
                on.setdefault(share.node, []).append((job, share.gpus))
    found = []
    for node in sorted(nodes, key=lambda n: n.name):
        since = emptied_from.get(node.name)
        all_of_it = [_leaving(job, gpus, runs.get(job.key), since, now) for job, gpus in on.get(node.name, ())]
        ordered = sorted(all_of_it, key=lambda x: (x.at is not None, -(x.at or 0), x.job.ref))
        empty_at = now if not ordered else ordered[0].at
        found.append(NodeOutlook(node, tuple(ordered), empty_at))
    return tuple(found)


def _leaving(job: Job, gpus: int, run: LiveRun | None, since: int | None, now: int) -> Leaving:
    if job.completing:
        return Leaving(job, gpus, now, "completing")
    end = None if job.time_limit is None or job.start is None else max(now, job.start + job.time_limit)
    requeued = None
    if run is not None and since is not None and could_go(run):
        requeued = max(now, since, goes_at(run))
    if requeued is not None and (end is None or requeued < end):
        exempt = run is not None and run.exempt_until is not None and run.exempt_until == requeued
        contract = run is not None and run.protected_until == requeued > now
        return Leaving(job, gpus, requeued, "exempt" if exempt else "contract" if contract else "requeue")
    return Leaving(job, gpus, end, "unlimited" if end is None else "limit")
