"""What ended runs held since each of several times: whole hours from the rollup, edges from the runs near them."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, bindparam, case, func, literal, or_, select

from pyslurm_budget.domain.books import History
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.usage import HOUR, edge, whole_cells
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.rollup import Rollup
from pyslurm_budget.service.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Select

    from pyslurm_budget.domain.usage import Group

# Budget, user, pool, class that counts, and whether it is run-on.
Key = tuple[str | None, str, str | None, str, bool]
Change = tuple[Key, int, int, int]
"""Key, index of the mark that it lies before, rate, and rate x (time - begin)."""


class Histories(Rollup):
    """The part of the ledger that the books are opened from."""

    def history(self, marks: Sequence[int], now: int) -> tuple[History, ...]:
        """See :class:`pyslurm_budget.service.ports.Ledger`. Exact to the second; runs without a budget or a pool are
        left out, since nobody is charged for them."""
        first, last = marks[0] - marks[0] % HOUR, now - now % HOUR
        with self._read() as connection:
            names = {i: _key(group) for i, group in self._group_names(connection).items()}
            whole = self._whole(connection, names, first, last)
            before = self._edges(connection, names, first, marks)
            after = self._edges(connection, names, last, (now,))
        nothing = [0] * len(marks)
        found = []
        for key in sorted(whole.keys() | before.keys() | after.keys(), key=str):
            budget, user, pool, charged_as, run_on = key
            if budget is None or pool is None:
                continue
            upto = whole.get(key, 0) + after.get(key, [0])[0]
            amounts = tuple(upto - gone for gone in before.get(key, nothing))
            if any(amounts):
                found.append(History(budget, user, pool, WorkClass(charged_as), run_on, amounts))
        return tuple(found)

    def _whole(self, connection: Connection, names: Mapping[int, Key], begin: int, end: int) -> dict[Key, int]:
        t = tables.usage_hour
        found: dict[Key, int] = defaultdict(int)
        for span, first, last in whole_cells(begin, end):
            inside = (t.c.cluster == self._cluster, t.c.span == span, t.c.at >= first, t.c.at < last)
            query = select(t.c.group_id, func.sum(t.c.charge)).where(*inside).group_by(t.c.group_id)
            for group, amount in connection.execute(query):
                found[names[group]] += int(amount)
        return found

    def _edges(
        self, connection: Connection, names: Mapping[int, Key], begin: int, marks: Sequence[int]
    ) -> dict[Key, list[int]]:
        """What was held in [begin, mark) for each mark; ``begin`` is a whole hour."""
        t = tables.usage_hour
        levels: dict[Key, int] = defaultdict(int)
        here = (t.c.cluster == self._cluster, t.c.span == HOUR, t.c.at == begin, t.c.rate_at != 0)
        for group, rate in connection.execute(select(t.c.group_id, t.c.rate_at).where(*here)):
            levels[names[group]] += rate
        sums: dict[Key, list[list[int]]] = defaultdict(lambda: [[0, 0] for _ in marks])
        for key, index, rate, moment in self._changes(connection, begin, marks):
            sums[key][index][0] += rate
            sums[key][index][1] += moment
        return {
            key: edge(levels.get(key, 0), begin, marks, [(r, m) for r, m in sums[key]])
            for key in levels.keys() | sums.keys()
        }

    def _changes(self, connection: Connection, begin: int, marks: Sequence[int]) -> Iterator[Change]:
        """Where runs of one part started, ended or went on after their contract, summed by the database; runs of
        several parts one by one."""
        given = {"cluster": self._cluster, "begin": begin} | {f"mark_{i}": mark for i, mark in enumerate(marks)}
        for query in _queries(len(marks)):
            for budget, user, pool, charged_as, run_on, index, rate, moment in connection.execute(query, given):
                yield (budget, user, pool, charged_as, bool(run_on)), index, int(rate), int(moment)
        c = tables.run.c
        near = [and_(time >= begin, time < marks[-1]) for time in (c.start, c.end, c.protected_until)]
        several = (c.cluster == self._cluster, c.end.is_not(None), c.parts.is_not(None), or_(*near))
        for row in connection.execute(select(tables.run).where(*several)):
            run = rows.run_of(row)
            for piece in pieces(run, run.end or 0, run.charged_as):
                key = _key(piece.group)
                yield from _change(key, piece.begin, piece.rate, begin, marks, at_begin=True)
                yield from _change(key, piece.end, -piece.rate, begin, marks, at_begin=False)


def _key(group: Group) -> Key:
    return group.budget, group.user, group.pool, str(group.charged_as), group.run_on


def _change(key: Key, time: int, rate: int, begin: int, marks: Sequence[int], *, at_begin: bool) -> Iterator[Change]:
    if (time >= begin if at_begin else time > begin) and time < marks[-1]:
        index = next(i for i, mark in enumerate(marks) if time < mark)
        yield key, index, rate, rate * (time - begin)


@lru_cache(maxsize=16)
def _queries(count: int) -> tuple[Select[Any], ...]:
    """Sums of changes before each of so many marks: parameters ``cluster``, ``begin``, ``mark_0``... Built once: that
    takes longer than to run them on a small site.

    Starts count from ``begin`` on, ends after it: what ends just then is not in the level at ``begin`` either.
    """
    c, begin = tables.run.c, bindparam("begin", type_=BigInteger)
    marks = [bindparam(f"mark_{i}", type_=BigInteger) for i in range(count)]
    after_contract = and_(c.protected_until.is_not(None), c.protected_until <= c.start)
    ended_after = and_(c.protected_until.is_not(None), c.protected_until < c.end)
    went_on = and_(c.protected_until > c.start, c.protected_until < c.end)
    changes = (
        (c.start, 1, case((after_contract, 1), else_=0), c.start >= begin),
        (c.end, -1, case((ended_after, 1), else_=0), c.end > begin),
        (c.protected_until, -1, literal(0), and_(went_on, c.protected_until > begin)),
        (c.protected_until, 1, literal(1), and_(went_on, c.protected_until >= begin)),
    )
    one_part = and_(c.cluster == bindparam("cluster"), c.end.is_not(None), c.start < c.end, c.parts.is_(None))
    queries: list[Select[Any]] = []
    for time, sign, run_on, which in changes:
        index = case(*((time < mark, i) for i, mark in enumerate(marks)))
        columns = [c.budget, c.user, c.pool, c.charged_as, run_on.label("run_on"), index.label("mark")]
        inside = and_(one_part, time < marks[-1], which)
        rate = sign * c.rate
        found = select(*columns, rate.label("rate"), (rate * (time - begin)).label("moment")).where(inside).subquery()
        names = [found.c[i] for i in range(len(columns))]
        queries.append(select(*names, func.sum(found.c.rate), func.sum(found.c.moment)).group_by(*names))
    return tuple(queries)
