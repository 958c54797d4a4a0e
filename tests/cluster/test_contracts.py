"""A minute of mixed load with the controller running: no contract broken, and the budgets equal sacct."""

from __future__ import annotations

import json
import time

import pytest

from tests import checker
from tests.cluster.site import Site

pytestmark = pytest.mark.cluster


def test_no_contract_is_broken_by_us_and_the_budgets_equal_sacct(site: Site) -> None:
    """Judged by a checker that reads sacct and the declared comments, and shares no code with the product."""
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
    for row in state["budgets"]:
        expected = site.charged(row["budget"], state["as_of"] - site.window, state["as_of"])
        assert row["charged"] == expected * 1000, row["budget"]
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
