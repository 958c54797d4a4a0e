"""What all parts of the ledger share: transactions, upserts, and named values."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import delete, or_, select

from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.engine import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Column, ColumnElement, Connection, Dialect, Engine, Insert, Table

CHUNK = 500
T = TypeVar("T")


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most 500: databases limit the number of parameters."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def upsert(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *, adding: Collection[str] = ()
) -> None:
    """Insert the rows; of those whose primary key is there already replace the other columns, or (``adding``) add
    to them. One statement for each row, so that two writers of one row wait for each other and none is lost."""
    if rows:
        columns = tuple(rows[0])
        upsert_values(connection, table, columns, [tuple(row[c] for c in columns) for row in rows], adding=adding)


def upsert_values(
    connection: Connection,
    table: Table,
    columns: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
    *,
    adding: Collection[str] = (),
) -> None:
    """The same of rows that are given as the values of these columns."""
    if rows:
        text, parameters = _compiled(connection.dialect, table, columns, frozenset(adding))
        # Straight to the driver: building parameters for SQLAlchemy's own form costs more than writing the row.
        connection.exec_driver_sql(text, parameters(rows))


@lru_cache(maxsize=100)
def _compiled(
    dialect: Dialect, table: Table, columns: tuple[str, ...], adding: frozenset[str]
) -> tuple[str, Callable[[Sequence[tuple[Any, ...]]], Any]]:
    """The statement for the driver, and what makes its parameters, by order or by name, of rows of values."""
    compiled: Any = _upsert_of(dialect.name, table, columns, adding).compile(dialect=dialect, column_keys=columns)
    if not compiled.positional:
        return str(compiled), lambda rows: [dict(zip(columns, row, strict=True)) for row in rows]
    if columns == tuple(compiled.positiontup):
        return str(compiled), lambda rows: rows
    order = itemgetter(*map(columns.index, compiled.positiontup))
    return str(compiled), lambda rows: [*map(order, rows)]


def _upsert_of(dialect: str, table: Table, columns: Iterable[str], adding: frozenset[str]) -> Insert:
    key = [column.name for column in table.primary_key]
    others = [name for name in columns if name not in key]

    def values(new: Any) -> dict[str, Any]:
        return {name: table.c[name] + new[name] if name in adding else new[name] for name in others}

    if dialect == "mysql":
        from sqlalchemy.dialects import mysql

        insert = mysql.insert(table)
        return insert.on_duplicate_key_update(values(insert.inserted))
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        of_postgresql = postgresql.insert(table)
        return of_postgresql.on_conflict_do_update(index_elements=key, set_=values(of_postgresql.excluded))
    from sqlalchemy.dialects import sqlite

    of_sqlite = sqlite.insert(table)
    return of_sqlite.on_conflict_do_update(index_elements=key, set_=values(of_sqlite.excluded))


MOST_DIGITS = 18  # of a job id that is looked for: more do not fit into BIGINT


def named(ref: str, refs: Column[str], job_ids: Column[int]) -> ColumnElement[bool]:
    """Whether a row is of the job that people call ``ref``: its readable id, or its raw one."""
    by_ref = refs == ref
    if ref.isascii() and ref.isdigit() and len(ref) <= MOST_DIGITS:
        return or_(by_ref, job_ids == int(ref))
    return by_ref


class Base:
    """A connection to the ledger of one cluster."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        """The schema must be that of this release."""
        self._engine = engine
        self._cluster = cluster

    def _begin(self) -> AbstractContextManager[Connection]:
        """A transaction that writes."""
        return transaction(self._engine)

    def _read(self) -> AbstractContextManager[Connection]:
        """A transaction that only reads, all of it one state."""
        return transaction(self._engine, reading=True)

    def _upsert(self, connection: Connection, table: Table, key: dict[str, Any], values: dict[str, Any]) -> None:
        """One row."""
        upsert(connection, table, [key | values])

    def _get(self, connection: Connection, name: str) -> str | None:
        t = tables.setting
        query = select(t.c.value).where(t.c.cluster == self._cluster, t.c.name == name)
        found: str | None = connection.execute(query).scalar()
        return found

    def _put(self, connection: Connection, name: str, value: str) -> None:
        upsert(connection, tables.setting, [{"cluster": self._cluster, "name": name, "value": value}])

    def _alone(self, connection: Connection, what: str) -> None:
        """Hold the named row until this transaction ends: of two that read and then write, one waits."""
        self._put(connection, f"lock:{what}", "")

    def get(self, name: str) -> str | None:
        """A small named value."""
        with self._read() as connection:
            return self._get(connection, name)

    def put(self, name: str, value: str | None) -> None:
        """Set or (``None``) remove a small named value."""
        t = tables.setting
        with self._begin() as connection:
            if value is None:
                connection.execute(delete(t).where(t.c.cluster == self._cluster, t.c.name == name))
            else:
                self._put(connection, name, value)
