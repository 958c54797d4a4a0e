"""The record of decisions: why jobs have their class, and why no room is made for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select

from pyslurm_budget.domain.journal import Decision
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Row

KEPT = 90 * 86400


class Journal(Base):
    """The part of the ledger that remembers decisions for 90 days."""

    def add_decisions(self, decisions: Iterable[Decision], now: int) -> None:
        """Add decisions, and forget the oldest."""
        t = tables.decision
        with self._begin() as connection:
            for chunk in chunks(decisions):
                connection.execute(insert(t), [_row(self._cluster, d) for d in chunk])
            connection.execute(delete(t).where(t.c.cluster == self._cluster, t.c.at < now - KEPT))

    def decisions_of(self, refs: Iterable[str]) -> tuple[Decision, ...]:
        """The decisions about these jobs, oldest first."""
        t = tables.decision
        found: list[Any] = []
        with self._read() as connection:
            for chunk in chunks(set(refs)):
                found += connection.execute(select(t).where(t.c.cluster == self._cluster, t.c.ref.in_(chunk)))
        return tuple(_decision(row) for row in sorted(found, key=lambda row: row.id))

    def last_decisions(self, kind: str, refs: Iterable[str]) -> dict[str, Decision]:
        """The newest decision of a kind about each of these jobs."""
        t = tables.decision
        found: dict[str, Decision] = {}
        with self._read() as connection:
            for chunk in chunks(set(refs)):
                mine = (t.c.cluster == self._cluster, t.c.kind == kind, t.c.ref.in_(chunk))
                newest = select(func.max(t.c.id)).where(*mine).group_by(t.c.ref)
                for row in connection.execute(select(t).where(t.c.id.in_(newest))):
                    found[row.ref] = _decision(row)
        return found


def _row(cluster: str, d: Decision) -> dict[str, Any]:
    numbers = json.dumps(dict(d.reason.numbers), ensure_ascii=False)
    who = {"cluster": cluster, "at": d.at, "kind": d.kind, "ref": d.ref, "submit": d.submit}
    return {**who, "code": d.reason.code, "numbers": numbers}


def _decision(row: Row[Any]) -> Decision:
    return Decision(row.at, row.kind, row.ref, row.submit, Reason(row.code, json.loads(row.numbers)))
