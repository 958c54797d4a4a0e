"""Runs and contracts: the facts of the ledger."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, or_, select

from pyslurm_budget.domain.pseudonym import is_pseudonym
from pyslurm_budget.domain.settle import PUT_BACK
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.amounts import Amounts
from pyslurm_budget.ledger.base import chunks, named, upsert, upsert_values
from pyslurm_budget.ledger.history import Histories
from pyslurm_budget.service.ports import SyncState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Table

    from pyslurm_budget.domain.model import RunKey
    from pyslurm_budget.service.ports import ContractFacts, News, RunFacts

SOURCE = "accounting"
# States in which a run without an end is not over (Slurm's base states, and the flags that sacct shows for them).
ALIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STOPPED"})


def _all_of_it(_before: RunFacts | None, given: RunFacts) -> RunFacts:
    return given


class Facts(Histories):
    """The part of the ledger that says what happened."""

    def save_runs(self, runs: Iterable[RunFacts], state: SyncState | None = None, news: News = _all_of_it) -> int:
        """See :class:`pyslurm_budget.service.ports.Ledger`.

        The newest read wins: late and repaired rows replace what was known, since history in slurmdbd is not
        immutable. What stays: what we decided ourselves (shadow class, a known budget, the contract), the class of a
        run that has ended, and the whole row of an ended run against one that has no end although its state says that
        the run is over (a row that is not complete), or into which another run of the job was written. A row that has
        lost its end because the run is alive is believed. A user's pseudonym stays. Runs that are not known, and
        ended before the end of what was archived and deleted, are of that and left out.
        """
        amounts = Amounts()
        with self._changing_runs() as connection:
            changed = sum(self._save_chunk(connection, chunk, amounts, news) for chunk in chunks(runs))
            self._add_amounts(connection, amounts)
            if state is not None:
                self._save_state(connection, state)
        return changed

    def _save_state(self, connection: Connection, state: SyncState) -> None:
        """A state that is not complete is only one where nothing better is known."""
        before = self._state(connection)
        if state.complete or before is None or not before.complete:
            values = {"watermark": state.watermark, "as_of": state.as_of, "complete": state.complete}
            upsert(connection, tables.sync, [{"cluster": self._cluster, "source": SOURCE, **values}])

    @contextmanager
    def _changing_runs(self) -> Iterator[Connection]:
        """A transaction that reads runs and writes them and their usage: of two, one waits for the other."""
        try:
            with self._begin() as connection:
                self._alone(connection, "runs")
                yield connection
        except BaseException:
            self._groups.clear()  # ids of groups that were made in it are gone with it
            raise

    def _save_chunk(self, connection: Connection, runs: list[RunFacts], amounts: Amounts, news: News) -> int:
        known = self._known(connection, [run.key for run in runs])
        new = [run for run in runs if run.key not in known]
        archived = self._archived(connection) if new else None
        ends = self._contracts(connection, [run.key for run in new]) if new else {}
        after = dict(known)
        for given in runs:
            before = after.get(given.key)
            run = news(before, given)
            if run is None:
                continue
            if before is not None:
                after[run.key] = _merged(before, run)
            elif archived is None or run.end is None or run.end >= archived:
                # A contract may be known first, while accounting cannot be read.
                contract = ends.get(run.key)
                after[run.key] = replace(run, protected_until=contract.protected_until) if contract else run
        return self._write(connection, known, after.values(), amounts)

    def _write(
        self, connection: Connection, known: Mapping[RunKey, RunFacts], after: Iterable[RunFacts], amounts: Amounts
    ) -> int:
        """Write the rows that differ from the known ones, and note what that changes in the usage."""
        differing = [run for run in after if known.get(run.key) != run]
        for run in differing:
            if run.key in known:
                amounts.add(known[run.key], -1)
            amounts.add(run, 1)
        new = [rows.run_row(self._cluster, run) for run in differing]
        upsert_values(connection, tables.run, rows.RUN_COLUMNS, new)
        return len(differing)

    def _known(self, connection: Connection, keys: list[RunKey]) -> dict[RunKey, RunFacts]:
        ids = {key.job_id for key in keys}
        if not self._has_any(connection, tables.run, ids):
            return {}
        t = tables.run
        query = select(t).where(t.c.cluster == self._cluster, t.c.job_id.in_(ids))
        return {run.key: run for run in map(rows.run_of, connection.execute(query))}

    def _has_any(self, connection: Connection, table: Table, ids: Collection[int]) -> bool:
        """Whether there may be a row of one of these jobs. In a long history, read in the order of its ids, there is
        none from the first of a chunk to its last, and that costs much less to know than looking for each."""
        if not ids:
            return False
        c = table.c
        between = (c.cluster == self._cluster, c.job_id >= min(ids), c.job_id <= max(ids))
        return connection.execute(select(c.job_id).where(*between).limit(1)).first() is not None

    def mark_absent(self, keys: Iterable[RunKey], now: int) -> int:
        """See :class:`pyslurm_budget.service.ports.Ledger`; a run that is not absent any more is as before."""
        c, absent = tables.run.c, set(keys)
        with self._changing_runs() as connection:
            query = select(tables.run).where(c.cluster == self._cluster, c.end.is_(None), c.start.is_not(None))
            known = {run.key: run for run in map(rows.run_of, connection.execute(query))}
            after = [_missed(run, now) if key in absent else _seen(run) for key, run in known.items()]
            self._write(connection, known, after, Amounts())
        return sum(run.charged_to is not None for run in after)

    def sync_state(self) -> SyncState | None:
        """State of the last complete read."""
        with self._read() as connection:
            return self._state(connection)

    def _state(self, connection: Connection) -> SyncState | None:
        t = tables.sync
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

    def runs_of(self, keys: Iterable[RunKey]) -> dict[RunKey, RunFacts]:
        """Runs by their keys."""
        wanted = set(keys)
        with self._read() as connection:
            found = [self._known(connection, chunk) for chunk in chunks(wanted)]
        return {key: run for chunk in found for key, run in chunk.items() if key in wanted}

    def last_runs(self, job_ids: Iterable[int]) -> dict[int, RunFacts]:
        """The newest run of each job that started."""
        t = tables.run
        last: dict[int, RunFacts] = {}
        with self._read() as connection:
            for chunk in chunks(set(job_ids)):
                mine = (t.c.cluster == self._cluster, t.c.job_id.in_(chunk), t.c.start.is_not(None))
                for row in connection.execute(select(t).where(*mine).order_by(t.c.submit)):
                    last[row.job_id] = rows.run_of(row)
        return last

    def runs_of_job(self, job_ref: str) -> tuple[RunFacts, ...]:
        """All runs of a job, oldest first."""
        c = tables.run.c
        return self._runs(and_(c.cluster == self._cluster, named(job_ref, c.job_ref, c.job_id)))

    def _runs(self, condition: Any) -> tuple[RunFacts, ...]:
        query = select(tables.run).where(condition).order_by(tables.run.c.submit, tables.run.c.job_id)
        with self._read() as connection:
            return tuple(map(rows.run_of, connection.execute(query)))

    def save_contracts(self, contracts: Iterable[ContractFacts]) -> None:
        """Insert what is not known; a known contract only gets its outcome, once. The end of a contract is noted in
        its run, where usage is told apart by it."""
        amounts = Amounts()
        with self._changing_runs() as connection:
            for chunk in chunks(contracts):
                known = self._contracts(connection, [c.key for c in chunk])
                after = dict(known)
                for c in chunk:
                    before = after.setdefault(c.key, c)
                    if before.outcome is None:
                        after[c.key] = replace(before, outcome=c.outcome)
                differing = [c for key, c in after.items() if known.get(key) != c]
                upsert(connection, tables.contract, [rows.contract_row(self._cluster, c) for c in differing])
                new = {c.key: c.protected_until for c in differing if c.key not in known}
                runs = self._known(connection, list(new))
                marked = [replace(run, protected_until=new[key]) for key, run in runs.items() if key in new]
                self._write(connection, runs, marked, amounts)
            self._add_amounts(connection, amounts)

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
        ids = {key.job_id for key in keys}
        if not self._has_any(connection, t, ids):
            return {}
        query = select(t).where(t.c.cluster == self._cluster, t.c.job_id.in_(ids))
        return {c.key: c for c in map(rows.contract_of, connection.execute(query)) if c.key in wanted}


def _merged(before: RunFacts, after: RunFacts) -> RunFacts:
    """The newest facts, with what stays (see ``save_runs``)."""
    if before.end is not None and after.end is None and after.state not in ALIVE:
        return before
    if _is_another(before, after):
        return before
    open_still = after.end is None
    return replace(
        after,
        shadow=before.shadow,
        user=before.user if is_pseudonym(before.user) else after.user,
        budget=before.budget or after.budget,
        partition=after.partition or before.partition,
        work_class=after.work_class if before.end is None else before.work_class,
        charged_as=after.charged_as if before.end is None else before.charged_as,
        protected_until=before.protected_until,
        absent_since=before.absent_since if open_still else None,
        charged_to=before.charged_to if open_still else None,
    )


def _is_another(before: RunFacts, after: RunFacts) -> bool:
    """Whether the row tells of another run than before. After a requeue of a job that was resized slurmdbd begins no
    row: it writes the end of the new run into the row since the resize, which began when it was submitted."""
    put_back = before.state.startswith(PUT_BACK) and not after.state.startswith(PUT_BACK)
    return put_back and before.start == before.key.submit and before.end is not None and (after.end or 0) > before.end


def _missed(run: RunFacts, now: int) -> RunFacts:
    """An open run that slurmctld does not know: noted, and when that is seen again its charge ends."""
    if run.absent_since is None:
        return replace(run, absent_since=now)
    limit = run.absent_since
    if run.start is not None and run.time_limit is not None:
        limit = min(limit, run.start + run.time_limit + run.suspended)
    return replace(run, charged_to=max(limit, run.start or 0))


def _seen(run: RunFacts) -> RunFacts:
    return replace(run, absent_since=None, charged_to=None)
