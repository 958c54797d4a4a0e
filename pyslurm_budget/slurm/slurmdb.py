"""Accounting rows straight from slurmdbd's MariaDB database, read-only: the quick implementation of ``Accounting``.

The same records as :class:`pyslurm_budget.slurm.sacct.SacctAccounting` gives, without the daemon that builds its
whole answer in memory, and with what only the database knows: when a row was changed. All of one read is one state of
the database, and rows are taken as they come, so a million of them need little memory on either side.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyslurm_budget.slurm import slurmdb_failures as failures
from pyslurm_budget.slurm.slurmdb_rows import NEEDED, reader, select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyslurm_budget.domain.model import RunRecord
    from pyslurm_budget.slurm.slurmdb_failures import Login

_FIRST_EPOCH = 1_000_000_000  # as sacct, which refuses less
_DAY = 86400
_CONNECT_SECONDS = 10
_SESSION = (
    # What one read sees is one state, however many statements it takes; and it can change nothing.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    # A server gives up a client that takes no rows for a minute; ours may be busy with those it has.
    "SET SESSION net_write_timeout = 600",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
# sacct's own condition: it hides what has not become eligible, and what becomes so later than a day from now.
_ELIGIBLE = "j.time_eligible > 0 AND j.time_eligible < %(horizon)s"
_ALIVE = f"(j.time_end = 0 OR j.time_end >= %(since)s) AND j.time_submit < %(until)s AND {_ELIGIBLE}"
# slurmdbd renews mod_time when it writes a job's start or end, not when it suspends one, moves its nodes, flushes a
# cluster's jobs or repairs a runaway one: open rows and late ends are read whatever their mod_time says. Ends and ids
# have an index, mod_time has none.
_CHANGED = f"(j.time_end = 0 OR j.time_end >= %(since)s{{more}}) AND {_ELIGIBLE}"
_NAMED = " OR j.id_job IN %(jobs)s"
_WRITTEN = " OR (j.time_end >= %(oldest)s AND j.mod_time >= %(written)s)"


class DatabaseAccounting:
    """Runs of one cluster as slurmdbd's database has them. Connects anew for each read, and keeps nothing open."""

    def __init__(self, login: Login, cluster: str) -> None:
        self._login = login
        self._cluster = cluster

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """Every run that was alive or waiting in [since, until), each requeued run by itself, in no order.

        Raises SlurmdbdError where the database does not answer, SlurmPermissionError, SlurmSetupError (no such
        database, cluster or table), SlurmOutputError (a schema or a row that cannot be read) and ConfigError (no
        driver, no password).
        """
        return self._read(_ALIVE, {"since": max(since, _FIRST_EPOCH), "until": until})

    def changed(
        self, since: int, jobs: Collection[int] = (), written: int | None = None, oldest: int = 0
    ) -> Iterator[RunRecord]:
        """Every run that has not ended, or did at ``since`` or later, and those of ``jobs`` (raw ids); with
        ``written`` also those whose row was written then or later (the database's time) and that ended at ``oldest``
        or later, for which the server looks at each row that may be one. Raises as :meth:`runs`.

        slurmdbd ends a lost run (``sacctmgr show runawayjobs``, a cluster that lost its state) at some time past
        without a trace in ``mod_time``: who has runs open names them.
        """
        where = _CHANGED.format(more=(_NAMED if jobs else "") + ("" if written is None else _WRITTEN))
        given = {"since": since, "jobs": tuple(jobs), "written": written, "oldest": oldest, "until": 0}
        return self._read(where, given)

    def _read(self, where: str, values: dict[str, Any]) -> Iterator[RunRecord]:
        mark = f"\x1f{secrets.token_hex(4)}\x1f"  # as for sacct: nobody can have written it into a comment
        with self._connected() as connection:
            tables = self._tables(connection)
            (now,), *_ = _fetch(connection, "SELECT UNIX_TIMESTAMP()")
            qos = _names(connection, "SELECT id, name FROM qos_table")
            tres = _names(connection, "SELECT id, IF(name = '', type, CONCAT(type, '/', name)) FROM tres_table")
            read = reader(mark, now, tres, qos)
            query = select(
                tables["{cluster}_job_table"], tables["{cluster}_assoc_table"], mark.encode("ascii"), where
            )
            rows = _stream(connection, query, {**values, "horizon": max(values["until"], now) + _DAY})
            for (row,) in rows:
                try:
                    record = read(row)
                except (ValueError, AttributeError) as error:
                    raise failures.unreadable(_shown(row, mark), error) from error
                yield record

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection in a transaction of its own; PyMySQL's errors become ours. Closing it ends the transaction."""
        try:
            import pymysql  # noqa: PLC0415 (an extra)
        except ImportError:
            raise failures.no_driver() from None
        connection = self._connect()
        try:
            for statement in _SESSION:
                _fetch(connection, statement)
            yield connection
        except (pymysql.MySQLError, OSError) as error:
            raise failures.failure(self._login, error) from error
        finally:
            if connection.open:
                connection.close()

    def _connect(self) -> Any:
        """A connection; whatever PyMySQL raises meanwhile is a failure of it: a stranger's answer may break anything
        in there, and a missing library for a way of login is a RuntimeError."""
        import pymysql  # noqa: PLC0415 (an extra)

        login = self._login
        password = failures.password_of(login)
        try:
            return pymysql.connect(
                host=login.host,
                port=login.port,
                unix_socket=str(login.socket) if login.socket else None,
                user=login.user,
                password=password,
                database=login.name,
                charset="utf8mb4",
                use_unicode=False,
                connect_timeout=min(_CONNECT_SECONDS, login.timeout),
                read_timeout=login.timeout,
                write_timeout=login.timeout,
            )
        except Exception as error:
            raise failures.failure(login, error) from error

    def _tables(self, connection: Any) -> dict[str, str]:
        """The quoted name of each table that is read; raises for what is not there."""
        names = {table: table.format(cluster=self._cluster) for table in NEEDED}
        question = (
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND (table_name IN %(names)s OR table_name = 'cluster_table')"
        )
        found: dict[str, set[str]] = {}
        for table, column in _fetch(connection, question, {"names": tuple(names.values())}):
            found.setdefault(table.decode("utf-8", "replace"), set()).add(column.decode("utf-8", "replace").lower())
        missing = [name for name in names.values() if name not in found]
        if missing:
            raise self._missing(connection, missing, "cluster_table" in found)
        lacking = [
            f"{names[table]}.{column}"
            for table, columns in NEEDED.items()
            for column in columns
            if column not in found[names[table]]
        ]
        if lacking:
            raise failures.unknown_schema(self._login, lacking)
        return {table: "`" + name.replace("`", "``").replace("%", "%%") + "`" for table, name in names.items()}

    def _missing(self, connection: Any, missing: list[str], clusters: bool) -> Exception:
        """The error for missing tables: of a cluster that slurmdbd does not have, or of one that it has."""
        if clusters:
            rows = _fetch(connection, "SELECT name FROM cluster_table WHERE deleted = 0")
            known = [name.decode("utf-8", "replace") for (name,) in rows]
            if self._cluster not in known:
                return failures.no_cluster(self._login, self._cluster, known)
        return failures.no_table(self._login, missing)


def _fetch(connection: Any, statement: str, values: dict[str, object] | None = None) -> list[Any]:
    """All rows of a small answer, texts as bytes."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _names(connection: Any, statement: str) -> dict[int, str]:
    return {number: name.decode("utf-8", "replace") for number, name in _fetch(connection, statement)}


def _stream(connection: Any, query: str, values: dict[str, object]) -> Iterator[Any]:
    """Rows as the server sends them. What is left when the reader stops is not read: the connection ends with it."""
    from pymysql.cursors import SSCursor  # noqa: PLC0415 (an extra)

    cursor = connection.cursor(SSCursor)
    try:
        cursor.execute(query, values)
        while rows := cursor.fetchmany(1000):
            yield from rows
    finally:
        # PyMySQL would otherwise read the rest of the answer, also from a connection that is gone.
        if cursor._result is not None:
            cursor._result.unbuffered_active = False


def _shown(row: object, mark: str) -> str:
    return row.decode("utf-8", "replace").replace(mark, "|") if isinstance(row, bytes) else "of more than 16 MiB"
