"""Nodes and reservations of a simulated cluster: drains, failures, hanging nodes, holds on nodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState, Reservation
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.events import Turn
from pyslurm_budget.simulate.lifecycle import HELD_BY_RESERVATION
from pyslurm_budget.simulate.past import NodePast

if TYPE_CHECKING:
    from pyslurm_budget.simulate.lifecycle import Lifecycle
    from pyslurm_budget.simulate.state import NodeState, State

OURS = "sbudget_"
EVER = 1 << 40


class Site:
    """What operators and accidents do to nodes."""

    def __init__(self, state: State, lifecycle: Lifecycle) -> None:
        """Acts on the state through the lifecycle."""
        self._s = state
        self._life = lifecycle
        self.past = NodePast(lambda: state.rows.read(state.now, 0, EVER))

    def drain(self, name: str, reason: str) -> None:
        """Start nothing more there; running work stays."""
        self._set(self.node(name), "drain", draining=True, reason=reason)

    def resume(self, name: str) -> None:
        """Take work again."""
        self._set(self.node(name), "resume", draining=False, reason="")

    def fail(self, name: str, reason: str) -> None:
        """The node dies: its runs end with NODE_FAIL, and what can be requeued is."""
        node = self.node(name)
        if not node.up:
            return
        node.up = False
        node.hangs = False
        self._set(node, "down", draining=node.draining, reason=reason)
        for record in list(node.records.values()):
            if record.state in (JobState.RUNNING, JobState.SUSPENDED):
                self._life.interrupt(record, "NODE_FAIL")
        for record in list(node.records.values()):
            for share in [s for s in record.holds if s.node == name]:
                self._life.free(record, share)
            self._life.settle(record)

    def recover(self, name: str) -> None:
        """The node is back."""
        node = self.node(name)
        node.up = True
        self._set(node, "up", draining=node.draining, reason=node.reason if node.draining else "")

    def hang(self, name: str, *, hangs: bool) -> None:
        """A node that hangs never ends a completing job; when it no longer does, it ends them at once."""
        node = self.node(name)
        node.hangs = hangs
        self._s.log("node", name, state="hangs" if hangs else "moves")
        if not hangs:
            for record in list(node.records.values()):
                if record.completing and record.ends <= self._s.now:
                    self._life.complete(record)

    def node(self, name: str) -> NodeState:
        """A node by name; raises SlurmRefusedError for one that Slurm does not know."""
        try:
            return self._s.nodes[name]
        except KeyError:
            raise SlurmRefusedError(f"node {name}: Invalid node name specified") from None

    def _set(self, node: NodeState, state: str, *, draining: bool, reason: str) -> None:
        node.draining, node.reason = draining, reason
        node.reason_since = self._s.now if reason else None
        self._s.log("node", node.name, state=state, reason=reason)
        self.past.node(self._s.now, node.name, up=node.up, draining=draining)
        self._life.on_change()

    # --- reservations

    def reserve(
        self, name: str, nodes: tuple[str, ...], start: int, end: int, accounts: tuple[str, ...], *, idle: int | None
    ) -> None:
        """Create a reservation over nodes that may be busy (Flags=IGNORE_JOBS); with ``idle`` it goes by itself when
        no job is in it for so long after its start (PURGE_COMP)."""
        s = self._s
        if name in s.reservations:
            raise SlurmRefusedError(f"reservation {name}: Requested reservation is invalid: it exists already")
        if end <= max(start, s.now):
            raise SlurmRefusedError(f"reservation {name}: Invalid time specified: its end {end} is not to come")
        made = Reservation(name, nodes, start, end, accounts, ("IGNORE_JOBS",), ours=name.startswith(OURS))
        found = [self.node(n) for n in nodes]
        s.reservations[name] = made
        self.past.reserved(s.now, made)
        for node in found:
            node.reservations.append(made)
        s.log("reservation", name, state="made", nodes=",".join(nodes), start=start, end=end)
        s.queue.at(max(start, s.now), Turn.TIMER, self._life.on_change)
        s.queue.at(end, Turn.TIMER, partial(self._over, made))
        if idle is not None:
            s.queue.at(max(start, s.now) + idle, Turn.TIMER, partial(self._purge, made, idle))

    def _used(self, name: str) -> bool:
        """Whether a live job, running or waiting, is in a reservation."""
        return any(r.reservation == name and r.state is not JobState.OTHER for r in self._s.records.values())

    def _purge(self, reservation: Reservation, idle: int) -> None:
        """Slurm looks now and then: it goes at the latest two times ``idle`` after the last job left it."""
        if self._s.reservations.get(reservation.name) is not reservation:
            return
        if self._used(reservation.name):
            self._s.queue.at(self._s.now + idle, Turn.TIMER, partial(self._purge, reservation, idle))
        else:
            self._remove(reservation)

    def release(self, name: str) -> None:
        """Delete a reservation; refused while a live job is in it (measured on 22.05.8)."""
        found = self._s.reservations.get(name)
        if found is None:
            return
        if self._used(name):
            raise SlurmRefusedError(f"reservation {name}: Requested reservation is in use")
        self._remove(found)

    def _over(self, reservation: Reservation) -> None:
        """A reservation's end: jobs still in it are killed, those that wait for it held (slurm-live section 11.8)."""
        if self._s.reservations.get(reservation.name) is not reservation:
            return
        for record in list(self._s.records.values()):
            if record.reservation != reservation.name:
                continue
            record.reservation = None
            if record.state in (JobState.RUNNING, JobState.SUSPENDED):
                self._life.stop(record, "TIMEOUT", kill=True)
            elif record.state is JobState.PENDING:
                record.held = HELD_BY_RESERVATION
                self._life.refresh(record)
        self._remove(reservation)

    def _remove(self, reservation: Reservation) -> None:
        del self._s.reservations[reservation.name]
        self.past.released(self._s.now, reservation.name)
        for name in reservation.nodes:
            self._s.nodes[name].reservations.remove(reservation)
        self._s.log("reservation", reservation.name, state="over")
        self._life.on_change()
