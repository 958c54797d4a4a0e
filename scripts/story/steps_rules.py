"""The story's first half: classes, budgets, spare work, contracts, drain and arrays."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from place import Site

    from pyslurm_budget.render.narrator import Narrator


@contextmanager
def installed(story: Narrator, site: Site) -> Iterator[None]:
    """Configure, set up Slurm, apply the budgets; the steps run inside."""
    site.configure()
    with story.step("0", "An operator sets the site up: sbudget setup apply, sbudget budget apply"):
        story.tell(site.sbudget("setup", "apply").out)
        story.tell(site.sbudget("budget", "apply", str(site.budgets)).out)
        story.check(
            site.sbudget("setup", "check", check=False).status == 0, "sbudget setup check finds nothing to do"
        )
        site.sbudget("reconcile", "--apply")
    yield


def tell(story: Narrator, site: Site) -> None:
    """Steps a to g, with the controller running beside them."""
    controller = site.start("reconcile", "--apply", "--every", "2s")
    try:
        _submit(story, site)
        _over_budget(story, site)
        _preempts(story, site)
        _contract(story, site)
        _drain(story, site)
        _array(story, site)
    finally:
        controller.terminate()
        controller.wait(timeout=60)


def _submit(story: Narrator, site: Site) -> None:
    with story.step("a", "Three groups submit; each job gets its class at once, and its owner is told"):
        jobs = []
        for group in ("nlp", "vision", "bio"):
            job, said = site.submit(group, 2, 600, contract="20s")
            story.tell(f"{group}: job {job}: {said}")
            jobs.append((job, said))
        for job, said in jobs:
            story.check(site.qos(job) == "backed", f"job {job} has the QOS backed", site.qos(job))
            story.check("backed" in said and "20 s" in said, "its owner read: backed, and for how long", said)
        for job, _ in jobs:
            story.wait(f"job {job} runs", lambda job=job: site.state(job) == "RUNNING", 20)
    site.cancel_all()


def _over_budget(story: Narrator, site: Site) -> None:
    with story.step("b", "bio asks for more than its 768 GPU-s: the rest is spare, and still runs on idle GPUs"):
        jobs = [site.submit("bio", 4, 600, contract="60s") for _ in range(4)]
        for job, said in jobs:
            story.tell(f"job {job}: {said}")
        story.wait("all four run", lambda: all(site.state(j) == "RUNNING" for j, _ in jobs), 20)
        classes = [site.qos(j) for j, _ in jobs]
        backed = classes.count("backed")
        story.check(
            1 <= backed <= 3, f"{backed} backed and {4 - backed} spare: no more than its budget holds", classes
        )
        story.check(backed * 4 * 60 <= 768 * 1.02, "what is backed fits bio's allowance of 768 GPU-s (+ 2 %)", backed)
        story.check("spare" in jobs[-1][1], "the last owner read: spare, and why", jobs[-1][1])
    site.cancel_all()


def _preempts(story: Narrator, site: Site) -> None:
    with story.step("c", "All GPUs do spare work; a backed job of vision pushes some aside, and nothing is lost"):
        spare = [site.submit("nlp", 4, 600, contract="0")[0] for _ in range(4)]
        story.wait("spare work fills the 16 GPUs", lambda: all(site.state(j) == "RUNNING" for j in spare), 20)
        story.check({site.qos(j) for j in spare} == {"spare"}, "min-runtime=0 asks for spare, and gets it")
        job, said = site.submit("vision", 4, 30, contract="20s")
        story.tell(f"job {job}: {said}")
        story.wait(f"job {job} runs", lambda: site.state(job) == "RUNNING", 30)
        rows = [r for r in site.sacct(*spare) if r["State"].startswith("PREEMPTED")]
        story.check(len(rows) == 1, "sacct shows one run PREEMPTED", [r["State"] for r in rows])
        victim = rows[0]["JobID"]
        story.check(site.state(victim) in ("PENDING", "RUNNING", "COMPLETING"), f"job {victim} waits again, not lost")
        story.wait(f"job {victim} runs again when there is room", lambda: site.state(victim) == "RUNNING", 90)
    site.cancel_all()


def _contract(story: Narrator, site: Site) -> None:
    runs: list[str] = []
    with story.step("d", "nlp holds all GPUs, each run with a contract of 25 s; vision, which used less, waits"):
        runs.extend(site.submit("nlp", 4, 900, contract="25s")[0] for _ in range(4))
        story.wait("nlp's four backed runs start", lambda: all(site.state(j) == "RUNNING" for j in runs), 20)
        story.check({site.qos(j) for j in runs} == {"backed"}, "all four are backed", [site.qos(j) for j in runs])
        began = max(int(site.field(j, "StartTime")[0]) for j in runs)
        waiting, _ = site.submit("vision", 4, 40, contract="20s")
        story.tell(f"job {waiting} of vision waits: {site.field(waiting, 'Reason')[0]}")
        while time.time() < began + 22:
            story_runs = [site.state(j) for j in runs]
            if story_runs != ["RUNNING"] * 4:
                break
            time.sleep(1)
        story.check(
            time.time() >= began + 22, "no run was touched inside its contract", [site.state(j) for j in runs]
        )
    with story.step("e", "After the contract one of them gives way to vision's job, and waits again"):
        story.wait(f"job {waiting} runs", lambda: site.state(waiting) == "RUNNING", 60)
        rows = [r for r in site.sacct(*runs) if r["State"].startswith("REQUEUED")]
        story.check(len(rows) == 1, "sacct shows one run REQUEUED", [r["State"] for r in site.sacct(*runs)])
        ran = int(rows[0]["End"]) - int(rows[0]["Start"])
        story.check(ran >= 25, f"it had run {ran} s of the 25 s that it was promised")
        story.check(site.state(rows[0]["JobID"]) != "", f"job {rows[0]['JobID']} is still in the queue")
        story.tell(site.sbudget("why", rows[0]["JobID"]).out)
    site.cancel_all()


def _drain(story: Narrator, site: Site) -> None:
    with story.step("f", "A node is to be repaired: it empties by itself, and its job runs elsewhere"):
        job, _ = site.submit("vision", 2, 600, contract="20s")
        story.wait(f"job {job} runs", lambda: site.state(job) == "RUNNING", 20)
        node = site.field(job, "NodeList")[0]
        began = int(site.field(job, "StartTime")[0])
        site.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=fan broken"])
        story.tell(f"scontrol update nodename={node} state=drain reason='fan broken'")
        moved = lambda: site.state(job) == "RUNNING" and site.field(job, "NodeList")[0] != node  # noqa: E731
        story.wait(f"job {job} runs on another node", moved, 90)
        row = next(r for r in site.sacct(job) if r["State"].startswith("REQUEUED"))
        ran = int(row["End"]) - began
        story.check(ran >= 20, f"it was moved after its contract of 20 s (it had run {ran} s)")
        story.check(site.qos(job) == "backed", "it kept its class", site.qos(job))
        idle = lambda: "DRAIN" in site.run(["sinfo", "-h", "-n", node, "-o", "%T"]).out.upper()  # noqa: E731
        story.check(idle(), f"{node} is drained")
        site.run(["scontrol", "update", f"nodename={node}", "state=resume"])
    site.cancel_all()


def _array(story: Narrator, site: Site) -> None:
    with story.step("g", "An array of 40 tasks, of which vision's budget of 1152 GPU-s covers only a part"):
        job, said = site.submit("vision", 1, 120, "--array=1-40", contract="60s")
        story.tell(f"array {job}: {said}")

        def classes() -> dict[str, int]:
            out = site.run(["squeue", "-h", "-r", "-j", job, "-o", "%q"], check=False).out.split()
            return {name: out.count(name) for name in set(out)}

        story.wait("some tasks are backed, the others spare", lambda: set(classes()) == {"backed", "spare"}, 30)
        found = classes()
        story.tell(f"squeue -r: {found}")
        limit = int(1152 * 1.02) // 60
        story.check(found["backed"] <= limit, f"at most {limit} tasks x 60 s are backed at once", found)
    site.cancel_all()
