"""A minute of mixed load with the controller running: no contract broken, and the budgets equal sacct."""

from __future__ import annotations

import json
import time

import pytest

from tests import checker
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster


@pytest.fixture
def alone(site: Site) -> Site:
    """The site with nothing of before in its ledger. A job that was over was seen to get a row without an end, some
    seconds after the history was emptied: slurmctld tells slurmdbd again of jobs that have no number there yet."""
    time.sleep(7)
    site.forget_history()
    for path in site.state.glob("ledger*"):
        path.unlink()
    site.begin()
    return site


def differing(site: Site) -> list[str]:
    """Budgets whose charge is not what sacct says of the same time, with both."""
    state = json.loads((site.state / "state.json").read_text())
    found = []
    for row in state["budgets"]:
        expected = site.charged(row["budget"], state["as_of"] - site.window, state["as_of"])
        if row["charged"] != expected * 1000:
            found.append(f"{row['budget']}: {row['charged']} thousandths, not {expected}")
    return found


def test_no_contract_is_broken_by_us_and_the_budgets_equal_sacct(alone: Site) -> None:
    """Judged by a checker that reads sacct and the declared comments, and shares no code with the product."""
    site = alone
    began = int(time.time())
    with site.controller():
        for _ in range(4):
            site.submit("nlp", 4, contract="15s")
        time.sleep(3)
        for group, contract in (("vision", "10s"), ("bio", "10s"), ("vision", "20s"), ("bio", None)):
            site.submit(group, 4, contract=contract)
        for _ in range(6):
            site.submit("bio", 1, contract="0", run="sleep 20")
        time.sleep(45)
    rows = [r for r in site.sacct() if int(r["Submit"]) >= began]
    stopped = [r for r in rows if r["State"].startswith("REQUEUED")]
    assert stopped, "the load was to make the controller act"
    names = ("JobID", "Submit", "Start", "End", "State", "QOS", "Comment")
    found = checker.rows("\n".join("|".join(r[n] for n in names) for r in rows))
    assert checker.broken(found, default=10) == []
    site.sbudget("reconcile", "--apply")
    state = json.loads((site.state / "state.json").read_text())
    end = time.monotonic() + 30
    while differing(site) and time.monotonic() < end:
        time.sleep(1)  # slurmdbd hears of a start seconds after it
    assert differing(site) == [], site.sacct()
    assert sum(row["charged"] for row in state["budgets"]) > 0


def test_the_checker_itself_finds_a_broken_contract(site: Site) -> None:
    """A checker that cannot find anything proves nothing: an operator requeues a run inside its contract."""
    job = site.submit("nlp", 1, contract="60s")
    site.wait(job, "RUNNING")
    time.sleep(2)
    site.cluster.run(["scontrol", "requeue", "Incomplete", job])
    site.cluster.wait("its row", lambda: any(r["JobID"] == job and r["State"] == "REQUEUED" for r in site.sacct()))
    names = ("JobID", "Submit", "Start", "End", "State", "QOS", "Comment")
    text = "\n".join("|".join(r[n] for n in names) for r in site.sacct() if r["JobID"] == job)
    assert len(checker.broken(checker.rows(text), default=10)) == 1
