"""Accounting rows as slurmdbd shows them: one a run, late by a fixed lag, those that ended found by their end."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.simulate.place import need_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.simulate.state import Record


class Rows:
    """Takes every change of a row at once, and shows it ``lag`` seconds later."""

    def __init__(self, lag: int) -> None:
        """Nothing has run yet."""
        self._lag = lag
        self._late: deque[tuple[int, RunRecord]] = deque()
        self._open: dict[RunKey, RunRecord] = {}
        self._ended: list[RunRecord] = []
        self._ends: list[int] = []
        self._index: dict[RunKey, int] = {}

    def write(self, now: int, row: RunRecord) -> None:
        """Insert the row or replace the one with its key."""
        if self._lag:
            self._late.append((now + self._lag, row))
        else:
            self._store(row)

    def read(self, now: int, since: int, until: int) -> Iterator[RunRecord]:
        """Rows that were alive or waiting in [since, until), as sacct lists them.

        Neither held nor dependent jobs, nor what becomes eligible only from ``until`` on (slurm-live section 6).
        """
        while self._late and self._late[0][0] <= now:
            self._store(self._late.popleft()[1])
        first = bisect_left(self._ends, since)
        for row in (*self._ended[first:], *self._open.values()):
            begin = row.eligible if row.start is None else row.start
            if begin is not None and begin < until:
                yield row

    def _store(self, row: RunRecord) -> None:
        at = self._index.get(row.key)
        if at is not None:
            self._ended[at] = row
            return
        if row.end is None:
            self._open[row.key] = row
            return
        self._open.pop(row.key, None)
        self._index[row.key] = len(self._ended)
        self._ended.append(row)
        self._ends.append(row.end)


def row_of(record: Record, *, state: str, end: int | None = None, by_uid: int | None = None) -> RunRecord:
    """The row of the record's present run."""
    need = need_of(record.spec)
    started = record.start is not None
    return RunRecord(
        key=RunKey(record.job_id, record.submit),
        job_ref=record.ref,
        account=record.spec.account,
        user=record.spec.user,
        qos=record.qos,
        partition=record.partition,
        state=state,
        eligible=record.eligible,
        start=record.start,
        end=end,
        suspended=record.suspended,
        time_limit=record.limit,
        tres=tres_of(record) if started else Tres(),
        requested_gpus=need.gpus,
        nodes=tuple(share.node for share in record.shares) if started else (),
        comment=record.comment,
        by_uid=by_uid,
    )


def tres_of(record: Record) -> Tres:
    """AllocTRES of the record's present run: the types are those of the nodes, whatever was asked for."""
    return Tres(
        cpus=sum(s.cpus for s in record.shares),
        memory_mb=sum(s.memory_mb for s in record.shares),
        nodes=len(record.shares),
        gpus=record.gpus,
        gpus_by_type=record.by_type,
    )
