"""What happens to nodes: drains, failures, nodes that hang."""

from __future__ import annotations

import pytest

from pyslurm_budget.domain.model import JobState, Node
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.cluster import SimulatedCluster
from tests.unit.sim import cluster, job, live, rows, state


def node(c: SimulatedCluster, name: str = "n1") -> Node:
    return next(n for n in c.snapshot().nodes if n.name == name)


def test_a_draining_node_keeps_its_work_takes_no_more_and_is_empty_in_the_end() -> None:
    c = cluster(nodes=1)
    t = c.now
    run = c.submit(job(gpus=1, work=100))
    c.run_for(10)
    c.drain("n1", "gpu 3 fell off")
    other = c.submit(job(gpus=1))
    c.run_for(50)
    assert (node(c).draining, node(c).up, node(c).reason, node(c).reason_since) == (
        True,
        True,
        "gpu 3 fell off",
        t + 10,
    )
    assert node(c).in_service
    assert not node(c).takes_work
    assert state(c, run) == "RUNNING"
    c.run_for(100)
    assert state(c, other) == "PENDING:Resources"
    assert not node(c).in_service
    c.resume("n1")
    c.run_for(5)
    assert (node(c).draining, node(c).reason, node(c).reason_since) == (False, "", None)
    assert state(c, other) == "RUNNING"


def test_preemption_does_not_look_at_a_draining_node() -> None:
    c = cluster(nodes=1)
    c.submit(job("bob", qos="spare", work=5000))
    c.run_for(5)
    c.drain("n1")
    c.submit(job())
    c.run_for(100)
    assert [e for e in c.events if e.kind == "preempt"] == []


def test_a_run_requeued_from_a_draining_node_starts_on_another() -> None:
    c = cluster(nodes=2)
    run = c.submit(job())
    c.run_for(5)
    c.drain("n1")
    c.requeue(run)
    c.run_for(200)
    assert [r.nodes for r in rows(c, run)] == [("n1",), ("n2",)]


def test_a_dead_nodes_runs_end_with_node_fail_and_come_back() -> None:
    c = cluster(nodes=2)
    t = c.now
    wide, single = c.submit(job(gpus=3, nodes=2)), c.submit(job(gpus=1))
    killed = c.submit(job(gpus=1, requeue=False))
    c.run_for(40)
    assert [s.node for s in live(c, single).allocation + live(c, killed).allocation] == ["n1", "n2"]
    c.drain("n2")
    c.fail_node("n1", "Not responding")
    assert (node(c).up, node(c).gpus_used, node(c).in_service, node(c).reason) == (False, 0, False, "Not responding")
    assert [r.state for r in rows(c, single)] == ["NODE_FAIL", "PENDING"]
    assert (live(c, single).restarts, live(c, single).reason) == (1, "BeginTime")
    assert live(c, wide).completing
    c.run_for(10)
    assert state(c, wide) == "PENDING:BeginTime"
    c.fail_node("n2")
    assert [r.state for r in rows(c, killed)] == ["NODE_FAIL"]
    assert live(c, killed).state is JobState.OTHER
    c.fail_node("n1")
    c.recover_node("n1")
    c.recover_node("n2")
    c.resume("n2")
    assert (node(c).up, node(c).reason) == (True, "")
    c.run_until(t + 40 + 10 + 121 + 2)
    assert [live(c, r).state for r in (wide, single)] == ["RUNNING", "RUNNING"]
    assert c.check() == ()


def test_even_a_job_that_exits_on_signals_is_put_back_when_its_node_dies() -> None:
    c = cluster(nodes=1)
    run = c.submit(job(on_sigterm="exits"))
    c.run_for(5)
    c.fail_node("n1")
    assert [r.state for r in rows(c, run)] == ["NODE_FAIL", "PENDING"]


def test_a_node_that_hangs_keeps_its_completing_job_and_is_drained_by_slurm() -> None:
    c = cluster(nodes=1, unkillable_timeout=60)
    run = c.submit(job())
    c.run_for(5)
    c.hang_node("n1")
    t = c.now
    c.requeue(run)
    c.run_until(t + 69)
    assert (node(c).draining, live(c, run).completing) == (False, True)
    c.run_until(t + 70)
    assert (node(c).draining, node(c).reason, node(c).reason_since) == (True, "Kill task failed", t + 70)
    c.run_for(1000)
    assert (live(c, run).completing, node(c).gpus_used) == (True, 4)
    c.hang_node("n1", hangs=False)
    assert (state(c, run), node(c).gpus_used) == ("PENDING:BeginTime", 0)
    assert c.check() == ()


def test_a_hanging_node_that_is_set_down_gives_its_job_back() -> None:
    c = cluster(nodes=2)
    run = c.submit(job())
    c.run_for(5)
    c.hang_node("n1")
    c.requeue(run)
    c.run_for(30)
    c.fail_node("n1")
    assert state(c, run) == "PENDING:BeginTime"
    assert [r.state for r in rows(c, run)] == ["REQUEUED", "PENDING"]


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(SlurmRefusedError, match="Invalid node name specified"):
        cluster().drain("nosuch")
