"""The main job on the simulated cluster: ``python -m pyslurm_budget.cli.story``, no Slurm and no root needed.

The like of ``scripts/story`` on a real one, step by step with the same numbers, and checked against what the
simulated Slurm itself says: its accounting rows, its records, and its own account of what must always hold.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.cli import story_safety
from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.cli.story_site import StorySite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.render.narrator import Narrator
from pyslurm_budget.simulate.shapes import Settings, small

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 240
CAP = 60
SHARES = {"nlp": Fraction(50, 100), "vision": Fraction(30, 100), "bio": Fraction(20, 100)}
POLICY = Policy(
    window=WINDOW,
    hour=10,
    cap=CAP,
    default_contract=20,
    floor=20,
    ceiling_part=Fraction(1),
    drain_after=3,
    drain_min_nodes=1,
    restart_quiet=0,
    breaker_least_gpus=1000,
)
SLURM = Settings(cluster="demo", kill_wait=5, requeue_delay=5, backfill_interval=5)


def main() -> int:
    """Tell the story; 0 only if every step held."""
    budgets = [Budget(name, None, (ShareSince(BEGINNING, share),)) for name, share in SHARES.items()]
    site = StorySite(SimulatedSite(small(4, 4, settings=SLURM), POLICY, budgets, lease=5))
    story = Narrator(clock=lambda: site.now, pause=lambda _: site.run_for(1))
    print("A simulated cluster of 4 nodes with 4 GPUs each, and three groups: nlp 50 %, vision 30 %, bio 20 %.")
    print("The budgets' week is 4 minutes here, a contract at most 60 s; all seconds are simulated ones.")
    try:
        site.site.start()
        site.run_for(4)
        for step in (submit, over_budget, preempts, contract, drain, array):
            step(story, site)
            site.cancel_all()
        site.site.stop()
        story_safety.tell(story, site)
    finally:
        site.site.close()
    return story.end()


def submit(story: Narrator, site: StorySite) -> None:
    """Step a."""
    with story.step("a", "Three groups submit; each job gets its class at once, and its owner is told"):
        jobs = []
        for group in SHARES:
            job, said = site.submit(group, 2, 600, contract="20s")
            story.tell(f"{group}: job {job}: {said}")
            story.check(site.qos(job) == "backed", f"job {job} has the QOS backed", site.qos(job))
            story.check("backed" in said and "20 s" in said, "its owner read: backed, and for how long", said)
            jobs.append(job)
        story.wait("all three run", lambda: all(site.state(j) == "RUNNING" for j in jobs), 20)
        _sound(story, site)


def over_budget(story: Narrator, site: StorySite) -> None:
    """Step b."""
    with story.step("b", "bio asks for more than its 768 GPU-s: the rest is spare, and still runs on idle GPUs"):
        jobs = [site.submit("bio", 4, 600, contract="60s") for _ in range(4)]
        for job, said in jobs:
            story.tell(f"job {job}: {said}")
        story.wait("all four run", lambda: all(site.state(j) == "RUNNING" for j, _ in jobs), 20)
        classes = [site.qos(j) for j, _ in jobs]
        backed = classes.count("backed")
        told = f"{backed} backed and {4 - backed} spare: no more than its budget holds"
        story.check(1 <= backed <= 3 and "spare" in classes, told, classes)
        story.check(backed * 4 * 60 <= 768 * 1.02, "what is backed fits bio's allowance of 768 GPU-s (+ 2 %)", backed)
        story.check("spare" in jobs[-1][1], "the last owner read: spare, and why", jobs[-1][1])
        _sound(story, site)


def preempts(story: Narrator, site: StorySite) -> None:
    """Step c."""
    with story.step("c", "All GPUs do spare work; a backed job of vision pushes some aside, and nothing is lost"):
        spare = [site.submit("nlp", 4, 600, contract="0")[0] for _ in range(4)]
        story.wait("spare work fills the 16 GPUs", lambda: all(site.state(j) == "RUNNING" for j in spare), 20)
        story.check({site.qos(j) for j in spare} == {"spare"}, "min-runtime=0 asks for spare, and gets it")
        job, said = site.submit("vision", 4, 30, contract="20s")
        story.tell(f"job {job}: {said}")
        story.wait(f"job {job} runs", lambda: site.state(job) == "RUNNING", 30)
        rows = [r for r in site.rows(*spare) if r.state == "PREEMPTED"]
        story.check(len(rows) == 1, "accounting shows one run PREEMPTED", [r.state for r in rows])
        victim = rows[0].job_ref
        story.check(site.state(victim) in ("PENDING", "RUNNING"), f"job {victim} waits again, not lost")
        story.wait(f"job {victim} runs again when there is room", lambda: site.state(victim) == "RUNNING", 90)
        _sound(story, site)


def contract(story: Narrator, site: StorySite) -> None:
    """Steps d and e."""
    runs: list[str] = []
    waiting = ""
    with story.step("d", "nlp holds all GPUs, each run with a contract of 25 s; vision, which used less, waits"):
        runs.extend(site.submit("nlp", 4, 900, contract="25s")[0] for _ in range(4))
        story.wait("nlp's four backed runs start", lambda: all(site.state(j) == "RUNNING" for j in runs), 20)
        story.check({site.qos(j) for j in runs} == {"backed"}, "all four are backed", [site.qos(j) for j in runs])
        began = max(r.start or 0 for r in site.rows(*runs))
        waiting, _ = site.submit("vision", 4, 40, contract="20s")
        while site.now < began + 24 and all(site.state(j) == "RUNNING" for j in runs):
            site.run_for(1)
        states = [site.state(j) for j in runs]
        story.check(site.now >= began + 24, "no run was touched inside its contract", states)
        story.check(site.state(waiting) == "PENDING", f"job {waiting} of vision waits", site.state(waiting))
    with story.step("e", "After the contract one of them gives way to vision's job, and waits again"):
        story.wait(f"job {waiting} runs", lambda: site.state(waiting) == "RUNNING", 60)
        rows = [r for r in site.rows(*runs) if r.state == "REQUEUED"]
        story.check(len(rows) == 1, "accounting shows one run REQUEUED", [r.state for r in site.rows(*runs)])
        ran = (rows[0].end or 0) - (rows[0].start or 0)
        story.check(ran >= 25, f"it had run {ran} s of the 25 s that it was promised", ran)
        state = site.state(rows[0].job_ref)
        story.check(state in ("PENDING", "RUNNING"), f"job {rows[0].job_ref} is still in the queue", state)
        story.tell(site.why(rows[0].job_ref))
        _sound(story, site)


def drain(story: Narrator, site: StorySite) -> None:
    """Step f."""
    with story.step("f", "A node is to be repaired: it empties by itself, and its job runs elsewhere"):
        job, _ = site.submit("vision", 2, 600, contract="20s")
        story.wait(f"job {job} runs", lambda: site.state(job) == "RUNNING", 20)
        node = site.rows(job)[0].nodes[0]
        began = site.now
        site.cluster.drain(node, "fan broken")
        story.tell(f"scontrol update nodename={node} state=drain reason='fan broken'")
        moved = lambda: site.state(job) == "RUNNING" and site.rows(job)[-1].nodes[0] != node  # noqa: E731
        story.wait(f"job {job} runs on another node", moved, 90)
        row = next(r for r in site.rows(job) if r.state == "REQUEUED")
        ran = (row.end or 0) - (row.start or 0)
        story.check(ran >= 20, f"it was moved after its contract of 20 s (it had run {ran} s)", ran)
        story.check(site.qos(job) == "backed", "it kept its class", site.qos(job))
        found = next(n for n in site.cluster.snapshot().nodes if n.name == node)
        empty = found.draining and not found.gpus_used
        story.check(empty, f"{node} is drained and empty, {site.now - began} s after the operator asked", found)
        site.cluster.resume(node)
        _sound(story, site)


def array(story: Narrator, site: StorySite) -> None:
    """Step g."""
    with story.step("g", "An array of 40 tasks, of which vision's budget of 1152 GPU-s covers only a part"):
        job, said = site.submit("vision", 1, 120, contract="60s", array=range(1, 41))
        story.tell(f"array {job}: {said}")
        story.wait(
            "some tasks are backed, the others spare", lambda: set(site.classes(job)) == {"backed", "spare"}, 30
        )
        found = site.classes(job)
        story.tell(f"squeue -r: {dict(found)}")
        limit = int(1152 * 1.02) // 60
        story.check(found["backed"] <= limit, f"at most {limit} tasks x 60 s are backed at once", found)
        story.check(sum(found.values()) == 40, "all 40 tasks are there", found)
        _sound(story, site)


def _sound(story: Narrator, site: StorySite) -> None:
    """The simulated Slurm's own check: nothing over-committed, no job lost, the queue in order."""
    faults: Sequence[str] = site.cluster.check()
    if faults:
        story.check(False, "the simulated Slurm finds nothing wrong in itself", "; ".join(faults))


if __name__ == "__main__":
    sys.exit(main())
