"""Runs, contracts and capacity: the facts of the ledger."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, or_, select

from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.base import Base, chunks, upsert
from pyslurm_budget.service.ports import CapacitySlice, SyncState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from pyslurm_budget.domain.model import RunKey
    from pyslurm_budget.service.ports import ContractFacts, RunFacts

SOURCE = "accounting"
SAMPLED = "capacity-sampled"
HOUR = 3600
MOST_DIGITS = 18  # of a job id that is looked for: more do not fit into BIGINT
# States in which a run without an end is not over (Slurm's base states, and the flags that sacct shows for them).
ALIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STOPPED"})


class Facts(Base):
    """The part of the ledger that says what happened."""

    def save_runs(self, runs: Iterable[RunFacts], state: SyncState) -> int:
        """See :class:`pyslurm_budget.service.ports.Ledger`.

        The newest read wins: late and repaired rows replace what was known, since history in slurmdbd is not
        immutable. Three things stay: what we decided ourselves (shadow class, budget), the class of a run that has
        ended, and the whole row of an ended run against one that has no end although its state says that the run is
        over (a row that is not complete). A row that has lost its end because the run is alive is believed.
        """
        with self._begin() as connection:
            changed = sum(self._save_chunk(connection, chunk) for chunk in chunks(runs))
            values = {"watermark": state.watermark, "as_of": state.as_of, "complete": state.complete}
            upsert(connection, tables.sync, [{"cluster": self._cluster, "source": SOURCE, **values}])
        return changed

    def _save_chunk(self, connection: Connection, runs: list[RunFacts]) -> int:
        known = self._known(connection, [run.key for run in runs])
        after = dict(known)
        for run in runs:
            before = after.get(run.key)
            after[run.key] = run if before is None else _merged(before, run)
        differing = [run for key, run in after.items() if known.get(key) != run]
        upsert(connection, tables.run, [rows.run_row(self._cluster, run) for run in differing])
        return len(differing)

    def _known(self, connection: Connection, keys: list[RunKey]) -> dict[RunKey, RunFacts]:
        ids = {key.job_id for key in keys}
        query = select(tables.run).where(tables.run.c.cluster == self._cluster, tables.run.c.job_id.in_(ids))
        return {run.key: run for run in map(rows.run_of, connection.execute(query))}

    def sync_state(self) -> SyncState | None:
        """State of the last complete read."""
        t = tables.sync
        with self._read() as connection:
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
        return self._runs(and_(c.cluster == self._cluster, c.end.is_(None), c.start.is_not(None)))

    def runs_of_job(self, job_ref: str) -> tuple[RunFacts, ...]:
        """All runs of a job, oldest first."""
        c = tables.run.c
        named = c.job_ref == job_ref
        if job_ref.isascii() and job_ref.isdigit() and len(job_ref) <= MOST_DIGITS:
            named = or_(named, c.job_id == int(job_ref))
        return self._runs(and_(c.cluster == self._cluster, named))

    def _runs(self, condition: Any) -> tuple[RunFacts, ...]:
        query = select(tables.run).where(condition).order_by(tables.run.c.submit, tables.run.c.job_id)
        with self._read() as connection:
            return tuple(map(rows.run_of, connection.execute(query)))

    def save_contracts(self, contracts: Iterable[ContractFacts]) -> None:
        """Insert what is not known; a known contract only gets its outcome, once."""
        with self._begin() as connection:
            for chunk in chunks(contracts):
                known = self._contracts(connection, [c.key for c in chunk])
                after = dict(known)
                for c in chunk:
                    before = after.setdefault(c.key, c)
                    if before.outcome is None:
                        after[c.key] = replace(before, outcome=c.outcome)
                differing = [c for key, c in after.items() if known.get(key) != c]
                upsert(connection, tables.contract, [rows.contract_row(self._cluster, c) for c in differing])

    def contracts(self, keys: Iterable[RunKey] | None = None) -> tuple[ContractFacts, ...]:
        """Contracts of these runs; without keys, those without an outcome."""
        t = tables.contract
        with self._read() as connection:
            if keys is None:
                query = select(t).where(t.c.cluster == self._cluster, t.c.outcome.is_(None))
                found = {c.key: c for c in map(rows.contract_of, connection.execute(query))}
            else:
                found = {k: c for chunk in chunks(keys) for k, c in self._contracts(connection, chunk).items()}
        return tuple(found[key] for key in sorted(found))

    def _contracts(self, connection: Connection, keys: list[RunKey]) -> dict[RunKey, ContractFacts]:
        t, wanted = tables.contract, set(keys)
        query = select(t).where(t.c.cluster == self._cluster, t.c.job_id.in_({key.job_id for key in keys}))
        return {c.key: c for c in map(rows.contract_of, connection.execute(query)) if c.key in wanted}

    def add_capacity(self, slices: Iterable[CapacitySlice], sampled: int) -> None:
        """Add to the hours, and remember the time of the sample."""
        with self._begin() as connection:
            new = [{"cluster": self._cluster, **asdict(s)} for s in slices]
            upsert(connection, tables.capacity, new, adding=("gpu_seconds", "covered"))
            self._put(connection, SAMPLED, str(sampled))

    def capacity(self, since: int) -> tuple[tuple[CapacitySlice, ...], int | None]:
        """Slices from the hour of ``since`` on, and the time of the last sample."""
        t = tables.capacity
        first = since - since % HOUR
        query = select(t).where(t.c.cluster == self._cluster, t.c.hour >= first).order_by(t.c.hour)
        with self._read() as connection:
            found = tuple(
                CapacitySlice(r.pool, r.hour, r.gpu_seconds, r.covered, r.gpus) for r in connection.execute(query)
            )
            sampled = self._get(connection, SAMPLED)
        return tuple(sorted(found, key=lambda s: (s.pool, s.hour))), int(sampled) if sampled else None


def _merged(before: RunFacts, after: RunFacts) -> RunFacts:
    """The newest facts, with what stays (see ``save_runs``)."""
    if before.end is not None and after.end is None and after.state not in ALIVE:
        return before
    work_class = after.work_class if before.end is None else before.work_class
    return replace(after, shadow=before.shadow, budget=before.budget, work_class=work_class)
