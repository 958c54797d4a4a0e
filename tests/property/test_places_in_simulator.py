"""Wide jobs and moving, with the real cycle over the simulated cluster (design 4.6)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.simulate.shapes import Settings, SubmitSpec, small
from tests.property.crowd import CAP, CROWDED, Crowd

# No shrinking: an example takes a second, and its seed tells the whole story.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
EXAMPLES = settings(max_examples=5, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**32)
WIDE = st.sampled_from(((2, 4), (3, 4), (4, 4), (5, 6)))
OFF = replace(CROWDED, window_part=Fraction(0))


@EXAMPLES
@given(SEEDS, WIDE)
def test_a_wide_job_starts_within_the_cap_and_the_requeue_time(seed: int, size: tuple[int, int]) -> None:
    world = Crowd(seed, *size)
    site = world.begin()
    try:
        world.after_cycle = lambda w, _: w.cluster.check() == () or pytest.fail(str(w.cluster.check()))
        world.play()
        assert world.waited is not None
        assert world.waited <= world.in_time
        assert world.ended == ["COMPLETED"]
        assert world.broken_contracts() == []
        assert world.held() == []
        assert world.cluster.snapshot().reservations == ()
    finally:
        site.close()


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_without_a_window_it_starves(seed: int) -> None:
    """The same load: after six caps it still waits, since a contract runs on some node at every moment (nearly: by
    chance all may end together, as with seed 1)."""
    world = Crowd(seed, 4, 4, OFF, seconds=100 + 6 * CAP)
    site = world.begin()
    try:
        world.play()
        assert world.waited is None
    finally:
        site.close()


@EXAMPLES
@given(SEEDS, WIDE, st.integers(0, 100), st.integers(1, 60))
def test_a_dead_controller_costs_it_nothing(seed: int, size: tuple[int, int], moment: int, step: int) -> None:
    """The controller dies for good at some step of some cycle. The job is not killed, held or lost, and starts when
    the time limits of the others let it, as without us; Slurm itself gives the nodes back that nobody is to use."""
    world = Crowd(seed, *size, seconds=300)
    site = world.begin()
    try:
        world.cluster.at(world.start + world.asked + moment, lambda: world.die(step, come_back=False))
        world.play()
        site.kill()
        for _ in range(20):
            world.cluster.run_for(200)
            assert world.cluster.check() == ()
            assert world.held() == []
        assert world.is_over()
        assert world.ended == ["COMPLETED"]
        assert world.waited is not None
        assert world.waited <= 1000 + 2 * CROWDED.keep_idle + CAP
        assert world.cluster.snapshot().reservations == ()
        assert world.broken_contracts() == []
    finally:
        site.close()


MOVING = replace(CROWDED, window_part=Fraction(0), moves_per_cycle=2, move_wait=10, move_back_in=30, cap=60)


def scattered(moves: int, qos: str) -> tuple[SimulatedSite, str]:
    """Two nodes of eight GPUs with runs of one and two GPUs each, a full one, and a job that needs a whole node."""
    budgets = [Budget(n, None, (ShareSince(BEGINNING, Fraction(1, 2)),)) for n in ("nlp", "vision")]
    slurm = Settings(kill_wait=3, requeue_delay=5, backfill_interval=5)
    site = SimulatedSite(small(3, 8, settings=slurm), replace(MOVING, moves_per_cycle=moves), budgets, every=5)
    c = site.cluster
    site.start()
    site.run_for(6)

    def submit(gpus: int, qos: str, user: str = "bob") -> str:
        account = {"bob": "vision", "alice": "nlp"}[user]
        comment = "min-runtime=0" if qos == "spare" else "min-runtime=20s"
        spec = SubmitSpec(user, account, 400, gpus_per_node=gpus, cpus=gpus, time_limit=900, stops_in=1)
        return c.submit(replace(spec, comment=comment, checkpoint=10))

    fillers = [submit(5, "spare") for _ in range(3)]
    site.run_for(5)
    for gpus in (1, 2, 1, 2, 3):
        submit(gpus, "backed")
    site.run_for(30)
    for ref in fillers[:2]:
        c.cancel(ref)
    site.run_for(10)
    return site, submit(8, qos, "alice")


@pytest.mark.parametrize("qos", ["spare", "backed"])
def test_a_large_job_starts_after_two_small_runs_were_moved_and_run_on_elsewhere(qos: str) -> None:
    site, job = scattered(2, qos)
    try:
        site.run_for(60)
        moves = [i.action for i in site.ledger.intents() if i.action.kind is ActionKind.MOVE]
        assert sorted(m.ref for m in moves) == ["4", "5"]
        jobs = {j.ref: j for j in site.cluster.jobs()}
        assert jobs[job].state is JobState.RUNNING
        assert jobs[job].reservation is None
        for m in moves:
            assert jobs[m.ref].state is JobState.RUNNING
            assert jobs[m.ref].allocation[0].node != m.nodes[0]
            assert jobs[m.ref].qos == m.expect_qos
        assert site.cluster.snapshot().reservations == ()
        site.kill()
        site.cluster.run_for(1500)
        assert {j.state for j in site.cluster.jobs()} <= {JobState.OTHER}
        assert site.cluster.check() == ()
    finally:
        site.close()


@pytest.mark.parametrize("qos", ["spare", "backed"])
def test_without_moving_it_waits_beside_idle_gpus(qos: str) -> None:
    site, job = scattered(0, qos)
    try:
        site.run_for(100)
        found = site.cluster.job(job)
        assert found is not None
        assert found.state is JobState.PENDING
        assert sum(n.gpus - n.gpus_used for n in site.cluster.snapshot().nodes) >= 8
    finally:
        site.close()


def idle_share(seed: int, moves: int) -> Fraction:
    """The share of the GPUs that stands idle while whole nodes are waited for, over 400 s.

    Four nodes full of small runs, of which some end in no order: what they leave is scattered.
    """
    random = Random(seed)
    budgets = [Budget(n, None, (ShareSince(BEGINNING, Fraction(1, 2)),)) for n in ("nlp", "vision")]
    slurm = Settings(kill_wait=1, requeue_delay=5, backfill_interval=5)
    site = SimulatedSite(small(4, 8, settings=slurm), replace(MOVING, moves_per_cycle=moves), budgets, every=10)
    c = site.cluster
    site.start()
    site.run_for(11)
    left = 32
    while left:
        gpus = min(left, random.choice((1, 2, 2, 3)))
        left -= gpus
        work = random.choice((30, 30, 3000))
        spec = SubmitSpec("bob", "vision", work, gpus_per_node=gpus, cpus=gpus, time_limit=4000, stops_in=1)
        c.submit(replace(spec, comment="min-runtime=20s", checkpoint=10))
    for _ in range(12):
        c.submit(SubmitSpec("alice", "nlp", 60, gpus_per_node=8, cpus=8, time_limit=90, comment="min-runtime=0"))
    site.run_for(50)
    idle = 0
    for _ in range(40):
        site.run_for(10)
        waits = any(j.state is JobState.PENDING and j.request.gpus == 8 for j in c.jobs())
        idle += waits * sum(n.gpus - n.gpus_used for n in c.snapshot().nodes)
    site.close()
    return Fraction(idle, 40 * 32)


def test_moving_puts_scattered_gpus_to_use() -> None:
    """Summed over five clusters, at most half as much stands idle as without."""
    without, with_it = (sum(idle_share(seed, moves) for seed in range(5)) for moves in (0, 2))
    assert with_it * 2 <= without
