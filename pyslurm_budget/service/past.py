"""What nodes were while nobody looked, read now and then, and what follows for capacity and charge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.holding import forgotten, out_of_service, seen, told_once
from pyslurm_budget.domain.idle import Occupant, idle_uses
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.service.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from fractions import Fraction

    from pyslurm_budget.domain.books import Use
    from pyslurm_budget.domain.budget import BudgetTree
    from pyslurm_budget.domain.capacity import Outage
    from pyslurm_budget.domain.holding import Holding
    from pyslurm_budget.domain.model import Snapshot
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.pool import PoolMap
    from pyslurm_budget.service.counts import SiteHistory
    from pyslurm_budget.service.ports import Ledger, RunFacts

# Events reach slurmdbd late (slurmctld's queue), and history is not immutable: see the same of accounting.
OVERLAP = 600
DAY = 24 * 3600
WHOLE_READ = "whole-read-nodes"


class NodePast:
    """Events and reservations of one cycle."""

    def __init__(self, ledger: Ledger, policy: Policy, snapshot: Snapshot, pools: PoolMap, tree: BudgetTree) -> None:
        """``snapshot`` is that of the cycle, ``pools`` and ``tree`` belong to it."""
        self._ledger = ledger
        self._policy = policy
        self._snapshot = snapshot
        self._pools = pools
        self._tree = tree
        self._begin = snapshot.now - policy.window - policy.hour
        self._holdings: tuple[Holding, ...] | None = None
        self._out: dict[str, list[Outage]] | None = None

    def read(self, history: SiteHistory) -> None:
        """Read slurmdbd, at most once an hour: while samples are taken, they are what counts. So the first cycle
        after a longer pause reads what happened in it. Once a day the whole window is read again."""
        now, last = self._snapshot.now, self._ledger.past_read()
        if last is not None and 0 <= now - last < self._policy.hour:
            return
        whole = self._ledger.get(WHOLE_READ)
        since = self._begin
        if last is not None and whole is not None and now - int(whole) < DAY:
            since = max(since, last - OVERLAP)
        else:
            self._ledger.put(WHOLE_READ, str(now))
        events = history.node_events(since, now)
        self._ledger.save_past(events, history.reservations(since, now), since, now)
        self._holdings = self._out = None

    def note_live(self) -> None:
        """Note the reservations of the snapshot, where something has changed."""
        now, live = self._snapshot.now, self._snapshot.reservations
        known = self._ledger.holdings(now)
        if not known and not live:
            return
        _, sampled = self._ledger.capacity(now)
        last = sampled[-1][1] if sampled else now
        changed: list[Holding] = []
        if now - last > self._policy.hour:
            changed, known, last = forgotten(known, now, last), (), now
        changed += seen(known, live, now, last)
        if changed:
            self._ledger.save_holdings(changed)
            self._holdings = self._out = None

    def _told(self) -> list[Holding]:
        if self._holdings is None:
            self._holdings = self._ledger.holdings(self._begin)
        return told_once(self._holdings)

    def _budget_of(self, account: str) -> str | None:
        return self._tree.budget_of(account, self._snapshot.parents)

    def _out_by_node(self) -> dict[str, list[Outage]]:
        """When each node was out, or reserved for nobody who pays."""
        if self._out is None:
            unpaid = [h for h in self._told() if h.idle(self._budget_of)]
            events = self._ledger.node_events(self._begin)
            self._out = out_of_service(events, unpaid, self._pools.worth, self._snapshot.now)
        return self._out

    def outages(self) -> dict[str, list[Outage]]:
        """When GPUs of each pool were out, or reserved for nobody who pays."""
        found: dict[str, list[Outage]] = {}
        for node, outages in self._out_by_node().items():
            pool = self._pools.of_nodes((node,))
            if pool is not None:
                found.setdefault(pool, []).extend(outages)
        return found

    def in_service(self, pool: str) -> Fraction:
        """GPUs of the pool in service now, less those that are reserved for nobody who pays."""
        now = self._snapshot.now
        reserved = {
            name for h in self._told() if h.start <= now < h.end and h.idle(self._budget_of) for name in h.nodes
        }
        held = (n for n in self._pools.members.get(pool, ()) if n.in_service and n.name in reserved)
        return self._pools.in_service(pool) - sum(self._pools.worth[n.name] for n in held)

    def uses(self, runs: Iterable[RunFacts], enforced: Callable[[RunFacts], bool]) -> tuple[Use, ...]:
        """What reservations that were bought charge for their idle part. ``runs`` are the open ones; ``enforced``
        tells whether a run is in its class by its QOS."""
        now, begin = self._snapshot.now, self._snapshot.now - self._policy.window
        paid = [h for h in self._told() if h.payers(self._budget_of) and h.end > begin and h.start < now]
        if not paid:
            return ()
        first, last = max(begin, min(h.start for h in paid)), min(now, max(h.end for h in paid))
        ended = [run for run in self._ledger.runs_between(first, last) if run.end is not None]
        occupants = [
            o for run in (*ended, *runs) for o in self._occupants(run, enforced=run.end is None and enforced(run))
        ]
        cut = [replace(h, end=min(h.end, now)) for h in paid]
        out = self._out_by_node()
        return tuple(idle_uses(cut, occupants, self._pools, self._budget_of, self._belongs, out=out))

    def _occupants(self, run: RunFacts, *, enforced: bool) -> Iterator[Occupant]:
        """A run as it lies on its nodes, in the class that counts."""
        work_class = run.charged_as
        end = run.end
        if end is None:
            work_class = run.work_class if enforced else run.shadow
            end = self._snapshot.now if run.charged_to is None else run.charged_to
        for piece in pieces(run, end, work_class) if run.nodes else ():
            price = self._policy.run_on_price if piece.group.run_on else 1
            charged = int(piece.rate * price) if work_class is WorkClass.BACKED and run.budget is not None else 0
            yield Occupant(run.account, run.nodes, piece.begin, piece.end, piece.rate, charged)

    def _belongs(self, account: str, holder: str) -> bool:
        at: str | None = account
        seen_: set[str] = set()
        while at is not None and at != holder and at not in seen_:
            seen_.add(at)
            at = self._snapshot.parents.get(at)
        return at == holder
