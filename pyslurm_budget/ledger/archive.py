"""Runs that leave the ledger for archived files: which there are, what keeps them here, and how they go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select

from pyslurm_budget.errors import ArchiveError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.decisions import OPEN
from pyslurm_budget.ledger.rows import digest_of_runs
from pyslurm_budget.ledger.runs import Facts
from pyslurm_budget.service.archive import ARCHIVED, ARCHIVED_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from pyslurm_budget.service.archive import Row

AT_ONCE = 5000


class Archives(Facts):
    """The part of the ledger that archives are made of; see :class:`pyslurm_budget.service.archive.ArchiveLedger`."""

    def archived_until(self) -> int | None:
        """The moment before which runs were archived and deleted."""
        with self._read() as connection:
            return self._archived(connection)

    def next_end(self, since: int | None) -> int | None:
        """The first end of a run, or the first from a moment on."""
        c = tables.run.c
        query = select(func.min(c.end)).where(c.cluster == self._cluster)
        with self._read() as connection:
            found: int | None = connection.execute(query if since is None else query.where(c.end >= since)).scalar()
        return found

    def runs_ended(self, begin: int, end: int) -> Iterator[Row]:
        """Rows of the runs that ended in [begin, end), in the order of their ends, read as they are asked for."""
        with self._read() as connection:
            yield from self._ended(connection, begin, end)

    def _ended(self, connection: Connection, begin: int, end: int) -> Iterator[Row]:
        c = tables.run.c
        query = select(tables.run).where(c.cluster == self._cluster, c.end >= begin, c.end < end)
        ordered = query.order_by(c.end, c.job_id, c.submit).execution_options(yield_per=AT_ONCE)
        with connection.execute(ordered) as found:
            yield from map(dict, found.mappings())

    def oldest_open(self) -> tuple[int, str] | None:
        """When the oldest business that is not finished began, and what it is: a run without an end, a contract
        without an outcome, an action that was not read back."""
        with self._read() as connection:
            return self._oldest_open(connection)

    def _oldest_open(self, connection: Connection) -> tuple[int, str] | None:
        r, c, a = tables.run.c, tables.contract.c, tables.action.c
        began = func.coalesce(r.start, r.submit)
        queries = (
            ("run of job", select(began, r.job_ref).where(r.cluster == self._cluster, r.end.is_(None)), began),
            (
                "contract of job",
                select(c.start, c.ref).where(c.cluster == self._cluster, c.outcome.is_(None)),
                c.start,
            ),
            ("action on job", select(a.at, a.ref).where(a.cluster == self._cluster, a.state.in_(OPEN)), a.at),
        )
        found = []
        for what, query, time in queries:
            first = connection.execute(query.order_by(time).limit(1)).first()
            if first is not None:
                found.append((int(first[0]), f"{what} {first[1]}"))
        return min(found, default=None)

    def delete_runs(self, begin: int, end: int, digest: str, written: Callable[[Row], Row]) -> int:
        """Delete the runs that ended in [begin, end), which must be those of the digest once ``written`` was applied,
        and note it, in one transaction; their usage by hour stays. Returns how many they were. Raises ArchiveError,
        and deletes nothing, where they are others or something that began before ``end`` is not finished."""
        c = tables.run.c
        with self._changing_runs() as connection:
            oldest = self._oldest_open(connection)
            if oldest is not None and oldest[0] < end:
                raise ArchiveError(f"nothing was deleted: {oldest[1]}, which is not finished, began before that")
            if digest_of_runs(map(written, self._ended(connection, begin, end))) != digest:
                raise ArchiveError("nothing was deleted: the runs changed while they were archived; do it again")
            mine = (c.cluster == self._cluster, c.end >= begin, c.end < end)
            gone = connection.execute(delete(tables.run).where(*mine)).rowcount
            self._put(connection, ARCHIVED, str(max(end, self._archived(connection) or end)))
            months = [*json.loads(self._get(connection, ARCHIVED_RUNS) or "[]"), [begin, end, gone]]
            self._put(connection, ARCHIVED_RUNS, json.dumps(months))
        return gone
