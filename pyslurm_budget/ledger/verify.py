"""What must hold in a ledger, and what of it can be computed again (``sbudget db verify``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, or_, select

from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.rollup import Rollup
from pyslurm_budget.ledger.runs import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

DAY = 24 * 3600
CLOCK_SKEW = 300


class Checks(Rollup):
    """The part of the ledger that looks at itself."""

    def verify(self, now: int) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
        """Look at everything; returns how many rows of what were looked at, and for each that is wrong where that is
        and a sentence. ``now`` is the time of this host."""
        cells, wrong = self.verify_usage()
        found = [("usage", says) for says in wrong]
        with self._read() as connection:
            looked = {"cells": cells} | {
                table.name + "s": int(connection.execute(query).scalar() or 0)
                for table in (tables.run, tables.contract)
                for query in [select(func.count()).select_from(table).where(table.c.cluster == self._cluster)]
            }
            checks: dict[str, Callable[[Connection], Iterator[str]]] = {
                "usage": self._lost_groups,
                "run": self._bad_runs,
                "contract": self._bad_contracts,
                "sync": lambda connection: self._bad_sync(connection, now),
                "budget": self._bad_budgets,
            }
            for name, check in checks.items():
                found += [(name, says) for says in check(connection)]
        return looked, tuple(found)

    def _lost_groups(self, connection: Connection) -> Iterator[str]:
        t, g = tables.usage_hour.c, tables.usage_group.c
        known = select(g.id).where(g.cluster == self._cluster)
        lost = select(t.group_id, func.count()).where(t.cluster == self._cluster, t.group_id.not_in(known))
        for group, count in connection.execute(lost.group_by(t.group_id).order_by(t.group_id)):
            yield f"{count} cells of usage belong to group {group}, which does not exist"

    def _bad_runs(self, connection: Connection) -> Iterator[str]:
        c = tables.run.c
        wrong = {
            "ends before it starts": c.end < c.start,
            "holds less than no GPUs": or_(c.gpus < 0, c.rate < 0),
        }
        for says, condition in wrong.items():
            query = select(c.job_ref, c.submit).where(c.cluster == self._cluster, condition)
            for ref, submit in connection.execute(query.order_by(c.submit, c.job_id)):
                yield f"run of job {ref}, submitted at {submit}, {says}"

    def _bad_contracts(self, connection: Connection) -> Iterator[str]:
        """A run may be missing while accounting cannot be read, and after it was archived and deleted."""
        t, r = tables.contract.c, tables.run.c
        same = and_(r.cluster == t.cluster, r.job_id == t.job_id, r.submit == t.submit)
        joined = select(t.ref, t.submit).select_from(tables.contract.outerjoin(tables.run, same))
        mine = joined.where(t.cluster == self._cluster).order_by(t.submit, t.job_id)
        s = tables.sync.c
        read = connection.execute(select(s.as_of).where(s.cluster == self._cluster, s.source == SOURCE)).scalar()
        missing = and_(r.job_id.is_(None), t.start >= (self._archived(connection) or 0), t.start < (read or 0) - DAY)
        wrong = {
            "has no run": missing,
            "is not noted in its run, whose usage is told apart by it": or_(
                r.protected_until != t.protected_until, and_(r.job_id.is_not(None), r.protected_until.is_(None))
            ),
        }
        for says, condition in wrong.items():
            for ref, submit in connection.execute(mine.where(condition)):
                yield f"contract of job {ref}, submitted at {submit}, {says}"

    def _bad_sync(self, connection: Connection, now: int) -> Iterator[str]:
        s, r = tables.sync.c, tables.run.c
        row = connection.execute(select(s.watermark, s.as_of).where(s.cluster == self._cluster, s.source == SOURCE))
        found = row.first()
        if found is None:
            if connection.execute(select(r.job_id).where(r.cluster == self._cluster).limit(1)).first() is not None:
                yield "there are runs, but no read of accounting was ever finished; run sbudget sync"
        elif max(found) > now + CLOCK_SKEW:
            yield "accounting was read until a time that has not come yet; runs may be missing: is a clock wrong?"

    def _bad_budgets(self, connection: Connection) -> Iterator[str]:
        b, s = tables.budget.c, tables.budget_share.c
        known = select(b.account).where(b.cluster == self._cluster)
        orphans = select(b.account, b.parent).where(b.cluster == self._cluster, b.parent.not_in(known))
        for account, parent in connection.execute(orphans.order_by(b.account)):
            yield f"budget {account} is below {parent}, which does not exist"
        shares = select(s.account).where(s.cluster == self._cluster, s.account.not_in(known)).distinct()
        for account in connection.execute(shares.order_by(s.account)).scalars():
            yield f"there are shares of budget {account}, which does not exist"
