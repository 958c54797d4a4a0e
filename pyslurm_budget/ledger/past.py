"""Node events and reservations, as slurmdbd and slurmctld told of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, or_, select

from pyslurm_budget.domain.holding import Holding, NodeEvent
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, chunks, upsert

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Row

SOURCE = "nodes"
_LISTS = ("accounts", "nodes")


class Past(Base):
    """The part of the ledger that knows nodes at other times than now."""

    def save_past(self, events: Iterable[NodeEvent], holdings: Iterable[Holding], since: int, until: int) -> None:
        """Replace what slurmdbd told of [since, until) by this: its history is not immutable."""
        e, r = tables.node_event, tables.reservation
        with self._begin() as connection:
            open_ = (e.c.cluster == self._cluster, e.c.start < until, or_(e.c.end.is_(None), e.c.end >= since))
            connection.execute(delete(e).where(*open_))
            for chunk in chunks({(x.node, x.start): x for x in events}.values()):
                upsert(connection, e, [{"cluster": self._cluster, **asdict(event)} for event in chunk])
            told = (r.c.cluster == self._cluster, r.c.id >= 0, r.c.start < until, r.c.end >= since)
            connection.execute(delete(r).where(*told))
            self._save_holdings(connection, holdings)
            read = {"watermark": until, "as_of": until, "complete": True}
            upsert(connection, tables.sync, [{"cluster": self._cluster, "source": SOURCE, **read}])

    def past_read(self) -> int | None:
        """Up to when it was read."""
        t = tables.sync
        query = select(t.c.watermark).where(t.c.cluster == self._cluster, t.c.source == SOURCE)
        with self._read() as connection:
            found: int | None = connection.execute(query).scalar()
        return found

    def save_holdings(self, holdings: Iterable[Holding]) -> None:
        """Insert or replace."""
        with self._begin() as connection:
            self._save_holdings(connection, holdings)

    def _save_holdings(self, connection: Connection, holdings: Iterable[Holding]) -> None:
        for chunk in chunks({(h.id, h.start): h for h in holdings}.values()):
            upsert(connection, tables.reservation, [_row(self._cluster, holding) for holding in chunk])

    def node_events(self, since: int) -> tuple[NodeEvent, ...]:
        """Events that had not ended by ``since``, by node and time."""
        t = tables.node_event
        query = select(t).where(t.c.cluster == self._cluster, or_(t.c.end.is_(None), t.c.end > since))
        with self._read() as connection:
            found = [NodeEvent(r.node, r.start, r.end, r.state, r.reason) for r in connection.execute(query)]
        return tuple(sorted(found, key=lambda event: (event.node, event.start)))

    def holdings(self, since: int) -> tuple[Holding, ...]:
        """Holdings that had not ended by ``since``, by start and id."""
        t = tables.reservation
        query = select(t).where(t.c.cluster == self._cluster, t.c.end > since)
        with self._read() as connection:
            found = [_holding(row) for row in connection.execute(query)]
        return tuple(sorted(found, key=lambda holding: (holding.start, holding.id)))


def _row(cluster: str, holding: Holding) -> dict[str, Any]:
    row = asdict(holding) | {name: json.dumps(getattr(holding, name)) for name in _LISTS}
    del row["cpus"]
    held = json.dumps({"gpus": holding.gpus, "cpus": holding.cpus})
    return row | {"cluster": cluster, "flags": ",".join(holding.flags)[:255], "gpus": held}


def _holding(row: Row[Any]) -> Holding:
    m = row._mapping
    accounts, nodes = (tuple(json.loads(m[name])) for name in _LISTS)
    flags = tuple(flag for flag in m["flags"].split(",") if flag)
    held = json.loads(m["gpus"])
    return Holding(m["id"], m["name"], m["start"], m["end"], accounts, flags, nodes, held["gpus"], held["cpus"])
