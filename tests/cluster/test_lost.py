"""*Lost jobs*: whatever a job or a node does around a requeue, the job is in the queue again or its end is known."""

from __future__ import annotations

import os
import signal
import time

import pytest

from pyslurm_budget.ledger.store import SqlLedger
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster
TRAP = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def displaced(site: Site, run: str, *, victims: int) -> list[str]:
    """nlp fills the cluster with such runs; vision's job makes one of them give way."""
    jobs = [site.submit("nlp", 4, contract="5s", run=run) for _ in range(victims)]
    for job in jobs:
        site.wait(job, "RUNNING")
    jobs.append(site.submit("vision", 4, contract="10s"))
    time.sleep(6)
    return jobs


def requeues(site: Site) -> list[tuple[str, str, str]]:
    """(ref, state, outcome) of every requeue that the ledger knows."""
    ledger = SqlLedger(f"sqlite:///{site.state}/ledger.sqlite", "demo")
    try:
        found = ledger.intents(kinds=("displace", "drain"))
        return [(i.action.ref, i.state, i.outcome) for i in found]
    finally:
        ledger.close()


def accounted_for(site: Site, job: str) -> bool:
    """Whether the job is in the queue, or sacct's last row of it says how it ended."""
    if site.state_of(job) in ("PENDING", "RUNNING", "COMPLETING"):
        return True
    rows = [r for r in site.sacct() if r["JobID"] == job]
    return bool(rows) and rows[-1]["State"].startswith(ENDED)


def test_a_job_that_exits_on_sigterm_waits_again(site: Site) -> None:
    jobs = displaced(site, TRAP, victims=4)
    with site.controller():
        site.wait(jobs[-1], "RUNNING", seconds=120)
        site.cluster.wait("the requeue is read back", lambda: all(r[1] == "done" for r in requeues(site)), 90)
    ((ref, state, _),) = requeues(site)
    assert state == "done"
    assert site.state_of(ref) in ("PENDING", "RUNNING")
    assert all(accounted_for(site, job) for job in jobs)


def test_a_run_that_ends_in_the_second_in_which_it_is_requeued(site: Site) -> None:
    """Runs end one after the other around the moment of the requeue: each waits again or ended by itself."""
    jobs = [site.submit("nlp", 4, contract="5s", run=f"sleep {6 + i * 0.4}") for i in range(4)]
    for job in jobs:
        site.wait(job, "RUNNING")
    jobs.append(site.submit("vision", 4, contract="10s"))
    with site.controller():
        time.sleep(14)
    site.settled()
    assert all(accounted_for(site, job) for job in jobs)
    assert not [r for r in requeues(site) if r[1] == "lost"]


def test_an_epilog_of_8_seconds(slow_site: Site) -> None:
    """While the epilog runs the job is PENDING and COMPLETING at once: its QOS is not touched, and it is not lost."""
    site = slow_site
    jobs = displaced(site, "sleep 600", victims=2)
    with site.controller():
        site.wait(jobs[-1], "RUNNING", seconds=90)
        site.cluster.wait("the requeue is read back", lambda: all(r[1] == "done" for r in requeues(site)), 90)
    ((ref, state, _),) = requeues(site)
    assert state == "done"
    first, *_ = [r for r in site.sacct() if r["JobID"] == ref]
    assert (first["State"], first["QOS"]) == ("REQUEUED", "backed"), "the row of the run that ended was rewritten"
    assert all(accounted_for(site, job) for job in jobs)


def test_a_node_that_hangs_in_completing(site: Site) -> None:
    """slurmd stops answering just when its job is requeued: nothing is called lost while Slurm still completes it."""
    jobs = displaced(site, "sleep 600", victims=4)
    pids = {}
    for job in jobs[:-1]:
        node = site.fields(job)["NodeList"]
        pids[node] = int((site.cluster.folder / "run" / f"{node}.id").read_text().split()[0])
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    try:
        with site.controller():
            site.cluster.wait("a run is requeued", lambda: bool(requeues(site)), 90)
            time.sleep(8)
            assert all(accounted_for(site, job) for job in jobs)
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
    with site.controller():
        site.cluster.wait("the requeue is read back", lambda: all(r[1] == "done" for r in requeues(site)), 90)
    assert all(accounted_for(site, job) for job in jobs)
    assert not [r for r in requeues(site) if r[1] == "lost"]
