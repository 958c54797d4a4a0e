"""Moving and collecting windows on a real Slurm (design 4.6)."""

from __future__ import annotations

import time

import pytest

from tests import checker
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster

MOVING = """
[moving]
gpus = 4
wait = "2s"
[displace]
start_deadline = "20s"
"""
WINDOWS = """
[windows]
part = "100%"
above = "0s"
[keep]
room = "60s"
[moving]
per_cycle = 0
[displace]
wide_wait = "5s"
grown_wait = "5s"
early_wait = "5s"
"""


def _node(site: Site, job: str) -> str:
    return site.fields(job).get("NodeList", "")


def _reservations(site: Site) -> str:
    return site.cluster.run(["scontrol", "show", "reservation", "-o"], check=False).out


def test_a_job_that_needs_a_node_starts_after_two_small_runs_were_moved(site: Site) -> None:
    """Sixteen GPUs: on each node runs of one GPU, so that no node is free; then two of them make room."""
    site.configure(sections=MOVING)
    fillers = [site.submit("bio", 3, contract="0") for _ in range(4)]
    for job in fillers:
        site.wait(job, "RUNNING")
    small = [site.submit("vision", 1, contract="0") for _ in range(4)]
    for job in small:
        site.wait(job, "RUNNING")
    where = {job: _node(site, job) for job in small}
    assert len(set(where.values())) == 4
    big = site.submit("nlp", 4, contract="0")
    time.sleep(3)
    site.cluster.run(["scancel", *fillers[:2]])
    with site.controller():
        site.wait(big, "RUNNING", seconds=60)
        (moved,) = [job for job in small if where[job] == _node(site, big)]
        site.wait(moved, "RUNNING", seconds=60)
        assert _node(site, moved) != where[moved]
        site.cluster.wait("the place to be given back", lambda: "sbudget_" not in _reservations(site), 30)
        assert site.fields(big).get("Reservation", "(null)") == "(null)"
    told = site.sbudget("why", moved).out
    assert f"moves to idle GPUs elsewhere so that {big}" in told


def test_a_job_over_nodes_gets_them_when_the_last_contract_ends(site: Site) -> None:
    """Contracts of 20 to 35 s end one after the other, and short jobs keep coming."""
    site.configure(sections=WINDOWS)
    began = int(time.time())
    with site.controller():
        first = [site.submit("vision", 4, contract=f"{20 + 5 * i}s") for i in range(4)]
        for job in first:
            site.wait(job, "RUNNING")
        # it ends inside its contract: after it, those who used less would rightly take its place
        wide = site.submit("nlp", 4, "-N4", "--ntasks=4", contract="35s", run="sleep 30")
        asked = time.monotonic()
        short = []
        while site.state_of(wide) == "PENDING" and time.monotonic() < asked + 120:
            short.append(site.submit("bio", 1, "-t", "1", contract="10s", run="sleep 12"))
            time.sleep(2)
        waited = time.monotonic() - asked
        assert site.state_of(wide) == "RUNNING"
        assert waited < 35 + 30
        site.cluster.wait("the window to be given back", lambda: "sbudget_" not in _reservations(site), 30)
        site.wait(wide, "COMPLETED", seconds=60)
    told = site.sbudget("why", wide).out
    assert "is collected for it" in told
    assert "started in the place that was kept for it" in told
    rows = [r for r in site.sacct() if int(r["Submit"]) >= began]
    names = ("JobID", "Submit", "Start", "End", "State", "QOS", "Comment")
    found = checker.rows("\n".join("|".join(r[n] for n in names) for r in rows))
    assert checker.broken(found, default=10) == []


def test_a_window_whose_controller_died_goes_by_itself(site: Site) -> None:
    """It dies once the window is made: the job is neither held nor killed, and Slurm gives the nodes back."""
    site.configure(sections=WINDOWS.replace('room = "60s"', 'room = "60s"\nidle = "60s"'))
    with site.controller():
        runs = [site.submit("vision", 4, "-t", "4", contract="20s", run="sleep 100") for _ in range(4)]
        for job in runs:
            site.wait(job, "RUNNING")
        wide = site.submit("nlp", 4, "-N4", "--ntasks=4", contract="10s", run="sleep 5")
        site.cluster.wait("a window", lambda: "sbudget_window_" in _reservations(site), 60)
    site.cluster.wait("Slurm to give it back", lambda: "sbudget_" not in _reservations(site), 240)
    assert site.state_of(wide) in ("PENDING", "RUNNING", "COMPLETED")
    assert int(site.fields(wide)["Priority"]) > 0
    site.wait(wide, "COMPLETED", seconds=240)
