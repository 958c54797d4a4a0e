"""Who used what: sums over runs cut to a period, made by the database in whole numbers, one statement a period.

Three databases must give one answer. So whole numbers are divided to whole numbers, sums come back as Python's
integers whatever the database calls them, and names are ordered by their bytes (PostgreSQL would ask its locale).
"""

from __future__ import annotations

import json
from contextlib import closing
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, case, func, literal, or_, select, union_all

from pyslurm_budget.domain.model import MILLI, WorkClass
from pyslurm_budget.ledger import rows, tables
from pyslurm_budget.ledger.base import Base
from pyslurm_budget.service.usage import NONE, UNTYPED, UsageQuery, UsageSum

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Subquery

    from pyslurm_budget.service.ports import RunFacts

Number = Any  # an SQL expression of whole numbers
_AT_ONCE = 2000
_FEW = 3
_SEVERAL = tables.run.c.parts.is_not(None)
_DIVIDES = 8  # the precedence of * and /


class Usage(Base):
    """The part of the ledger that reports are made of."""

    def usage(self, queries: Sequence[UsageQuery]) -> Iterator[tuple[int, UsageSum]]:
        """See :class:`pyslurm_budget.service.usage.UsageLedger`."""
        with self._read() as connection:
            longest = self._longest(connection) if len(queries) > _FEW else None
            for number, query in enumerate(queries):
                for found in self._sums(connection, query, longest):
                    yield number, found

    def _longest(self, connection: Connection) -> int:
        """The longest of the ended runs: what ends in a period began no earlier than so long before it. That bounds
        what is looked at for each of many periods on both sides."""
        c = tables.run.c
        query = select(func.max(c.end - c.start)).where(c.cluster == self._cluster)
        return int(connection.execute(query).scalar() or 0)

    def unknown_runs(self, query: UsageQuery) -> Iterator[RunFacts]:
        """See :class:`pyslurm_budget.service.usage.UsageLedger`."""
        c = tables.run.c
        held = _held(self._cluster, query)
        same = and_(c.job_id == held.c.job_id, c.submit == held.c.submit, c.cluster == self._cluster)
        unknown = and_(c.gpus.is_(None), held.c.hi > held.c.lo)
        runaway = and_(c.charged_to.is_not(None), c.start < query.end)
        wanted = select(tables.run).join(held, same).where(or_(unknown, runaway))
        with self._read() as connection:
            ordered = wanted.order_by(c.start, c.job_id, c.submit).execution_options(yield_per=_AT_ONCE)
            with connection.execute(ordered) as found:
                yield from map(rows.run_of, found)

    def usage_span(self) -> tuple[int, int | None] | None:
        """See :class:`pyslurm_budget.service.usage.UsageLedger`."""
        c = tables.run.c
        mine = c.cluster == self._cluster
        is_open = select(c.start).where(mine, c.end.is_(None), c.start.is_not(None)).limit(1)
        with self._read() as connection:
            # One at a time: each is then one look into its index.
            first = connection.execute(select(func.min(c.start)).where(mine)).scalar()
            last = connection.execute(select(func.max(c.end)).where(mine)).scalar()
            still_runs = connection.execute(is_open).first() is not None
        return None if first is None else (first, None if still_runs else last)

    def _sums(self, connection: Connection, query: UsageQuery, longest: int | None) -> Iterator[UsageSum]:
        """The sums of one query. A run with GPUs of several flavors is in a group of each, if they are told apart."""
        dialect = connection.dialect.name
        if not {"pool", "flavor"} & set(query.by):
            yield from _read(connection, _grouped(_held(self._cluster, query, longest), query, dialect), query)
            return
        several = _of_several(connection, _held(self._cluster, query, longest, _SEVERAL), query, dialect)
        single = _read(connection, _grouped(_held(self._cluster, query, longest, ~_SEVERAL), query, dialect), query)
        with closing(single):
            ordered = merge(several, single, key=lambda found: found.keys)
            yield from (_together(keys, sums) for keys, sums in groupby(ordered, key=lambda found: found.keys))


def _read(connection: Connection, grouped: Select[Any], query: UsageQuery) -> Generator[UsageSum]:
    """The rows of one statement, closed also where the reader stops early."""
    width = len(query.by)
    with connection.execute(grouped.execution_options(yield_per=_AT_ONCE)) as found:
        for row in found:
            if row.runs:  # without a grouping there is one row, also over nothing
                yield UsageSum(tuple(row[:width]), *(int(amount) for amount in row[width:]))


def _of_several(connection: Connection, held: Subquery, query: UsageQuery, dialect: str) -> list[UsageSum]:
    """The sums of the runs of several parts, which are few: added up here, a part at a time."""
    h = held.c
    amounts = [h.hi - h.lo, h.backed, case((h.suspended > 0, _suspended(h, dialect)), else_=_number(0))]
    keys = [h[f"k{i}"] for i in range(len(query.by))]
    sums: dict[tuple[str, ...], UsageSum] = {}
    for *names, text, seconds, backed, suspended in connection.execute(
        select(*keys, h.parts, *amounts).where(h.hi > h.lo)
    ):
        whole = dict(zip(query.by, names, strict=True))
        counted = set()
        for pool, flavor, gpus, rate in json.loads(text):
            named = whole | {"pool": pool or NONE, "flavor": flavor or UNTYPED}
            key = tuple(named[name] for name in query.by)
            run = UsageSum(key, gpus * seconds, backed * rate * seconds, gpus * suspended, key not in counted, 0)
            sums[key] = _together(key, [run, sums[key]] if key in sums else [run])
            counted.add(key)
    return [sums[key] for key in sorted(sums)]


def _together(keys: tuple[str, ...], sums: Iterable[UsageSum]) -> UsageSum:
    """One sum of several."""
    columns = zip(*((s.gpu_seconds, s.charged, s.suspended, s.runs, s.unknown_runs) for s in sums), strict=True)
    return UsageSum(keys, *map(sum, columns))


def _held(
    cluster: str, query: UsageQuery, longest: int | None = None, which: ColumnElement[bool] | None = None
) -> Subquery:
    """One row a run that may have held something in the period: ``lo`` and ``hi`` are the part of it inside."""
    c = tables.run.c
    start, end = _number(query.start), _number(query.end)
    till = _till(query)
    keys = [_key(name).label(f"k{i}") for i, name in enumerate(query.by)]
    lo = case((c.start > start, c.start), else_=start)
    hi = case((till < end, till), else_=end)
    backed = case((tables.run.c.charged_as == str(WorkClass.BACKED), _number(1)), else_=_number(0))
    columns: list[Any] = [*keys, c.job_id, c.submit, c.start, c.gpus, c.rate, c.suspended, c.parts]
    columns += [lo.label("lo"), hi.label("hi"), till.label("till"), backed.label("backed")]
    mine = select(*columns).where(c.cluster == cluster, *(() if which is None else (which,)))
    for name, wanted in (("account", query.accounts), ("user", query.users)):
        if wanted:
            mine = mine.where(_key(name).in_(wanted))
    ended = mine.where(c.end > start)
    if longest is not None:
        ended = ended.where(c.start > start - longest, c.start < end)
    # Two halves with one condition each, not one with an OR, so that databases look only at what is near the period;
    # what they find beside it has no part inside.
    return union_all(ended, mine.where(c.end.is_(None))).subquery()


def _till(query: UsageQuery) -> Number:
    """When a run ended, or until when one that has no end counts: a runaway row no longer than it is charged."""
    c = tables.run.c
    until = _number(query.until)
    ways: list[tuple[Any, Number]] = [(c.end.is_not(None), c.end), (c.charged_to < until, c.charged_to)]
    if query.to_limit:
        limit = c.start + c.time_limit + c.suspended
        ways.append((limit < until, limit))
    return case(*ways, else_=until)


def _key(name: str) -> ColumnElement[str]:
    c = tables.run.c
    if name == "class":
        return tables.run.c.charged_as
    column, missing = (c.gpu_type, UNTYPED) if name == "flavor" else (c[name], NONE)
    return func.coalesce(func.nullif(column, ""), missing)


def _grouped(held: Subquery, query: UsageQuery, dialect: str) -> Select[Any]:
    h = held.c
    keys = [h[f"k{i}"] for i in range(len(query.by))]
    seconds = h.hi - h.lo
    gpus = func.coalesce(h.gpus, _number(0))
    suspended = case((h.suspended > 0, gpus * _suspended(h, dialect)), else_=_number(0))
    amounts = [
        func.coalesce(func.sum(gpus * seconds), 0),
        func.coalesce(func.sum(h.backed * h.rate * seconds), 0),
        func.coalesce(func.sum(suspended), 0),
        func.count().label("runs"),
        func.coalesce(func.sum(case((h.gpus.is_(None), 1), else_=0)), 0),
    ]
    by_bytes = [key.collate("C") if dialect == "postgresql" else key for key in keys]
    return select(*keys, *amounts).where(h.hi > h.lo).group_by(*keys).order_by(*by_bytes)


def _suspended(h: Any, dialect: str) -> Number:
    """Thousandths of a second of the part inside that were suspended, if that is spread evenly over the run.

    The difference of two amounts since the start, each rounded down: parts that meet add up to the whole exactly.
    """
    length = h.till - h.start
    whole = case((h.suspended < length, h.suspended), else_=length)

    def until(time: Number) -> Number:
        product = whole * (time - h.start)
        quotient = _divided(product, length, dialect)
        rest = product - quotient * length
        return quotient * MILLI + _divided(rest * MILLI, length, dialect)

    return until(h.hi) - until(h.lo)


def _divided(amount: Number, by: Number, dialect: str) -> Number:
    """The whole part. In MariaDB ``/`` is a decimal rounded to four digits, so that its floor may be one too many."""
    sign = "DIV" if dialect == "mysql" else "/"
    return amount.op(sign, precedence=_DIVIDES, return_type=BigInteger())(by)


def _number(value: int) -> Number:
    """A number that every database takes for one of 64 bits."""
    return literal(value, BigInteger())
