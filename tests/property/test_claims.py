"""Claims over the simulated cluster: Slurm's own preemption takes what we open, and nothing else.

The oracles read the simulated Slurm's event log and records. Whether a run was opened is read from the ledger's
intents, which are written before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.cli.simulated import KilledError, SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.claim import EXEMPT
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.service.ports import NEVER_OPENED
from pyslurm_budget.simulate.facts import jobs_of
from pyslurm_budget.simulate.shapes import ClusterSpec, Settings, SubmitSpec, small
from tests.property.test_cycle_in_simulator import EXAMPLES
from tests.property.world import ACCIDENTS, BACKED, GPUS, NODES, POLICY, TREES, World


class Claims(World):
    """A site whose Slurm can be claimed from. A controller that is killed while time passes in its cycle dies at the
    end of that cycle (within it, it dies at its steps)."""

    in_cycle = False

    def spec(self) -> ClusterSpec:
        """As ever, with the QOS and the setting of claims."""
        slurm = replace(self.slurm, min_exempt_priority=EXEMPT)
        return small(len(NODES), GPUS, settings=slurm, claim=True)

    def one_cycle(self) -> None:
        """One cycle, and what was put off in it."""
        self.in_cycle, self.put_off = True, []
        super().one_cycle()
        self.in_cycle = False
        for accident in self.put_off:
            super()._happens(accident)

    def _happens(self, accident: Any) -> None:
        if self.in_cycle and accident[1] in ("new-controller", "die-at-step"):
            self.put_off.append(accident)
        else:
            super()._happens(accident)


@st.composite
def worlds(draw: st.DrawFn) -> Claims:
    """A world with its load and accidents; one controller at least dies."""
    dies = (draw(st.integers(10, 150)), "die-at-step", draw(st.integers(1, 60)))
    what = sorted([dies, *draw(st.lists(ACCIDENTS, max_size=5))], key=lambda a: a[0])
    return Claims(draw(st.integers(0, 2**32)), draw(st.sampled_from(TREES)), tuple(what), jobs=30)


def exposed(site: SimulatedSite) -> list[str]:
    """Backed runs that a claim could stop now."""
    jobs = jobs_of(site.cluster._state)
    return [j.ref for j in jobs if j.state is JobState.RUNNING and j.qos in BACKED and j.priority <= EXEMPT]


def claiming(site: SimulatedSite) -> list[str]:
    """Jobs that wait with a claim."""
    jobs = jobs_of(site.cluster._state)
    return [j.ref for j in jobs if j.state is JobState.PENDING and not j.completing and j.qos == "claim"]


def waited_for(site: SimulatedSite) -> set[str]:
    """Jobs whose room is being made, as the ledger says."""
    claims = site.ledger.open_intents()
    return {i.action.ref for i in claims if i.action.kind is ActionKind.CLAIM and i.state == "sent"}


def taken(site: SimulatedSite) -> list[tuple[str, str]]:
    """(victim, beneficiary) of each backed run that Slurm stopped for a job."""
    qos: dict[str, str] = {}
    found = []
    for event in site.cluster.events:
        if event.kind == "start":
            qos[event.ref] = str(event.detail["qos"])
        elif event.kind == "preempt" and qos[event.ref] in BACKED:
            found.append((event.ref, str(event.detail["by"])))
    return found


def allowed(site: SimulatedSite) -> set[tuple[str, str]]:
    """(run, beneficiary) of everything that was written down before it was opened."""
    intents = site.ledger.intents(kinds=[ActionKind.DISPLACE])
    return {(i.action.ref, str(i.action.for_ref)) for i in intents if i.outcome != NEVER_OPENED}


@EXAMPLES
@given(worlds())
def test_no_run_that_was_not_opened_is_ever_preempted(world: Claims) -> None:
    def after(_: World, events: list[Any]) -> None:
        assert world.cluster.check() == ()
        if world.site.last is not None and world.site.controller is not None:
            assert exposed(world.site) == []
            # What was stopped in this very cycle gets its own QOS back in the next one.
            back = {e.ref for e in events if e.kind == "stop"}
            assert set(claiming(world.site)) <= waited_for(world.site) | back

    site = world.begin()
    try:
        world.after_cycle = after
        world.play()
        assert set(taken(site)) <= allowed(site)
        assert world.broken_contracts() == []
        assert world.held() == []
    finally:
        site.close()


# --- one round, and the controller dies at each of its steps

GROUPS = {"nlp": ("alice",), "vision": ("bob",)}
ONE = replace(POLICY, early_wait=0, wide_wait=0, window=1000, overdraft=Fraction(1), start_deadline=20)


@contextmanager
def full_house(policy: Policy = ONE, **slurm: int) -> Iterator[SimulatedSite]:
    """Two nodes full of alice's work past its contract; bob has used nothing of his half."""
    settings = Settings(min_exempt_priority=EXEMPT, kill_wait=3, requeue_delay=5, backfill_interval=5, **slurm)
    shares = [Budget(name, None, (ShareSince(BEGINNING, Fraction(1, 2)),)) for name in GROUPS]
    site = SimulatedSite(small(2, 4, GROUPS, settings, claim=True), policy, shares, every=5)
    try:
        site.start()
        site.run_for(70)  # slurmctld has just started: quiet
        for gpus in (4, 2, 1, 1):
            site.cluster.submit(ask("alice", "nlp", gpus))
        site.run_for(60)
        assert exposed(site) == []
        assert len(running(site)) == 4
        yield site
    finally:
        site.close()


def ask(user: str, account: str, gpus: int, **more: Any) -> SubmitSpec:
    spec = SubmitSpec(user, account, 2000, gpus_per_node=gpus, cpus=gpus, time_limit=5000, comment="min-runtime=20s")
    return replace(spec, **more)


def running(site: SimulatedSite) -> dict[str, str]:
    """Running jobs and their QOS."""
    return {j.ref: j.qos for j in jobs_of(site.cluster._state) if j.state is JobState.RUNNING}


def beneficiary(site: SimulatedSite, gpus: int = 2) -> str:
    return site.cluster.submit(ask("bob", "vision", gpus))


def test_a_round_takes_what_makes_room_and_no_more() -> None:
    with full_house() as site:
        job = beneficiary(site)
        site.run_for(40)
        assert running(site)[job] == "claim"
        assert len(taken(site)) in (1, 2), taken(site)
        assert {by for _, by in taken(site)} == {job}
        assert "1" in running(site), "the four GPUs of the wide run were not needed"
        rows = {r.job_ref: r.state for r in site.cluster.runs(0, 1 << 40) if r.end is not None}
        assert set(rows.values()) == {"PREEMPTED"}
        (claim,) = site.ledger.intents(kinds=[ActionKind.CLAIM])
        assert (claim.state, claim.outcome) == ("done", "runs in their place")
        run = next(r for r in site.ledger.open_runs() if r.job_ref == job)
        assert (str(run.work_class), run.qos) == ("backed", "claim")
        site.run_for(40)
        back = {j.ref: j.qos for j in jobs_of(site.cluster._state) if j.ref in rows}
        assert set(back.values()) <= {"backed", "spare"}


def steps_of_a_round() -> list[str]:
    """The steps of the cycle in which the job is served."""
    seen: list[str] = []
    with full_house() as site:
        site.kill()
        site.run_for(6)
        beneficiary(site)
        site.cluster.run_for(25)
        site.start(seen.append)
        site.cycle()
        assert taken(site), seen
    return seen


def test_whatever_step_the_controller_dies_at_all_comes_back() -> None:
    steps = steps_of_a_round()
    for number in range(1, len(steps) + 1):
        with full_house() as site:
            site.kill()
            site.run_for(6)
            job = beneficiary(site)
            site.cluster.run_for(25)
            left = number

            def at_step(_: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise KilledError

            site.start(at_step)
            site.cycle()
            assert site.controller is None, (number, steps)
            site.cluster.run_for(20)  # whatever stands open is open now, and the job may take it
            assert {by for _, by in taken(site)} <= {job}
            site.start()
            site.cycle()
            where = (number, steps[number - 1])
            assert site.failure is None, where
            assert exposed(site) == [], where
            assert set(claiming(site)) <= waited_for(site), where
            site.run_for(60)
            assert running(site).get(job) in ("claim", "backed"), where
            assert exposed(site) == claiming(site) == [], where
            assert site.cluster.check() == ()


@pytest.mark.parametrize("way", ["hold", "nice"])
def test_a_run_that_its_owner_opens_is_closed_again(way: str) -> None:
    with full_house() as site:
        if way == "hold":
            site.cluster.hold("1")
        else:
            site.cluster.set_nice("1", 100_000_000)
        assert exposed(site) == ["1"]
        site.cycle()
        assert exposed(site) == []


def test_a_service_that_stops_takes_the_claim_back_that_only_waits() -> None:
    with full_house() as site:
        for node in site.cluster.snapshot().nodes:  # what is stopped there does not end
            site.cluster.hang_node(node.name, hangs=True)
        job = beneficiary(site)
        for _ in range(30):
            site.run_for(2)
            if claiming(site):
                break
        assert claiming(site) == [job]
        assert waited_for(site) == {job}
        site.stop()
        assert claiming(site) == exposed(site) == []
        (claim,) = site.ledger.intents(kinds=[ActionKind.CLAIM])
        assert claim.state == "failed"
