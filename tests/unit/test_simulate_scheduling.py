"""Who starts when: order, main pass, backfill, preemption, reservations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.shapes import ClusterSpec, NodeSpec, PartitionSpec, QosSpec, Settings, small
from tests.unit.sim import cluster, job, live, rows, state


def order_of_starts(c: SimulatedCluster) -> list[str]:
    return [e.ref for e in c.events if e.kind == "start"]


def with_qos(c: SimulatedCluster, *qos: QosSpec) -> SimulatedCluster:
    return SimulatedCluster(replace(c._state.spec, qos=qos))


def test_priority_is_qos_weight_times_normalized_priority_plus_sitefactor() -> None:
    c = cluster()
    backed, spare = c.submit(job(qos="backed", hold=False)), c.submit(job("bob", qos="spare"))
    assert [live(c, r).priority for r in (backed, spare)] == [1000, 10]
    c.update_job(spare, site_factor=5000)
    assert live(c, spare).priority == 5010
    c.update_job(spare, site_factor=-5000)
    assert live(c, spare).priority == 1


def test_jobs_that_may_preempt_go_first_then_priority_then_id() -> None:
    c = cluster(nodes=1)
    c.submit(job(work=50))
    c.run_for(5)
    spare = c.submit(job(qos="spare", work=10))
    low, high, same = (c.submit(job(work=10)) for _ in range(3))
    c.update_job(spare, site_factor=900_000)
    c.update_job(high, site_factor=1)
    c.run_for(500)
    assert order_of_starts(c)[1:] == [high, low, same, spare]


def test_a_claim_goes_before_backed_work_whatever_the_priorities() -> None:
    c = cluster(nodes=1, claim=True)
    c.submit(job(work=50))
    c.run_for(5)
    backed, claimant = c.submit(job(work=10)), c.submit(job(work=10))
    c.update_job(backed, site_factor=2_000_000)
    c.update_job(claimant, qos="claim")
    c.run_for(500)
    assert order_of_starts(c)[1:] == [claimant, backed]


def test_a_preemption_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="Preemption loop detected"):
        with_qos(cluster(), QosSpec("backed", 1, ("spare",)), QosSpec("spare", 1, ("backed",)))


def test_the_first_that_cannot_start_blocks_its_partition_and_says_resources() -> None:
    c = cluster(nodes=1, backfill_interval=10_000)
    c.submit(job(gpus=2))
    c.run_for(5)
    first, second = c.submit(job(gpus=4)), c.submit(job(gpus=1, work=10, time_limit=10))
    c.run_for(100)
    assert [state(c, r) for r in (first, second)] == ["PENDING:Resources", "PENDING:Priority"]


def test_backfill_starts_what_does_not_delay_the_first_and_nothing_else() -> None:
    c = cluster(nodes=1)
    c.submit(job(gpus=2, work=500, time_limit=500))
    c.run_for(5)
    first = c.submit(job(gpus=4, work=10))
    short = c.submit(job(gpus=1, work=60, time_limit=400))
    long = c.submit(job(gpus=1, work=60, time_limit=600))
    c.run_for(100)
    assert [state(c, r).split(":")[0] for r in (first, short, long)] == ["PENDING", "OTHER", "PENDING"]
    c.run_for(1000)
    assert order_of_starts(c)[1:] == [short, first, long]
    assert rows(c, first)[0].start == c._state.settings.start + 502


def test_backfill_plans_for_as_many_jobs_as_it_is_told() -> None:
    starts = {}
    for planned in (1, 2):
        c = cluster(nodes=2, planned_jobs=planned)
        for i in (1, 2):
            c.submit(job(gpus=3, work=500 * i, time_limit=500 * i))
        c.run_for(5)
        c.submit(job(gpus=4))
        second = c.submit(job(gpus=4, work=10))
        c.submit(job(gpus=1, work=1400, time_limit=1400))
        c.run_for(5000)
        starts[planned] = rows(c, second)[0].start
    begin = Settings().start
    assert starts == {1: begin + 1430 + 1, 2: begin + 1002}


def test_backfill_looks_no_deeper_than_its_depth() -> None:
    found = {}
    for depth in (3, 4):
        c = cluster(nodes=1, backfill_depth=depth)
        c.submit(job(gpus=3))
        c.run_for(5)
        for _ in range(3):
            c.submit(job(gpus=4))
        last = c.submit(job(gpus=1, work=10, time_limit=10))
        c.run_for(100)
        found[depth] = bool(rows(c, last)[0].start)
    assert found == {3: False, 4: True}


def test_gpus_in_total_may_lie_on_several_nodes_and_per_node_ones_may_not() -> None:
    c = cluster(nodes=2)
    c.submit(job(gpus=2, work=5000))
    c.submit(job(gpus=3, work=5000))
    total = c.submit(replace(job(), gpus=3, gpus_per_node=None))
    node = c.submit(job(gpus=3, nodes=1))
    c.run_for(100)
    assert [(s.node, s.gpus) for s in live(c, total).allocation] == [("n1", 2), ("n2", 1)]
    assert state(c, node) == "PENDING:Resources"


def test_cpus_and_memory_are_limits_too_and_the_tightest_node_is_taken() -> None:
    c = cluster(nodes=2)
    c.submit(job(gpus=1, cpus=30, memory_mb=1, work=5000))
    c.submit(job(gpus=1, memory_mb=256_000, work=5000))
    fits = c.submit(job(gpus=1, cpus=2, memory_mb=1))
    c.run_for(5)
    waits = c.submit(job(gpus=1, cpus=2, memory_mb=1))
    c.run_for(5)
    where = {j.ref: [s.node for s in j.allocation] for j in c.jobs()}
    assert where == {"1": ["n1"], "2": ["n2"], fits: ["n1"], waits: []}


def test_a_backed_job_takes_the_place_of_spare_work_after_its_killwait() -> None:
    c = cluster(nodes=1, epilog=5)
    victim = c.submit(job("bob", qos="spare"))
    c.run_for(50)
    t = c.now
    backed = c.submit(job(work=10))
    c.run_for(1)
    assert [r.state for r in rows(c, victim)] == ["PREEMPTED"]
    assert live(c, victim).completing
    c.run_for(15)
    assert state(c, victim) == "PENDING:BeginTime"
    assert live(c, victim).qos == "spare"
    c.run_for(1)
    assert live(c, backed).start == t + 1 + 10 + 5 + 1
    c.run_for(200)
    assert rows(c, victim)[1].key.submit == t + 16
    assert rows(c, victim)[1].start == t + 16 + 121 + 1


def test_victims_are_taken_lowest_qos_first_then_fewest_nodes_then_oldest() -> None:
    qos = (
        QosSpec("top", 100, ("low", "mid")),
        QosSpec("mid", 50),
        QosSpec("low", 1),
        QosSpec("backed"),
        QosSpec("spare"),
    )
    spec = small(4, 4, settings=Settings(kill_wait=10))
    accounts = tuple(replace(a, qos=None, default_qos="low") for a in spec.accounts)
    c = SimulatedCluster(replace(spec, qos=qos, accounts=accounts))
    mid = c.submit(job(qos="mid"))
    wide = c.submit(job(qos="low", nodes=2))
    c.run_for(10)
    young = c.submit(job(qos="low"))
    c.run_for(10)
    victims = []
    for _ in range(3):
        c.submit(job(qos="top"))
        c.run_for(40)
        victims.append([e.ref for e in c.events if e.kind == "preempt"])
    assert victims == [[young], [young, wide], [young, wide]]
    c.submit(job(qos="top"))
    c.run_for(40)
    assert [e.ref for e in c.events if e.kind == "preempt"] == [young, wide, mid]


def test_nothing_is_stopped_where_the_job_would_not_fit_even_then() -> None:
    c = cluster(nodes=2)
    c.submit(job(gpus=1, work=5000))
    c.submit(job("bob", gpus=3, qos="spare", work=5000))
    c.submit(job("bob", gpus=3, qos="spare", work=5000))
    c.run_for(5)
    c.submit(job(nodes=2))
    c.run_for(100)
    assert [e for e in c.events if e.kind == "preempt"] == []


def test_no_more_than_needed_is_stopped() -> None:
    c = cluster(nodes=1, gpus=8)
    c.submit(job(gpus=3, work=5000))
    small_one = c.submit(job("bob", gpus=1, qos="spare", work=5000))
    large = c.submit(job("bob", gpus=4, qos="spare", work=5000))
    c.run_for(5)
    c.submit(job(gpus=4))
    c.run_for(30)
    assert [e.ref for e in c.events if e.kind == "preempt"] == [large]
    assert live(c, small_one).state == "RUNNING"


@pytest.mark.parametrize("how", [{"interactive": True}, {"requeue": False}])
def test_a_victim_that_cannot_be_requeued_is_killed(how: dict[str, bool]) -> None:
    c = cluster(nodes=1)
    victim = c.submit(job("bob", qos="spare", **how))
    c.run_for(5)
    c.submit(job(work=10))
    c.run_for(300)
    assert [r.state for r in rows(c, victim)] == ["PREEMPTED"]
    assert c._state.finished[victim] == "PREEMPTED"
    assert c.check() == ()


def test_preempt_exempt_time_is_waited_for_without_any_other_event() -> None:
    c = cluster(nodes=1)
    c = with_qos(c, QosSpec("backed", 100, ("spare",)), QosSpec("spare", 1, exempt_time=200))
    victim = c.submit(job("bob", qos="spare", work=3000))
    c.run_for(2)
    c.submit(job(work=10))
    c.run_for(198)
    assert live(c, victim).state == "RUNNING"
    c.run_for(2)
    assert rows(c, victim)[0].state == "PREEMPTED"
    assert rows(c, victim)[0].end == (rows(c, victim)[0].start or 0) + 200 + 1


def test_a_preemptor_waits_for_its_room_before_it_stops_others() -> None:
    for again, expected in ((100, 1), (40, 2)):
        c = cluster(nodes=2, preempt_again=again)
        for _ in range(2):
            c.submit(job("bob", qos="spare", work=5000))
        c.run_for(5)
        c.hang_node("n1")
        c.submit(job())
        c.run_for(60)
        assert len([e for e in c.events if e.kind == "preempt"]) == expected


def test_a_shielded_run_is_not_stopped_until_it_is_opened() -> None:
    c = cluster(nodes=1, claim=True, min_exempt_priority=1_000_000)
    run = c.submit(job("bob", work=5000))
    c.update_job(run, site_factor=2_000_000)
    c.run_for(5)
    claimant, other = c.submit(job(work=10)), c.submit(job(work=10))
    c.update_job(claimant, qos="claim", site_factor=3_000_000)
    c.run_for(100)
    assert live(c, run).state == "RUNNING"
    c.update_job(run, site_factor=0)
    c.run_for(30)
    assert rows(c, run)[0].state == "PREEMPTED"
    assert rows(c, claimant)[0].start is not None
    assert order_of_starts(c)[:2] == [run, claimant]
    assert c.job(other) is not None


def test_within_lets_a_claim_stop_a_claim_of_lower_priority_only() -> None:
    c = cluster(nodes=1, claim=True)
    run = c.submit(job(hold=True, work=5000))
    c.update_job(run, qos="claim", site_factor=50)
    c.release_job(run)
    c.run_for(5)
    same = c.submit(job(hold=True))
    c.update_job(same, qos="claim", site_factor=50)
    c.release_job(same)
    c.run_for(60)
    assert live(c, run).state == "RUNNING"
    c.update_job(same, site_factor=51)
    c.run_for(60)
    assert (live(c, same).state, live(c, run).state) == ("RUNNING", "PENDING")


def test_a_completing_node_takes_no_new_work_unless_switched_off() -> None:
    for blocks, expected in ((True, 12), (False, 2)):
        c = cluster(nodes=1, completing_blocks=blocks)
        run = c.submit(job(gpus=1))
        c.run_for(5)
        t = c.now
        c.requeue(run)
        other = c.submit(job(gpus=1))
        c.run_for(30)
        assert (live(c, other).start or 0) - t == expected - 1


def test_blocked_work_of_one_partition_keeps_its_nodes_from_a_lower_one_in_another() -> None:
    spec = small(2, 4)
    parts = (PartitionSpec("all", ("n1", "n2"), default=True), PartitionSpec("one", ("n1",)))
    c = SimulatedCluster(replace(spec, partitions=parts))
    c.submit(job(gpus=1, nodes=1, work=1000))
    c.run_for(5)
    wide = c.submit(job(nodes=2))
    c.submit(job(gpus=1, partition="one", work=3000, time_limit=3600))
    c.run_for(2)
    assert order_of_starts(c) == ["1"]
    c.run_for(1200)
    assert order_of_starts(c)[1] == wide


# --- reservations


def reserved(c: SimulatedCluster, start: int, end: int, name: str = "sbudget_1") -> str:
    c.reserve(name, nodes=["n1"], start=start, end=end, accounts=["nlp"])
    return name


def test_jobs_that_would_run_into_a_reservation_do_not_start_on_its_nodes() -> None:
    c = cluster(nodes=1)
    t = c.now
    reserved(c, t + 1000, t + 2000)
    long, short = c.submit(job(work=900, time_limit=1200)), c.submit(job(work=900, time_limit=950))
    c.run_for(40)
    assert state(c, long).startswith("PENDING")
    assert live(c, short).state == "RUNNING"
    assert not c.snapshot().nodes[0].reserved
    c.run_until(t + 1500)
    assert c.snapshot().nodes[0].reserved
    assert state(c, long).startswith("PENDING")
    c.release("sbudget_1")
    c.run_for(40)
    assert live(c, long).state == "RUNNING"
    assert c.snapshot().reservations == ()


def test_a_job_inside_waits_for_its_reservation_and_starts_with_it() -> None:
    c = cluster(nodes=2)
    t = c.now
    name = reserved(c, t + 100, t + 8000)
    inside, other = c.submit(job(work=50)), c.submit(job("bob"))
    with pytest.raises(SlurmRefusedError, match="Access denied to requested reservation"):
        c.update_job(other, reservation=name)
    c.update_job(inside, reservation=name)
    c.run_for(50)
    assert state(c, inside) == "PENDING:Reservation"
    assert live(c, inside).reservation == name
    c.run_for(100)
    assert (rows(c, inside)[0].nodes, rows(c, inside)[0].start) == (("n1",), t + 101)
    (shown,) = c.snapshot().reservations
    assert (shown.name, shown.nodes, shown.accounts, shown.ours) == (name, ("n1",), ("nlp",), True)


def test_a_reservation_in_use_cannot_be_deleted_until_the_job_is_taken_out() -> None:
    c = cluster(nodes=1)
    name = reserved(c, c.now, c.now + 5000)
    ref = c.submit(job(work=3000, reservation=name))
    c.run_for(5)
    assert live(c, ref).state == "RUNNING"
    with pytest.raises(SlurmRefusedError, match="in use"):
        c.release(name)
    c.update_job(ref, reservation="")
    c.release(name)
    c.release(name)
    assert live(c, ref).state == "RUNNING"


def test_the_end_of_a_reservation_kills_what_is_in_it_and_holds_what_waits_in_it() -> None:
    c = cluster(nodes=1)
    name = reserved(c, c.now, c.now + 500)
    running = c.submit(job(work=3000, time_limit=3000, reservation=name))
    waiting = c.submit(job(reservation=name))
    c.run_for(501)
    assert [r.state for r in rows(c, running)] == ["TIMEOUT"]
    assert state(c, waiting) == "PENDING:ReservationDeleted"
    assert live(c, waiting).priority == 0


def test_a_reservation_must_be_new_and_to_come() -> None:
    c = cluster()
    reserved(c, c.now, c.now + 10)
    with pytest.raises(SlurmRefusedError, match="exists already"):
        reserved(c, c.now, c.now + 10)
    with pytest.raises(SlurmRefusedError, match="Invalid time"):
        reserved(c, c.now - 10, c.now, "sbudget_2")
    with pytest.raises(SlurmRefusedError, match="Invalid node name"):
        c.reserve("x", nodes=["nosuch"], start=c.now, end=c.now + 5, accounts=[])


def test_two_partitions_of_different_gpus_do_not_wait_for_each_other() -> None:
    spec = ClusterSpec(
        nodes=(NodeSpec("a1", 4, "a100"), NodeSpec("h1", 4, "h100")),
        partitions=(PartitionSpec("a", ("a1",), default=True), PartitionSpec("h", ("h1",))),
        accounts=small().accounts,
        qos=small().qos,
    )
    c = SimulatedCluster(spec)
    for partition in ("a", "a", "h"):
        c.submit(job(partition=partition))
    typed = c.submit(job(gpus=1, partition="h", gpu_type="h100"))
    c.run_for(5)
    assert order_of_starts(c) == ["1", "3"]
    assert (state(c, "2"), state(c, typed)) == ("PENDING:Resources", "PENDING:Resources")


def test_what_ends_in_a_second_makes_room_for_the_pass_of_the_same_second() -> None:
    c = cluster(nodes=1)
    first = c.submit(job(work=5000, stops_in=0))
    c.run_for(99)
    other = c.submit(job("bob"))
    c.update_job(first, time_limit=99)
    c.run_for(1)
    assert live(c, other).start == c.now


def test_among_equal_victims_the_oldest_is_taken() -> None:
    c = cluster(nodes=2)
    younger = c.submit(job("bob", qos="spare", begin=c.now + 50, work=5000))
    older = c.submit(job("bob", qos="spare", work=5000))
    c.run_for(100)
    c.submit(job())
    c.run_for(30)
    assert [e.ref for e in c.events if e.kind == "preempt"] == [older]
    assert live(c, younger).state == "RUNNING"


def test_backfill_does_not_count_on_a_node_that_hangs() -> None:
    c = cluster(nodes=2, unkillable_timeout=10_000)
    stuck = c.submit(job())
    c.submit(job(gpus=3, work=500, time_limit=500))
    c.run_for(5)
    c.hang_node("n1")
    c.cancel(stuck)
    c.run_for(30)
    first = c.submit(job(work=10))
    long = c.submit(job(gpus=1, work=1000, time_limit=1000))
    c.run_for(1000)
    assert rows(c, first)[0].start == c._state.settings.start + 502
    assert (rows(c, long)[0].start or 0) > (rows(c, first)[0].start or 0)


def test_a_shorter_job_is_looked_at_where_a_longer_one_of_its_kind_did_not_fit() -> None:
    c = cluster(nodes=1, planned_jobs=1)
    c.submit(job(gpus=3, work=500, time_limit=500))
    c.run_for(5)
    c.submit(job(gpus=4))
    long, short = (c.submit(job(gpus=1, work=100, time_limit=limit)) for limit in (900, 200))
    c.run_for(60)
    assert [state(c, r).split(":")[0] for r in (long, short)] == ["PENDING", "RUNNING"]


def test_a_reason_is_that_of_the_moment() -> None:
    c = cluster(nodes=1)
    c.submit(job(gpus=2))
    c.run_for(5)
    first, second = c.submit(job()), c.submit(job())
    assert [state(c, r) for r in (first, second)] == ["PENDING:None", "PENDING:None"]
    c.run_for(1)
    assert [state(c, r) for r in (first, second)] == ["PENDING:Resources", "PENDING:Priority"]
    c.cancel(first)
    c.run_for(1)
    assert state(c, second) == "PENDING:Resources"
    c.submit(job(gpus=2))
    c.hold(second)
    c.run_for(1)
    assert state(c, "4") == "RUNNING"


def test_features_and_excluded_nodes() -> None:
    """A node must have all features of one group; jobs behind one that waits for a feature start elsewhere."""
    spec = small(3)
    names = (("n1", "a"), ("n2", "ab"), ("n3", ""))
    on = tuple(NodeSpec(name, features=frozenset(has)) for name, has in names)
    c = SimulatedCluster(replace(spec, nodes=on))
    both = job(features=(frozenset("ab"),), work=50, gpus_per_node=8)
    first, second = c.submit(both), c.submit(both)
    either = c.submit(job(features=(frozenset("a"), frozenset("c")), excluded=frozenset({"n2"}), work=50))
    c.run_for(40)
    assert [s.node for s in live(c, first).allocation] == ["n2"]
    assert live(c, second).allocation == ()
    assert [s.node for s in live(c, either).allocation] == ["n1"]
    with pytest.raises(SlurmRefusedError):
        c.submit(job(features=(frozenset("z"),)))


def test_what_a_completing_job_holds_is_told() -> None:
    c = cluster(nodes=1, epilog=20)
    ref = c.submit(job(work=10, gpus_per_node=2))
    c.run_for(15)
    done = live(c, ref)
    assert done.completing
    assert [(s.node, s.gpus) for s in done.leaving] == [("n1", 2)]
    assert done.ended is not None
    c.run_for(30)
    assert live(c, ref).leaving == ()
