"""Pseudonyms in the ledger itself: users of what is old get names that only the ledger's key leads to.

The sums stay: usage by hour moves from the user's group to the pseudonym's by the same deltas as for any change of a
run. It is done a few rows at a time, each in one transaction, so that cut short it is only not finished.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, select, update

from pyslurm_budget.domain.pseudonym import is_pseudonym, pseudonym
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.amounts import Amounts
from pyslurm_budget.ledger.archive import Archives
from pyslurm_budget.ledger.base import chunks
from pyslurm_budget.ledger.decisions import CLOSED, PLANNED
from pyslurm_budget.ledger.rollup import COUNTED, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

KEY = "pseudonym-key"
AT_ONCE = 2000


class Pseudonyms(Archives):
    """The part of the ledger that forgets who it was."""

    def pseudonym_key(self) -> str:
        """The ledger's key, made at first use."""
        with self._begin() as connection:
            self._alone(connection, KEY)
            found = self._get(connection, KEY)
            if found is None:
                found = secrets.token_hex(32)
                self._put(connection, KEY, found)
        return found

    def pseudonymise(self, before: int) -> dict[str, int]:
        """Give users of all that ended before this moment their pseudonyms; returns how many rows changed, by table.
        What has them already stays."""
        key = self.pseudonym_key()
        found = {"run": self._runs_of_old(key, before), "contract": self._contracts_of_old(key, before)}
        found["usage_hour"] = self._usage_of_deleted(key, before)
        found["action"] = self._actions_of_old(key, before)
        found["usage_group"] = self._without_cells()
        return found

    def _runs_of_old(self, key: str, before: int) -> int:
        c = tables.run.c
        old = (c.cluster == self._cluster, c.end < before)
        with self._read() as connection:
            users = [u for u in connection.execute(select(c.user).where(*old).distinct()).scalars() if _is_plain(u)]
        changed = 0
        for chunk in chunks(users):
            query = select(tables.run).where(*old, c.user.in_(chunk)).order_by(c.end)
            since: int | None = None
            while True:
                with self._changing_runs() as connection:
                    more = query if since is None else query.where(c.end >= since)
                    known = {run.key: run for run in map(rows.run_of, connection.execute(more.limit(AT_ONCE)))}
                    amounts = Amounts()
                    new = [replace(run, user=pseudonym(key, run.user)) for run in known.values()]
                    changed += self._write(connection, known, new, amounts)
                    self._add_amounts(connection, amounts)
                if not known:
                    break
                since = max(run.end or 0 for run in known.values())
        return changed

    def _contracts_of_old(self, key: str, before: int) -> int:
        """Contracts with an outcome whose run is old; if the run is not here any more, those that are over."""
        t = tables.contract
        changed = 0
        with self._read() as connection:
            query = select(t).where(t.c.cluster == self._cluster, t.c.outcome.is_not(None), t.c.start < before)
            found = [c for c in map(rows.contract_of, connection.execute(query)) if _is_plain(c.user)]
        for chunk in chunks(found):
            with self._begin() as connection:
                ends = {run.key: run.end for run in self._known(connection, [c.key for c in chunk]).values()}
                for contract in chunk:
                    end = ends.get(contract.key, contract.protected_until)
                    if end is not None and end < before:
                        where = (t.c.job_id == contract.key.job_id, t.c.submit == contract.key.submit)
                        name = pseudonym(key, contract.user)
                        connection.execute(update(t).where(t.c.cluster == self._cluster, *where).values(user=name))
                        changed += 1
        return changed

    def _usage_of_deleted(self, key: str, before: int) -> int:
        """Usage before the end of what was deleted is of runs that are here, and of others: that moves."""
        with self._read() as connection:
            archived = self._archived(connection)
            months = [] if archived is None else list(self._months(connection))
        last = before if archived is None else min(before, archived)
        changed = 0
        for begin, end in months:
            if begin >= last:
                break
            with self._changing_runs() as connection:
                changed += self._move_usage(connection, key, begin, min(end, last))
        return changed

    def _move_usage(self, connection: Connection, key: str, begin: int, end: int) -> int:
        names = {i: group for i, group in self._group_names(connection).items() if _is_plain(group.user)}
        kept = self._kept(connection, names, begin, end)
        here = self._recounted(connection, begin, end) if kept else {}
        amounts = Amounts()
        moved = 0
        for address, cell in kept.items():
            span, at, group = address
            mine = here.get(address, (0, 0, 0, 0))
            others = (cell[0] - mine[0], cell[1] - mine[1], cell[2] - mine[2], cell[3] - mine[3])
            moved += any(others)
            amounts.add_cell(group, span, at, others, -1)
            amounts.add_cell(replace(group, user=pseudonym(key, group.user)), span, at, others, 1)
        self._add_amounts(connection, amounts)
        return moved

    def _actions_of_old(self, key: str, before: int) -> int:
        """Actions that are closed, or were only planned, and name a user among the numbers of their reason."""
        t = tables.action
        old = (t.c.cluster == self._cluster, t.c.at < before, t.c.state.in_((*CLOSED, PLANNED)))
        with self._begin() as connection:
            query = select(t.c.id, t.c.detail).where(*old, t.c.detail.contains('"user"', autoescape=True))
            new = [(r.id, text) for r in connection.execute(query) if (text := _renamed(key, r.detail)) != r.detail]
            self._rewrite(connection, new)
        return len(new)

    def _rewrite(self, connection: Connection, new: Iterable[tuple[int, str]]) -> None:
        t = tables.action
        for chunk in chunks(new):
            changed = update(t).where(t.c.id == bindparam("b_id")).values(detail=bindparam("b_detail"))
            connection.execute(changed, [{"b_id": i, "b_detail": text} for i, text in chunk])

    def _without_cells(self) -> int:
        """Remove cells that hold nothing, and groups without cells: their names are of nobody any more."""
        t, g = tables.usage_hour, tables.usage_group
        empty = [t.c[name] == 0 for name in COUNTED]
        with self._changing_runs() as connection:
            connection.execute(delete(t).where(t.c.cluster == self._cluster, *empty))
            used = select(t.c.group_id).where(t.c.cluster == self._cluster).distinct()
            gone = connection.execute(delete(g).where(g.c.cluster == self._cluster, g.c.id.not_in(used))).rowcount
            if gone:
                self._put(connection, GROUPS, secrets.token_hex(8))
        self._groups.clear()
        return gone


def _is_plain(user: str) -> bool:
    return bool(user) and not is_pseudonym(user)


def _renamed(key: str, detail: str) -> str:
    raw: dict[str, Any] = json.loads(detail)
    numbers = raw["reason"]["numbers"]
    if isinstance(numbers.get("user"), str):
        numbers["user"] = pseudonym(key, numbers["user"])
    return json.dumps(raw, sort_keys=True)
