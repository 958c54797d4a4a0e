"""Pools: sets of nodes whose GPUs are interchangeable for budgets, and what a piece of work costs in one.

The charge is by the largest part (design 4.2): charged GPUs = max(GPUs, node GPUs x CPU share, node GPUs x memory
share), in thousandths of a GPU, rounded up. So one GPU with all the memory of a node pays for the node. Devices that
are parts of a GPU (MIG slices, shards) count as such everywhere here (:mod:`pyslurm_budget.domain.slices`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain import slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Job, Node, Partition, Request, Tres
    from pyslurm_budget.domain.policy import PoolRule

UNTYPED = "gpu"


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up, for whole numbers."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Shape:
    """GPUs (thousandths), CPUs and memory (MiB) of a node or of several nodes together."""

    rate: int
    cpus: int
    memory_mb: int

    def charge(self, rate: int, cpus: int, memory_mb: int, *, largest: bool = True) -> int:
        """Charged GPUs in thousandths of work that takes so much of such nodes; ``rate`` are its GPUs."""
        if largest and self.rate:
            if self.cpus:
                rate = max(rate, ceil_div(self.rate * cpus, self.cpus))
            if self.memory_mb:
                rate = max(rate, ceil_div(self.rate * memory_mb, self.memory_mb))
        return rate


@dataclass(frozen=True)
class PoolMap:
    """Which node belongs to which pool; nodes without GPUs belong to none."""

    rules: tuple[PoolRule, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    fractions: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))

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

    @cached_property
    def worth(self) -> Mapping[str, Fraction]:
        """GPUs of each node that has some, exactly."""
        return {node.name: slices.of_node(node, self.fractions) for node in self.nodes if node.gpus}

    def size(self, pool: str) -> Fraction:
        """GPUs of the pool, in service or not, exactly."""
        return self._sizes.get(pool, (Fraction(0), Fraction(0)))[0]

    def in_service(self, pool: str) -> Fraction:
        """GPUs of the pool that are in service now, exactly."""
        return self._sizes.get(pool, (Fraction(0), Fraction(0)))[1]

    @cached_property
    def _sizes(self) -> Mapping[str, tuple[Fraction, Fraction]]:
        """GPUs of each pool: all, and those in service."""
        return {
            pool: (
                sum((self.worth[n.name] for n in nodes), Fraction(0)),
                sum((self.worth[n.name] for n in nodes if n.in_service), Fraction(0)),
            )
            for pool, nodes in self.members.items()
        }

    @cached_property
    def _shapes(self) -> Mapping[str, Shape]:
        """The shape of each node with GPUs."""
        return {
            name: Shape(slices.thousandths(gpus), self.by_name[name].cpus, self.by_name[name].memory_mb)
            for name, gpus in self.worth.items()
        }

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
        gpu_type = job.request.gpu_type
        key = (job.partitions, gpu_type)
        if key not in self._landing:
            self._landing[key] = tuple(
                dict.fromkeys(
                    pool
                    for name in job.partitions
                    for pool, nodes in self._inside.get(name, {}).items()
                    if gpu_type is None or any(gpu_type in n.types for n in nodes)
                )
            )
        return self._landing[key]

    @cached_property
    def _landing(self) -> dict[tuple[tuple[str, ...], str | None], tuple[str, ...]]:
        """Remembered answers of ``of_request``: a queue has few different ones."""
        return {}

    @cached_property
    def _inside(self) -> Mapping[str, Mapping[str, tuple[Node, ...]]]:
        """GPU nodes of each partition by pool; partitions without any are left out."""
        found: dict[str, dict[str, tuple[Node, ...]]] = {}
        for pool, nodes in self.members.items():
            for partition, names in self.partition_nodes.items():
                inside = tuple(n for n in nodes if n.name in names)
                if inside:
                    found.setdefault(partition, {})[pool] = inside
        return found

    def shape_of(self, names: Iterable[str]) -> Shape:
        """All the named nodes together."""
        nodes = [self.by_name[name] for name in names if name in self.by_name]
        gpus = sum((self.worth[n.name] for n in nodes if n.gpus), Fraction(0))
        return Shape(slices.thousandths(gpus), sum(n.cpus for n in nodes), sum(n.memory_mb for n in nodes))

    def held(self, tres: Tres, names: Iterable[str]) -> int:
        """GPUs that a run on the named nodes holds, in thousandths."""
        kinds: set[str | None] = set()
        if self.fractions:
            kinds.update(*(self.by_name[name].types for name in names if name in self.worth))
        return slices.held(tres, self.fractions, kinds)

    def dearest(
        self, pools: Iterable[str], partitions: Iterable[str] = (), gpu_type: str | None = None
    ) -> tuple[tuple[Shape, str | None], ...]:
        """The different node shapes that a request may land on, and each GPU type there; the dearest is its price."""
        where = tuple(partitions)
        found = {
            shape
            for pool in pools
            for partition in where or (None,)
            for shape in self._different.get((pool, partition), ())
            if gpu_type is None or shape[1] == gpu_type
        }
        return tuple(sorted(found, key=lambda s: (s[0].rate, s[0].cpus, s[0].memory_mb, s[1] or "")))

    @cached_property
    def _different(self) -> Mapping[tuple[str, str | None], frozenset[tuple[Shape, str | None]]]:
        """The different shapes and types of each pool: inside each partition, and (``None``) anywhere."""
        found: dict[tuple[str, str | None], set[tuple[Shape, str | None]]] = {}
        for pool, nodes in self.members.items():
            groups: list[tuple[str | None, tuple[Node, ...]]] = [(None, nodes)]
            groups += [(name, by_pool[pool]) for name, by_pool in self._inside.items() if pool in by_pool]
            for partition, inside in groups:
                shapes = {(self._shapes[n.name], kind) for n in inside for kind, count in n.types.items() if count}
                found[pool, partition] = shapes
        return {key: frozenset(shapes) for key, shapes in found.items()}

    def price(self, request: Request, pools: Iterable[str], partitions: Iterable[str], *, largest: bool) -> int:
        """Rate of a pending request in thousandths: the dearest shape that it may land on."""
        key = (request, tuple(pools), tuple(partitions), largest)
        if key not in self._prices:
            self._prices[key] = self._price(*key)
        return self._prices[key]

    @cached_property
    def _prices(self) -> dict[tuple[Request, tuple[str, ...], tuple[str, ...], bool], int]:
        """Remembered prices: a queue has few different requests."""
        return {}

    def _price(self, request: Request, pools: Iterable[str], partitions: Iterable[str], largest: bool) -> int:
        rates = []
        for shape, kind in self.dearest(pools, partitions, request.gpu_type):
            gpus = slices.asked(request.gpus, request.shards, kind, self.fractions)
            rates.append(shape.charge(gpus, request.cpus, request.memory_mb, largest=largest))
            if request.exclusive:
                rates.append(shape.rate * request.nodes_min)
        asked = slices.asked(request.gpus, request.shards, request.gpu_type, self.fractions)
        return max(rates, default=asked)
