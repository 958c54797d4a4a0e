"""*Killed at any step*: kill -9 of a cycle before each of its steps; no job is held, lost or killed by it."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.site import Site

pytestmark = pytest.mark.cluster
DRIVER = Path(__file__).with_name("killed_driver.py")
ROUNDS = 3


def killed_at(site: Site, step: int) -> tuple[bool, list[str]]:
    """Run a cycle that dies at this step; whether it died, and the steps that it had reached."""
    argv = [sys.executable, str(DRIVER), str(site.config), str(step)]
    root = str(DRIVER.parents[2])
    ran = site.cluster.run(argv, check=False, env={"PYTHONPATH": root})
    assert ran.status in (0, -9), ran
    return ran.status == -9, ran.out.splitlines()


def load(site: Site) -> list[str]:
    """Something for a cycle to do of every kind: a class change, a displacement and a drain."""
    site.clean()
    jobs = [site.submit("nlp", 4, contract="5s") for _ in range(4)]
    for job in jobs:
        site.wait(job, "RUNNING")
    node = site.fields(jobs[0])["NodeList"]
    site.cluster.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=fan"])
    jobs.append(site.submit("vision", 4, contract="10s"))
    jobs.append(site.submit("vision", 1, "--qos=backed", contract="0"))
    jobs.append(site.submit("bio", 4, "--hold", contract="10s"))
    time.sleep(6)
    site.cluster.run(["scontrol", "release", jobs[-1]])
    return jobs


def unharmed(site: Site, jobs: list[str]) -> None:
    """Every job runs, waits unheld, or has ended by itself."""
    for job in jobs:
        found = site.fields(job)
        assert found, f"job {job} has vanished"
        assert found["JobState"] in ("RUNNING", "PENDING", "COMPLETING", "COMPLETED"), (job, found["JobState"])
        if found["JobState"] == "PENDING":
            assert int(found["Priority"]) > 0, f"job {job} is held: {found['Reason']}"


def test_a_cycle_that_is_killed_at_any_step_harms_no_job(site: Site) -> None:
    """A walk through all steps, in strides that grow to cover them with few rounds, then some at random."""
    jobs = load(site)
    step, seen = 1, set()
    while True:
        died, steps = killed_at(site, step)
        seen.add(steps[-1].split(" ")[0] if died else "end")
        unharmed(site, jobs)
        if not died:
            break
        step += 1
        time.sleep(2.1)  # the dead controller's lease
        if step == 9:
            break
    assert {"lease", "read", "accounting", "settle"} <= seen, seen
    site.settled()
    unharmed(site, jobs)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_while_it_acts(site: Site, seed: int) -> None:
    """Deaths among the steps that change Slurm; afterwards no controller for a while, then a new one finishes."""
    rng = random.Random(seed)
    jobs = load(site)
    deaths = []
    for _ in range(4):
        died, steps = killed_at(site, rng.randint(9, 20))
        deaths.append(steps[-1])
        if not died:
            break
        time.sleep(2.1)
    time.sleep(6)
    unharmed(site, jobs)
    site.settled()
    unharmed(site, jobs)
    assert any(" " in step for step in deaths), f"no death while acting: {deaths}"
    health = site.sbudget("health", "--max-age", "60s", check=False)
    assert health.status == 0, health.out
