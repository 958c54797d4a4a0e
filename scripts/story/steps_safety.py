"""The story's second half: the controller dies, the books agree with sacct, and everything is given back."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from place import Site

    from pyslurm_budget.render.narrator import Narrator

GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")


def tell(story: Narrator, site: Site, before: str) -> None:
    """Steps h to j."""
    _killed(story, site)
    _books(story, site)
    _removed(story, site, before)


def _killed(story: Narrator, site: Site) -> None:
    with story.step("h", "The controller is killed in the middle of a cycle, and nobody notices"):
        jobs = [site.submit("nlp", 4, 900, contract="20s")[0] for _ in range(4)]
        story.wait("nlp's four runs start", lambda: all(site.state(j) == "RUNNING" for j in jobs), 20)
        jobs.append(site.submit("vision", 4, 60, contract="20s")[0])
        time.sleep(21)
        controller = site.start("reconcile", "--apply", "--every", "1s")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if any(r["State"].startswith("REQUEUED") for r in site.sacct(*jobs)):
                break
            time.sleep(0.05)
        os.kill(controller.pid, signal.SIGKILL)
        controller.wait()
        story.tell("kill -9 of the controller just after it had requeued a run")
        time.sleep(15)
        states = {j: site.field(j, "JobState", "Priority") for j in jobs}
        story.tell(f"15 s without it: {states}")
        alive = all(state in ("RUNNING", "PENDING", "COMPLETED", "COMPLETING") for state, _ in states.values())
        story.check(alive, "every job runs, waits or has ended by itself", states)
        held = [j for j, (state, priority) in states.items() if state == "PENDING" and priority == "0"]
        story.check(not held, "nothing is held", held)
        site.sbudget("reconcile", "--apply")
        site.sbudget("reconcile", "--apply")
        health = site.sbudget("health", check=False)
        story.check(health.status == 0, "its next start finished the matter: sbudget health is content", health.out)
    site.cancel_all()


def _books(story: Narrator, site: Site) -> None:
    with story.step("i", "The budgets say the same as sacct, to the second"):
        jobs = [site.submit(group, 4, 8, contract="20s")[0] for group in ("nlp", "vision", "bio")]
        story.wait("three short jobs end", lambda: all(site.state(j) == "COMPLETED" for j in jobs), 60)
        time.sleep(2)
        site.sbudget("reconcile", "--apply")
        state = json.loads((site.folder / "site" / "public" / "state.json").read_text(encoding="utf-8"))
        story.tell(site.sbudget("show").out)
        begin, end = state["as_of"] - site.window, state["as_of"]
        for row in state["budgets"]:
            expected = _charged(site.sacct(), row["budget"], begin, end)
            story.check(
                row["charged"] == expected * 1000, f"{row['budget']}: {expected} GPU-s charged, as sacct says",
                f"{row['charged'] / 1000} GPU-s",
            )  # fmt: skip
        told = json.loads(site.sbudget("why", jobs[0], "--json").out)
        rows = site.sacct(jobs[0])
        pairs = [(r["start"], r["end"]) for r in told["runs"]]
        story.check(
            pairs == [(int(r["Start"]), int(r["End"])) for r in rows], "why shows the same runs as sacct", told
        )


def _charged(rows: list[dict[str, str]], account: str, begin: int, end: int) -> int:
    """GPU-seconds of the account's runs that are not spare inside [begin, end), from sacct's rows alone.

    The cluster's own test job ran before there was a QOS of ours: what is not spare is charged."""
    total = 0
    for row in rows:
        if row["Account"] != account or row["QOS"] == "spare" or not row["Start"].isdigit():
            continue
        match = GPUS.search(row["AllocTRES"])
        ended = int(row["End"]) if row["End"].isdigit() else end
        total += (int(match.group(1)) if match else 0) * max(0, min(ended, end) - max(int(row["Start"]), begin))
    return total


def _removed(story: Narrator, site: Site, before: str) -> None:
    with story.step("j", "sbudget setup remove gives everything back"):
        story.tell(site.sbudget("setup", "remove").out)
        after = site.slurm_settings()
        same = after == before
        story.check(same, "QOS, associations and the submit plugin are as they were", after)
