"""A sync that reads what was changed leaves the ledger as one that reads everything, whatever slurmdbd did meanwhile.

What is done to the rows is what slurmdbd does, with its ``mod_time``: it is renewed where a start or an end is
written, and not where a run is suspended, moved, flushed or repaired. All times are shortly before the real now, with
which the server compares.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import Job, Mode, RunRecord
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.gather import Gatherer
from pyslurm_budget.service.ports import RunFacts
from pyslurm_budget.slurm.slurmdb import DatabaseAccounting
from tests.build import DAY, HOUR, held, nodes, running, snapshot, tree
from tests.db.conftest import new_cluster
from tests.db.slurmdb import CLUSTER, SlurmDatabase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.db.servers import Server

pytestmark = pytest.mark.database
STEP = 70 * 60  # rows that were written are looked for once an hour
STEPS = 8
TRES = ("1=8,2=1000,4=1,1001=1,1002=1", "1=8,2=1000,4=1,1001=2,1002=2")
LATE = st.sampled_from((0, 0, 1, 599, STEP + 1, 5 * HOUR))


class Whole:
    """The same accounting without what it knows of changes."""

    def __init__(self, accounting: DatabaseAccounting) -> None:
        self._accounting = accounting

    def runs(self, _since: int, until: int) -> Iterator[RunRecord]:
        return self._accounting.runs(0, until)


class Counting:
    """Accounting that notes how it was asked."""

    def __init__(self, accounting: DatabaseAccounting) -> None:
        self._accounting = accounting
        self.asked: list[str] = []
        self.read = 0

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        self.asked.append("runs")
        return self._noted(self._accounting.runs(since, until))

    def changed(self, since: int, jobs: Collection[int], written: int | None, oldest: int) -> Iterator[RunRecord]:
        self.asked.append("open" if written is None else "written")
        return self._noted(self._accounting.changed(since, jobs, written, oldest))

    def _noted(self, rows: Iterator[RunRecord]) -> Iterator[RunRecord]:
        for row in rows:
            self.read += 1
            yield row


@dataclass
class Slurmdbd:
    """A database, the time, and the jobs that run."""

    database: SlurmDatabase
    now: int
    last: int = 0
    open: dict[int, int] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)

    def set(self, job: int, renewed: bool, **columns: object) -> None:
        columns |= {"mod_time": self.now} if renewed else {}
        names = ", ".join(f"{name} = %s" for name in columns)
        self.database.run(f"UPDATE {CLUSTER}_job_table SET {names} WHERE id_job = %s", *columns.values(), job)

    def start(self, late: int) -> None:
        """A job starts, and its row comes as late as that."""
        self.last += 1
        at = self.now - late
        self.open[self.last] = at
        times = {"time_submit": at, "time_eligible": at, "time_start": at, "time_end": 0, "mod_time": self.now}
        self.database.job(id_job=self.last, state=1, nodelist="n1", tres_alloc=TRES[0], **times)

    def end(self, job: int, late: int) -> None:
        self._close(job, renewed=True, end=max(self.open[job], self.now - late), state=3)

    def repair(self, job: int) -> None:
        """An administrator ends a runaway row: where it began, without a trace in mod_time."""
        self._close(job, renewed=False, end=self.open[job], state=3)

    def flush(self, late: int) -> None:
        """slurmctld has lost its state: all its jobs end some time ago."""
        for job in list(self.open):
            self._close(job, renewed=False, end=max(self.open[job], self.now - late), state=7)

    def _close(self, job: int, *, renewed: bool, end: int, state: int) -> None:
        self.set(job, renewed, time_end=end, state=state)
        del self.open[job]
        self.closed.append(job)

    def move(self, job: int) -> None:
        self.set(job, False, tres_alloc=TRES[1], nodelist="n2")

    def correct(self, job: int) -> None:
        """A late message for a run that is over."""
        self.set(job, True, time_end=self.now - 3 * HOUR, time_start=self.now - 4 * HOUR, tres_alloc=TRES[1])

    def jobs(self) -> list[Job]:
        """What slurmctld has: the odd ones of the open are lost."""
        return [
            running(job, held("n1", 1), start=at, submit=at, account="nlp", user="uid:4000", qos="normal")
            for job, at in self.open.items()
            if job % 2 == 0
        ]


@st.composite
def histories(draw: st.DrawFn) -> list[list[Callable[[Slurmdbd], None]]]:
    """What happens before each sync."""

    def doing(what: str, late: int, pick: int) -> Callable[[Slurmdbd], None]:
        def do(dbd: Slurmdbd) -> None:
            some = sorted(dbd.closed if what == "correct" else dbd.open)
            if what == "start":
                dbd.start(late)
            elif what == "flush":
                dbd.flush(late)
            elif some:
                job = some[pick % len(some)]
                {"end": lambda: dbd.end(job, late), "repair": lambda: dbd.repair(job)}.get(
                    what, lambda: dbd.move(job) if what == "move" else dbd.correct(job)
                )()

        return do

    words = st.sampled_from(("start", "start", "start", "end", "end", "repair", "flush", "move", "correct"))
    one = st.builds(doing, words, LATE, st.integers(0, 9))
    return draw(st.lists(st.lists(one, max_size=4), min_size=2, max_size=STEPS))


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], SqlLedger]]:
    """Makes empty ledgers, each of a cluster of its own. In which database they are does not matter here."""
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.sqlite"
    upgrade(url)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(SqlLedger(url, new_cluster())))


@pytest.fixture(scope="module")
def slurmdb(mariadb: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmDatabase]:
    with SlurmDatabase(mariadb, tmp_path_factory.mktemp("slurmdb")) as made:
        yield made


def synced(ledger: SqlLedger, accounting: object, dbd: Slurmdbd) -> list[RunFacts]:
    """Read into the ledger; all of its runs then. How long a run that is suspended was is the time of the read."""
    given = Gatherer(accounting, ledger, Policy(), Mode.ENFORCE, snapshot(dbd.jobs(), nodes(2), dbd.now))  # type: ignore[arg-type]
    given.sync()
    return [replace(run, suspended=0) for run in ledger.runs_between(0, 1 << 40)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories())
def test_what_was_changed_leaves_what_everything_leaves(
    slurmdb: SlurmDatabase, ledgers: Callable[[], SqlLedger], history: list[list[Callable[[Slurmdbd], None]]]
) -> None:
    slurmdb.empty()
    by_changes, by_all = ledgers(), ledgers()
    for ledger in (by_changes, by_all):
        ledger.save_budgets(tree().budgets.values(), 0, "root", "")
    accounting = Counting(DatabaseAccounting(slurmdb.login, CLUSTER))
    dbd = Slurmdbd(slurmdb, int(time.time()) - STEP * STEPS)
    for steps in history:
        for step in steps:
            step(dbd)
        changed, everything = synced(by_changes, accounting, dbd), synced(by_all, Whole(accounting._accounting), dbd)
        assert changed == everything
        dbd.now += STEP
    assert accounting.asked == ["runs", *["written"] * (len(history) - 1)]
    assert by_changes.verify_usage()[1] == ()


def test_only_what_was_changed_is_read_and_all_of_it_once_a_day(
    slurmdb: SlurmDatabase, ledgers: Callable[[], SqlLedger]
) -> None:
    slurmdb.empty()
    ledger = ledgers()
    accounting = Counting(DatabaseAccounting(slurmdb.login, CLUSTER))
    dbd = Slurmdbd(slurmdb, int(time.time()) - 2 * DAY)
    for _ in range(20):
        dbd.start(5 * HOUR)
        dbd.end(dbd.last, 4 * HOUR)
    dbd.now += HOUR
    synced(ledger, accounting, dbd)
    assert (accounting.read, accounting.asked) == (20, ["runs"])
    dbd.now += HOUR
    dbd.start(0)
    dbd.correct(7)
    synced(ledger, accounting, dbd)
    assert (accounting.read, accounting.asked[1:]) == (22, ["written"])
    dbd.now += HOUR
    dbd.set(8, False, tres_alloc=TRES[1])  # nothing shows that
    synced(ledger, accounting, dbd)
    assert (accounting.read, accounting.asked[2:]) == (24, ["written"]), "7 once more, and the run that goes on"
    dbd.now += DAY
    found = {run.key.job_id: run.gpus for run in synced(ledger, accounting, dbd)}
    assert (accounting.read, accounting.asked[3:]) == (24 + 21, ["runs"])
    assert (found[7], found[8]) == (2, 2)


def test_what_was_written_is_looked_for_once_an_hour(
    slurmdb: SlurmDatabase, ledgers: Callable[[], SqlLedger]
) -> None:
    slurmdb.empty()
    ledger = ledgers()
    accounting = Counting(DatabaseAccounting(slurmdb.login, CLUSTER))
    dbd = Slurmdbd(slurmdb, int(time.time()) - 2 * DAY)
    for _ in range(2):
        dbd.start(5 * HOUR)
        dbd.end(dbd.last, 4 * HOUR)
    found: list[dict[int, int | None]] = []
    for seconds in (0, 1800, 1799, 1, 1800):
        dbd.now += seconds
        found.append({run.key.job_id: run.gpus for run in synced(ledger, accounting, dbd)})
        if seconds == 0:
            dbd.now += 1
            dbd.correct(1)
            dbd.now -= 1
    assert accounting.asked == ["runs", "open", "open", "written", "open"]
    assert [runs[1] for runs in found] == [1, 1, 1, 2, 2]


def test_runs_that_the_ledger_has_open_are_asked_for(
    slurmdb: SlurmDatabase, ledgers: Callable[[], SqlLedger]
) -> None:
    """Also one whose repaired end lies before the window."""
    slurmdb.empty()
    ledger = ledgers()
    accounting = DatabaseAccounting(slurmdb.login, CLUSTER)
    dbd = Slurmdbd(slurmdb, int(time.time()) - 2 * DAY)
    dbd.start(30 * DAY)
    dbd.start(0)
    synced(ledger, accounting, dbd)
    dbd.now += HOUR
    dbd.repair(1)
    ends = {run.key.job_id: run.end for run in synced(ledger, accounting, dbd)} | {
        run.key.job_id: run.end for run in ledger.runs_of_job("1")
    }
    assert ends == {1: dbd.now - HOUR - 30 * DAY, 2: None}
