"""Runs, contracts and capacity: the facts of the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, insert, or_, select, update

from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.base import Base, chunks
from pyslurm_budget.service.ports import CapacitySlice, SyncState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from pyslurm_budget.domain.model import RunKey
    from pyslurm_budget.service.ports import ContractFacts, RunFacts

SOURCE = "accounting"


class Facts(Base):
    """The part of the ledger that says what happened."""

    def save_runs(self, runs: Iterable[RunFacts], state: SyncState) -> int:
        """See :class:`pyslurm_budget.service.ports.Ledger`. The newest read wins: late and repaired rows replace what
        was known, since history in slurmdbd is not immutable; only what we decided ourselves is kept."""
        with self._begin() as connection:
            changed = 0
            for chunk in chunks({run.key: run for run in runs}.values()):
                known = self._known(connection, [run.key for run in chunk])
                new = [rows.run_row(self._cluster, run) for run in chunk if run.key not in known]
                merged = [(known[run.key], _merged(known[run.key], run)) for run in chunk if run.key in known]
                differing = [rows.run_row(self._cluster, after) for before, after in merged if after != before]
                if new:
                    connection.execute(insert(tables.run), new)
                if differing:
                    connection.execute(_update_run(differing[0]), [_bound(row) for row in differing])
                changed += len(new) + len(differing)
            self._upsert(
                connection,
                tables.sync,
                {"cluster": self._cluster, "source": SOURCE},
                {"watermark": state.watermark, "as_of": state.as_of, "complete": state.complete},
            )
        return changed

    def _known(self, connection: Connection, keys: list[RunKey]) -> dict[RunKey, RunFacts]:
        ids = {key.job_id for key in keys}
        query = select(tables.run).where(tables.run.c.cluster == self._cluster, tables.run.c.job_id.in_(ids))
        return {run.key: run for run in map(rows.run_of, connection.execute(query))}

    def sync_state(self) -> SyncState | None:
        """State of the last complete read."""
        t = tables.sync
        with self._begin() as connection:
            row = connection.execute(select(t).where(t.c.cluster == self._cluster, t.c.source == SOURCE)).first()
        return SyncState(row.watermark, row.as_of, row.complete) if row else None

    def runs_between(self, start: int, end: int) -> tuple[RunFacts, ...]:
        """Runs that held something in [start, end)."""
        c = tables.run.c
        inside = and_(c.cluster == self._cluster, c.start < end, or_(c.end.is_(None), c.end > start))
        return self._runs(inside)

    def open_runs(self) -> tuple[RunFacts, ...]:
        """Runs that started and have no end."""
        c = tables.run.c
        return self._runs(and_(c.cluster == self._cluster, c.end.is_(None)))

    def runs_of_job(self, job_ref: str) -> tuple[RunFacts, ...]:
        """All runs of a job, oldest first."""
        c = tables.run.c
        named = c.job_ref == job_ref
        if job_ref.isdigit():
            named = or_(named, c.job_id == int(job_ref))
        return self._runs(and_(c.cluster == self._cluster, named))

    def _runs(self, condition: Any) -> tuple[RunFacts, ...]:
        query = select(tables.run).where(condition).order_by(tables.run.c.submit, tables.run.c.job_id)
        with self._begin() as connection:
            return tuple(map(rows.run_of, connection.execute(query)))

    def save_contracts(self, contracts: Iterable[ContractFacts]) -> None:
        """Insert what is not known; a known contract only gets its outcome, once."""
        t = tables.contract
        with self._begin() as connection:
            for chunk in chunks(contracts):
                known = self._contracts(connection, [c.key for c in chunk])
                new = {c.key: rows.contract_row(self._cluster, c) for c in chunk if c.key not in known}
                if new:
                    connection.execute(insert(t), list(new.values()))
                ended = [c for c in chunk if c.key in known and c.outcome and known[c.key].outcome is None]
                for c in ended:
                    where = (t.c.cluster == self._cluster, t.c.job_id == c.key.job_id, t.c.submit == c.key.submit)
                    connection.execute(update(t).where(*where).values(outcome=c.outcome))

    def contracts(self, keys: Iterable[RunKey] | None = None) -> tuple[ContractFacts, ...]:
        """Contracts of these runs; without keys, those without an outcome."""
        t = tables.contract
        with self._begin() as connection:
            if keys is None:
                query = select(t).where(t.c.cluster == self._cluster, t.c.outcome.is_(None))
                found = tuple(map(rows.contract_of, connection.execute(query)))
            else:
                found = tuple(c for chunk in chunks(keys) for c in self._contracts(connection, chunk).values())
        return tuple(sorted(found, key=lambda c: c.key))

    def _contracts(self, connection: Connection, keys: list[RunKey]) -> dict[RunKey, ContractFacts]:
        t, wanted = tables.contract, set(keys)
        query = select(t).where(t.c.cluster == self._cluster, t.c.job_id.in_({key.job_id for key in keys}))
        return {c.key: c for c in map(rows.contract_of, connection.execute(query)) if c.key in wanted}

    def add_capacity(self, slices: Iterable[CapacitySlice], sampled: int) -> None:
        """Add to the hours, and remember the time of the sample."""
        t = tables.capacity
        with self._begin() as connection:
            for s in slices:
                where = {"cluster": self._cluster, "pool": s.pool, "hour": s.hour}
                query = select(t).where(*(t.c[k] == v for k, v in where.items()))
                row = connection.execute(query).first()
                total = (row.gpu_seconds, row.covered) if row else (0, 0)
                values = {"gpu_seconds": total[0] + s.gpu_seconds, "covered": total[1] + s.covered, "gpus": s.gpus}
                self._upsert(connection, t, where, values)
            self._put(connection, "capacity-sampled", str(sampled))

    def capacity(self, since: int) -> tuple[tuple[CapacitySlice, ...], int | None]:
        """Slices from the hour of ``since`` on, and the time of the last sample."""
        t = tables.capacity
        query = select(t).where(t.c.cluster == self._cluster, t.c.hour >= since).order_by(t.c.pool, t.c.hour)
        with self._begin() as connection:
            found = tuple(
                CapacitySlice(r.pool, r.hour, r.gpu_seconds, r.covered, r.gpus) for r in connection.execute(query)
            )
            sampled = self._get(connection, "capacity-sampled")
        return found, int(sampled) if sampled else None


def _merged(before: RunFacts, after: RunFacts) -> RunFacts:
    """The newest facts, with what was decided once: shadow class, budget, and the class of a run that has ended."""
    kept: dict[str, Any] = {"shadow": before.shadow, "budget": before.budget}
    if before.end is not None:
        kept["work_class"] = WorkClass(before.work_class)
    return replace(after, **kept)


def _update_run(row: dict[str, Any]) -> Any:
    t = tables.run
    key = ("cluster", "job_id", "submit")
    values: dict[str, Any] = {name: bindparam(f"b_{name}") for name in row if name not in key}
    return update(t).where(*(t.c[name] == bindparam(f"b_{name}") for name in key)).values(values)


def _bound(row: dict[str, Any]) -> dict[str, Any]:
    return {f"b_{name}": value for name, value in row.items()}
