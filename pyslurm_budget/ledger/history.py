"""What ended runs held since each of several times: whole hours from the rollup, edges from the runs near them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import cache
from operator import attrgetter
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


# Budget, user, pool, class that counts, and whether it is run-on.
Key = tuple[str | None, str, str | None, str, bool]
MANY = 5000
Change = tuple[Key, int, int]
"""Key, time, and by how much the rate grows then."""


class Histories(Rollup):
    """The part of the ledger that the books are opened from."""

    def history(self, marks: Sequence[int], now: int) -> tuple[History, ...]:
        """See :class:`pyslurm_budget.service.ports.Ledger`. Exact to the second; runs without a budget or a pool are
        left out, since nobody is charged for them."""
        first, last = marks[0] - marks[0] % HOUR, now - now % HOUR
        with self._read() as connection:
            names = self._keys(connection)
            whole = self._whole(connection, names, first, last)
            before = self._edges(connection, names, first, marks)
            after = self._edges(connection, names, last, (now,))
        nothing = [0] * len(marks)
        found = []
        for key in whole.keys() | before.keys() | after.keys():
            budget, user, pool, charged_as, run_on = key
            if budget is None or pool is None:
                continue
            upto = whole.get(key, 0) + after.get(key, [0])[0]
            amounts = tuple(upto - gone for gone in before.get(key, nothing))
            if any(amounts):
                found.append(History(budget, user, pool, WorkClass(charged_as), bool(run_on), amounts))
        return tuple(sorted(found, key=attrgetter("budget", "user", "pool", "work_class", "run_on")))

    def _keys(self, connection: Connection) -> dict[int, Key]:
        c = tables.usage_group.c
        query = select(c.id, c.budget, c.user, c.pool, c.charged_as, c.run_on).where(c.cluster == self._cluster)
        return {i: (b, u, p, as_, run_on) for i, b, u, p, as_, run_on in connection.execute(query).all()}

    def _whole(self, connection: Connection, names: Mapping[int, Key], begin: int, end: int) -> dict[Key, int]:
        t = tables.usage_hour
        found: dict[Key, int] = defaultdict(int)
        for sign, span, first, last in whole_cells(begin, end):
            inside = (t.c.cluster == self._cluster, t.c.span == span, t.c.at >= first, t.c.at < last)
            query = select(t.c.group_id, func.sum(t.c.charge)).where(*inside).group_by(t.c.group_id)
            for group, amount in connection.execute(query).all():
                found[names[group]] += sign * int(amount)
        return found

    def _edges(
        self, connection: Connection, names: Mapping[int, Key], begin: int, marks: Sequence[int]
    ) -> dict[Key, list[int]]:
        """What was held in [begin, mark) for each mark; ``begin`` is a whole hour."""
        t = tables.usage_hour
        levels: dict[Key, int] = defaultdict(int)
        here = (t.c.cluster == self._cluster, t.c.span == HOUR, t.c.at == begin, t.c.rate_at != 0)
        for group, rate in connection.execute(select(t.c.group_id, t.c.rate_at).where(*here)).all():
            levels[names[group]] += rate
        sums: dict[Key, dict[int, list[int]]] = defaultdict(dict)
        for key, time, rate in self._changes(connection, begin, marks[-1]):
            total = sums[key].setdefault(bisect_right(marks, time), [0, 0])
            total[0] += rate
            total[1] += rate * (time - begin)
        return {key: edge(levels.get(key, 0), begin, marks, sums.get(key, {})) for key in levels.keys() | sums.keys()}

    def _changes(self, connection: Connection, begin: int, end: int) -> Iterator[Change]:
        """Where runs started, ended or went on after their contract, in [begin, end)."""
        given = {"cluster": self._cluster, "begin": begin, "end": end}
        for query in _queries():
            for some in connection.execute(query, given).partitions(MANY):
                for budget, user, pool, charged_as, run_on, time, change in some:
                    yield (budget, user, pool, charged_as, run_on), time, change
        c = tables.run.c
        near = [and_(time >= begin, time < end) for time in (c.start, c.end, c.protected_until)]
        several = (c.cluster == self._cluster, c.end.is_not(None), c.parts.is_not(None), or_(*near))
        for row in connection.execute(select(tables.run).where(*several)):
            run = rows.run_of(row)
            for piece in pieces(run, run.end or 0, run.charged_as):
                g = piece.group
                key = (g.budget, g.user, g.pool, str(g.charged_as), g.run_on)
                if begin <= piece.begin < end:
                    yield key, piece.begin, piece.rate
                if begin < piece.end < end:
                    yield key, piece.end, -piece.rate


@cache
def _queries() -> tuple[Select[Any], ...]:
    """Changes of runs of one part: key, time and rate. Parameters ``cluster``, ``begin`` and ``end``. Built once:
    that takes longer than to run them. The database does not sum them: nearly every row is of another
    key or before another mark, so it would sort them all to give as many.

    Starts count from ``begin`` on, ends after it: what ends just then is not in the level at ``begin`` either.
    """
    c, begin = tables.run.c, bindparam("begin", type_=BigInteger)
    after_contract = and_(c.protected_until.is_not(None), c.protected_until <= c.start)
    ended_after = and_(c.protected_until.is_not(None), c.protected_until < c.end)
    went_on = and_(c.protected_until > c.start, c.protected_until < c.end)
    changes = (
        (c.start, c.rate, case((after_contract, 1), else_=0), c.start >= begin),
        (c.end, -c.rate, case((ended_after, 1), else_=0), c.end > begin),
        (c.protected_until, -c.rate, literal(0), and_(went_on, c.protected_until > begin)),
        (c.protected_until, c.rate, literal(1), and_(went_on, c.protected_until >= begin)),
    )
    one_part = and_(c.cluster == bindparam("cluster"), c.end.is_not(None), c.start < c.end, c.parts.is_(None))
    return tuple(
        select(c.budget, c.user, c.pool, c.charged_as, run_on.label("run_on"), time, rate.label("change")).where(
            one_part, time < bindparam("end", type_=BigInteger), which
        )
        for time, rate, run_on, which in changes
    )
