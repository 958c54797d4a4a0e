"""The ledger of one cluster over a database URL: all that :class:`pyslurm_budget.service.ports.Ledger` asks."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from pyslurm_budget.domain.budget import Budget, ShareSince
from pyslurm_budget.errors import LeaseHeldError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.decisions import Decisions
from pyslurm_budget.ledger.engine import open_engine
from pyslurm_budget.ledger.migrate import require_current
from pyslurm_budget.ledger.runs import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection


class SqlLedger(Facts, Decisions):
    """Opens the ledger; raises LedgerError if it cannot be reached or has another release's schema."""

    def __init__(self, url: str, cluster: str) -> None:
        """``url`` as SQLAlchemy takes it; an SQLite file that does not exist is made."""
        engine = open_engine(url)
        require_current(engine)
        super().__init__(engine, cluster)

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    def take_lease(self, holder: str, now: int, until: int) -> int:
        """Take or renew the lease: one conditional UPDATE, so that of two takers only one changes the row."""
        t = tables.lease
        free = (t.c.until <= now) | (t.c.holder == holder)
        with self._begin() as connection:
            mine = t.c.cluster == self._cluster
            taken = update(t).where(mine, free).values(holder=holder, until=until, token=t.c.token + 1)
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
        """Give the lease back."""
        t = tables.lease
        with self._begin() as connection:
            connection.execute(update(t).where(t.c.cluster == self._cluster, t.c.holder == holder).values(until=0))

    def budgets(self) -> tuple[Budget, ...]:
        """The budget tree's nodes with their share history."""
        b, s = tables.budget, tables.budget_share
        with self._begin() as connection:
            nodes = connection.execute(select(b).where(b.c.cluster == self._cluster).order_by(b.c.account)).all()
            shares: dict[str, list[ShareSince]] = {}
            query = select(s).where(s.c.cluster == self._cluster).order_by(s.c.since, s.c.pool)
            for row in connection.execute(query):
                shares.setdefault(row.account, []).append(ShareSince(row.since, Fraction(row.share), row.pool))
        return tuple(Budget(n.account, n.parent, tuple(shares.get(n.account, ()))) for n in nodes)

    def save_budgets(self, budgets: Iterable[Budget], now: int, who: str, why: str) -> None:
        """Make this the tree; what changed is added to the history with who, when and why."""
        new = {b.account: b for b in budgets}
        old = {b.account: b for b in self.budgets()}
        changes = _changes(old, new)
        if not changes:
            return
        where = self._cluster
        with self._begin() as connection:
            for table in (tables.budget, tables.budget_share):
                connection.execute(delete(table).where(table.c.cluster == where))
            for budget in new.values():
                values = {"cluster": where, "account": budget.account, "parent": budget.parent}
                connection.execute(insert(tables.budget).values(values))
                for share in {(s.pool, s.since): s for s in budget.shares}.values():
                    row = {"cluster": where, "account": budget.account, "pool": share.pool, "since": share.since}
                    connection.execute(insert(tables.budget_share).values({**row, "share": _fraction(share.share)}))
            entry = {"cluster": where, "at": now, "who": who, "why": why}
            for change in changes:
                connection.execute(insert(tables.budget_change).values({**entry, "change": change}))

    def budget_changes(self) -> tuple[tuple[int, str, str, str], ...]:
        """(when, who, why, what) of every change of the tree, oldest first."""
        t = tables.budget_change
        query = select(t).where(t.c.cluster == self._cluster).order_by(t.c.id)
        with self._begin() as connection:
            return tuple((r.at, r.who, r.why, r.change) for r in connection.execute(query))

    def save_class_map(self, twins: Mapping[str, str], now: int) -> None:
        """Remember the class map in force from now on, if it is another than before."""
        t = tables.class_map
        if self.class_map() == dict(twins):
            return
        with self._begin() as connection:
            connection.execute(delete(t).where(t.c.cluster == self._cluster, t.c.since == now))
            for managed, twin in twins.items():
                values = {"cluster": self._cluster, "managed": managed, "since": now, "twin": twin}
                connection.execute(insert(t).values(values))

    def class_map(self) -> dict[str, str]:
        """The class map in force: managed QOS and their twins."""
        t = tables.class_map
        query = select(t).where(t.c.cluster == self._cluster).order_by(t.c.since)
        with self._begin() as connection:
            found = connection.execute(query).all()
        newest = max((row.since for row in found), default=0)
        return {row.managed: row.twin for row in found if row.since == newest}


def _fraction(share: Fraction) -> str:
    return f"{share.numerator}/{share.denominator}"


def _changes(old: Mapping[str, Budget], new: Mapping[str, Budget]) -> list[str]:
    """One line for every difference of the two trees."""
    found = [f"removed {account}" for account in old if account not in new]
    for account, budget in new.items():
        before = old.get(account)
        if before is None:
            found.append(f"added {account} below {budget.parent or 'the top'}")
        elif before.parent != budget.parent:
            found.append(f"moved {account} from {before.parent or 'the top'} to {budget.parent or 'the top'}")
        known = set(before.shares) if before else set()
        for share in budget.shares:
            if share not in known:
                found.append(f"share of {account} in pool {share.pool}: {_fraction(share.share)} from {share.since}")
        found.extend(
            f"forgotten: share of {account} in pool {s.pool} since {s.since}"
            for s in sorted(known - set(budget.shares), key=lambda s: (s.since, s.pool))
        )
    return found
