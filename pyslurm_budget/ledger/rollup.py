"""Usage of ended runs by hour and by day, kept exact by deltas, and what is read from it (``domain.usage``).

Runs that have no end yet are not in it: they are few, and are counted from their rows.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import astuple
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, select

from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.usage import DAY, HOUR, Group, cells
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.base import Base, chunks, upsert
from pyslurm_budget.service.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Engine

    from pyslurm_budget.service.ports import RunFacts

Address = tuple[int, int, Group]
Amounts = dict[Address, list[int]]
COUNTED = ("gpu_seconds", "charge", "gpus_at", "rate_at")


def add_run(amounts: Amounts, run: RunFacts, sign: int) -> None:
    """Add (or with -1 take away) what an ended run adds to each cell; a run without an end adds nothing."""
    if run.end is None:
        return
    for piece in pieces(run, run.end, run.charged_as):
        for span, at, cell in cells(piece):
            total = amounts[span, at, piece.group]
            for i, amount in enumerate(cell):
                total[i] += sign * amount


def no_amounts() -> Amounts:
    """An empty sheet."""
    return defaultdict(lambda: [0, 0, 0, 0])


class Rollup(Base):
    """The part of the ledger that knows usage by hour."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        """Ids of groups are remembered as long as the ledger is open."""
        super().__init__(engine, cluster)
        self._groups: dict[Group, int] = {}

    def _add_amounts(self, connection: Connection, amounts: Amounts) -> None:
        """Add the amounts to their cells, in the transaction that changes the runs."""
        changed = {address: cell for address, cell in amounts.items() if any(cell)}
        ids = self._ids(connection, {group for _, _, group in changed})
        for chunk in chunks(sorted((span, at, ids[group], cell) for (span, at, group), cell in changed.items())):
            new = [
                {"cluster": self._cluster, "span": span, "at": at, "group_id": group}
                | dict(zip(COUNTED, cell, strict=True))
                for span, at, group, cell in chunk
            ]
            upsert(connection, tables.usage_hour, new, adding=COUNTED)

    def _ids(self, connection: Connection, groups: Iterable[Group]) -> dict[Group, int]:
        """Ids of the groups; new ones are made. The caller holds the lock of the runs."""
        missing = [group for group in groups if group not in self._groups]
        if missing:
            found = self._find(connection, missing)
            new = [group for group in missing if group not in found]
            if new:
                connection.execute(tables.usage_group.insert(), [self._group_row(group) for group in new])
                found |= self._find(connection, new)
            self._groups |= found
        return self._groups

    def _find(self, connection: Connection, groups: Iterable[Group]) -> dict[Group, int]:
        t = tables.usage_group
        found: dict[Group, int] = {}
        for chunk in chunks(groups):
            by_digest = {digest(group): group for group in chunk}
            query = select(t.c.id, t.c.digest).where(t.c.cluster == self._cluster, t.c.digest.in_(by_digest))
            found |= {by_digest[row.digest]: row.id for row in connection.execute(query)}
        return found

    def _group_row(self, group: Group) -> dict[str, object]:
        row = dict(zip(Group.__dataclass_fields__, astuple(group), strict=True))
        return row | {"cluster": self._cluster, "digest": digest(group), "charged_as": str(group.charged_as)}

    def _group_names(self, connection: Connection) -> Mapping[int, Group]:
        t = tables.usage_group
        return {
            r.id: Group(r.budget, r.account, r.user, r.qos, r.pool, r.flavor, WorkClass(r.charged_as), r.run_on)
            for r in connection.execute(select(t).where(t.c.cluster == self._cluster))
        }

    def verify_usage(self) -> tuple[int, tuple[str, ...]]:
        """Recompute every cell from the runs, month by month; returns how many were looked at, and a sentence for
        each that is wrong."""
        wrong: list[str] = []
        looked = 0
        with self._read() as connection:
            names = self._group_names(connection)
            for begin, end in self._months(connection):
                kept = self._kept(connection, names, begin, end)
                right = self._recounted(connection, begin, end)
                looked += len(kept | right)
                for address in sorted(kept.keys() | right.keys(), key=str):
                    if kept.get(address, (0, 0, 0, 0)) != right.get(address, (0, 0, 0, 0)):
                        wrong.append(_sentence(address, kept.get(address), right.get(address)))
        return looked, tuple(wrong)

    def rebuild_usage(self) -> None:
        """Count everything anew from the runs, in one transaction."""
        self._groups.clear()
        with self._begin() as connection:
            self._alone(connection, "runs")
            self.rebuild_usage_in(connection)

    def rebuild_usage_in(self, connection: Connection) -> None:
        """The same inside a transaction of the caller."""
        t = tables.usage_hour
        connection.execute(delete(t).where(t.c.cluster == self._cluster))
        for begin, end in self._months(connection):
            amounts = no_amounts()
            for address, cell in self._recounted(connection, begin, end).items():
                amounts[address] = list(cell)
            self._add_amounts(connection, amounts)

    def _months(self, connection: Connection) -> Iterator[tuple[int, int]]:
        """Periods of 30 UTC days that cover all runs and all cells."""
        c, u = tables.run.c, tables.usage_hour.c
        edges: list[int] = []
        for column in (c.start, c.end):
            query = select(column).where(c.cluster == self._cluster, column.is_not(None))
            edges += connection.execute(query.order_by(column).limit(1)).scalars()
            edges += connection.execute(query.order_by(column.desc()).limit(1)).scalars()
        kept = select(u.at).where(u.cluster == self._cluster)
        edges += connection.execute(kept.order_by(u.at).limit(1)).scalars()
        edges += connection.execute(kept.order_by(u.at.desc()).limit(1)).scalars()
        if edges:
            step = 30 * DAY
            first = min(edges)
            for begin in range(first - first % DAY, max(edges) + 1, step):
                yield begin, begin + step

    def _kept(
        self, connection: Connection, names: Mapping[int, Group], begin: int, end: int
    ) -> dict[Address, tuple[int, ...]]:
        t = tables.usage_hour
        query = select(t).where(t.c.cluster == self._cluster, t.c.at >= begin, t.c.at < end)
        found: dict[Address, tuple[int, ...]] = {}
        for r in connection.execute(query.where(t.c.span.in_((HOUR, DAY)))):
            cell = (r.gpu_seconds, r.charge, r.gpus_at, r.rate_at)
            if any(cell):
                found[r.span, r.at, names[r.group_id]] = cell
        return found

    def _recounted(self, connection: Connection, begin: int, end: int) -> dict[Address, tuple[int, ...]]:
        """The cells that begin in [begin, end), from the runs."""
        t = tables.run
        inside = and_(t.c.start < end, t.c.end > begin)
        query = select(t).where(t.c.cluster == self._cluster, t.c.end.is_not(None), inside)
        amounts = no_amounts()
        for row in connection.execute(query, execution_options={"yield_per": 5000}):
            add_run(amounts, rows.run_of(row), 1)
        return {a: tuple(cell) for a, cell in amounts.items() if begin <= a[1] < end and any(cell)}


def digest(group: Group) -> str:
    """A name of fixed length: the texts of a group together are longer than a database's keys."""
    return hashlib.sha256(json.dumps(astuple(group)).encode()).hexdigest()


def _sentence(address: Address, kept: tuple[int, ...] | None, right: tuple[int, ...] | None) -> str:
    span, at, group = address
    what = "hour" if span == HOUR else "day"
    return f"{what} {at} of {group}: has {kept or 'nothing'}, should have {right or 'nothing'}"
