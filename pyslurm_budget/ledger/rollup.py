"""Usage of ended runs by hour and by day, kept exact by deltas, and what is read from it (``domain.usage``).

Runs that have no end yet are not in it: they are few, and are counted from their rows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, select

from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.usage import DAY, HOUR, Cell, Group
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.amounts import Amounts
from pyslurm_budget.ledger.base import Base, chunks, upsert_values
from pyslurm_budget.service.archive import ARCHIVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Engine


Address = tuple[int, int, Group]
Cells = dict[Group, list[tuple[int, int, Cell]]]
_GROUP_COLUMNS = tuple(Group.__dataclass_fields__)
_GROUP_VALUES = attrgetter(*_GROUP_COLUMNS)
COUNTED = ("gpu_seconds", "charge", "gpus_at", "rate_at")
_CELL_COLUMNS = ("cluster", "span", "at", "group_id", *COUNTED)
# Changes whenever groups are removed, so that no process goes on with the id of one.
GROUPS = "usage-groups"


class Rollup(Base):
    """The part of the ledger that knows usage by hour."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        """Ids of groups are remembered as long as the ledger is open."""
        super().__init__(engine, cluster)
        self._groups: dict[Group, int] = {}
        self._groups_of: str | None = None

    def _add_amounts(self, connection: Connection, amounts: Amounts) -> None:
        """Add the amounts to their cells, in the transaction that changes the runs."""
        self._add_cells(connection, dict(amounts.changes()))

    def _add_cells(self, connection: Connection, changes: Cells) -> None:
        ids = self._ids(connection, changes)
        new: list[tuple[str | int, ...]] = []
        for group, cells in changes.items():
            number = ids[group]
            new += [(self._cluster, span, at, number, *cell) for span, at, cell in cells]
        new.sort()  # in the order of the key: the quickest to write, and two writers cannot wait for each other
        upsert_values(connection, tables.usage_hour, _CELL_COLUMNS, new, adding=COUNTED)

    def _ids(self, connection: Connection, groups: Iterable[Group]) -> dict[Group, int]:
        """Ids of the groups; new ones are made. The caller holds the lock of the runs."""
        version = self._get(connection, GROUPS)
        if version != self._groups_of:
            self._groups.clear()
            self._groups_of = version
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
        row = dict(zip(_GROUP_COLUMNS, _GROUP_VALUES(group), strict=True))
        return row | {"cluster": self._cluster, "digest": digest(group), "charged_as": str(group.charged_as)}

    def _group_names(self, connection: Connection) -> Mapping[int, Group]:
        t = tables.usage_group
        return {
            r.id: Group(r.budget, r.account, r.user, r.qos, r.pool, r.flavor, WorkClass(r.charged_as), r.run_on)
            for r in connection.execute(select(t).where(t.c.cluster == self._cluster))
        }

    def verify_usage(self) -> tuple[int, tuple[str, ...]]:
        """Recompute every cell from the runs, month by month; returns how many were looked at, and a sentence for
        each that is wrong. Cells before the end of what was archived and deleted cannot be recomputed."""
        wrong: list[str] = []
        looked = 0
        with self._read() as connection:
            names = self._group_names(connection)
            for begin, end in self._months(connection, self._archived(connection)):
                kept = self._kept(connection, names, begin, end)
                right = self._recounted(connection, begin, end)
                looked += len(kept | right)
                for address in sorted(kept.keys() | right.keys(), key=str):
                    if kept.get(address, (0, 0, 0, 0)) != right.get(address, (0, 0, 0, 0)):
                        wrong.append(_sentence(address, kept.get(address), right.get(address)))
        return looked, tuple(wrong)

    def rebuild_usage(self) -> None:
        """Count everything anew from the runs, in one transaction; what was archived and deleted stays as it is."""
        self._groups.clear()
        with self._begin() as connection:
            self._alone(connection, "runs")
            self.rebuild_usage_in(connection)

    def rebuild_usage_in(self, connection: Connection) -> None:
        """The same inside a transaction of the caller."""
        t, archived = tables.usage_hour, self._archived(connection)
        old = delete(t).where(t.c.cluster == self._cluster)
        connection.execute(old if archived is None else old.where(t.c.at >= archived))
        for begin, end in self._months(connection, archived):
            self._add_cells(connection, self._cells(connection, begin, end))

    def _archived(self, connection: Connection) -> int | None:
        """The moment before which runs were archived and deleted."""
        found = self._get(connection, ARCHIVED)
        return None if found is None else int(found)

    def _months(self, connection: Connection, since: int | None = None) -> Iterator[tuple[int, int]]:
        """Periods of 30 UTC days that cover all runs and all cells from ``since`` on."""
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
            first = min(edges) - min(edges) % DAY
            begin = first if since is None else max(first, since)
            while begin <= max(edges):
                # At a whole day: a day's cell and all the runs in it must be in one period.
                end = begin - begin % DAY + step
                yield begin, end
                begin = end

    def _kept(self, connection: Connection, names: Mapping[int, Group], begin: int, end: int) -> dict[Address, Cell]:
        t = tables.usage_hour
        query = select(t).where(t.c.cluster == self._cluster, t.c.at >= begin, t.c.at < end)
        found: dict[Address, Cell] = {}
        for r in connection.execute(query.where(t.c.span.in_((HOUR, DAY)))):
            cell = (r.gpu_seconds, r.charge, r.gpus_at, r.rate_at)
            if any(cell) and r.group_id in names:
                found[r.span, r.at, names[r.group_id]] = cell
        return found

    def _recounted(self, connection: Connection, begin: int, end: int) -> dict[Address, Cell]:
        """The cells that begin in [begin, end), from the runs, by address."""
        found = self._cells(connection, begin, end).items()
        return {(span, at, group): cell for group, cells in found for span, at, cell in cells}

    def _cells(self, connection: Connection, begin: int, end: int) -> Cells:
        """The cells that begin in [begin, end), from the runs."""
        t = tables.run
        inside = and_(t.c.start < end, t.c.end > begin)
        query = select(t).where(t.c.cluster == self._cluster, t.c.end.is_not(None), inside)
        amounts = Amounts()
        for row in connection.execute(query, execution_options={"yield_per": 5000}):
            amounts.add(rows.run_of(row), 1)
        within = {g: [c for c in cells if begin <= c[1] < end] for g, cells in amounts.changes()}
        return {group: cells for group, cells in within.items() if cells}


def digest(group: Group) -> str:
    """A name of fixed length: the texts of a group together are longer than a database's keys."""
    return hashlib.sha256(json.dumps(_GROUP_VALUES(group)).encode()).hexdigest()


def _sentence(address: Address, kept: Cell | None, right: Cell | None) -> str:
    span, at, group = address
    of = " ".join(f"{name}={value}" for name, value in asdict(group).items() if value not in (None, False))
    begin = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ")
    what = "hour" if span == HOUR else "day"
    return f"usage in the {what} {begin} of {of}: has {_counted(kept)}, should have {_counted(right)}"


def _counted(cell: tuple[int, ...] | None) -> str:
    return "nothing" if cell is None else " ".join(f"{n}={v}" for n, v in zip(COUNTED, cell, strict=True))
