"""The lease: one controller acts on a cluster at a time, on whichever host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, insert, select, update
from sqlalchemy.exc import IntegrityError

from pyslurm_budget.errors import LeaseHeldError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Lease(Base):
    """The part of the ledger that keeps two controllers apart."""

    def take_lease(self, holder: str, now: int, until: int) -> int:
        """Take or renew the lease: one conditional UPDATE, so that of two takers only one changes the row.

        The token grows whenever another holder takes it, and stays while one renews it.
        """
        t = tables.lease
        free = (t.c.until <= now) | (t.c.holder == holder)
        token = case((t.c.holder == holder, t.c.token), else_=t.c.token + 1)
        with self._begin() as connection:
            mine = t.c.cluster == self._cluster
            # MariaDB assigns from left to right and would compare with the new holder: the token comes first.
            new = ((t.c.token, token), (t.c.holder, holder), (t.c.until, until))
            taken = update(t).where(mine, free).ordered_values(*new)
            if connection.execute(taken).rowcount == 0 and not self._first_lease(connection, holder, until):
                row = connection.execute(select(t).where(mine)).first()
                raise LeaseHeldError(
                    f"another controller ({row.holder if row else 'unknown'}) holds the lease of cluster "
                    f"{self._cluster} until {row.until if row else now}; it expires by itself if that one has died"
                )
            return int(connection.execute(select(t.c.token).where(mine)).scalar_one())

    def _first_lease(self, connection: Connection, holder: str, until: int) -> bool:
        """Insert the row if there is none; false if somebody else did or holds it."""
        t = tables.lease
        if connection.execute(select(t).where(t.c.cluster == self._cluster)).first() is not None:
            return False
        try:
            with connection.begin_nested():
                connection.execute(insert(t).values(cluster=self._cluster, holder=holder, until=until, token=1))
        except IntegrityError:
            return False
        return True

    def drop_lease(self, holder: str) -> None:
        """Give the lease back; another holder's stays."""
        t = tables.lease
        with self._begin() as connection:
            connection.execute(update(t).where(t.c.cluster == self._cluster, t.c.holder == holder).values(until=0))
