"""A sync that is killed, cut off or made twice at once: the next one brings the ledger to what it would have been."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text

from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import LeaseHeldError, LedgerError
from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.dump import load_dump
from pyslurm_budget.service.ports import SyncState
from tests.db import door, syncs
from tests.db.conftest import SERVERS, new_cluster
from tests.db.other import ROOT
from tests.db.servers import PASSWORD
from tests.db.syncs import LATER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyslurm_budget.service.ports import RunFacts

Written = dict[str, list[tuple[Any, ...]]]
KILLED = -signal.SIGKILL
# Each cluster is killed so often before a sync comes through, on servers: to begin with a cluster takes longest.
IN_A_ROW = 7


@pytest.fixture
def sync_as(database: str) -> Iterator[Callable[..., list[tuple[int, str]]]]:
    """Makes a sync for each argument ``CLUSTER HOW WHERE``, all at once: exit statuses, and what was said."""
    yield from _syncs(database)


def _syncs(url: str) -> Iterator[Callable[..., list[tuple[int, str]]]]:
    argv = [sys.executable, "-m", "tests.db.syncs", url]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None

        def sync(*lines: str) -> list[tuple[int, str]]:
            requests.write("".join(f"{line}\n" for line in (*lines, "end")))
            requests.flush()
            return [tuple(json.loads(answers.readline())) for _ in lines]

        yield sync
        requests.close()


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[Written, Written, int]:
    """What a ledger has after a sync that nobody disturbed, and after the same once more; how many points it has."""
    url = f"sqlite:///{tmp_path_factory.mktemp('right')}/ledger.sqlite"
    upgrade(url)
    ledger = SqlLedger(url, "right")
    syncs.new(ledger)
    names: list[str] = []
    with syncs.points(ledger, lambda _number, name, _connection: names.append(name)):
        syncs.synced(ledger, LATER)
    once = syncs.written(ledger)
    syncs.synced(ledger, LATER)
    twice = syncs.written(ledger)
    ledger.close()
    # A run that slurmctld does not know is believed to be gone when that is seen twice; nothing else may differ.
    assert {name for name in once if once[name] != twice[name]} == {"run"}
    tables = {found[2] for name in names if (found := re.match(r"(before|after) INSERT INTO (\w+)", name))}
    assert tables == {"setting", "run", "usage_group", "usage_hour", "sync", "contract"}
    return once, twice, len(names)


def _begun(ledger: SqlLedger) -> SqlLedger:
    syncs.new(ledger)
    return ledger


def _whole(ledger: SqlLedger) -> None:
    """Nothing in the ledger contradicts anything else."""
    assert ledger.verify(LATER)[1] == ()


def _comes_right(ledger: SqlLedger, right: tuple[Written, Written, int]) -> None:
    """After the next sync all is as if nothing had happened."""
    _whole(ledger)
    syncs.synced(ledger, LATER)
    _whole(ledger)
    assert syncs.written(ledger) in right[:2]


def test_killed_at_each_point(
    database: str,
    opened: Callable[[str], SqlLedger],
    sync_as: Callable[..., list[tuple[int, str]]],
    right: tuple[Written, Written, int],
) -> None:
    in_a_row = 1 if database.startswith("sqlite") else IN_A_ROW
    points = range(1, right[2] + 1)
    for first in points[: len(points) // in_a_row + 1]:
        cluster = new_cluster()
        ledger = _begun(opened(cluster))
        for point in points[first - 1 :: len(points) // in_a_row + 1] if in_a_row > 1 else [first]:
            ((status, said),) = sync_as(f"{cluster} point {point}")
            assert status == KILLED or in_a_row > 1, said
            _whole(ledger)
        _comes_right(ledger, right)
        ledger.close()


def test_killed_at_any_time(
    opened: Callable[[str], SqlLedger],
    sync_as: Callable[..., list[tuple[int, str]]],
    right: tuple[Written, Written, int],
) -> None:
    dice = random.Random(7)
    ends: list[int] = []
    for _ in range(4):
        cluster = new_cluster()
        ledger = _begun(opened(cluster))
        for _ in range(6):
            ((status, _said),) = sync_as(f"{cluster} after {dice.uniform(0.005, 0.25)}")
            ends.append(status)
            _whole(ledger)
        _comes_right(ledger, right)
        ledger.close()
    assert set(ends) <= {KILLED, 0}
    assert ends.count(KILLED) > len(ends) // 3


def test_two_at_once_one_says_so(
    opened: Callable[[str], SqlLedger],
    sync_as: Callable[..., list[tuple[int, str]]],
    right: tuple[Written, Written, int],
) -> None:
    """With the lease: one reads, the others end with a status of their own."""
    cluster = new_cluster()
    ledger = _begun(opened(cluster))
    ends = sync_as(*(f"{cluster} lease host:{i}" for i in range(4)))
    assert {status for status, _ in ends} <= {0, LeaseHeldError.exit_status}
    assert 0 in {status for status, _ in ends}
    assert all("holds the lease" in said for status, said in ends if status)
    ledger.take_lease("host:9", LATER, LATER + 60)
    ((status, said),) = sync_as(f"{cluster} lease host:1")
    assert (status, "host:9" in said) == (LeaseHeldError.exit_status, True)
    ledger.drop_lease("host:9")
    _comes_right(ledger, right)


def test_two_at_once_without_the_lease(
    opened: Callable[[str], SqlLedger],
    sync_as: Callable[..., list[tuple[int, str]]],
    right: tuple[Written, Written, int],
) -> None:
    """As where one is so slow that its lease has expired: each waits for the other's transactions."""
    for _ in range(3):
        cluster = new_cluster()
        ledger = _begun(opened(cluster))
        assert sync_as(*(f"{cluster} point 0" for _ in range(3))) == [(0, "")] * 3
        _whole(ledger)
        assert syncs.written(ledger) in right[:2]


def test_a_dump_beside_a_sync(opened: Callable[[str], SqlLedger], monkeypatch: pytest.MonkeyPatch) -> None:
    """The dump saw a run running; before it is saved, a sync brings the run's end, and finishes the first read."""
    cluster = new_cluster()
    ledger, beside = opened(cluster), opened(cluster)
    save = ledger.save_runs
    saved: list[RunFacts] = []

    def late(*arguments: Any) -> int:
        if not saved:
            syncs.synced(beside, LATER)
            saved.extend(beside.runs_between(0, 1 << 40))
        return save(*arguments)

    monkeypatch.setattr(ledger, "save_runs", late)
    running = [syncs.record(job_id, row.start or 0, None) for job_id, row in _ended().items()]
    assert running
    counts = load_dump(syncs.Answers(running), ledger, Policy(), LATER)
    assert counts.kept == len(running)
    assert list(ledger.runs_between(0, 1 << 40)) == saved
    assert ledger.sync_state() == SyncState(LATER, LATER, complete=True)
    _whole(ledger)


def _ended() -> dict[int, Any]:
    return {row.key.job_id: row for row in syncs.moment(LATER)[0] if row.end is not None}


def test_no_room_for_a_file(tmp_path: Path, right: tuple[Written, Written, int]) -> None:
    """SQLite's files may not grow, as on a full disk, from the first byte to all but the last."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    upgrade(url)
    statuses: set[int] = set()
    for sync_as in _syncs(url):
        for number, limit in enumerate([0, 4096, 32768, 40000, 60000, 80000, 120000, 160000, 10_000_000]):
            cluster = f"full{number}"
            ledger = SqlLedger(url, cluster)
            syncs.new(ledger)
            ledger.close()  # the journal is emptied, so that it begins to grow anew
            ((status, said),) = sync_as(f"{cluster} limit {limit}")
            statuses.add(status)
            if status:
                _is_clear(status, said, str(tmp_path))
            ledger = SqlLedger(url, cluster)
            _comes_right(ledger, right)
            ledger.close()
    assert statuses == {0, LedgerError.exit_status}


def _is_clear(status: int, said: str, where: str) -> None:
    assert status == LedgerError.exit_status, said
    assert re.fullmatch(r"the ledger at \S+ failed: [^\n]{10,}", said), said
    assert where in said
    assert PASSWORD not in said


@pytest.mark.parametrize("kind", SERVERS)
def test_the_server_ends_our_session(
    kind: str, request: pytest.FixtureRequest, right: tuple[Written, Written, int]
) -> None:
    url = request.getfixturevalue(kind).new()
    upgrade(url)
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    for point in range(1, right[2] + 1, 4):

        def reached(number: int, _name: str, connection: Any, point: int = point) -> None:
            if number == point:
                query = (
                    f"KILL {connection.thread_id()}"
                    if kind == "mariadb"
                    else f"SELECT pg_terminate_backend({connection.info.backend_pid})"
                )
                with admin.connect() as other:
                    other.execute(text(query))

        ledger = SqlLedger(url, new_cluster())
        syncs.new(ledger)
        _fails(ledger, reached)
        _comes_right(ledger, right)
        ledger.close()
    admin.dispose()


def _fails(ledger: SqlLedger, reached: Callable[[int, str, Any], None]) -> None:
    """The sync fails and says so, or it was at the end of a transaction and goes on with a new connection."""
    try:
        with syncs.points(ledger, reached):
            syncs.synced(ledger, LATER)
    except LedgerError as error:
        _is_clear(error.exit_status, str(error), ledger._engine.url.host or "")


@pytest.mark.parametrize("kind", SERVERS)
def test_the_database_is_gone_and_comes_back(
    kind: str, request: pytest.FixtureRequest, right: tuple[Written, Written, int]
) -> None:
    url = request.getfixturevalue(kind).new()
    upgrade(url)
    with door.before(url) as (way, through):
        for point in range(2, right[2] + 1, 9):

            def reached(number: int, _name: str, _connection: Any, point: int = point) -> None:
                if number == point:
                    way.shut()

            ledger = SqlLedger(through, new_cluster())
            syncs.new(ledger)
            with pytest.raises(LedgerError) as failure, syncs.points(ledger, reached):
                syncs.synced(ledger, LATER)
            _is_clear(failure.value.exit_status, str(failure.value), str(way.port))
            for still in (partial(syncs.synced, ledger, LATER), partial(SqlLedger, through, "any")):
                with pytest.raises(LedgerError) as failure:
                    still()
                _is_clear(failure.value.exit_status, str(failure.value), str(way.port))
            way.open()
            _comes_right(ledger, right)
            ledger.close()
