"""One job's life: submission, start, end, requeue, and what Slurm says when it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyslurm_budget.domain.model import JobState, RunKey, Tres
from pyslurm_budget.errors import SlurmctldError, SlurmdbdError, SlurmRefusedError
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.shapes import AccountSpec, ClusterSpec, NodeSpec, PartitionSpec, QosSpec, SubmitDecision
from tests.unit.sim import cluster, job, live, rows, state


def test_a_job_starts_after_the_schedulers_delay_and_ends_by_itself() -> None:
    c = cluster(schedule_delay=3)
    t = c.now
    ref = c.submit(job(gpus=2, work=100, cpus=6, memory_mb=5000, comment="min-runtime=1h"))
    assert (live(c, ref).state, live(c, ref).eligible, live(c, ref).start) == (JobState.PENDING, t, None)
    c.run_until(t + 2)
    assert state(c, ref) == "PENDING:None"
    c.run_until(t + 3)
    run = live(c, ref)
    assert (run.state, run.start, run.qos, run.comment) == (JobState.RUNNING, t + 3, "backed", "min-runtime=1h")
    assert run.held_tres == Tres(6, 5000, 1, 2, {"a100": 2})
    assert [(s.node, s.gpus, s.cpus, s.memory_mb) for s in run.allocation] == [("n1", 2, 6, 5000)]
    c.run_until(t + 102)
    assert live(c, ref).state is JobState.RUNNING
    c.run_until(t + 103)
    assert live(c, ref).state is JobState.OTHER
    (row,) = rows(c, ref)
    assert (row.state, row.start, row.end, row.tres.gpus, row.nodes) == ("COMPLETED", t + 3, t + 103, 2, ("n1",))
    assert row.key == RunKey(1, t)


def test_slurmctld_forgets_an_ended_job_after_minjobage_and_then_knows_no_such_id() -> None:
    c = cluster(min_job_age=50, epilog=5)
    ref = c.submit(job(work=10))
    c.run_for(1 + 10 + 5 + 49)
    assert live(c, ref).state is JobState.OTHER
    c.run_for(1)
    assert c.job(ref) is None
    assert c.jobs() == ()
    with pytest.raises(SlurmRefusedError, match="Invalid job id specified"):
        c.requeue(ref)
    with pytest.raises(SlurmRefusedError, match="Invalid job id specified"):
        c.update_job("99999", qos="spare")


def test_the_time_limit_ends_a_job_and_the_nodes_come_back_after_killwait_and_epilog() -> None:
    c = cluster(epilog=7)
    ref = c.submit(job(work=500, time_limit=60))
    c.run_for(61)
    assert rows(c, ref)[0].state == "TIMEOUT"
    assert state(c, ref) == "OTHER|COMPLETING"
    assert c.snapshot().nodes[0].gpus_used == 4
    c.run_for(16)
    assert c.snapshot().nodes[0].gpus_used == 4
    c.run_for(1)
    assert c.snapshot().nodes[0].gpus_used == 0


def test_a_requeue_closes_the_row_and_a_new_submit_begins_after_the_end_is_over() -> None:
    c = cluster(epilog=3)
    t = c.now
    ref = c.submit(job(work=500))
    c.update_job(ref, site_factor=7)
    c.run_until(t + 100)
    c.requeue(ref)
    now = live(c, ref)
    assert (now.state, now.completing, now.key.submit, now.restarts) == (JobState.PENDING, True, t, 1)
    assert now.allocation == ()
    assert now.start is None
    assert now.held_tres.gpus == 4
    assert [(r.state, r.end) for r in rows(c, ref)] == [("REQUEUED", t + 100)]
    c.run_until(t + 112)
    assert state(c, ref) == "PENDING|COMPLETING"
    c.run_until(t + 113)
    again = live(c, ref)
    assert (again.completing, again.key.submit, again.eligible, again.reason) == (
        False,
        t + 113,
        t + 234,
        "BeginTime",
    )
    assert (again.qos, again.priority) == ("backed", 1007)
    assert [r.state for r in rows(c, ref)] == ["REQUEUED", "PENDING"]
    c.run_until(t + 234)
    assert live(c, ref).state is JobState.PENDING
    c.run_until(t + 235)
    assert live(c, ref).start == t + 235
    assert [(r.key.submit, r.state) for r in rows(c, ref)] == [(t, "REQUEUED"), (t + 113, "RUNNING")]


def test_the_new_submit_is_a_second_later_where_it_would_be_equal() -> None:
    c = cluster(kill_wait=0, schedule_delay=0)
    ref = c.submit(job())
    c.run_for(0)
    t = c.now
    c.requeue(ref)
    assert live(c, ref).key.submit == t + 1
    assert [(r.key.submit, r.start, r.end) for r in rows(c, ref)] == [(t, t, t), (t + 1, None, None)]


def test_processes_that_end_sooner_than_killwait_give_the_node_back_sooner() -> None:
    c = cluster()
    ref = c.submit(job(stops_in=2))
    c.run_for(5)
    c.requeue(ref)
    c.run_for(1)
    assert live(c, ref).completing
    c.run_for(1)
    assert state(c, ref) == "PENDING:BeginTime"


def test_processes_that_do_not_end_are_killed_after_killwait() -> None:
    c = cluster()
    ref = c.submit(job(stops_in=500))
    c.run_for(5)
    c.requeue(ref)
    c.run_for(9)
    assert live(c, ref).completing
    c.run_for(1)
    assert not live(c, ref).completing


def test_requeue_incomplete_of_a_job_that_does_not_run_does_nothing_and_says_nothing() -> None:
    c = cluster()
    done, waiting = c.submit(job(work=5)), c.submit(job(hold=True))
    c.run_for(6)
    before = len(c.events)
    c.requeue(done)
    c.requeue(waiting)
    running = c.submit(job())
    c.run_for(5)
    c.requeue(running)
    c.requeue(running)
    assert [e.kind for e in c.events[before:]] == ["submit", "start", "stop"]
    assert live(c, running).restarts == 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"interactive": True}, "Only batch jobs are accepted or processed for job"),
        ({"requeue": False}, "Requested operation is presently disabled for job"),
    ],
)
def test_what_cannot_be_requeued_is_refused_and_goes_on(how: dict[str, Any], words: str) -> None:
    c = cluster()
    ref = c.submit(job(**how))
    c.run_for(5)
    assert not live(c, ref).can_requeue
    with pytest.raises(SlurmRefusedError, match=words):
        c.requeue(ref)
    assert live(c, ref).state is JobState.RUNNING


def test_a_job_that_exits_on_the_signal_is_over_and_nobody_says_so() -> None:
    c = cluster()
    ref = c.submit(job(on_sigterm="exits"))
    c.run_for(5)
    c.requeue(ref)
    assert [r.state for r in rows(c, ref)] == ["COMPLETED"]
    assert live(c, ref).state is JobState.OTHER
    assert c.check() == ()


def test_work_is_kept_only_up_to_the_last_checkpoint() -> None:
    c = cluster(requeue_delay=0)
    kept, lost = c.submit(job(work=1000, checkpoint=100)), c.submit(job(work=1000))
    c.run_for(251)
    c.requeue(kept)
    c.requeue(lost)
    c.run_for(3000)
    assert [r.end - r.start for r in rows(c, kept) if r.end and r.start] == [250, 800]
    assert [r.end - r.start for r in rows(c, lost) if r.end and r.start] == [250, 1000]


def test_the_qos_of_a_running_job_cannot_be_changed_and_nothing_else_of_that_update_is() -> None:
    c = cluster()
    ref = c.submit(job())
    c.run_for(5)
    with pytest.raises(SlurmRefusedError, match=f"Job is no longer pending execution for job {ref}"):
        c.update_job(ref, qos="spare", time_limit=77)
    assert (live(c, ref).qos, live(c, ref).time_limit) == ("backed", 3600)
    c.update_job(ref, qos="backed", time_limit=77)
    assert live(c, ref).time_limit == 77
    c.suspend(ref)
    with pytest.raises(SlurmRefusedError, match="no longer pending"):
        c.update_job(ref, qos="spare")


def test_other_updates_that_are_refused() -> None:
    c = cluster()
    ref = c.submit(job(work=3))
    with pytest.raises(SlurmRefusedError, match=f"Invalid qos specification for job {ref}"):
        c.update_job(ref, qos="nosuch")
    with pytest.raises(SlurmRefusedError, match="SiteFactor"):
        c.update_job(ref, site_factor=1 << 31)
    c.run_for(10)
    with pytest.raises(SlurmRefusedError, match="Job has already finished"):
        c.update_job(ref, site_factor=1)


def test_one_update_changes_all_of_a_pending_job_and_a_limit_moves_the_end_of_a_running_one() -> None:
    c = cluster()
    ref = c.submit(job(work=5000, hold=True))
    c.update_job(ref, qos="spare", site_factor=-100, time_limit=60)
    assert (live(c, ref).qos, live(c, ref).priority, live(c, ref).time_limit) == ("spare", 0, 60)
    c.release_job(ref)
    assert live(c, ref).priority == 1
    c.run_for(30)
    c.update_job(ref, time_limit=100)
    c.run_for(1000)
    assert [(r.end or 0) - (r.start or 0) for r in rows(c, ref)] == [100]
    endless = c.submit(job(work=5000))
    c.update_job(endless, unlimited=True)
    c.run_for(5001)
    assert live(c, endless).time_limit is None
    assert [r.state for r in rows(c, endless)] == ["COMPLETED"]


@pytest.mark.parametrize(("rewrites", "first"), [(True, "spare"), (False, "backed")])
def test_a_qos_given_while_completing_is_written_into_the_finished_row(rewrites: bool, first: str) -> None:
    c = cluster(rewrites_finished_row=rewrites)
    ref = c.submit(job())
    c.run_for(5)
    c.requeue(ref)
    c.update_job(ref, qos="spare")
    c.run_for(11)
    assert [r.qos for r in rows(c, ref)] == [first, "spare"]
    assert [r.state for r in rows(c, ref)] == ["REQUEUED", "PENDING"]


def test_suspended_jobs_keep_their_gpus_and_their_work_stands_still() -> None:
    c = cluster(nodes=1)
    ref = c.submit(job(work=100))
    c.run_for(11)
    c.suspend(ref)
    c.run_for(500)
    assert (state(c, ref), c.snapshot().nodes[0].gpus_used) == ("SUSPENDED", 4)
    c.resume_job(ref)
    c.run_for(90)
    (row,) = rows(c, ref)
    assert (row.state, row.suspended, (row.end or 0) - (row.start or 0)) == ("COMPLETED", 500, 600)


def test_a_suspended_job_that_is_requeued_comes_back_held() -> None:
    c = cluster()
    ref = c.submit(job())
    c.run_for(5)
    c.suspend(ref)
    c.requeue(ref)
    c.run_for(500)
    assert state(c, ref) == "PENDING:JobHeldAdmin"
    assert (live(c, ref).priority, live(c, ref).eligible) == (0, None)
    c.release_job(ref)
    c.run_for(2)
    assert state(c, ref) == "RUNNING"


def test_held_dependent_and_later_jobs_wait_and_say_why() -> None:
    c = cluster()
    t = c.now
    first = c.submit(job(work=100))
    held = c.submit(job(hold=True))
    after = c.submit(job(after_ok=first))
    later = c.submit(job(begin=t + 300))
    c.run_for(10)
    assert [state(c, r) for r in (held, after, later)] == [
        "PENDING:JobHeldUser",
        "PENDING:Dependency",
        "PENDING:BeginTime",
    ]
    assert [live(c, r).eligible for r in (held, after, later)] == [None, None, t + 300]
    assert {r.job_ref for r in c.runs(t, t + 300)} == {first}
    c.run_until(t + 302)
    assert [live(c, r).start for r in (after, later)] == [t + 102, t + 301]


def test_a_dependency_on_a_job_that_failed_is_never_met_and_an_unknown_one_is_refused() -> None:
    c = cluster()
    first = c.submit(job(work=100, time_limit=50))
    after = c.submit(job(after_ok=first))
    c.run_for(500)
    assert state(c, after) == "PENDING:DependencyNeverSatisfied"
    with pytest.raises(SlurmRefusedError, match="Job dependency problem"):
        c.submit(job(after_ok="77"))


def test_cancelled_jobs_leave_a_row_that_says_by_whom() -> None:
    c = cluster()
    running, waiting = c.submit(job()), c.submit(job(begin=c.now + 50))
    c.run_for(5)
    c.cancel(running, by_uid=1000)
    c.cancel(waiting)
    row = rows(c, running)[0]
    assert (row.state, row.by_uid, row.end) == ("CANCELLED", 1000, c.now)
    row = rows(c, waiting)[0]
    assert (row.state, row.by_uid, row.start, row.end) == ("CANCELLED", 0, None, c.now)
    returning = c.submit(job())
    c.run_for(20)
    c.requeue(returning)
    c.cancel(returning)
    c.run_for(500)
    assert [r.state for r in rows(c, returning)] == ["REQUEUED"]
    assert c.jobs() == ()
    assert c.check() == ()


def test_submissions_that_slurm_refuses() -> None:
    c = cluster()
    for spec, words in (
        (job(qos="nosuch"), "Invalid qos specification"),
        (job(account="vision"), "Invalid account or account/partition"),
        (job(partition="nosuch"), "Invalid partition name specified"),
        (job(gpus=5), "Requested node configuration is not available"),
        (job(gpus=1, nodes=3), "Requested node configuration is not available"),
        (job(gpus=1, gpu_type="h100"), "Requested node configuration is not available"),
        (job(gpus=1, cpus=33), "Requested node configuration is not available"),
        (replace(job(), gpus_per_node=None, gpus=1, nodes=2), "Requested node configuration is not available"),
        (job(reservation="nosuch"), "Requested reservation is invalid"),
    ):
        with pytest.raises(SlurmRefusedError, match=words):
            c.submit(spec)
    assert [e.kind for e in c.events] == ["refused"] * 9
    assert c.jobs() == ()


def test_partition_limits_and_association_lists() -> None:
    spec = ClusterSpec(
        nodes=(NodeSpec("a1"), NodeSpec("b1", gpu_type="h100")),
        partitions=(
            PartitionSpec("short", ("a1",), default=True, max_time=600, default_time=300),
            PartitionSpec("long", ("a1", "b1")),
        ),
        accounts=(AccountSpec("top", qos=("spare",)), AccountSpec("sub", "top", ("alice", "bob"))),
        qos=(QosSpec("spare", 1), QosSpec("backed", 10, ("spare",))),
        allowed_qos={("sub", "alice"): frozenset({"spare", "backed"})},
    )
    c = SimulatedCluster(spec)
    snapshot = c.snapshot()
    assert snapshot.allowed_qos == {
        ("sub", "alice"): frozenset({"spare", "backed"}),
        ("sub", "bob"): frozenset({"spare"}),
    }
    assert snapshot.parents == {"root": None, "top": "root", "sub": "top"}
    assert [n.partitions for n in snapshot.nodes] == [("short", "long"), ("long",)]
    default = c.submit(job(account="sub", time_limit=None, qos="spare"))
    endless = c.submit(job(account="sub", time_limit=None, qos="backed", partition="long"))
    assert (live(c, default).time_limit, live(c, endless).time_limit) == (300, None)
    with pytest.raises(SlurmRefusedError, match="Invalid qos specification"):
        c.submit(job("bob", account="sub", qos="backed", time_limit=60))
    with pytest.raises(SlurmRefusedError, match="Requested time limit is invalid"):
        c.submit(job(account="sub", time_limit=700, qos="spare"))


def test_the_submit_hook_decides_qos_sitefactor_and_marker_or_refuses() -> None:
    def hook(spec: object, now: int) -> SubmitDecision:
        if getattr(spec, "comment", "") == "no":
            raise SlurmRefusedError("min-runtime=9h is above the longest contract")
        return SubmitDecision("spare", 5, f"asked at {now}")

    plain = cluster()
    untouched = SimulatedCluster(plain._state.spec, lambda spec, now: SubmitDecision(None))
    assert live(untouched, untouched.submit(job(qos="spare"))).qos == "spare"
    assert live(untouched, untouched.submit(job(qos=None))).qos == "backed"
    c = SimulatedCluster(plain._state.spec, hook)
    ref = c.submit(job(qos="backed"))
    found = live(c, ref)
    assert (found.qos, found.priority, found.marker) == ("spare", 15, f"asked at {c.now}")
    with pytest.raises(SlurmRefusedError, match="above the longest"):
        c.submit(job(comment="no"))


def test_reads_and_commands_fail_while_a_fault_lasts_and_not_after() -> None:
    c = cluster()
    ref = c.submit(job())
    until = c.now + 10
    for what in ("live", "accounting", "commands"):
        c.fail_reads(what, until)
    for read in (c.snapshot, c.jobs, lambda: c.job(ref), lambda: c.requeue(ref), lambda: c.submit(job())):
        with pytest.raises(SlurmctldError):
            read()
    with pytest.raises(SlurmdbdError):
        c.runs(0, until)
    c.run_until(until)
    assert len(c.snapshot().jobs) == len(list(c.runs(0, until))) == 1


def test_accounting_shows_rows_only_after_its_lag() -> None:
    c = cluster(accounting_lag=30)
    t = c.now
    ref = c.submit(job(work=100))
    c.run_until(t + 29)
    assert rows(c, ref) == []
    c.run_until(t + 31)
    assert [r.state for r in rows(c, ref)] == ["RUNNING"]
    c.run_until(t + 130)
    assert rows(c, ref)[0].end is None
    c.run_until(t + 131)
    assert rows(c, ref)[0].end == t + 101


def test_accounting_answers_for_the_asked_time_only() -> None:
    c = cluster()
    t = c.now
    early, late = c.submit(job(work=10)), c.submit(job(work=10, begin=t + 1000))
    c.run_for(2000)
    assert [r.job_ref for r in c.runs(t + 12, t + 900)] == []
    assert [r.job_ref for r in c.runs(t, t + 900)] == [early]
    assert [r.job_ref for r in c.runs(t + 100, t + 2000)] == [late]


def test_a_restart_of_the_controller_shows_in_its_facts() -> None:
    c = cluster(min_exempt_priority=1_000_000)
    c.run_for(100)
    c.restart_controller()
    controller = c.snapshot().controller
    assert (controller.started, controller.now, controller.kill_wait, controller.weights) == (c.now, c.now, 10, 1000)
    assert controller.settings["PreemptParameters"] == "min_exempt_priority=1000000"


def test_time_does_not_go_back() -> None:
    c = cluster()
    with pytest.raises(ValueError, match="time does not go back"):
        c.run_until(c.now - 1)
    with pytest.raises(ValueError, match="already"):
        c.at(c.now - 1, lambda: None)
