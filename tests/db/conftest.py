"""The databases of these tests: an SQLite file, and real MariaDB and PostgreSQL servers, each started once.

Every table has the cluster in its key, so tests share one database and take a cluster each.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from tests.db import servers
from tests.db.servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVERS = [pytest.param(name, marks=pytest.mark.database) for name in ("mariadb", "postgresql")]
KINDS = ["sqlite", *SERVERS]
MOST_OPEN = 8
_numbers = count(1)


def new_cluster() -> str:
    """A cluster that no other test has."""
    return f"c{next(_numbers)}"


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A MariaDB server."""
    with servers.mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server."""
    with servers.postgresql() as server:
        yield server


def _new(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        folder = request.getfixturevalue("tmp_path_factory").mktemp("ledger")
        return f"sqlite:///{folder}/ledger.sqlite"
    server: Server = request.getfixturevalue(kind)
    return server.new()


@pytest.fixture(scope="session", params=KINDS)
def database(request: pytest.FixtureRequest) -> str:
    """URL of a database with the schema of this release."""
    url = _new(request.param, request)
    upgrade(url)
    return url


@pytest.fixture(params=KINDS)
def empty(request: pytest.FixtureRequest) -> str:
    """URL of a new database with nothing in it."""
    return _new(request.param, request)


@pytest.fixture
def opened(database: str) -> Iterator[Callable[[str], SqlLedger]]:
    """Opens ledgers of a cluster in the database, as often as asked; each is closed at the end, or when so many were
    opened after it that no test uses it any more: a server has only so many connections."""
    found: deque[SqlLedger] = deque()

    def open_(cluster: str) -> SqlLedger:
        if len(found) == MOST_OPEN:
            found.popleft().close()
        found.append(SqlLedger(database, cluster))
        return found[-1]

    yield open_
    for ledger in found:
        ledger.close()


@pytest.fixture
def ledger(opened: Callable[[str], SqlLedger]) -> SqlLedger:
    """An empty ledger of a cluster of its own."""
    return opened(new_cluster())
