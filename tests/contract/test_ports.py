"""What the ports promise, on every cluster behind them: the simulated one, and a real Slurm where there is one.

A test that holds on one and not on the other is a fault of the simulator, or of the edge.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain.model import Job, JobState, RunRecord
from pyslurm_budget.errors import SlurmRefusedError
from tests.contract.backends import Ask, Backend

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 24 * 3600
PUT_BACK = ("REQUEUED", "PREEMPTED", "NODE_FAIL")


def eventually(b: Backend, what: Callable[[], bool], *, more: int = 0) -> None:
    assert b.until(what, b.patience + more), [j for j in b.live.jobs() if j.state is not JobState.OTHER]


def job(b: Backend, ref: str) -> Job:
    found = b.live.job(ref)
    assert found is not None
    return found


def is_in(b: Backend, ref: str, state: JobState) -> Callable[[], bool]:
    def look() -> bool:
        found = b.live.job(ref)
        return found is not None and found.state is state and not found.completing

    return look


def started(b: Backend, ask: Ask) -> str:
    ref = b.submit(ask)
    eventually(b, is_in(b, ref, JobState.RUNNING))
    return ref


def blocked(b: Backend, ask: Ask) -> str:
    """A job that waits because the cluster is full of backed work of its own user."""
    started(b, replace(ask, nodes=4, gpus=4, qos="backed", array=0, hold=False))
    return b.submit(ask)


def rows(b: Backend, ref: str) -> list[RunRecord]:
    now = b.live.snapshot().now
    found = [r for r in b.accounting.runs(now - DAY, now + DAY) if r.job_ref == ref]
    return sorted(found, key=lambda r: r.key.submit)


def states(b: Backend, ref: str) -> list[str]:
    return [r.state for r in rows(b, ref)]


def has_states(b: Backend, ref: str, expected: list[str]) -> bool:
    return states(b, ref) == expected


# --- LiveCluster


def test_a_snapshot_is_whole(backend: Backend) -> None:
    ref = started(backend, Ask())
    snapshot = backend.live.snapshot()
    assert ref in {j.ref for j in snapshot.jobs}
    assert len(snapshot.nodes) == 4
    assert all((n.gpus, n.up, n.draining) == (4, True, False) for n in snapshot.nodes)
    assert all(n.partitions and n.cpus and n.gpu_type for n in snapshot.nodes)
    (partition,) = snapshot.partitions
    assert (partition.default, partition.up, set(partition.nodes)) == (True, True, {n.name for n in snapshot.nodes})
    assert snapshot.parents["root"] is None
    assert snapshot.parents["nlp"] == "root"
    assert {"backed", "spare"} <= snapshot.allowed_qos["nlp", "alice"]
    controller = snapshot.controller
    assert controller.started <= snapshot.now
    assert controller.preempt_type == "preempt/qos"
    assert controller.weights > 0
    assert not [j for j in snapshot.jobs if j.start is not None and j.start > snapshot.now]


def test_a_running_job_shows_what_it_holds(backend: Backend) -> None:
    ref = started(backend, Ask(gpus=2, nodes=2, limit=1200, comment="min-runtime=10m"))
    found = job(backend, ref)
    assert (found.ref, found.user, found.account, found.qos) == (ref, "alice", "nlp", "backed")
    assert (found.time_limit, found.comment, found.can_requeue) == (1200, "min-runtime=10m", True)
    assert found.key.job_id == int(ref)
    assert found.start is not None
    assert found.key.submit <= found.start
    assert (found.held_tres.gpus, found.held_tres.nodes) == (4, 2)
    assert [share.gpus for share in found.allocation] == [2, 2]
    assert sum(share.cpus for share in found.allocation) == found.held_tres.cpus
    assert (found.request.gpus, found.request.gpus_per_node, found.request.nodes_min) == (4, 2, 2)
    used = {n.name: n.gpus_used for n in backend.live.snapshot().nodes}
    assert all(used[share.node] == share.gpus for share in found.allocation)


def test_a_pending_job_says_what_it_waits_for(backend: Backend) -> None:
    ref = blocked(backend, Ask(gpus=4))
    eventually(backend, lambda: job(backend, ref).reason in ("Resources", "Priority"))
    found = job(backend, ref)
    assert (found.state, found.start, found.allocation) == (JobState.PENDING, None, ())
    assert found.eligible is not None
    assert found.priority > 0


def test_a_held_job_is_not_eligible_and_not_in_accounting(backend: Backend) -> None:
    ref = backend.submit(Ask(hold=True))
    found = job(backend, ref)
    assert (found.priority, found.eligible) == (0, None)
    assert found.reason.startswith("JobHeld")
    assert not backend.until(lambda: bool(rows(backend, ref)), 5)


def test_only_an_unknown_job_is_none(backend: Backend) -> None:
    assert backend.live.job("99999999") is None
    ref = backend.submit(Ask(seconds=1))
    eventually(backend, is_in(backend, ref, JobState.OTHER))


def test_an_array_is_one_record_and_each_split_task_another(backend: Backend) -> None:
    ref = blocked(backend, Ask(array=4))
    eventually(backend, lambda: job(backend, ref).ref == f"{ref}_[0-3]")
    assert job(backend, ref).tasks == (0, 1, 2, 3)
    assert job(backend, ref).array_job_id == int(ref)
    backend.commands.update_job(f"{ref}_2", qos="spare")
    found = {j.ref: j for j in backend.live.jobs() if j.array_job_id == int(ref)}
    assert {name: j.qos for name, j in found.items()} == {f"{ref}_[0-1,3]": "backed", f"{ref}_2": "spare"}
    assert found[f"{ref}_2"].tasks == ()
    assert found[f"{ref}_2"].key.job_id != int(ref)
    backend.commands.update_job(f"{ref}_[0-1,3]", qos="spare")
    assert {j.qos for j in backend.live.jobs() if j.array_job_id == int(ref)} == {"spare"}


def test_running_tasks_have_ids_of_their_own(backend: Backend) -> None:
    ref = backend.submit(Ask(gpus=4, array=2))
    eventually(backend, is_in(backend, f"{ref}_0", JobState.RUNNING))
    eventually(backend, is_in(backend, f"{ref}_1", JobState.RUNNING))
    ids = {j.ref: j.key.job_id for j in backend.live.jobs() if j.array_job_id == int(ref)}
    assert set(ids) == {f"{ref}_0", f"{ref}_1"}
    assert int(ref) in ids.values()
    assert len(set(ids.values())) == 2


# --- Commands


def test_one_update_changes_all_of_a_pending_job(backend: Backend) -> None:
    ref = blocked(backend, Ask())
    before = job(backend, ref).priority
    backend.commands.update_job(ref, qos="spare", site_factor=5000, time_limit=600)
    found = job(backend, ref)
    assert (found.qos, found.time_limit) == ("spare", 600)
    assert found.priority != before
    assert found.priority >= 5000
    backend.commands.update_job(ref, qos="backed", unlimited=True)
    assert (job(backend, ref).qos, job(backend, ref).time_limit) == ("backed", None)
    backend.commands.update_job(ref, site_factor=-100_000)
    assert job(backend, ref).priority == 1


def test_the_qos_of_a_running_job_is_refused_and_nothing_else_changes(backend: Backend) -> None:
    ref = started(backend, Ask())
    with pytest.raises(SlurmRefusedError, match="no longer pending execution"):
        backend.commands.update_job(ref, qos="spare", time_limit=60)
    assert (job(backend, ref).qos, job(backend, ref).time_limit) == ("backed", 1200)
    backend.commands.update_job(ref, site_factor=7000)
    assert job(backend, ref).priority >= 7000


def test_what_slurm_refuses_says_so_in_its_words(backend: Backend) -> None:
    ref = blocked(backend, Ask())
    with pytest.raises(SlurmRefusedError, match=r"(?i)invalid qos"):
        backend.commands.update_job(ref, qos="nosuchqos")
    with pytest.raises(SlurmRefusedError, match="Invalid job id specified"):
        backend.commands.update_job("99999999", qos="spare")
    with pytest.raises(SlurmRefusedError, match="Invalid job id specified"):
        backend.commands.requeue("99999999")


def test_a_requeued_run_is_closed_and_the_job_waits_with_a_new_submit(backend: Backend) -> None:
    ref = started(backend, Ask())
    first = job(backend, ref)
    backend.commands.update_job(ref, site_factor=3000)
    backend.commands.requeue(ref)
    eventually(backend, is_in(backend, ref, JobState.PENDING))
    again = job(backend, ref)
    assert again.key.job_id == first.key.job_id
    assert again.key.submit > first.key.submit
    assert (again.qos, again.restarts, again.start, again.allocation) == ("backed", 1, None, ())
    assert again.priority >= 3000
    assert again.eligible is not None
    assert again.eligible >= again.key.submit
    eventually(backend, lambda: states(backend, ref)[:1] == ["REQUEUED"])
    closed = rows(backend, ref)[0]
    assert (closed.key, closed.start) == (first.key, first.start)
    assert closed.end is not None


def test_while_a_requeued_job_completes_it_is_pending_and_completing(backend: Backend) -> None:
    ref = started(backend, Ask())
    backend.commands.requeue(ref)
    found = job(backend, ref)
    assert found.state is JobState.PENDING
    if found.completing:
        assert found.allocation == ()
    eventually(backend, lambda: not job(backend, ref).completing)


def test_requeueing_what_does_not_run_does_nothing(backend: Backend) -> None:
    ended, waiting = backend.submit(Ask(seconds=1)), backend.submit(Ask(hold=True))
    eventually(backend, is_in(backend, ended, JobState.OTHER))
    backend.commands.requeue(ended)
    backend.commands.requeue(waiting)
    assert job(backend, ended).state is JobState.OTHER
    assert job(backend, waiting).restarts == 0
    eventually(backend, lambda: states(backend, ended) == ["COMPLETED"])


def test_a_no_requeue_job_is_refused_and_goes_on(backend: Backend) -> None:
    ref = started(backend, Ask(requeue=False))
    assert not job(backend, ref).can_requeue
    with pytest.raises(SlurmRefusedError, match="presently disabled"):
        backend.commands.requeue(ref)
    assert job(backend, ref).state is JobState.RUNNING


def test_a_reservation_of_ours_is_seen_keeps_others_out_and_goes(backend: Backend) -> None:
    snapshot = backend.live.snapshot()
    names = [n.name for n in snapshot.nodes]
    start, end = snapshot.now + 600, snapshot.now + 3600
    backend.commands.reserve("sbudget_test", nodes=names, start=start, end=end, accounts=["nlp"])
    try:
        (found,) = backend.live.snapshot().reservations
        assert (found.name, set(found.nodes), found.ours) == ("sbudget_test", set(names), True)
        assert (found.accounts, abs(found.start - start) < 60, found.end > found.start) == (("nlp",), True, True)
        long, short = backend.submit(Ask("bob", limit=1200)), backend.submit(Ask("bob", limit=120))
        eventually(backend, is_in(backend, short, JobState.RUNNING))
        assert job(backend, long).state is JobState.PENDING
    finally:
        backend.commands.release("sbudget_test")
    backend.commands.release("sbudget_test")
    assert backend.live.snapshot().reservations == ()
    eventually(backend, is_in(backend, long, JobState.RUNNING))


def test_a_reservation_that_nobody_enters_goes_by_itself_after_its_start(backend: Backend) -> None:
    """Not before it; and not while a job is in it, who may leave it while it runs."""
    now = backend.live.snapshot().now
    names = [n.name for n in backend.live.snapshot().nodes][:2]
    for name, node in zip(("sbudget_left", "sbudget_used"), names, strict=True):
        end = now + 86_400
        backend.commands.reserve(name, nodes=[node], start=now + 75, end=end, accounts=["nlp"], idle=60)
    ref = backend.submit(Ask(seconds=400))
    try:
        eventually(backend, lambda: backend.live.snapshot().now >= now + 70, more=75)
        assert {r.name for r in backend.live.snapshot().reservations} == {"sbudget_left", "sbudget_used"}
        backend.cancel(ref)
        ref = backend.submit(Ask(seconds=400, hold=True))
        backend.commands.update_job(ref, reservation="sbudget_used")
        left = lambda: {r.name for r in backend.live.snapshot().reservations}  # noqa: E731
        eventually(backend, lambda: left() == {"sbudget_used"}, more=180)
        backend.commands.update_job(ref, reservation="")
        backend.commands.release("sbudget_used")
        assert left() == set()
    finally:
        backend.cancel(ref)
        for name in ("sbudget_left", "sbudget_used"):
            backend.commands.release(name)


# --- what Slurm itself does


def test_backed_work_takes_the_place_of_spare_work(backend: Backend) -> None:
    victim = started(backend, Ask("bob", nodes=4, qos="spare"))
    winner = backend.submit(Ask(seconds=5))
    eventually(backend, is_in(backend, winner, JobState.RUNNING))
    eventually(backend, lambda: states(backend, victim)[:1] == ["PREEMPTED"])
    eventually(backend, is_in(backend, victim, JobState.PENDING))
    assert job(backend, victim).restarts == 1
    eventually(backend, is_in(backend, victim, JobState.RUNNING), more=backend.requeue_delay)


def test_a_preempted_no_requeue_job_is_gone(backend: Backend) -> None:
    victim = started(backend, Ask("bob", nodes=4, qos="spare", requeue=False))
    backend.submit(Ask(seconds=5))
    eventually(backend, lambda: states(backend, victim) == ["PREEMPTED"])
    eventually(backend, is_in(backend, victim, JobState.OTHER))


def test_a_draining_node_keeps_its_work_and_takes_no_more(backend: Backend) -> None:
    ref = started(backend, Ask(gpus=1))
    node = job(backend, ref).allocation[0].node

    def look() -> tuple[bool, bool, str, bool]:
        found = next(n for n in backend.live.snapshot().nodes if n.name == node)
        return found.draining, found.in_service, found.reason, found.takes_work

    backend.drain(node, "fan broken")
    try:
        assert look() == (True, True, "fan broken", False)
        assert job(backend, ref).state is JobState.RUNNING
        backend.commands.requeue(ref)
        eventually(backend, lambda: look()[:2] == (True, False))
        eventually(backend, is_in(backend, ref, JobState.RUNNING), more=backend.requeue_delay)
        assert job(backend, ref).allocation[0].node != node
    finally:
        backend.resume(node)
    assert (look()[0], look()[2]) == (False, "")
    # Until slurmd has answered, the node is not responding: 22.05 takes half a second.
    eventually(backend, lambda: look() == (False, True, "", True))


# --- Accounting


def test_a_run_leaves_one_row_that_says_what_it_held(backend: Backend) -> None:
    ref = started(backend, Ask(gpus=2, nodes=2, seconds=3))
    held = job(backend, ref)
    eventually(backend, lambda: states(backend, ref) == ["COMPLETED"])
    (row,) = rows(backend, ref)
    assert (row.key, row.account, row.user, row.qos) == (held.key, "nlp", "alice", "backed")
    assert (row.start, row.tres.gpus, row.requested_gpus, row.time_limit) == (held.start, 4, 4, 1200)
    assert set(row.nodes) == {share.node for share in held.allocation}
    assert row.start is not None
    assert row.end is not None
    assert 2 <= row.end - row.start <= 3 + backend.patience


def test_a_running_row_is_open_and_a_cancelled_one_says_by_whom(backend: Backend) -> None:
    ref = started(backend, Ask())
    eventually(backend, lambda: states(backend, ref) == ["RUNNING"])
    assert rows(backend, ref)[0].end is None
    backend.cancel(ref)
    eventually(backend, lambda: states(backend, ref) == ["CANCELLED"])
    assert rows(backend, ref)[0].end is not None
    assert rows(backend, ref)[0].by_uid == 0


def test_a_job_that_never_started_has_no_start(backend: Backend) -> None:
    ref = blocked(backend, Ask())
    backend.cancel(ref)
    eventually(backend, lambda: states(backend, ref) == ["CANCELLED"])
    (row,) = rows(backend, ref)
    assert (row.start, row.tres.gpus, row.nodes) == (None, 0, ())
    assert row.end is not None


def test_the_rows_of_a_job_never_overlap_and_cover_only_the_asked_time(backend: Backend) -> None:
    ref = started(backend, Ask())
    keys = [job(backend, ref).key]
    for count in (1, 2):
        backend.commands.requeue(ref)
        eventually(backend, is_in(backend, ref, JobState.RUNNING), more=backend.requeue_delay)
        keys.append(job(backend, ref).key)
        expected = ["REQUEUED"] * count + ["RUNNING"]
        eventually(backend, partial(has_states, backend, ref, expected))
    found = rows(backend, ref)
    assert [r.key for r in found] == keys
    assert len({key.submit for key in keys}) == 3
    assert {key.job_id for key in keys} == {int(ref)}
    for row, later in pairwise(found):
        assert row.state in PUT_BACK
        assert row.end is not None
        assert later.start is not None
        assert row.end <= later.start
    first_end = found[0].end
    assert first_end is not None
    after = [r for r in backend.accounting.runs(first_end + 1, first_end + DAY) if r.job_ref == ref]
    assert found[0].key not in {r.key for r in after}
    assert len(after) == 2
