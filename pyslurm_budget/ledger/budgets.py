"""The budget tree with its effective-dated shares, who changed it, and the map of classes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from pyslurm_budget.domain.budget import Budget, ShareLoan, ShareSince
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, upsert

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import Connection


class Budgets(Base):
    """The part of the ledger that says who is entitled to what."""

    def budgets(self) -> tuple[Budget, ...]:
        """The budget tree's nodes by account, each with its share history, oldest first."""
        with self._read() as connection:
            return self._budgets(connection)

    def _budgets(self, connection: Connection) -> tuple[Budget, ...]:
        b, s = tables.budget, tables.budget_share
        shares: dict[str, list[ShareSince]] = {}
        for row in connection.execute(select(s).where(s.c.cluster == self._cluster)):
            shares.setdefault(row.account, []).append(ShareSince(row.since, Fraction(row.share), row.pool))
        nodes = connection.execute(select(b).where(b.c.cluster == self._cluster)).all()
        return tuple(
            Budget(n.account, n.parent, _ordered(shares.get(n.account, ())), bool(n.borrow))
            for n in sorted(nodes, key=lambda n: str(n.account))
        )

    def save_budgets(self, budgets: Iterable[Budget], now: int, who: str, why: str) -> None:
        """Make this the tree; what changed is added to the history with who, when and why. The same tree again
        changes nothing."""
        new = {b.account: replace(b, shares=_ordered(b.shares)) for b in budgets}
        with self._begin() as connection:
            self._alone(connection, "budgets")
            changes = _changes({b.account: b for b in self._budgets(connection)}, new)
            if not changes:
                return
            self._replace(connection, new.values())
            entry = {"cluster": self._cluster, "at": now, "who": who, "why": why}
            connection.execute(insert(tables.budget_change), [{**entry, "change": change} for change in changes])

    def _replace(self, connection: Connection, new: Collection[Budget]) -> None:
        for table in (tables.budget, tables.budget_share):
            connection.execute(delete(table).where(table.c.cluster == self._cluster))
        own = {"cluster": self._cluster}
        nodes = [{**own, "account": b.account, "parent": b.parent, "borrow": b.borrow} for b in new]
        shares = [
            {**own, "account": b.account, "pool": s.pool, "since": s.since, "share": _text(s.share)}
            for b in new
            for s in b.shares
        ]
        for table, found in ((tables.budget, nodes), (tables.budget_share, shares)):
            if found:
                connection.execute(insert(table), found)

    def note_change(self, now: int, who: str, why: str, change: str) -> None:
        """Add one change to the history that no other method adds."""
        with self._begin() as connection:
            self._note(connection, now, who, why, change)

    def _note(self, connection: Connection, now: int, who: str, why: str, change: str) -> None:
        row = {"cluster": self._cluster, "at": now, "who": who, "why": why, "change": change}
        connection.execute(insert(tables.budget_change), [row])

    def share_loans(self, since: int = 0) -> tuple[ShareLoan, ...]:
        """Loans of shares that had not ended by ``since``, in the order in which they were made."""
        t = tables.share_loan
        query = select(t).where(t.c.cluster == self._cluster, t.c.until > since).order_by(t.c.id)
        with self._read() as connection:
            return tuple(
                ShareLoan(r.lender, r.borrower, Fraction(r.share), r.since, r.until, r.pool)
                for r in connection.execute(query)
            )

    def add_share_loan(self, loan: ShareLoan, now: int, who: str, why: str) -> None:
        """Add one, and tell it in the history."""
        row = {"lender": loan.lender, "borrower": loan.borrower, "pool": loan.pool, "share": _text(loan.share)}
        with self._begin() as connection:
            times = {"cluster": self._cluster, "since": loan.since, "until": loan.until}
            connection.execute(insert(tables.share_loan), [row | times])
            change = (
                f"{loan.lender} lends {loan.borrower} {_text(loan.share)} of their parent in pool {loan.pool} "
                f"from {loan.since} until {loan.until}"
            )
            self._note(connection, now, who, why, change)

    def budget_changes(self) -> tuple[tuple[int, str, str, str], ...]:
        """(when, who, why, what) of every change of the tree, oldest first."""
        t = tables.budget_change
        query = select(t).where(t.c.cluster == self._cluster).order_by(t.c.id)
        with self._read() as connection:
            return tuple((r.at, r.who, r.why, r.change) for r in connection.execute(query))

    def save_class_map(self, twins: Mapping[str, str], now: int) -> None:
        """Remember the class map in force from ``now`` on: what changed, and (without a twin) what ended."""
        with self._begin() as connection:
            self._alone(connection, "class_map")
            old = self._class_map(connection)
            changed = {name: twins.get(name) for name in {*old, *twins} if old.get(name) != twins.get(name)}
            rows = [{"cluster": self._cluster, "managed": m, "since": now, "twin": t} for m, t in changed.items()]
            upsert(connection, tables.class_map, rows)

    def class_map(self, when: int | None = None) -> dict[str, str]:
        """Managed QOS and their spare twins, as they are now or were at a time."""
        with self._read() as connection:
            return self._class_map(connection, when)

    def _class_map(self, connection: Connection, when: int | None = None) -> dict[str, str]:
        t = tables.class_map
        query = select(t).where(t.c.cluster == self._cluster).order_by(t.c.since)
        if when is not None:
            query = query.where(t.c.since <= when)
        newest: dict[str, str | None] = {row.managed: row.twin for row in connection.execute(query)}
        return {managed: twin for managed, twin in sorted(newest.items()) if twin is not None}


def _ordered(shares: Iterable[ShareSince]) -> tuple[ShareSince, ...]:
    """By time and pool; of two for the same pool and time the last one holds."""
    found = {(s.since, s.pool): s for s in shares}
    return tuple(found[key] for key in sorted(found))


def _text(share: Fraction) -> str:
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
        if budget.borrow != (before is not None and before.borrow):
            found.append(f"{account} may {'' if budget.borrow else 'not '}borrow")
        known = set(before.shares) if before else set()
        for share in budget.shares:
            if share not in known:
                found.append(f"share of {account} in pool {share.pool}: {_text(share.share)} from {share.since}")
        found.extend(
            f"forgotten: share of {account} in pool {s.pool} since {s.since}: {_text(s.share)}"
            for s in sorted(known - set(budget.shares), key=lambda s: (s.since, s.pool))
        )
    return found
