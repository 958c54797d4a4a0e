"""The contract of ``Accounting`` on a real cluster: sacct and the database give the same records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmdbdError, SlurmSetupError
from pyslurm_budget.slurm.slurmdb import DatabaseAccounting
from tests.cluster.devcluster import DevCluster
from tests.cluster.site import USERS
from tests.cluster.slurmdbd import CLUSTER, DAY, Accounts, odd_rows

pytestmark = pytest.mark.cluster
ODD = "pipe|and\nnewline \udce9\udcff é ☃"  # sbatch gets the bytes E9 and FF, which are no UTF-8


@dataclass
class Bench:
    """The cluster and both readers."""

    cluster: DevCluster
    accounts: Accounts

    def submit(self, user: str, *words: str, run: str = "sleep 600") -> str:
        argv = ["sbatch", "--parsable", "-o", "/dev/null", "-t", "30", *words, f"--wrap={run}"]
        return self.cluster.run(argv, user=user).out.strip()

    def state(self, job: str) -> str:
        """JobState of a job that slurmctld knows."""
        return self.cluster.job(job, "JobState")

    def wait(self, job: str, state: str) -> None:
        self.cluster.wait(f"job {job} is {state}", lambda: self.state(job) == state, 40)

    def scontrol(self, *words: str) -> None:
        self.cluster.run(["scontrol", *words])

    def sacctmgr(self, *words: str) -> None:
        self.cluster.run(["sacctmgr", "-i", *words])

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait until the queue is empty."""
        for user in USERS.values():
            self.cluster.run(["scancel", "-u", user])
        self.cluster.wait("an empty queue", lambda: not self.cluster.run(["squeue", "-h", "-a"]).out.strip())

    def runs(self) -> list[RunRecord]:
        """All runs as the database has them."""
        return list(self.accounts.sql.runs(0, int(time.time()) + 1))

    def states(self) -> dict[str, list[str]]:
        """The states of each job's runs, sorted."""
        found: dict[str, list[str]] = {}
        for run in sorted(self.runs(), key=lambda run: run.state):
            found.setdefault(run.job_ref, []).append(run.state)
        return found

    def requeue(self, job: str, times: int) -> None:
        """Requeue a running job, and wait until it runs again, each time."""
        for _ in range(times):
            self.scontrol("requeue", job)
            self.wait(job, "RUNNING")


@pytest.fixture
def bench(cluster: DevCluster, tmp_path: Path) -> Bench:
    """The cluster without jobs and without history."""
    made = Bench(cluster, Accounts(cluster, tmp_path))
    made.cancel_all()
    made.accounts.run(f"DELETE FROM {CLUSTER}_job_table")
    return made


def test_jobs_of_every_kind(bench: Bench) -> None:
    began = int(time.time())
    bench.sacctmgr("add", "account", "gone")
    bench.sacctmgr("add", "user", "carol", "account=gone")
    bench.sacctmgr("add", "qos", "brief")
    bench.sacctmgr("modify", "user", "carol", "where", "account=gone", "set", "qos=brief")
    done = bench.submit("alice", "-A", "nlp", "--gres=gpu:1", run="true")
    failed = bench.submit("bob", "-A", "vision", "-n2", "--gres=gpu:a100:1", "--comment=min-runtime=2h", run="exit 3")
    deleted = bench.submit("carol", "-A", "gone", "--qos=brief", run="true")
    odd = bench.submit("alice", "-A", "nlp", "-J", ODD, f"--comment={ODD}", run="true")
    running = bench.submit("alice", "-A", "nlp", "--gres=gpu:1")
    requeued = bench.submit("bob", "-A", "vision", "--gres=gpu:1", "--requeue")
    suspended = bench.submit("bob", "-A", "vision", "-n1")
    resumed = bench.submit("carol", "-A", "bio", "-n1")
    resized = bench.submit("carol", "-A", "bio", "-N2", "--mem=100")
    array = bench.submit("alice", "-A", "nlp", "--array=0-40:4%2", "-n1")
    steps = bench.submit("alice", "-A", "nlp", "--array=1-3,7", "--begin=now+1hour")
    held = bench.submit("bob", "-A", "vision", "--hold")
    later = bench.submit("bob", "-A", "vision", "--begin=now+2hours", "--gres=gpu:2")
    het = bench.submit("carol", "-A", "bio", "-n1", "--gres=gpu:1", ":", "-n2")
    for job in (running, requeued, suspended, resumed, resized, het):
        bench.wait(job, "RUNNING")
    for job in (suspended, resumed):
        bench.scontrol("suspend", job)
    bench.scontrol("update", f"jobid={resized}", "NumNodes=1")
    bench.cluster.run(["scancel", later], user="bob")
    bench.cluster.run(["scancel", running])
    bench.requeue(requeued, 2)
    bench.scontrol("resume", resumed)
    bench.cluster.wait(
        "jobs end", lambda: all(bench.state(j) in ENDED for j in (done, failed, deleted, odd, running))
    )
    bench.sacctmgr("delete", "user", "carol", "account=gone")
    bench.sacctmgr("delete", "account", "gone")
    bench.sacctmgr("delete", "qos", "brief")
    # Not the resized job's, which may be one or more: see test_resized.py.
    lives = {requeued: ["REQUEUED", "REQUEUED", "RUNNING"], odd: ["COMPLETED"]}
    lives |= {f"{array}_4": ["RUNNING"], later: ["CANCELLED"], suspended: ["SUSPENDED"], resumed: ["RUNNING"]}
    settled(lambda: {job: states for job, states in bench.states().items() if job in lives}, lives)

    found: dict[str, list[RunRecord]] = {}
    for run in bench.accounts.compare().values():
        found.setdefault(run.job_ref, []).append(run)
    assert [run.state for run in found[done]] == ["COMPLETED"]
    assert [(run.state, run.comment) for run in found[failed]] == [("FAILED", "min-runtime=2h")]
    assert [(run.account, run.user, run.qos) for run in found[deleted]] == [("gone", "carol", "brief")]
    assert found[odd][0].comment.startswith("pipe|and\nnewline ")
    (cancelled,) = found[running]
    assert (cancelled.state, cancelled.by_uid, cancelled.tres.gpus) == ("CANCELLED", os.getuid(), 1)
    (never,) = found[later]
    assert (never.state, never.start, never.requested_gpus) == ("CANCELLED", None, 2)
    assert found[suspended][0].suspended > 0
    assert found[resumed][0].suspended > 0
    assert {f"{het}+0", f"{het}+1", f"{array}_0", f"{array}_4"} <= set(found)
    assert held not in found
    # In 22.05 the rest of an array that waits for its own limit has no eligible time, so sacct does not show it.
    assert f"{steps}_[1-3,7]" in found

    bench.cancel_all()
    # slurmdbd may hear late of a job of before, whose row this test has deleted, and then never has its end
    settled(lambda: [run for run in bench.runs() if run.key.submit >= began and not run.end], [])
    after = bench.accounts.compare(began)
    assert {run.state for run in after.values()} >= {"COMPLETED", "FAILED", "CANCELLED", "REQUEUED"}
    assert {run.key for run in bench.accounts.sql.changed(began, written=began)} == set(after)
    later = int(time.time()) + 3600
    assert not [run for run in bench.accounts.sql.changed(later, written=later) if run.key.submit >= began]


ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


def settled(look: Callable[[], object], wanted: object) -> None:
    """Wait until slurmdbd has heard all: its agent in slurmctld lags behind."""
    end = time.monotonic() + 60
    while look() != wanted and time.monotonic() < end:
        time.sleep(0.2)
    assert look() == wanted


def test_rows_that_no_job_of_a_few_seconds_has(bench: Bench) -> None:
    now = int(time.time())
    numbers = [
        [number for (number,) in bench.accounts.run(query)]
        for query in (
            f"SELECT id_assoc FROM {CLUSTER}_assoc_table",
            "SELECT id FROM qos_table",
        )
    ]
    rows = odd_rows(600, now, *numbers, uids=[0, 1000, 65534, os.getuid()])
    bench.accounts.write(rows)
    assert len(bench.accounts.compare(0, now + 4 * DAY)) > 250
    for since, until in ((now - DAY, now), (now - 3600, now - 1800), (now, now + 60), (now - 9 * DAY, now - 2 * DAY)):
        bench.accounts.compare(since, until)
    bench.accounts.run(f"DELETE FROM {CLUSTER}_job_table")
    assert bench.accounts.compare() == {}


def test_failures(bench: Bench) -> None:
    with pytest.raises(SlurmSetupError, match="has no cluster other that slurm may read, only demo"):
        list(DatabaseAccounting(bench.accounts.login, "other").runs(0, 1))
    bench.cluster.daemon("stop", "mariadb")
    try:
        for accounting in (bench.accounts.sql, bench.accounts.sacct):
            with pytest.raises(SlurmdbdError):
                list(accounting.runs(0, 1))
    finally:
        bench.cluster.daemon("start", "mariadb")
    bench.cluster.wait("slurmdbd answers", lambda: bench.cluster.run(["sacct"], check=False).status == 0)
    bench.accounts.compare()
