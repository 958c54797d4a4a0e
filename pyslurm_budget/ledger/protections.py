"""Protections of single jobs: who granted them, why, until when, and who took them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, or_, select, update

from pyslurm_budget.domain.exempt import Protection
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

_PLAIN = ("ref", "job_id", "at", "until", "who", "why", "ended", "ended_by")


class Protections(Base):
    """The part of the ledger that holds what :class:`pyslurm_budget.service.protections.ProtectionLedger` asks."""

    def add_protection(self, protection: Protection) -> None:
        """Add one; an earlier one of the job that is in force ends at the same moment."""
        p = protection
        with self._begin() as connection:
            self._alone(connection, "protections")
            self._end(connection, p.ref, p.at, p.who)
            row = {name: getattr(p, name) for name in _PLAIN}
            connection.execute(insert(tables.protection).values({"cluster": self._cluster, **row}))

    def end_protection(self, ref: str, now: int, who: str) -> int:
        """End those of the job that are in force."""
        with self._begin() as connection:
            self._alone(connection, "protections")
            return self._end(connection, ref, now, who)

    def _end(self, connection: Connection, ref: str, now: int, who: str) -> int:
        c = tables.protection.c
        where = (c.cluster == self._cluster, named(ref, c.ref, c.job_id), c.ended.is_(None), c.until > now)
        ended = update(tables.protection).where(*where).values(ended=now, ended_by=who)
        return int(connection.execute(ended).rowcount)

    def protections(self, *, since: int | None = None, refs: Iterable[str] | None = None) -> tuple[Protection, ...]:
        """Those that were in force after ``since``, or of these jobs; without both all, oldest first."""
        c = tables.protection.c
        query = select(tables.protection).where(c.cluster == self._cluster).order_by(c.id)
        if since is not None:
            query = query.where(c.until > since, or_(c.ended.is_(None), c.ended > since))
        if refs is not None:
            query = query.where(c.ref.in_(list(refs)))
        with self._read() as connection:
            found = connection.execute(query).all()
        return tuple(Protection(*(row._mapping[name] for name in _PLAIN)) for row in found)
