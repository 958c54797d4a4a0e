"""The real cycle over the simulated cluster: whatever happens, what was promised is kept and the books are right."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.model import JobState, Mode
from pyslurm_budget.domain.modes import Modes
from tests.property.world import NODES, TREES, USERS, Rounds, World, worlds

READS = ("live", "accounting")

# No shrinking: an example takes a second, and its seed tells the whole story.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
EXAMPLES = settings(max_examples=10, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))


def _every_cycle(world: World, events: list[Any]) -> None:
    """What must hold after every cycle."""
    site, result = world.site, world.site.last
    assert world.cluster.check() == ()
    if result is not None and site.published.state is not None:
        state = json.loads(site.published.state)
        for row in state["budgets"]:
            expected = world.charged(row["budget"], state["as_of"])
            assert row["charged"] == expected, (world.cluster.now - world.start, row["budget"])


@EXAMPLES
@given(worlds())
def test_contracts_are_kept_and_the_books_are_right(world: World) -> None:
    site = world.begin()
    try:
        world.after_cycle = _every_cycle
        world.play()
        assert world.broken_contracts() == []
        assert world.held() == []
    finally:
        site.close()


@EXAMPLES
@given(worlds(), st.integers(10, 150), st.integers(1, 60))
def test_without_a_controller_nothing_is_lost_held_or_killed(world: World, moment: int, step: int) -> None:
    """It dies for good at some step of some cycle; Slurm goes on with what jobs have, until all of them are done."""
    world.accidents = tuple(a for a in world.accidents if a[1] not in ("new-controller", "die-at-step"))
    site = world.begin()
    try:
        world.cluster.at(world.start + moment, lambda: world.die(step, come_back=False))
        world.play()
        site.kill()
        for node in NODES:
            world.cluster.resume(node)
            world.cluster.recover_node(node)
        for _ in range(60):
            world.cluster.run_for(200)
            assert world.cluster.check() == ()
            assert world.held() == []
            if all(j.state is JobState.OTHER for j in world.cluster.jobs()):
                break
        assert [j.ref for j in world.cluster.jobs() if j.state is not JobState.OTHER] == []
        assert world.broken_contracts() == []
    finally:
        site.close()


@EXAMPLES
@given(worlds(), st.lists(st.tuples(st.integers(10, 170), st.sampled_from(READS), st.integers(5, 40)), min_size=1))
def test_a_failed_read_takes_nothing_from_anybody(world: World, faults: list[tuple[int, str, int]]) -> None:
    """In its cycle nothing is demoted or displaced, and the published table stays. Drains go on."""
    world.accidents += tuple((at, "reads", what, how_long) for at, what, how_long in faults)
    site = world.begin()
    published: list[str | None] = [None]

    def after(_: World, events: list[Any]) -> None:
        if world.reads_fail():
            assert [e for e in events if e.kind == "update" and e.detail["qos"] == "spare"] == []
            assert [e.ref for e in events if e.kind == "stop" and not world.drained(e.ref)] == []
            assert site.published.table == published[0]
        published[0] = site.published.table

    try:
        world.after_cycle = after
        world.play()
        assert world.broken_contracts() == []
    finally:
        site.close()


@EXAMPLES
@given(worlds(), st.integers(20, 170))
def test_without_news_a_plan_comes_to_rest(world: World, moment: int) -> None:
    """Planned and applied again and again in one moment: within three cycles there is nothing left to do."""
    world.seconds = moment
    world.accidents = tuple(a for a in world.accidents if a[1] != "reads")
    site = world.begin()
    try:
        world.play()
        site.kill()
        world.cluster.run_for(8)
        site.start()
        planned = [_planned(site) for _ in range(4)]
        assert planned[3] == (), planned
    finally:
        site.close()


def _planned(site: SimulatedSite) -> tuple[object, ...]:
    result = site.cycle()
    assert result is not None, site.failure
    return tuple((a.kind.value, a.ref, a.qos, a.site_factor, a.reason.code) for a in result.plan.actions)


@EXAMPLES
@given(st.integers(0, 2**32), st.sampled_from(TREES))
def test_observe_foretells_what_enforce_does(seed: int, tree: dict[str, tuple[str | None, int]]) -> None:
    """Jobs wait when first seen, and then all start: the shadow class is the class of an enforcing run."""
    found = []
    for mode in (Mode.OBSERVE, Mode.ENFORCE):
        world = Rounds(seed, tree, mode=mode, jobs=0, seconds=300)
        site = world.begin()
        try:
            world.play()
            runs = site.ledger.runs_between(0, 1 << 40)
            assert {r.qos for r in runs} <= ({"backed"} if mode is Mode.OBSERVE else {"backed", "spare"})
            key = "shadow" if mode is Mode.OBSERVE else "work_class"
            found.append({(r.job_ref, r.start, r.end): getattr(r, key) for r in runs})
        finally:
            site.close()
    assert found[0] == found[1]


@EXAMPLES
@given(worlds(), st.sampled_from(sorted(USERS.values())))
def test_what_stays_behind_is_left_alone(world: World, budget: str) -> None:
    """Neither the controller nor the plugin touches a job of a budget that is only observed, whatever others do."""
    world.policy = replace(world.policy, modes=Modes(budgets={budget: Mode.OBSERVE}))
    behind = {user for user, account in USERS.items() if budget in _path(world, account)}
    site = world.begin()
    try:
        world.play()
        submitted = [e for e in world.cluster.events if e.kind == "submit" and e.detail["user"] in behind]
        refs = {e.ref for e in submitted}
        touched = [e for e in world.cluster.events if e.kind == "update" and e.ref.partition("_")[0] in refs]
        assert (touched, [e for e in submitted if e.detail["qos"] != "backed"]) == ([], [])
        assert [i for i in site.ledger.intents() if i.action.ref.partition("_")[0] in refs] == []
    finally:
        site.close()


def _path(world: World, account: str) -> list[str]:
    found: list[str] = []
    at: str | None = account
    while at is not None:
        found.append(at)
        at = world.tree[at][0]
    return found
