"""One cluster at two moments, and its syncs with a ledger: what tests kill, race and cut off.

``python -m tests.db.syncs URL`` makes one sync for each line that it reads, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, select

from pyslurm_budget.domain.model import Job, Mode, RunKey, RunRecord, Snapshot, Tres
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import SbudgetError
from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service import sync
from pyslurm_budget.service.gather import Gatherer
from pyslurm_budget.service.reconcile import Ports, Reconciler, Settings
from tests.build import DAY, HOUR, NOW, held, nodes, running, snapshot, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 20
RUNS = 36
NODES = 12
LATER = NOW + DAY + HOUR  # the whole window is read again
# What two moments of one cluster have in common and what not, by the rest of the job id.
ENDS, RUNS_ON, IS_NEW, IS_REPAIRED, IS_LOST = range(5)


def record(job_id: int, start: int, end: int | None, **changes: Any) -> RunRecord:
    """A row of accounting, of one or two GPUs."""
    given: dict[str, Any] = {
        "key": RunKey(job_id, start),
        "job_ref": str(job_id),
        "account": ("red", "blue")[job_id % 2],
        "user": ("ann", "bob", "eve")[job_id % 3],
        "qos": "spare" if job_id % 7 == 0 else "backed",
        "partition": "gpu",
        "state": "RUNNING" if end is None else "COMPLETED",
        "eligible": start,
        "start": start,
        "end": end,
        "suspended": 0,
        "time_limit": 7 * DAY,
        "tres": Tres(gpus=1 + job_id % 2),
        "requested_gpus": 1 + job_id % 2,
        "nodes": (f"n{1 + job_id % NODES}",),
    }
    return RunRecord(**{**given, **changes})


def moment(now: int) -> tuple[list[RunRecord], list[Job]]:
    """Rows of accounting and live jobs at ``NOW`` or ``LATER``: runs that end in between, go on, are new, are
    repaired late, are lost by slurmctld, or are not accounted yet."""
    late = now == LATER
    rows: list[RunRecord] = []
    jobs: list[Job] = []
    for job_id in range(1, RUNS + 1):
        kind, start = job_id % 5, NOW - HOUR - 977 * job_id
        end: int | None = None
        if kind == ENDS and late:
            end = NOW + 61 * job_id
        elif kind == IS_NEW:
            start = NOW + 31 * job_id
        elif kind == IS_REPAIRED:
            end = start + (1801 if late else 400) + job_id
        if start > now:
            continue
        row = record(job_id, start, end)
        accounted = not (late and kind == IS_NEW and job_id % 2)
        if accounted:
            rows.append(row)
        forgotten = late and kind == RUNS_ON and job_id % 2
        if end is None and kind != IS_LOST and not forgotten:
            share = held(row.nodes[0], row.requested_gpus)
            jobs.append(
                running(job_id, share, start=start, submit=start, account=row.account, user=row.user, qos=row.qos)
            )
    return rows, jobs


class Answers:
    """Accounting that has these rows."""

    def __init__(self, rows: list[RunRecord]) -> None:
        self._rows = rows

    def runs(self, _since: int, _until: int) -> Iterator[RunRecord]:
        return iter(self._rows)


def seen(now: int) -> Snapshot:
    """The cluster at that moment."""
    return snapshot(moment(now)[1], nodes(NODES), now)


def new(ledger: SqlLedger) -> None:
    """Budgets, and the state at ``NOW``."""
    ledger.save_budgets(tree().budgets.values(), NOW - DAY, "root", "")
    synced(ledger, NOW)


def synced(ledger: SqlLedger, now: int, mode: Mode = Mode.OBSERVE) -> None:
    """What a cycle writes of the past: accounting in several transactions, then contracts."""
    sync.BATCH = BATCH
    gatherer = Gatherer(Answers(moment(now)[0]), ledger, Policy(), mode, seen(now))
    gatherer.sync()
    gatherer.situation()


def written(ledger: SqlLedger) -> dict[str, list[tuple[Any, ...]]]:
    """All that syncs write of the cluster: names of groups instead of their ids, and no cells of nothing."""
    mine = ledger._cluster
    u, g = tables.usage_hour, tables.usage_group
    names = [c for c in g.c if c.name not in ("id", "cluster", "digest")]
    cells = select(u.c.span, u.c.at, u.c.gpu_seconds, u.c.charge, u.c.gpus_at, u.c.rate_at, *names)
    queries = {"usage": cells.join(g, u.c.group_id == g.c.id).where(u.c.cluster == mine)}
    for table in (tables.run, tables.contract, tables.sync, tables.setting):
        queries[table.name] = select(*(c for c in table.c if c.name != "cluster")).where(table.c.cluster == mine)
    with ledger._read() as connection:
        found = {name: [tuple(row) for row in connection.execute(query)] for name, query in queries.items()}
    found["usage"] = [row for row in found["usage"] if any(row[2:6])]
    return {name: sorted(rows, key=str) for name, rows in found.items()}


class FixedCluster:
    """A slurmctld that shows this; the other reads are not made by a sync."""

    def __init__(self, now: int) -> None:
        self._now = now

    def snapshot(self) -> Snapshot:
        return seen(self._now)


def controller(ledger: SqlLedger, holder: str) -> Reconciler:
    """The controller of ``sbudget sync`` at ``LATER``."""
    live: Any = FixedCluster(LATER)
    nobody: Any = None
    sync.BATCH = BATCH
    ports = Ports(live, Answers(moment(LATER)[0]), nobody, ledger, None, lambda: LATER)
    return Reconciler(Settings(Policy(), Mode.OBSERVE, holder), ports)


@contextmanager
def points(ledger: SqlLedger, reached: Callable[[int, str, Any], None]) -> Iterator[None]:  # noqa: C901
    """Tells the number, the name and the connection of each point of a sync where it may be cut off: before and after
    each statement that writes, and before and after the commit of such."""
    engine, number, wrote = ledger._engine, 0, False

    def tell(name: str, connection: Any) -> None:
        nonlocal number
        number += 1
        reached(number, name, connection)

    def writes(text: str) -> bool:
        return text.startswith(("INSERT", "UPDATE", "DELETE"))

    def before(_c: Any, cursor: Any, text: str, *_: Any) -> None:
        if writes(text):
            tell("before " + text, cursor.connection)

    def after(_c: Any, cursor: Any, text: str, *_: Any) -> None:
        nonlocal wrote
        if writes(text):
            wrote = True
            tell("after " + text, cursor.connection)

    def commit(connection: Any) -> None:
        if wrote:
            tell("before COMMIT", connection.connection.dbapi_connection)

    def checkin(connection: Any, _record: Any) -> None:
        nonlocal wrote
        if wrote:
            wrote = False
            tell("after COMMIT", connection)

    listeners = (
        ("before_cursor_execute", before),
        ("after_cursor_execute", after),
        ("commit", commit),
        ("checkin", checkin),
    )
    for name, function in listeners:
        event.listen(engine, name, function)
    try:
        yield
    finally:
        for name, function in listeners:
            event.remove(engine, name, function)


def serve(url: str) -> None:
    """For each line ``CLUSTER HOW WHERE``: a sync in a child; prints its exit status and what it said. Children are
    forked before any connection is made, so that one takes milliseconds and not the start of Python.

    ``point N`` dies at that point, ``after SECONDS`` is killed then, ``limit BYTES`` can write no larger files, and
    ``lease HOLDER`` is the controller's, which takes the lease.
    """
    children: list[tuple[int, int]] = []
    for line in sys.stdin:
        if line == "end\n":
            for child, said in children:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                with os.fdopen(said, encoding="utf-8") as stream:
                    print(json.dumps([status, stream.read()]), flush=True)
            children.clear()
            continue
        cluster, how, where = line.split()
        said, say = os.pipe()
        child = os.fork()
        if child == 0:
            _synced(url, cluster, how, where, say)
        os.close(say)
        children.append((child, said))
        if how == "after":
            time.sleep(float(where))
            os.kill(child, signal.SIGKILL)


def _synced(url: str, cluster: str, how: str, where: str, say: int) -> None:
    def reached(number: int, _name: str, _connection: object) -> None:
        if how == "point" and str(number) == where:
            os.kill(os.getpid(), signal.SIGKILL)

    status = 0
    try:
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(where), int(where)))
        ledger = SqlLedger(url, cluster)
        if how == "lease":
            controller(ledger, where).sync()
        else:
            with points(ledger, reached):
                synced(ledger, LATER)
    except SbudgetError as error:
        status = error.exit_status
        os.write(say, str(error).encode())
    except BaseException as error:  # a forked child must never go on as its parent
        status = 1
        os.write(say, repr(error).encode())
    os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
