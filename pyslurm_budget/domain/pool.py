"""Pools: sets of nodes whose GPUs are interchangeable for budgets, and what a piece of work costs in one.

The charge is by the largest part (design 4.2): charged GPUs = max(GPUs, node GPUs x CPU share, node GPUs x memory
share), in thousandths of a GPU, rounded up. So one GPU with all the memory of a node pays for the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Job, Node, Partition, Request
    from pyslurm_budget.domain.policy import PoolRule

UNTYPED = "gpu"


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up, for whole numbers."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Shape:
    """GPUs, CPUs and memory (MiB) of a node or of several nodes together."""

    gpus: int
    cpus: int
    memory_mb: int

    def charge(self, gpus: int, cpus: int, memory_mb: int, *, largest: bool = True) -> int:
        """Charged GPUs in thousandths of work that takes so much of nodes of this shape."""
        rate = gpus * MILLI
        if largest and self.gpus:
            if self.cpus:
                rate = max(rate, ceil_div(self.gpus * MILLI * cpus, self.cpus))
            if self.memory_mb:
                rate = max(rate, ceil_div(self.gpus * MILLI * memory_mb, self.memory_mb))
        return rate


@dataclass(frozen=True)
class PoolMap:
    """Which node belongs to which pool; nodes without GPUs belong to none."""

    rules: tuple[PoolRule, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]

    def pool_of(self, node: Node) -> str | None:
        """The pool of a node: by its partitions first (owners' nodes), then by its flavor, else one per flavor."""
        if not node.gpus:
            return None
        for rule in self.rules:
            if set(rule.partitions) & set(node.partitions):
                return rule.name
        return self.pool_of_flavor(node.gpu_type)

    def pool_of_flavor(self, flavor: str | None) -> str:
        """The pool of a GPU type that no partition rule claims."""
        for rule in self.rules:
            if flavor is not None and flavor in rule.flavors:
                return rule.name
        return flavor or UNTYPED

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def members(self) -> Mapping[str, tuple[Node, ...]]:
        """GPU nodes of each pool."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            pool = self.pool_of(node)
            if pool is not None:
                found.setdefault(pool, []).append(node)
        return {pool: tuple(nodes) for pool, nodes in sorted(found.items())}

    @cached_property
    def partition_nodes(self) -> Mapping[str, frozenset[str]]:
        """Node names by partition."""
        return {p.name: frozenset(p.nodes) for p in self.partitions}

    def size(self, pool: str) -> int:
        """GPUs of the pool, in service or not."""
        return sum(node.gpus for node in self.members.get(pool, ()))

    def in_service(self, pool: str) -> int:
        """GPUs of the pool that are in service now."""
        return sum(node.gpus for node in self.members.get(pool, ()) if node.in_service)

    def of_nodes(self, names: Iterable[str]) -> str | None:
        """The pool of a run by the nodes that it ran on: that of the first known GPU node."""
        for name in names:
            node = self.by_name.get(name)
            pool = self.pool_of(node) if node else None
            if pool is not None:
                return pool
        return None

    def of_request(self, job: Job) -> tuple[str, ...]:
        """Every pool that a pending job may land on: by the type asked for, else by the nodes of its partitions."""
        found: list[str] = []
        for name in job.partitions:
            for pool, nodes in self.members.items():
                inside = [n for n in nodes if n.name in self.partition_nodes.get(name, frozenset())]
                if job.request.gpu_type is not None:
                    inside = [n for n in inside if n.gpu_type == job.request.gpu_type]
                if inside and pool not in found:
                    found.append(pool)
        return tuple(found)

    def shape_of(self, names: Iterable[str]) -> Shape:
        """All the named nodes together."""
        nodes = [self.by_name[name] for name in names if name in self.by_name]
        return Shape(sum(n.gpus for n in nodes), sum(n.cpus for n in nodes), sum(n.memory_mb for n in nodes))

    def dearest(
        self, pools: Iterable[str], partitions: Iterable[str] = (), gpu_type: str | None = None
    ) -> tuple[Shape, ...]:
        """The different node shapes that a request may land on; its price is the dearest of them."""
        allowed = [self.partition_nodes.get(p, frozenset()) for p in partitions]
        found = {
            Shape(node.gpus, node.cpus, node.memory_mb)
            for pool in pools
            for node in self.members.get(pool, ())
            if not allowed or any(node.name in names for names in allowed)
            if gpu_type is None or node.gpu_type == gpu_type
        }
        return tuple(sorted(found, key=lambda s: (s.gpus, s.cpus, s.memory_mb)))

    def price(self, request: Request, pools: Iterable[str], partitions: Iterable[str], *, largest: bool) -> int:
        """Rate of a pending request in thousandths: the dearest shape that it may land on."""
        shapes = self.dearest(pools, partitions, request.gpu_type)
        rates = [shape.charge(request.gpus, request.cpus, request.memory_mb, largest=largest) for shape in shapes]
        if request.exclusive and shapes:
            rates.append(max(shape.gpus for shape in shapes) * MILLI * request.nodes_min)
        return max(rates, default=request.gpus * MILLI)
