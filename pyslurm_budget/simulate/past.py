"""What slurmdbd would know of nodes and reservations: events of nodes that were down or drained, and holdings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.holding import Holding, NodeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyslurm_budget.domain.model import Reservation, RunRecord


class NodePast:
    """Takes every change of a node or reservation, and tells them as slurmdbd does (slurm-live sections 6 and 7)."""

    def __init__(self, rows: Callable[[], Iterable[RunRecord]]) -> None:
        """``rows`` reads all accounting rows: a drain is told of only from when the node is empty."""
        self._rows = rows
        self._changes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._holdings: dict[str, Holding] = {}
        self._over: list[Holding] = []

    def node(self, now: int, name: str, *, up: bool, draining: bool) -> None:
        """A node is in a new state."""
        self._changes[name].append((now, "DRAIN" if up and draining else "" if up else "DOWN"))

    def reserved(self, now: int, made: Reservation) -> None:
        """A reservation was made."""
        number = len(self._holdings) + len(self._over) + 1
        start = max(made.start, now)
        held = Holding(
            number, made.name, start, made.end, made.accounts, made.flags, made.nodes, made.gpus, made.cpus
        )
        self._holdings[made.name] = held

    def released(self, now: int, name: str) -> None:
        """It is over, or was deleted; of one that had not begun nothing is left."""
        held = self._holdings.pop(name)
        self._over.append(replace(held, end=max(held.start, min(held.end, now))))

    def events(self, since: int, until: int) -> tuple[NodeEvent, ...]:
        """Events that overlap [since, until)."""
        found = [event for name in sorted(self._changes) for event in self._events(name)]
        return tuple(e for e in found if e.start < until and (e.end is None or e.end >= since))

    def _events(self, name: str) -> Iterator[NodeEvent]:
        changes = self._changes[name]
        for i, (begin, state) in enumerate(changes):
            end = changes[i + 1][0] if i + 1 < len(changes) else None
            start: int | None = begin
            if state == "DRAIN":
                start = self._empty(name, begin)
            if state and start is not None and (end is None or start <= end):
                yield NodeEvent(name, start, end, state)

    def _empty(self, name: str, since: int) -> int | None:
        """When the last run that was there at ``since`` had ended."""
        found = since
        for row in self._rows():
            if name in row.nodes and row.start is not None and row.start <= since:
                if row.end is None:
                    return None
                found = max(found, row.end)
        return found

    def holdings(self, since: int, until: int) -> tuple[Holding, ...]:
        """Reservations that overlap [since, until)."""
        return tuple(h for h in (*self._over, *self._holdings.values()) if h.start < until and h.end >= since)
