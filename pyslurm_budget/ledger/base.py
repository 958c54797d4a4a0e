"""What all parts of the ledger share: the transaction, upserts by hand, and named values."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import delete, insert, select, update

from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.engine import transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine, Table

CHUNK = 500
T = TypeVar("T")


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most 500: databases limit the number of parameters."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


class Base:
    """A connection to the ledger of one cluster."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        """The schema must be that of this release."""
        self._engine = engine
        self._cluster = cluster

    def _begin(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine)

    def _upsert(self, connection: Connection, table: Table, key: dict[str, Any], values: dict[str, Any]) -> None:
        """Update the row, or insert it: the lease keeps two writers apart, so the portable way is enough."""
        where = [table.c[name] == value for name, value in key.items()]
        if connection.execute(select(table).where(*where)).first() is None:
            connection.execute(insert(table).values(key | values))
        else:
            connection.execute(update(table).where(*where).values(values))

    def _get(self, connection: Connection, name: str) -> str | None:
        t = tables.setting
        query = select(t.c.value).where(t.c.cluster == self._cluster, t.c.name == name)
        found: str | None = connection.execute(query).scalar()
        return found

    def _put(self, connection: Connection, name: str, value: str | None) -> None:
        t = tables.setting
        if value is None:
            connection.execute(delete(t).where(t.c.cluster == self._cluster, t.c.name == name))
        else:
            self._upsert(connection, t, {"cluster": self._cluster, "name": name}, {"value": value})

    def get(self, name: str) -> str | None:
        """A small named value."""
        with self._begin() as connection:
            return self._get(connection, name)

    def put(self, name: str, value: str | None) -> None:
        """Set or (``None``) remove a small named value."""
        with self._begin() as connection:
            self._put(connection, name, value)
