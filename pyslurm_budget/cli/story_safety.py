"""The simulated story's second half: the controller dies in the middle, and the books agree with accounting."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyslurm_budget.cli.simulated import KilledError

if TYPE_CHECKING:
    from pyslurm_budget.cli.story_site import StorySite
    from pyslurm_budget.render.narrator import Narrator

MILLI = 1000


def tell(story: Narrator, site: StorySite) -> None:
    """Steps h to j."""
    killed(story, site)
    site.cancel_all()
    books(story, site)
    print("\nj. Not told here: the simulated cluster has no QOS, associations or plugin files to give back.")
    story.tell("`scripts/quickstart` as root shows `sbudget setup remove` on a real Slurm.")


def killed(story: Narrator, site: StorySite) -> None:
    """Step h."""
    with story.step("h", "The controller is killed in the middle of a cycle, and nobody notices"):
        jobs = [site.submit("nlp", 4, 900, contract="20s")[0] for _ in range(4)]
        story.wait("nlp's four runs start", lambda: all(site.state(j) == "RUNNING" for j in jobs), 20)
        jobs.append(site.submit("vision", 4, 60, contract="20s")[0])
        site.site.start(_dies_after_a_requeue)
        gone = lambda: site.site.controller is None  # noqa: E731
        story.wait("kill -9 of the controller just after it had requeued a run, before it wrote that down", gone, 60)
        left = site.site.ledger.open_intents()
        story.check(len(left) == 1, "its intent is in the ledger, open", left)
        stopped = left[0].action.ref
        site.run_for(30)
        states = {j: site.state(j) for j in jobs}
        story.tell(f"30 s without it: {states}")
        alive = all(state in ("RUNNING", "PENDING", "COMPLETING") for state in states.values())
        story.check(alive, "every job runs or waits", states)
        held = [j for j in jobs if site.job(j).priority == 0]
        story.check(not held, "nothing is held", held)
        story.check(site.cluster.check() == (), "nothing is lost", site.cluster.check())
        story.check(site.state(jobs[-1]) == "RUNNING", "vision's job runs in the place that was made for it")
        site.site.start()
        site.run_for(4)
        left = site.site.ledger.open_intents()
        story.check(not left, "its next start finished the matter: nothing is open any more", left)
        story.tell(site.why(stopped))
    site.site.stop()


def _dies_after_a_requeue(step: str) -> None:
    if step.startswith("sent displace"):
        raise KilledError


def books(story: Narrator, site: StorySite) -> None:
    """Step i."""
    with story.step("i", "The budgets say the same as accounting, to the second"):
        site.site.start()
        jobs = [site.submit(group, 4, 8, contract="20s")[0] for group in ("nlp", "vision", "bio")]
        story.wait("three short jobs end", lambda: all(site.state(j) == "OTHER" for j in jobs), 60)
        site.run_for(4)
        state = json.loads(site.site.published.state or "{}")
        begin, end = state["as_of"] - site.site.policy.window, state["as_of"]
        for row in state["budgets"]:
            expected = _charged(site, row["budget"], begin, end)
            told = f"{row['budget']}: {expected} GPU-s charged, as the accounting rows say"
            story.check(row["charged"] == expected * MILLI, told, f"{row['charged'] / MILLI} GPU-s")
        story.check(any(row["charged"] for row in state["budgets"]), "and that is not nothing")
    site.site.stop()


def _charged(site: StorySite, account: str, begin: int, end: int) -> int:
    """GPU-seconds of the account's backed runs inside [begin, end), from the accounting rows alone."""
    total = 0
    for row in site.rows():
        if row.account == account and row.qos == "backed" and row.start is not None:
            ended = end if row.end is None else row.end
            total += (row.tres.gpus or 0) * max(0, min(ended, end) - max(row.start, begin))
    return total
