"""Jobs whose size is changed while they run, on a real cluster: what slurmdbd's rows come to is what they held."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyslurm_budget.domain.model import Job, JobState, RunKey, RunRecord
from pyslurm_budget.slurm.queue import SlurmQueue
from pyslurm_budget.slurm.run import Runner
from tests.cluster.devcluster import DevCluster
from tests.cluster.site import Site, ledger_of
from tests.cluster.slurmdbd import Accounts

pytestmark = pytest.mark.cluster


def live(cluster: DevCluster, job: str) -> Job:
    (found,) = [j for j in SlurmQueue(Runner(cluster.conf)).jobs() if j.ref == job]
    return found


def resize(site: Site, job: str, nodes: int) -> None:
    site.cluster.run(["scontrol", "update", f"jobid={job}", f"NumNodes={nodes}"])


def begin_of_a_second() -> None:
    time.sleep(1 - time.time() % 1 + 0.02)


def rows(accounts: Accounts, job: str, done: Callable[[list[RunRecord]], bool]) -> list[RunRecord]:
    """The rows of a job in their order, the same by both readers, when slurmdbd has heard all."""
    end = time.monotonic() + 60
    while True:
        found = sorted((run for run in accounts.compare().values() if run.job_ref == job), key=lambda run: run.key)
        if done(found):
            return found
        assert time.monotonic() < end, f"rows of job {job}: {found}"
        time.sleep(0.5)


def submitted(site: Site) -> str:
    job = site.submit("nlp", 1, "-N4", contract="30s")
    site.wait(job, "RUNNING")
    site.sbudget("reconcile", "--apply")
    return job


def test_each_second_counts_once(site: Site, tmp_path: Path) -> None:
    """Made smaller, then twice in one second, which leaves one row that looks ended until the job is over."""
    accounts, job = Accounts(site.cluster, tmp_path), submitted(site)
    start = live(site.cluster, job).start
    time.sleep(2)
    resize(site, job, 3)
    first = live(site.cluster, job)
    site.sbudget("reconcile", "--apply")
    begin_of_a_second()
    resize(site, job, 2)
    resize(site, job, 1)
    last = live(site.cluster, job)
    assert (first.resized, first.start, last.start) == (True, start, start)
    assert (first.held_tres.gpus, last.held_tres.gpus) == (3, 1)
    for _ in range(3):
        time.sleep(1)
        site.sbudget("reconcile", "--apply")
    with ledger_of(site) as ledger:
        alive = {run.key: (run.gpus, run.end, run.absent_since) for run in ledger.runs_of_job(job)}
        contracts = ledger.contracts(list(alive))
        assert {c.protected_until for c in contracts} == {(start or 0) + 30}, "it has one contract, and not a new one"
    assert alive[last.key] == (1, None, None), "the run goes on"
    assert set(alive) >= {first.key, last.key}
    site.cluster.run(["scancel", job])
    found = rows(accounts, job, lambda found: bool(found) and found[-1].state == "CANCELLED")
    assert [run.begun for run in found] == [start, *(run.end for run in found[:-1])], "the rows follow each other"
    assert [run.tres.gpus for run in found if run.begun != run.end] == [4, 3, 1]
    assert (found[1].key, found[-1].key) == (first.key, last.key)
    site.sbudget("reconcile", "--apply")
    with ledger_of(site) as ledger:
        told = [(run.key, run.gpus, run.start, run.end) for run in ledger.runs_of_job(job)]
    assert told == [(run.key, run.tres.gpus, run.begun, run.end) for run in found]


def test_put_back_after_a_change(site: Site, tmp_path: Path) -> None:
    """The next run has no row: slurmdbd writes its end into the row of before. The ledger has seen both."""
    accounts, job = Accounts(site.cluster, tmp_path), submitted(site)
    time.sleep(2)
    resize(site, job, 2)
    changed = live(site.cluster, job)
    site.sbudget("reconcile", "--apply")
    site.cluster.run(["scontrol", "requeue", job])
    put_back = rows(accounts, job, lambda found: bool(found) and found[-1].state == "REQUEUED")
    assert put_back[-1].key == changed.key
    site.sbudget("reconcile", "--apply")
    site.wait(job, "RUNNING")
    again = live(site.cluster, job)
    assert (again.state, again.resized, again.held_tres.gpus) == (JobState.RUNNING, False, 4)
    site.sbudget("reconcile", "--apply")
    time.sleep(3)
    site.cluster.run(["scancel", job])
    taken = rows(accounts, job, lambda found: found[-1].state == "CANCELLED")
    assert taken[-1].key in (changed.key, again.key)
    for _ in range(2):
        time.sleep(1)
        site.sbudget("reconcile", "--apply")
    missed = int(time.time())
    with ledger_of(site) as ledger:
        known = {run.key: run for run in ledger.runs_of_job(job)}
    assert (known[changed.key].end, known[changed.key].gpus) == (put_back[-1].end, 2)
    last = known[RunKey(again.key.job_id, again.key.submit)]
    ended = taken[-1].end or 0
    assert last.start == again.start
    assert ended <= (last.end or last.charged_to or 0) <= missed, "until it was missed, if no row tells its end"
