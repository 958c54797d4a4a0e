"""The two schedulers of slurmctld, woken only when something has changed.

The *main* pass takes waiting jobs in order and stops, per partition, at the first that cannot start. *Backfill* looks
at more of them, at fixed intervals, and starts whatever does not delay the first ``planned_jobs`` that cannot start:
for these it plans the earliest time at which whole nodes are free by time limits (conservative for those few, as EASY
is for one; Slurm plans for all that it looks at). Both may preempt. An array's remainder preempts for one task at a
time, as Slurm does.
"""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from pyslurm_budget.simulate.events import Turn
from pyslurm_budget.simulate.place import find, give, need_of, parts, suits, take
from pyslurm_budget.simulate.preempt import candidate_nodes, victims
from pyslurm_budget.simulate.state import NEVER

if TYPE_CHECKING:
    from collections.abc import Container

    from pyslurm_budget.simulate.lifecycle import Lifecycle
    from pyslurm_budget.simulate.place import Need
    from pyslurm_budget.simulate.state import NodeState, Record, State

MESSAGE_TIMEOUT = 10
Plan = dict["NodeState", int]
Kind = tuple["Need", str, str, str | None]


class Scheduler:
    """Starts waiting jobs; ``wake`` is to be called whenever something may have become possible."""

    def __init__(self, state: State, lifecycle: Lifecycle) -> None:
        """Hooks itself into the lifecycle."""
        self._s = state
        self._life = lifecycle
        self._main_due = False
        self._backfill_due = False
        self._planned: Plan = {}
        self._to_plan: list[Record] = []
        lifecycle.on_change = self.wake

    def wake(self) -> None:
        """Let the main scheduler look soon."""
        if not self._main_due:
            self._main_due = True
            self._s.queue.at(self._s.now + self._s.settings.schedule_delay, Turn.MAIN, self._main)

    # --- the main pass

    def _main(self) -> None:
        s = self._s
        self._main_due = False
        s.passes += 1
        s.heads.clear()
        at = dict.fromkeys((name for name, keys in s.waiting.items() if keys), 0)
        closed: Plan = {}
        while True:
            at = {name: i for name, i in at.items() if i < len(s.waiting[name])}
            if not at:
                break
            name = min(at, key=lambda n: s.waiting[n][at[n]])
            record = s.records[s.waiting[name][at[name]][-1]]
            if not self._try(record, closed):
                if record.reservation is None:
                    s.heads[name] = record.job_id
                    closed.update(dict.fromkeys(s.partition_nodes[name], s.now))
                    del at[name]
                else:
                    at[name] += 1
        self._want_backfill()

    def _try(self, record: Record, closed: Plan) -> bool:
        """Start the record outside of the closed nodes, if it fits; else stop others for it, if that helps."""
        need = need_of(record.spec)
        shares = find(need, self._usable(record, need, closed))
        if shares is not None:
            self._life.start(record, shares)
            return True
        self._preempt(record, need, closed)
        return False

    def _preempt(self, record: Record, need: Need, planned: Plan) -> set[NodeState] | None:
        """Stop runs for the record; returns the nodes on which it will start. One round at a time."""
        s = self._s
        if record.preempting_until > s.now:
            return None
        back_in = candidate_nodes(s, record)
        if not back_in:
            return None
        found = victims(s, record, need, self._usable(record, need, planned, back_in))
        if found is None:
            return None
        again = s.settings.preempt_again
        wait = s.settings.kill_wait + MESSAGE_TIMEOUT if again is None else again
        record.preempting_until = s.now + wait
        s.queue.at(s.now + wait, Turn.TIMER, self.wake)
        for victim in found[0]:
            s.log("preempt", victim.ref, by=record.ref)
            self._life.interrupt(victim, "PREEMPTED")
        return found[1]

    def _usable(
        self, record: Record, need: Need, planned: Plan, back_in: Container[str] | None = None
    ) -> list[NodeState]:
        """Nodes of the partition where the record may start now, and would be over before what is planned there.

        With ``back_in``, also those that are full or completing, if they are in it: something may be stopped there.
        """
        s = self._s
        end = NEVER if record.limit is None else s.now + record.limit
        gpus = need.per_node or min(need.gpus, 1)
        blocks = s.settings.completing_blocks
        return [
            n
            for n in s.partition_nodes[record.partition]
            if (back_in is not None or (n.gpus >= gpus and n.cpus > 0))
            and n.up
            and not n.draining
            and not (blocks and n.completing and (back_in is None or n.name not in back_in))
            and planned.get(n, NEVER) >= end
            and (not (n.reservations or record.reservation) or self._reserved_for(n, record, end))
        ]

    def _reserved_for(self, node: NodeState, record: Record, end: int) -> bool:
        """Whether the node's reservations let the record run there until ``end``.

        Only jobs in a reservation may use its nodes, and only while it is active; all others must be over before.
        """
        now = self._s.now
        inside = record.reservation is None
        for reservation in node.reservations:
            if reservation.name == record.reservation:
                inside = reservation.start <= now < reservation.end
            elif reservation.start < end and now < reservation.end:
                return False
        return inside

    # --- backfill

    def _want_backfill(self) -> None:
        s = self._s
        if self._backfill_due or not any(s.waiting.values()):
            return
        self._backfill_due = True
        step = s.settings.backfill_interval
        s.queue.at(s.now + -(s.now - s.settings.start) % step, Turn.BACKFILL, self._backfill)

    def _backfill(self) -> None:
        s = self._s
        self._backfill_due = False
        self._planned, self._to_plan = {}, []
        failed: dict[Kind, int] = {}
        left = s.settings.planned_jobs
        for key in list(islice(merge(*s.waiting.values()), s.settings.backfill_depth)):
            record = s.records[key[-1]]
            limit = NEVER if record.limit is None else record.limit
            need = need_of(record.spec)
            kind = (need, record.partition, record.qos, record.reservation)
            if record.place != key or (not left and limit >= failed.get(kind, NEVER + 1)):
                continue
            if self._backfill_one(record, need):
                continue
            waits = record.preempting_until > s.now  # its room is being made: no sign that others find none
            if not waits:
                failed[kind] = min(limit, failed.get(kind, NEVER))
            if (left or waits) and record.reservation is None:
                self._to_plan.append(record)
                left -= not waits

    def _backfill_one(self, record: Record, need: Need) -> bool:
        """Start the record (of an array as many tasks as fit), or stop others for it."""
        started = False
        while record.place is not None:
            if find(need, self._usable(record, need, {})) is None:
                break
            shares = find(need, self._usable(record, need, self._plans()))
            if shares is None:
                break
            self._life.start(record, shares)
            started = True
        if record.place is None:
            return True
        if not candidate_nodes(self._s, record):
            return started
        coming = self._preempt(record, need, self._plans())
        if coming is not None:
            self._planned.update(dict.fromkeys(coming, self._s.now))
        return started or coming is not None

    def _plans(self) -> Plan:
        """What is planned for the jobs before this one; worked out only now that something could get in their way."""
        for record in self._to_plan:
            self._plan(record, need_of(record.spec))
        self._to_plan.clear()
        return self._planned

    def _plan(self, record: Record, need: Need) -> None:
        """Keep whole nodes for the record from the earliest time on at which they are free, if there is one."""
        planned = self._planned
        nodes = [
            n
            for n in self._s.partition_nodes[record.partition]
            if n.up and not n.draining and n not in planned and not n.reservations
        ]
        found = self._earliest_even(need, nodes) if need.even else self._earliest(need, nodes)
        if found is not None:
            planned.update(dict.fromkeys(found[1], found[0]))

    def _releases(self, node: NodeState) -> list[tuple[int, int, Record]]:
        """When each record gives the node back at the latest; one that should have by now may never do so."""
        now = self._s.now
        return sorted((r.ends if r.ends > now else NEVER, r.job_id, r) for r in node.records.values())

    def _earliest_even(self, need: Need, nodes: list[NodeState]) -> tuple[int, list[NodeState]] | None:
        """The nodes that are free for their part first, and when the last of them is."""
        gpus, cpus, memory = parts(need)
        times: list[tuple[int, int, NodeState]] = []
        now = self._s.now
        for node in nodes:
            spec = node.spec
            if not suits(need, spec):
                continue
            at, g, c, m = now, node.gpus - gpus, node.cpus - cpus, node.memory_mb - memory
            if g < 0 or c < 0 or m < 0:
                for at, _, record in self._releases(node):  # noqa: B007 (the last one is what is asked for)
                    share = next(x for x in record.holds if x.node == node.name)
                    g, c, m = g + share.gpus, c + share.cpus, m + share.memory_mb
                    if g >= 0 and c >= 0 and m >= 0:
                        break
            if g >= 0 and c >= 0 and m >= 0 and at < NEVER:
                times.append((at, node.index, node))
        times.sort()
        if len(times) < need.nodes:
            return None
        return times[need.nodes - 1][0], [node for _, _, node in times[: need.nodes]]

    def _earliest(self, need: Need, nodes: list[NodeState]) -> tuple[int, list[NodeState]] | None:
        """The same for GPUs asked in total: give back what ends, in order, until the need fits."""
        names = {n.name for n in nodes}
        ends = sorted({x for n in nodes for x in self._releases(n)})
        lent = []
        try:
            for at, _, record in ends:
                if at >= NEVER:
                    return None
                shares = tuple(x for x in record.holds if x.node in names)
                give(self._s.nodes, shares)
                lent.append(shares)
                placed = find(need, nodes)
                if placed is not None:
                    return at, [self._s.nodes[x.node] for x in placed]
            return None
        finally:
            for shares in lent:
                take(self._s.nodes, shares)
