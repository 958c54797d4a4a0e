"""What must hold at every moment, worked out anew from the records: the simulator's own conscience."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import LIVE, JobState
from pyslurm_budget.simulate.records import refs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.model import NodeShare
    from pyslurm_budget.simulate.state import NodeState, State

OWN_ENDS = frozenset({"COMPLETED", "TIMEOUT", "CANCELLED"})
KILLED = frozenset({"PREEMPTED", "NODE_FAIL"})


def violations(state: State) -> tuple[str, ...]:
    """One sentence for everything that must not be; empty if all is well."""
    return (*_nodes(state), *_jobs(state), *_running(state), *_queue(state))


def _nodes(state: State) -> Iterator[str]:
    """No node gives more than it has, and what is not free is held by its records."""
    for node in state.nodes.values():
        shares = [s for r in node.records.values() for s in r.holds if s.node == node.name]
        for what, total, free, held in _amounts(node, shares):
            if not 0 <= held <= total or total - free != held:
                yield f"{node.name}: {held} of {total} {what} held, {free} free"
        if node.completing != sum(r.completing for r in node.records.values()):
            yield f"{node.name}: {node.completing} completing jobs counted"
        if not node.up and node.records:
            yield f"{node.name} is down, and holds {sorted(node.records)}"


def _amounts(node: NodeState, shares: list[NodeShare]) -> Iterator[tuple[str, int, int, int]]:
    yield "GPUs", node.spec.gpus, node.gpus, sum(s.gpus for s in shares)
    yield "CPUs", node.spec.cpus, node.cpus, sum(s.cpus for s in shares)
    yield "MiB", node.spec.memory_mb, node.memory_mb, sum(s.memory_mb for s in shares)


def _jobs(state: State) -> Iterator[str]:
    """Every submitted job or task is there exactly once, or has ended in a way that ends a job."""
    alive: dict[str, int] = {}
    for record in state.records.values():
        if record.state is JobState.OTHER:
            continue
        for ref in refs_of(record):
            alive[ref] = alive.get(ref, 0) + 1
    for ref, spec in state.submitted.items():
        stays = spec.requeue and not spec.interactive
        ended, there = state.finished.get(ref), alive.pop(ref, 0)
        if (ended is None) != (there == 1):
            yield f"{ref}: {there} records, ended as {ended}"
        elif ended is not None and ended not in OWN_ENDS and (stays or ended not in KILLED):
            yield f"{ref} is lost: ended as {ended}"
    for ref in alive:
        yield f"{ref} was never submitted"


def _running(state: State) -> Iterator[str]:
    """What runs holds nodes; what waits holds none unless it is completing."""
    for record in state.records.values():
        if record.state in LIVE and tuple(record.holds) != record.shares:
            yield f"{record.ref} runs and does not hold its nodes"
        if record.holds and record.state not in LIVE and not record.completing:
            yield f"{record.ref} does not run and holds {len(record.holds)} nodes"
        if (record.state in LIVE) != (record.job_id in state.running[record.qos]):
            yield f"{record.ref} is {record.state}, and the list of what runs in {record.qos} says otherwise"


def _queue(state: State) -> Iterator[str]:
    """The waiting lists hold exactly the records that say so, in order, and each of them could start."""
    listed = {}
    for keys in state.waiting.values():
        if keys != sorted(keys):
            yield "a waiting list is out of order"
        listed.update({key[-1]: key for key in keys})
    for record in state.records.values():
        if record.place != listed.get(record.job_id):
            yield f"{record.ref}: its place in the queue is {record.place}, the list says {listed.get(record.job_id)}"
        if record.place is not None and (record.held or record.completing or record.state is not JobState.PENDING):
            yield f"{record.ref} waits, and may not"
