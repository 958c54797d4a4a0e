"""Where the simulated Slurm puts a job: on the nodes where it leaves the least, first in the order of the nodes.

Written apart from ``domain/place.py`` on purpose: that one is our judgement of what Slurm would do, and is tested
against this one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import NodeShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyslurm_budget.simulate.shapes import NodeSpec, SubmitSpec
    from pyslurm_budget.simulate.state import NodeState


@dataclass(frozen=True, slots=True)
class Need:
    """What one job (one array task) needs: totals, and ``per_node`` GPUs where they were asked per node."""

    nodes: int
    nodes_max: int | None
    gpus: int
    per_node: int | None
    gpu_type: str | None
    cpus: int
    memory_mb: int
    features: tuple[frozenset[str], ...] = ()
    excluded: frozenset[str] = frozenset()

    @property
    def even(self) -> bool:
        """Whether every node gives the same part."""
        return self.nodes_max == self.nodes


@lru_cache(maxsize=65_536)
def need_of(spec: SubmitSpec) -> Need:
    """The need of a request. GPUs asked in total may lie on more nodes than were asked, as ``--gpus`` does."""
    cpus = spec.nodes if spec.cpus is None else spec.cpus
    if spec.gpus_per_node is not None:
        gpus = spec.gpus_per_node * spec.nodes
        need = Need(spec.nodes, spec.nodes, gpus, spec.gpus_per_node, spec.gpu_type, cpus, spec.memory_mb)
    else:
        most = None if spec.gpus else spec.nodes
        need = Need(spec.nodes, most, spec.gpus, None, spec.gpu_type, cpus, spec.memory_mb)
    return replace(need, features=spec.features, excluded=spec.excluded)


def find(need: Need, nodes: Iterable[NodeState]) -> tuple[NodeShare, ...] | None:
    """A placement into what is free on these nodes now, or ``None``."""
    if need.even:
        return _even(need, nodes)
    usable = [n for n in nodes if n.gpus and n.cpus and suits(need, n.spec)]
    most = min(len(usable), need.gpus, len(usable) if need.nodes_max is None else need.nodes_max)
    for count in range(need.nodes, most + 1):
        found = _spread(need, usable, count)
        if found is not None:
            return found
    return None


def could_ever(need: Need, specs: Sequence[NodeSpec]) -> bool:
    """Whether the need fits these nodes when they are empty and up; GPUs in total are at least one a node."""
    good = [s for s in specs if suits(need, s)]
    for count in range(need.nodes, (need.nodes if need.even else min(len(good), need.gpus)) + 1):
        cpus, memory = -(-need.cpus // count), -(-need.memory_mb // count)
        holding = sorted((s.gpus for s in good if s.cpus >= cpus and s.memory_mb >= memory), reverse=True)
        if len(holding) < count:
            continue
        if need.per_node is not None:
            if holding[count - 1] >= need.per_node:
                return True
        elif sum(holding[:count]) >= need.gpus and (need.even or holding[count - 1]):
            return True
    return False


def give(nodes: dict[str, NodeState], shares: Iterable[NodeShare]) -> None:
    """Add to what is free."""
    for share in shares:
        node = nodes[share.node]
        node.gpus += share.gpus
        node.cpus += share.cpus
        node.memory_mb += share.memory_mb


def take(nodes: dict[str, NodeState], shares: Iterable[NodeShare]) -> None:
    """Take from what is free."""
    for share in shares:
        node = nodes[share.node]
        node.gpus -= share.gpus
        node.cpus -= share.cpus
        node.memory_mb -= share.memory_mb


def parts(need: Need) -> tuple[int, int, int]:
    """GPUs, CPUs and memory on each node of an even need."""
    return need.per_node or 0, -(-need.cpus // need.nodes), -(-need.memory_mb // need.nodes)


def _even(need: Need, nodes: Iterable[NodeState]) -> tuple[NodeShare, ...] | None:
    gpus, cpus, memory = parts(need)
    good = [
        (n.gpus, n.cpus, n.index, n)
        for n in nodes
        if n.gpus >= gpus and n.cpus >= cpus and n.memory_mb >= memory and suits(need, n.spec)
    ]
    if len(good) < need.nodes:
        return None
    if need.nodes == 1:
        return (NodeShare(min(good)[3].name, gpus, cpus, memory),)
    good.sort()
    return tuple(NodeShare(n.name, gpus, cpus, memory) for _, _, _, n in good[: need.nodes])


def _spread(need: Need, nodes: list[NodeState], count: int) -> tuple[NodeShare, ...] | None:
    """Exactly ``count`` nodes with at least one GPU each."""
    cpus, memory = -(-need.cpus // count), -(-need.memory_mb // count)
    good = [n for n in nodes if n.cpus >= cpus and n.memory_mb >= memory]
    if count == 1:
        good = sorted((n for n in good if n.gpus >= need.gpus), key=lambda n: (n.gpus, n.cpus, n.index))
    else:
        good.sort(key=lambda n: (-n.gpus, n.index))
    chosen = good[:count]
    if len(chosen) < count or sum(n.gpus for n in chosen) < need.gpus:
        return None
    shares: list[NodeShare] = []
    missing = need.gpus
    for i, node in enumerate(chosen):
        gpus = min(node.gpus, missing - (count - i - 1))
        missing -= gpus
        shares.append(NodeShare(node.name, gpus, cpus, memory))
    return tuple(shares)


def suits(need: Need, spec: NodeSpec) -> bool:
    """Whether the node may be used at all: GPU type, features, excluded nodes."""
    if need.gpu_type is not None and spec.gpu_type != need.gpu_type:
        return False
    if not need.features and not need.excluded:
        return True
    featured = not need.features or any(group <= spec.features for group in need.features)
    return featured and spec.name not in need.excluded
