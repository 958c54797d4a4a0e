"""Admissions, actions and cycles: what was decided, begun and done. Actions are never rewritten, only closed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from pyslurm_budget.errors import LedgerError
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.base import Base, chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Select

    from pyslurm_budget.domain.model import Mode
    from pyslurm_budget.domain.plan import Action, Admission, Plan
    from pyslurm_budget.service.ports import CycleRecord, Intent

OPEN = ("intent", "sent")
CLOSED = ("done", "skipped", "failed", "undone", "lost")
PLANNED = "planned"
# Observing for weeks must not grow the ledger without bound: of what was only planned the newest rows are kept.
PLANNED_KEPT = 2000
CYCLES_KEPT = 20_000


class Decisions(Base):
    """The part of the ledger that says what was decided and done."""

    def save_admissions(self, admissions: Iterable[Admission]) -> None:
        """Replace the set of pending admissions by this one."""
        t = tables.admission
        with self._begin() as connection:
            connection.execute(delete(t).where(t.c.cluster == self._cluster))
            for chunk in chunks(admissions):
                connection.execute(insert(t), [rows.admission_row(self._cluster, a) for a in chunk])

    def admissions(self) -> tuple[Admission, ...]:
        """The admissions of the last cycle."""
        t = tables.admission
        with self._read() as connection:
            found = map(rows.admission_of, connection.execute(select(t).where(t.c.cluster == self._cluster)))
            return tuple(sorted(found, key=lambda a: (a.sequence, a.ref)))

    def record_plan(self, cycle: int, plan: Plan) -> None:
        """Store what an observing cycle planned; it is shown, never carried out."""
        t = tables.action
        with self._begin() as connection:
            for chunk in chunks(plan.actions):
                new = [rows.action_row(self._cluster, cycle, plan.now, a, PLANNED) for a in chunk]
                connection.execute(insert(t), new)
            planned = (t.c.cluster == self._cluster, t.c.state == PLANNED)
            query = select(t.c.id).where(*planned).order_by(t.c.id.desc()).offset(PLANNED_KEPT).limit(1)
            last = connection.execute(query).scalar()
            if last is not None:
                connection.execute(delete(t).where(*planned, t.c.id <= last))

    def write_intents(self, cycle: int, now: int, actions: Iterable[Action]) -> tuple[Intent, ...]:
        """Write intents, and return them with their ids, before anything is done."""
        t = tables.action
        mine = (t.c.cluster == self._cluster, t.c.cycle == cycle)
        with self._begin() as connection:
            last = connection.execute(select(func.max(t.c.id)).where(*mine)).scalar() or 0
            for chunk in chunks(actions):
                new = [rows.action_row(self._cluster, cycle, now, a, "intent") for a in chunk]
                connection.execute(insert(t), new)
            query = select(t).where(*mine, t.c.id > last).order_by(t.c.id)
            return tuple(map(rows.intent_of, connection.execute(query)))

    def move_intent(self, intent_id: int, state: str, outcome: str, now: int) -> None:
        """Advance one intent. Raises LedgerError for one that is unknown, or closed as something else."""
        t = tables.action
        with self._begin() as connection:
            where = (t.c.id == intent_id, t.c.cluster == self._cluster)
            moved = update(t).where(*where, t.c.state.in_(OPEN)).values(_moved(state, outcome, now))
            if connection.execute(moved).rowcount:
                return
            found = connection.execute(select(t.c.state).where(*where)).scalar()
            if found is None:
                raise LedgerError(f"intent {intent_id} is not in the ledger of cluster {self._cluster}")
            if found != state:
                raise LedgerError(f"intent {intent_id} is closed ({found}) and cannot become {state}")

    def move_intents(self, moves: Iterable[tuple[int, str, str]], now: int) -> None:
        """Advance many intents in one transaction; closed ones stay as they are."""
        t = tables.action
        new = [{"b_id": i} | {f"b_{k}": v for k, v in _moved(s, outcome, now).items()} for i, s, outcome in moves]
        is_open = or_(*(t.c.state == state for state in OPEN))  # in_() does not go with many rows at once
        where = (t.c.cluster == self._cluster, t.c.id == bindparam("b_id"), is_open)
        values: dict[str, Any] = {name: bindparam(f"b_{name}") for name in ("state", "outcome", "closed")}
        if new:
            with self._begin() as connection:
                connection.execute(update(t).where(*where).values(values), new)

    def open_intents(self) -> tuple[Intent, ...]:
        """Intents that were begun and not closed."""
        t = tables.action
        return self._intents(select(t).where(t.c.cluster == self._cluster, t.c.state.in_(OPEN)))

    def intents(
        self, *, ref: str | None = None, since: int | None = None, kinds: Iterable[str] | None = None
    ) -> tuple[Intent, ...]:
        """Intents of a job, or since a time, oldest first, in any state; what was only planned was none."""
        t = tables.action
        query = select(t).where(t.c.cluster == self._cluster, t.c.state != PLANNED)
        if ref is not None:
            query = query.where(t.c.ref == ref)
        if since is not None:
            query = query.where(t.c.at >= since)
        if kinds is not None:
            query = query.where(t.c.kind.in_(list(kinds)))
        return self._intents(query)

    def planned(self) -> tuple[Intent, ...]:
        """What observing cycles would have done, oldest first: the newest rows that are kept."""
        t = tables.action
        return self._intents(select(t).where(t.c.cluster == self._cluster, t.c.state == PLANNED))

    def _intents(self, query: Select[Any]) -> tuple[Intent, ...]:
        with self._read() as connection:
            return tuple(map(rows.intent_of, connection.execute(query.order_by(tables.action.c.id))))

    def begin_cycle(self, started: int, mode: Mode, applied: bool) -> int:
        """Record the start of a cycle and return its id."""
        t = tables.cycle
        values = {"cluster": self._cluster, "started": started, "mode": str(mode), "applied": applied}
        with self._begin() as connection:
            row = {**values, "stages": "{}", "counts": "{}"}
            key = connection.execute(insert(t).values(row)).inserted_primary_key
            new = int(key[0]) if key else 0
            connection.execute(delete(t).where(t.c.cluster == self._cluster, t.c.id <= new - CYCLES_KEPT))
        return new

    def end_cycle(self, record: CycleRecord) -> None:
        """Record its end. Raises LedgerError for a cycle that was not begun."""
        t = tables.cycle
        values = {
            "finished": record.finished,
            "stages": json.dumps(dict(record.stages)),
            "counts": json.dumps(dict(record.counts)),
            "error": record.error,
        }
        with self._begin() as connection:
            ended = update(t).where(t.c.id == record.id, t.c.cluster == self._cluster).values(values)
            if connection.execute(ended).rowcount == 0:
                raise LedgerError(f"cycle {record.id} is not in the ledger of cluster {self._cluster}")

    def last_cycle(self, *, finished: bool = True) -> CycleRecord | None:
        """The newest (finished) cycle."""
        t = tables.cycle
        query = select(t).where(t.c.cluster == self._cluster).order_by(t.c.id.desc()).limit(1)
        if finished:
            query = query.where(t.c.finished.is_not(None))
        with self._read() as connection:
            row = connection.execute(query).first()
        return rows.cycle_of(row) if row else None


def _moved(state: str, outcome: str, now: int) -> dict[str, Any]:
    """Columns of an intent that moves on. Raises LedgerError for a state that there is not."""
    if state not in (*OPEN, *CLOSED):
        raise LedgerError(f"an intent cannot become {state}: its states are {', '.join((*OPEN, *CLOSED))}")
    return {"state": state, "outcome": outcome, "closed": None if state in OPEN else now}
