"""Whatever users, operators and accidents do: nothing is over-committed, no job is lost, and the rows add up.

The oracles read only what the ports show and the event log; ``check()`` is the simulator's own.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import JobState, RunRecord
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.shapes import Settings, SubmitSpec, small

FOREVER = 1 << 40
NODES = ("n1", "n2", "n3")
USERS = {"alice": "nlp", "bob": "vision", "carol": "bio"}
QUICK = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Step = tuple[Any, ...]


@st.composite
def specs(draw: st.DrawFn) -> SubmitSpec:
    """A request of any kind; some do not fit the cluster and are refused."""
    user = draw(st.sampled_from(sorted(USERS)))
    per_node = draw(st.booleans())
    gpus = draw(st.integers(0, 5))
    work = draw(st.integers(1, 400))
    return SubmitSpec(
        user,
        USERS[user],
        work,
        qos=draw(st.sampled_from((None, "backed", "spare", "spare"))),
        nodes=draw(st.sampled_from((1, 1, 1, 2, 3))),
        gpus=0 if per_node else gpus,
        gpus_per_node=gpus if per_node and gpus else None,
        cpus=draw(st.sampled_from((None, 3, 8, 20))),
        memory_mb=draw(st.sampled_from((0, 0, 100_000))),
        time_limit=draw(st.sampled_from((None, 50, 300, 1000))),
        array=tuple(range(draw(st.sampled_from((0, 0, 0, 1, 4))))),
        throttle=draw(st.sampled_from((None, 1, 2))),
        hold=draw(st.sampled_from((False, False, False, True))),
        requeue=draw(st.sampled_from((True, True, True, False))),
        interactive=draw(st.sampled_from((False, False, False, True))),
        on_sigterm=draw(st.sampled_from(("requeue", "requeue", "exits"))),
        stops_in=draw(st.sampled_from((None, 0, 5))),
        checkpoint=draw(st.sampled_from((None, 20))),
    )


REFS = st.one_of(
    st.integers(1, 14).map(str),
    st.tuples(st.integers(1, 10), st.integers(0, 3)).map(lambda x: f"{x[0]}_{x[1]}"),
    st.sampled_from(("1_[0-1]", "2_[1-3]", "3_[0-3]")),
)
STEPS = st.one_of(
    st.tuples(st.just("submit"), specs()),
    st.tuples(st.just("submit"), specs()),
    st.tuples(st.just("wait"), st.integers(0, 150)),
    st.tuples(st.just("wait"), st.integers(0, 5)),
    st.tuples(st.just("requeue"), REFS),
    st.tuples(st.just("cancel"), REFS),
    st.tuples(st.just("qos"), REFS, st.sampled_from(("backed", "spare", "claim", "nosuch"))),
    st.tuples(st.just("site"), REFS, st.sampled_from((-50, 0, 3, 2_000_000))),
    st.tuples(st.just("limit"), REFS, st.integers(1, 500)),
    st.tuples(st.sampled_from(("hold", "release_job", "suspend", "resume_job")), REFS),
    st.tuples(
        st.sampled_from(("drain", "resume", "fail_node", "recover_node", "hang_node", "unhang")),
        st.sampled_from(NODES),
    ),
    st.tuples(st.just("reserve"), st.sampled_from(NODES), st.integers(0, 100), st.integers(1, 300)),
    st.tuples(st.just("into"), REFS),
    st.tuples(st.just("release"), st.just("sbudget_x")),
)
STORY = st.lists(STEPS, min_size=1, max_size=40)
CLUSTERS = st.builds(
    Settings,
    kill_wait=st.sampled_from((0, 1, 10)),
    epilog=st.sampled_from((0, 0, 3)),
    requeue_delay=st.sampled_from((0, 5, 121)),
    min_job_age=st.sampled_from((0, 300)),
    schedule_delay=st.sampled_from((0, 1)),
    backfill_interval=st.sampled_from((1, 30)),
    completing_blocks=st.booleans(),
    min_exempt_priority=st.sampled_from((None, 1_000_000)),
    release=st.sampled_from(((22, 5, 8), (24, 11, 5))),
)


def new(given_settings: Settings) -> SimulatedCluster:
    return SimulatedCluster(small(len(NODES), 4, settings=given_settings, claim=True))


def do(c: SimulatedCluster, step: Step) -> None:
    """One step; what Slurm refuses changes nothing."""
    kind, *rest = step
    try:
        if kind == "submit":
            c.submit(rest[0])
        elif kind == "wait":
            c.run_for(rest[0])
        elif kind in ("qos", "site", "limit"):
            c.update_job(rest[0], **{{"qos": "qos", "site": "site_factor", "limit": "time_limit"}[kind]: rest[1]})
        elif kind == "unhang":
            c.hang_node(rest[0], hangs=False)
        elif kind == "reserve":
            c.reserve(
                "sbudget_x", nodes=[rest[0]], start=c.now + rest[1], end=c.now + rest[1] + rest[2], accounts=["nlp"]
            )
        elif kind == "into":
            c.update_job(rest[0], reservation="sbudget_x")
        else:
            getattr(c, kind)(*rest)
    except SlurmRefusedError:
        pass


def all_rows(c: SimulatedCluster) -> list[RunRecord]:
    return sorted(c.runs(0, FOREVER), key=lambda r: r.key)


def used_by_rows(c: SimulatedCluster) -> int:
    """GPU-seconds by accounting."""
    return sum((r.tres.gpus or 0) * ((c.now if r.end is None else r.end) - r.start) for r in all_rows(c) if r.start)


def used_by_events(c: SimulatedCluster, last: str) -> int:
    """GPU-seconds as the integral of the GPUs in use, from a start to the ``last`` event of the run."""
    total = used = 0
    since = None
    for event in c.events:
        if event.kind in ("start", last):
            total += used * (event.time - (since or event.time))
            since = event.time
            used += int(event.detail["gpus"]) * (1 if event.kind == "start" else -1)
            assert used >= 0
    return total + used * (c.now - (since or c.now))


def assert_snapshot(c: SimulatedCluster) -> None:
    """Nodes give no more than they have, and at least what the runs of the same snapshot hold."""
    snapshot = c.snapshot()
    held: dict[str, int] = defaultdict(int)
    cpus: dict[str, int] = defaultdict(int)
    for job in snapshot.jobs:
        assert bool(job.allocation) == (job.state in (JobState.RUNNING, JobState.SUSPENDED))
        assert (job.priority == 0) == (job.reason.startswith("JobHeld") or job.reason == "ReservationDeleted") or (
            job.state is not JobState.PENDING or job.completing
        )
        for share in job.allocation:
            held[share.node] += share.gpus
            cpus[share.node] += share.cpus
        if job.allocation:
            assert sum(s.gpus for s in job.allocation) == (job.held_tres.gpus or 0) >= job.request.gpus
            assert job.request.nodes_min <= len(job.allocation)
    for node in snapshot.nodes:
        assert held[node.name] <= node.gpus_used <= node.gpus
        assert cpus[node.name] <= node.cpus_used <= node.cpus
        assert 0 <= node.memory_used_mb <= node.memory_mb
        assert node.up or node.gpus_used == node.cpus_used == 0


def assert_rows(c: SimulatedCluster) -> None:
    """Rows of one job do not overlap, have Submits of their own, and only the last may be open."""
    by_id: dict[int, list[RunRecord]] = defaultdict(list)
    for row in all_rows(c):
        by_id[row.key.job_id].append(row)
    for found in by_id.values():
        assert len({r.key for r in found}) == len(found)
        for row, later in pairwise(found):
            assert row.end is not None
            assert later.start is None or later.start >= row.end
            assert later.key.submit > row.key.submit
            assert row.state in ("REQUEUED", "PREEMPTED", "NODE_FAIL")
        for row in found:
            assert row.start is None or row.end is None or row.start <= row.end


@QUICK
@given(CLUSTERS, STORY)
def test_nothing_is_overcommitted_or_lost_and_the_rows_add_up(given_settings: Settings, story: list[Step]) -> None:
    c = new(given_settings)
    for step in story:
        do(c, step)
        assert c.check() == ()
    assert_snapshot(c)
    assert_rows(c)
    assert used_by_rows(c) == used_by_events(c, "stop")
    assert used_by_events(c, "free") >= used_by_events(c, "stop")


@QUICK
@given(CLUSTERS, STORY)
def test_every_job_ends_once_everything_works_again(given_settings: Settings, story: list[Step]) -> None:
    """Liveness: with the nodes back and the holds off, all that was submitted comes to an end of its own."""
    c = new(given_settings)
    for step in story:
        do(c, step)
    c.run_for(500)
    for node in NODES:
        c.hang_node(node, hangs=False)
        c.recover_node(node)
        c.resume(node)
    for job in c.jobs():
        if job.state is JobState.SUSPENDED:
            c.resume_job(job.ref)
        elif job.state is JobState.PENDING:
            c.release_job(job.ref)
    for _ in range(100):
        c.run_for(10_000)
        if all(job.state is JobState.OTHER for job in c.jobs()):
            break
    assert [job for job in c.jobs() if job.state is not JobState.OTHER] == []
    assert c.check() == ()
    assert all(node.gpus_used == 0 for node in c.snapshot().nodes)
    assert used_by_rows(c) == used_by_events(c, "stop")
    assert not [r for r in all_rows(c) if r.end is None]


@QUICK
@given(CLUSTERS, STORY)
def test_the_same_steps_give_the_same_history_however_time_is_cut(
    given_settings: Settings, story: list[Step]
) -> None:
    one, two = new(given_settings), new(given_settings)
    for step in story:
        do(one, step)
        if step[0] == "wait":
            for part in [0] + [1] * step[1]:
                two.run_for(part)
        else:
            do(two, step)
    assert one.events == two.events
    assert one.snapshot() == two.snapshot()
    assert all_rows(one) == all_rows(two)


@QUICK
@given(STORY)
def test_a_lag_changes_when_rows_are_seen_and_nothing_else(story: list[Step]) -> None:
    one, two = new(Settings()), new(Settings(accounting_lag=100))
    for step in story:
        do(one, step)
        do(two, step)
    assert one.events == two.events
    then = all_rows(one)
    end = one.now
    two.run_for(99)
    seen = {r.key: r for r in all_rows(two)}
    two.run_for(1)
    late = {r.key: r for r in all_rows(two)}
    for row in then:
        assert row.key in late
        assert late[row.key].start is None or row.start is None or late[row.key].start == row.start
    assert all(r.start is None or r.start <= end for r in seen.values() if r.key not in {x.key for x in then})


def test_the_oracle_of_the_rows_sees_a_difference() -> None:
    c = new(Settings())
    c.submit(SubmitSpec("alice", "nlp", 100, gpus_per_node=2))
    c.run_for(50)
    before = used_by_events(c, "stop")
    assert before == used_by_rows(c) == 2 * 49
    c._state.events[-1] = c.events[-1]._replace(detail={**c.events[-1].detail, "gpus": 3})
    assert used_by_events(c, "stop") != used_by_rows(c)
