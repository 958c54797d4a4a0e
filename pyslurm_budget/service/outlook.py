"""What `sbudget drain` and `maintenance plan` tell: the live cluster and the contracts of the ledger, only read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.drain import too_many
from pyslurm_budget.domain.maintenance import latest_announcement
from pyslurm_budget.domain.model import LIVE, Mode
from pyslurm_budget.domain.outlook import Leaving, NodeOutlook, outlook
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.errors import NotFoundError
from pyslurm_budget.service.facts import in_force, live_runs, mode_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Node, RunKey, Snapshot
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.situation import LiveRun
    from pyslurm_budget.service.ports import Ledger, RunFacts


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """Maintenance of the nodes from ``start`` on. ``announce``: the last moment at which its reservation must stand.
    ``empty_at`` is when they would be empty if nothing more started (``None``: nobody knows); ``late`` is what will
    still run at the start."""

    nodes: tuple[NodeOutlook, ...]
    start: int
    announce: int
    empty_at: int | None
    late: tuple[Leaving, ...]


@dataclass(frozen=True)
class Outlooks:
    """One look at the cluster. ``mode`` is the configured one: only where it is enforce anything is requeued."""

    ledger: Ledger
    snapshot: Snapshot
    policy: Policy
    mode: Mode

    def nodes(self, names: Iterable[str]) -> tuple[Node, ...]:
        """The nodes of these names; raises NotFoundError."""
        by_name = {node.name: node for node in self.snapshot.nodes}
        wanted = list(names)
        missing = [name for name in wanted if name not in by_name]
        if missing:
            raise NotFoundError(f"no node {missing[0]}; `sinfo -N` lists them all")
        return tuple(by_name[name] for name in wanted)

    def drain(self, names: Iterable[str] = ()) -> tuple[NodeOutlook, ...]:
        """The named nodes, as if they drained from now on where they do not; without names those that drain."""
        nodes = self.nodes(names) or tuple(node for node in self.snapshot.nodes if node.draining)
        return self._outlook(nodes, {node.name: self._emptied_from(node) for node in nodes})

    def maintenance(self, names: Iterable[str], start: int) -> MaintenancePlan:
        """Maintenance of these nodes (without names: of all) from ``start`` on."""
        nodes = self.nodes(names) or self.snapshot.nodes
        now, before = self.snapshot.now, self.policy.maintenance_before
        at_start = self._outlook(nodes, self._all_from(nodes, max(now, start - before)))
        late = {x.job.key: x for node in at_start for x in node.leaving if x.at is None or x.at > start}
        ends = [node.empty_at for node in self._outlook(nodes, self._all_from(nodes, now))]
        return MaintenancePlan(
            nodes=at_start,
            start=start,
            announce=latest_announcement(start, self.policy.cap, before),
            empty_at=None if None in ends else max((end for end in ends if end is not None), default=now),
            late=tuple(late.values()),
        )

    def _outlook(self, nodes: Iterable[Node], emptied_from: Mapping[str, int | None]) -> tuple[NodeOutlook, ...]:
        jobs, now = self.snapshot.jobs, self.snapshot.now
        return outlook(nodes, jobs, self._runs, now=now, emptied_from=emptied_from)

    def _all_from(self, nodes: Iterable[Node], when: int) -> dict[str, int | None]:
        return {node.name: when if self.mode is Mode.ENFORCE else None for node in nodes}

    def _emptied_from(self, node: Node) -> int | None:
        """From when on the controller empties the node, as things stand; ``None``: it does not."""
        policy, now = self.policy, self.snapshot.now
        pool = self._pools.pool_of(node)
        if self.mode is not Mode.ENFORCE or pool is None or not node.up:
            return None
        if node.draining and re.search(policy.drain_reason, node.reason) is None:
            return None
        if too_many(self._pools.members[pool], pool, policy, now) is not None:
            return None
        since = node.reason_since if node.draining and node.reason_since is not None else now
        return since + policy.drain_after

    @cached_property
    def _pools(self) -> PoolMap:
        shot = self.snapshot
        return PoolMap(self.policy.pools, shot.nodes, shot.partitions, self.policy.fractions)

    @cached_property
    def _runs(self) -> dict[RunKey, LiveRun]:
        """The live runs whose contracts the ledger knows; the others are as if nobody could requeue them."""
        live = [job for job in self.snapshot.jobs if job.state in LIVE]
        facts = self.ledger.runs_of(job.key for job in live)
        tree = BudgetTree({b.account: b for b in self.ledger.budgets()})

        def mode(run: RunFacts) -> Mode:
            return mode_of(run, self.mode, self.policy, tree)

        contracts = {
            c.key: in_force(c, self.policy, enforced=c.key in facts and mode(facts[c.key]) is Mode.ENFORCE)
            for c in self.ledger.contracts([job.key for job in live])
        }
        runs = live_runs(
            live,
            facts,
            contracts,
            mode_of=mode,
            site=self.mode,
            requeues={},
            protections=self.ledger.protections(since=self.snapshot.now),
            now=self.snapshot.now,
        )
        return {run.job.key: run for run in runs}
