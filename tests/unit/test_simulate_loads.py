"""Workloads are the same for the same arguments, and play from now on."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

from pyslurm_budget.domain.comment import declared_minimum
from pyslurm_budget.simulate.loads import Group, arrays, burst, long_contracts, mixed, play, steady
from tests.unit.sim import cluster

NLP = Group("nlp", ("alice",))
VISION = Group("vision", ("bob",))


def test_a_steady_load_keeps_so_many_gpus_busy() -> None:
    load = steady(NLP, gpus=2, work=600, keep=8, seconds=6000)
    assert [at for at, _ in load] == list(range(0, 6000, 150))
    c = cluster(nodes=4)
    play(c, load)
    c.run_for(3000)
    assert sum(n.gpus_used for n in c.snapshot().nodes) == 8


def test_bursts_long_contracts_and_arrays() -> None:
    assert Counter(at for at, _ in burst(NLP, at=50, jobs=7, gpus=1, work=10)) == {50: 7}
    ((_, spec),) = long_contracts(NLP, at=0, jobs=1, gpus=4, hours=8)
    assert (declared_minimum(spec.comment), spec.work) == (8 * 3600, 8 * 3600)
    assert spec.time_limit is not None
    assert spec.time_limit > spec.work
    ((_, spec),) = arrays(NLP, at=0, tasks=5, gpus=1, work=10, throttle=2)
    assert (spec.array, spec.throttle) == ((0, 1, 2, 3, 4), 2)


def test_users_take_turns() -> None:
    load = burst(Group("nlp", ("alice", "bob")), at=0, jobs=3, gpus=1, work=10)
    assert [spec.user for _, spec in load] == ["alice", "bob", "alice"]


def test_a_mixed_load_is_the_same_for_the_same_seed_and_in_order() -> None:
    one, two, other = (mixed((NLP, VISION), Random(s), jobs=200, seconds=5000, mean_work=300) for s in (1, 1, 2))
    assert one == two
    assert one != other
    assert [at for at, _ in one] == sorted(at for at, _ in one)
    assert {spec.account for _, spec in one} == {"nlp", "vision"}


def test_a_refused_submission_is_in_the_event_log_and_stops_nothing() -> None:
    c = cluster(nodes=1, gpus=4)
    play(c, burst(NLP, at=5, jobs=1, gpus=8, work=10), burst(VISION, at=6, jobs=1, gpus=1, work=10))
    c.run_for(10)
    assert [e.kind for e in c.events] == ["refused", "submit", "start"]


def test_a_thousand_jobs_with_preemption_take_seconds_and_lose_nothing() -> None:
    c = cluster(nodes=20, gpus=8, epilog=1)
    load = mixed((NLP, VISION), Random(7), jobs=1000, seconds=40_000, mean_work=4000)
    for i, (at, spec) in enumerate(load):
        c.submit_at(c.now + at, spec)
        if i % 2:
            c.at(c.now + at, partial(c.update_job, str(i + 1), qos="spare"))
    c.run_for(20_000)
    assert c.check() == ()
    c.run_for(400_000)
    assert c.check() == ()
    assert Counter(c._state.finished.values()) == {"COMPLETED": 1000}
    assert sum(e.kind == "preempt" for e in c.events) > 50
