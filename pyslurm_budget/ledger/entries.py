"""Entries: amounts that are booked beside runs. They are added, and reversed by another entry, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, or_, select

from pyslurm_budget.domain.credit import Credit
from pyslurm_budget.domain.grant import Booking, Grant
from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, chunks, upsert
from pyslurm_budget.service.counts import CREDIT, GRANT, LOAN, RECALL, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Row

_PLAIN = ("at", "kind", "account", "pool", "amount", "begin", "end", "reverses", "who", "why", "lender")


class Entries(Base):
    """The part of the ledger that holds credits, grants and loans, and what is booked of these."""

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

    def entries(self, kinds: Iterable[str]) -> tuple[Entry, ...]:
        """All entries of these kinds, oldest first."""
        with self._read() as connection:
            return self._entries(connection, kinds)

    def _entries(self, connection: Connection, kinds: Iterable[str]) -> tuple[Entry, ...]:
        t = tables.entry
        query = select(t).where(t.c.cluster == self._cluster, t.c.kind.in_(list(kinds))).order_by(t.c.id)
        return tuple(map(_entry, connection.execute(query)))

    def grants(self, since: int) -> tuple[Grant, ...]:
        """Grants and loans that had not ended by ``since``, with what is booked of each; a recall is an end."""
        b = tables.booking.c
        booked = select(b.entry, func.sum(b.amount)).where(b.cluster == self._cluster).group_by(b.entry)
        with self._read() as connection:
            known = self._entries(connection, (GRANT, LOAN, RECALL))
            used = {entry: int(amount) for entry, amount in connection.execute(booked)}
        ends = {e.reverses: e.at for e in known if e.kind == RECALL}
        found = (_grant(e, ends.get(e.id), used.get(e.id or 0, 0)) for e in known if e.kind != RECALL)
        return tuple(g for g in found if g.end is None or g.end > since)

    def bookings(self, since: int) -> tuple[Booking, ...]:
        """What is booked for time after ``since``."""
        t = tables.booking
        query = select(t).where(t.c.cluster == self._cluster, t.c.end > since).order_by(t.c.begin, t.c.entry)
        with self._read() as connection:
            return tuple(
                Booking(r.entry, r.account, r.pool, r.begin, r.end, r.amount, r.lender)
                for r in connection.execute(query)
            )

    def add_bookings(self, bookings: Iterable[Booking]) -> None:
        """Book; what is booked for the same hour of the same grant already is added to."""
        with self._begin() as connection:
            for chunk in chunks(bookings):
                upsert(connection, tables.booking, [_booked(self._cluster, b) for b in chunk], adding=("amount",))

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


def _grant(entry: Entry, recalled: int | None, booked: int) -> Grant:
    ends = [end for end in (entry.end, recalled) if end is not None]
    end = min(ends, default=None)
    return Grant(entry.id or 0, entry.account, entry.pool, entry.amount, entry.begin, end, entry.lender, booked)


def _booked(cluster: str, b: Booking) -> dict[str, Any]:
    key = {"cluster": cluster, "entry": b.grant, "account": b.budget, "pool": b.pool, "begin": b.begin}
    return key | {"end": b.end, "amount": b.amount, "lender": b.lender}


def _credit(row: Row[Any]) -> Credit:
    m = row._mapping
    run_on = m["protected_until"] is not None and m["begin"] >= m["protected_until"]
    return Credit(m["account"], m["user"] or "", m["pool"], run_on, m["amount"], m["begin"], m["end"])
