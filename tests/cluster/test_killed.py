"""*Killed at any step*: kill -9 of a cycle before each of its steps; no job is held, lost or killed by it."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.site import Site, ledger_of

pytestmark = pytest.mark.cluster
DRIVER = Path(__file__).with_name("killed_driver.py")
# Every step of a cycle, in its order. A step that is not listed here fails the test.
STEPS = (
    "lease", "read", "sweep", "accounting", "settle", "budgets", "plan", "record", "publish", "apply",
    "write-intents", "look", "update", "sent update", "drain", "sent drain", "displace", "sent displace",
    "read-back", "close",
)  # fmt: skip
FIRST_THAT_ACTS = STEPS.index("write-intents")
LEASE = 1


def kind(step: str) -> str:
    """A step's name without the job or the number in it."""
    words = step.split(" ")
    return " ".join(words[:2]) if words[0] == "sent" else words[0]


def killed_at(site: Site, step: str) -> tuple[bool, list[str]]:
    """Run a cycle that dies at this step (a name or a number), and wait until its lease is over; whether it died, and
    the kinds of steps that it had reached."""
    argv = [sys.executable, str(DRIVER), str(site.config), step]
    ran = site.cluster.run(argv, check=False, env={"PYTHONPATH": str(DRIVER.parents[2])})
    assert ran.status in (0, -9), ran
    time.sleep(LEASE + 0.1)
    reached = [kind(line) for line in ran.out.splitlines()]
    assert set(reached) <= set(STEPS), reached
    return ran.status == -9, reached


def load(site: Site) -> list[str]:
    """Something of every kind for a cycle to do: a class change, a displacement and a drain."""
    site.configure(lease=f"{LEASE}s")
    site.clean()
    jobs = [site.submit("nlp", 4, contract="2s") for _ in range(4)]
    for job in jobs:
        site.wait(job, "RUNNING")
    jobs.append(site.submit("vision", 4, contract="10s"))
    time.sleep(3)
    node = site.fields(jobs[0])["NodeList"]
    site.cluster.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=fan"])
    jobs.append(wrong_class(site))
    return jobs


def wrong_class(site: Site) -> str:
    """A job that waits in a class that it is not entitled to: declared spare, and an operator made it backed."""
    job = site.submit("bio", 4, contract="0")
    assert site.qos(job) == "spare"
    site.cluster.run(["scontrol", "update", f"jobid={job}", "qos=backed"])
    return job


def unharmed(site: Site, jobs: list[str]) -> None:
    """Every job runs, waits unheld, or has ended by itself: nobody has cancelled one."""
    for job in jobs:
        found = site.fields(job)
        assert found, f"job {job} has vanished"
        assert found["JobState"] in ("RUNNING", "PENDING", "COMPLETING", "COMPLETED"), (job, found["JobState"])
        if found["JobState"] == "PENDING":
            assert int(found["Priority"]) > 0, f"job {job} is held: {found['Reason']}"


def finished(site: Site, jobs: list[str]) -> list[str]:
    """Normal cycles leave nothing open or lost, and a health that is fine; returns the kinds of what was done."""
    site.settled()
    unharmed(site, jobs)
    health = site.sbudget("health", "--max-age", "60s", check=False)
    assert health.status == 0, health.out
    with ledger_of(site) as ledger:
        intents = ledger.intents()
    assert {i.state for i in intents} <= {"done", "undone", "skipped"}, intents
    return [str(i.action.kind) for i in intents if i.state == "done"]


def test_a_cycle_that_is_killed_at_any_step_harms_no_job(site: Site) -> None:
    """A walk through all steps: each cycle does what the one before had left, and dies one step further on."""
    jobs = load(site)
    for step in STEPS:
        if step in ("read-back", "close"):
            # all else is done by now
            jobs.append(wrong_class(site))
        died, reached = killed_at(site, step)
        assert died, f"no cycle came to {step}: {reached}"
        unharmed(site, jobs)
    time.sleep(4)
    unharmed(site, jobs)
    assert {"set-class", "displace", "drain"} <= set(finished(site, jobs))


def test_deaths_at_random(site: Site) -> None:
    """Deaths among the steps that change Slurm, each before the last one's actions had their effect."""
    rng = random.Random(7)
    jobs = load(site)
    deaths = []
    for _ in range(5):
        died, reached = killed_at(site, str(rng.randint(FIRST_THAT_ACTS, len(STEPS))))
        deaths.append(reached[-1])
        unharmed(site, jobs)
        if not died:
            break
    time.sleep(4)
    unharmed(site, jobs)
    assert set(deaths) & set(STEPS[FIRST_THAT_ACTS:]), f"no death while acting: {deaths}"
    finished(site, jobs)
