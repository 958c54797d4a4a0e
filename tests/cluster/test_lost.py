"""*Lost jobs*: whatever a job or a node does around a requeue, the job is in the queue again or its end is known."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.cluster.site import Site, ledger_of

if TYPE_CHECKING:
    from pyslurm_budget.service.ports import Intent

pytestmark = pytest.mark.cluster
TRAP = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")


def displaced(site: Site, run: str, *, victims: int) -> list[str]:
    """nlp fills the cluster with such runs; vision's job is to make one of them give way. All contracts are over."""
    jobs = [site.submit("nlp", 4, contract="2s", run=run) for _ in range(victims)]
    for job in jobs:
        site.wait(job, "RUNNING")
    jobs.append(site.submit("vision", 4, contract="10s"))
    time.sleep(3)
    return jobs


def requeues(site: Site) -> list[Intent]:
    """Every requeue that the ledger knows."""
    with ledger_of(site) as ledger:
        return [i for i in ledger.intents() if i.action.kind.is_requeue]


def read_back(site: Site) -> bool:
    """Whether there was a requeue, and each is done."""
    return {i.state for i in requeues(site)} == {"done"}


def accounted_for(site: Site, job: str) -> bool:
    """Whether the job is in the queue, or the ledger says how it ended: by itself, or lost."""
    if site.state_of(job) in ("PENDING", "RUNNING", "COMPLETING"):
        return True
    with ledger_of(site) as ledger:
        runs = ledger.runs_of_job(job)
        lost = any(i.state == "lost" for i in ledger.intents(ref=job))
    return lost or (bool(runs) and runs[-1].end is not None and runs[-1].state.startswith(ENDED))


def nothing_unseen(site: Site, jobs: list[str]) -> None:
    """Wait until every job is accounted for; accounting may be a second late."""

    def holds() -> bool:
        site.sbudget("reconcile", "--apply")
        return all(accounted_for(site, job) for job in jobs)

    site.cluster.wait("no job has disappeared unseen", holds, 20)


def test_a_job_that_exits_on_sigterm_waits_again(site: Site) -> None:
    jobs = displaced(site, TRAP, victims=4)
    with site.controller():
        site.wait(jobs[-1], "RUNNING", seconds=120)
        site.cluster.wait("the requeue is read back", lambda: read_back(site))
    (requeue,) = requeues(site)
    assert site.state_of(requeue.action.ref) in ("PENDING", "RUNNING")
    nothing_unseen(site, jobs)


@pytest.mark.parametrize("delay", ["0", "0.3"])
def test_a_run_that_ends_in_the_second_in_which_it_is_requeued(site: Site, delay: str) -> None:
    """The run ends by itself a moment before `scontrol requeue` is called: with status 0, in its epilog or over."""
    over = site.cluster.folder / "over"
    jobs = displaced(site, f"while [ ! -e {over} ]; do sleep 0.02; done", victims=4)
    real = shutil.which("scontrol")
    (site.folder / "scontrol").write_text(
        f'#!/bin/sh\n[ "$1" != requeue ] || {{ touch {over}; sleep {delay}; }}\nexec {real} "$@"\n'
    )
    (site.folder / "scontrol").chmod(0o755)
    path = {"PATH": f"{site.folder}:{os.environ['PATH']}"}
    try:
        for _ in range(5):
            site.sbudget("reconcile", "--apply", env=path)
            if requeues(site):
                break
            time.sleep(1)
        assert over.exists()
        site.settled()
    finally:
        over.unlink(missing_ok=True)
    (requeue,) = requeues(site)
    assert requeue.state in ("done", "skipped"), requeue
    nothing_unseen(site, jobs)
    if requeue.state == "skipped":
        assert "by itself" in requeue.outcome
        (row,) = [r for r in site.sacct() if r["JobID"] == requeue.action.ref]
        assert row["State"] == "COMPLETED"


def test_an_epilog_of_8_seconds(slow_site: Site) -> None:
    """While the epilog runs the job is PENDING and COMPLETING at once: its QOS is not touched, and it is not lost."""
    site = slow_site
    jobs = displaced(site, "sleep 600", victims=2)
    with site.controller():
        site.wait(jobs[-1], "RUNNING", seconds=90)
        site.cluster.wait("the requeue is read back", lambda: read_back(site))
    (requeue,) = requeues(site)
    first, *_ = [r for r in site.sacct() if r["JobID"] == requeue.action.ref]
    assert (first["State"], first["QOS"]) == ("REQUEUED", "backed"), "the row of the run that ended was rewritten"
    nothing_unseen(site, jobs)


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
            time.sleep(5)
            assert all(accounted_for(site, job) for job in jobs)
            assert not [i for i in requeues(site) if i.state == "lost"]
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
    with site.controller():
        site.cluster.wait("the requeue is read back", lambda: read_back(site))
    nothing_unseen(site, jobs)
