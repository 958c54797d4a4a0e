"""Entries: amounts that are booked beside runs. They are added, and reversed by another entry, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, insert, or_, select

from pyslurm_budget.domain.credit import Credit
from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, chunks
from pyslurm_budget.service.counts import CREDIT, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Row

_PLAIN = ("at", "kind", "account", "pool", "amount", "begin", "end", "reverses", "who", "why")


class Entries(Base):
    """The part of the ledger that holds credits, and later grants, loans and corrections."""

    def add_entries(self, entries: Iterable[Entry]) -> int:
        """Add the entries that are not there; returns how many were. Of one kind a run has one entry."""
        t = tables.entry
        added = 0
        with self._begin() as connection:
            self._alone(connection, "entries")
            for chunk in chunks(entries):
                known = self._known_entries(connection, chunk)
                new = {(e.kind, e.key): e for e in chunk if e.key is not None and (e.kind, e.key) not in known}
                wanted = [*new.values(), *(e for e in chunk if e.key is None)]
                if wanted:
                    connection.execute(insert(t), [_row(self._cluster, entry) for entry in wanted])
                added += len(wanted)
        return added

    def _known_entries(self, connection: Connection, entries: list[Entry]) -> set[tuple[str, RunKey | None]]:
        t, ids = tables.entry, {e.key.job_id for e in entries if e.key is not None}
        query = select(t).where(t.c.cluster == self._cluster, t.c.job_id.in_(ids))
        return {(e.kind, e.key) for e in map(_entry, connection.execute(query))}

    def entries_of(self, keys: Iterable[RunKey]) -> tuple[Entry, ...]:
        """The entries of these runs, oldest first."""
        t, found = tables.entry, []
        with self._read() as connection:
            for chunk in chunks(set(keys)):
                wanted = set(chunk)
                query = select(t).where(t.c.cluster == self._cluster, t.c.job_id.in_({k.job_id for k in wanted}))
                found += [e for e in map(_entry, connection.execute(query)) if e.key in wanted]
        return tuple(sorted(found, key=lambda e: e.id or 0))

    def credits(self, since: int) -> tuple[Credit, ...]:
        """Credits of time after ``since`` that were not reversed, with the user of their runs."""
        t, r = tables.entry, tables.run
        reversing = t.alias()
        of_run = and_(r.c.cluster == t.c.cluster, r.c.job_id == t.c.job_id, r.c.submit == t.c.submit)
        taken_back = select(reversing.c.id).where(
            reversing.c.cluster == t.c.cluster, reversing.c.reverses == t.c.id
        )  # fmt: skip
        query = (
            select(t, r.c.user, r.c.protected_until)
            .select_from(t.outerjoin(r, of_run))
            .where(
                t.c.cluster == self._cluster,
                or_(t.c.kind == CREDIT, t.c.kind.like(f"{CREDIT}-%")),
                t.c.end > since,
                ~taken_back.exists(),
            )
            .order_by(t.c.id)
        )
        with self._read() as connection:
            return tuple(map(_credit, connection.execute(query)))


def _row(cluster: str, entry: Entry) -> dict[str, Any]:
    key = entry.key
    row: dict[str, Any] = {name: getattr(entry, name) for name in _PLAIN}
    return row | {"cluster": cluster, "job_id": key and key.job_id, "submit": key and key.submit}


def _entry(row: Row[Any]) -> Entry:
    m = row._mapping
    key = None if m["job_id"] is None or m["submit"] is None else RunKey(m["job_id"], m["submit"])
    return Entry(id=m["id"], key=key, **{name: m[name] for name in _PLAIN})


def _credit(row: Row[Any]) -> Credit:
    m = row._mapping
    run_on = m["protected_until"] is not None and m["begin"] >= m["protected_until"]
    return Credit(m["account"], m["user"] or "", m["pool"], run_on, m["amount"], m["begin"], m["end"])
