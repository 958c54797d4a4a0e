"""`scontrol show job` of four releases: every record, with the values that the README of each says."""

from __future__ import annotations

import re

import pytest

from pyslurm_budget.domain.model import Job, JobState, NodeShare
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.jobs import jobs_of
from pyslurm_budget.slurm.records import job_records
from tests.golden.recorded import LONG_ARRAY, RELEASES, recorded, recorded_jobs, scenario

releases = pytest.mark.parametrize("release", RELEASES)
ANSWERS = ("scontrol_show_job_dd_o", "scontrol_show_job_o_epoch", "scontrol_show_job_o", "scontrol_show_job_a_o")


def job(release: str, name: str) -> Job:
    return recorded_jobs(release)[str(scenario(release)[name])]


@releases
@pytest.mark.parametrize("answer", ANSWERS)
def test_no_record_is_lost_or_invented(release: str, answer: str) -> None:
    text = recorded(release, answer)
    jobs = recorded_jobs(release, answer)
    assert {j.key.job_id for j in jobs.values()} == {int(i) for i in re.findall(r"^JobId=(\d+) ", text, re.MULTILINE)}
    assert len(jobs) == 36


@releases
@pytest.mark.parametrize("answer", ANSWERS[1:])
def test_epochs_and_calendar_times_are_the_same(release: str, answer: str) -> None:
    """`-d` only adds; the times of the epoch recording agree with those printed as UTC calendar times."""
    detailed, other = recorded_jobs(release), recorded_jobs(release, answer)
    for ref, found in other.items():
        assert (found.key, found.eligible, found.name, found.qos) == (
            detailed[ref].key,
            detailed[ref].eligible,
            detailed[ref].name,
            detailed[ref].qos,
        )


@releases
def test_states(release: str) -> None:
    running = {"requeued2", "preemptor", "susres", "inresv"}
    pending = {"victim", "preemptor2", "dep", "begin", "toobig", "multi"}
    ended = {
        "ok-untyped", "ok-typed", "ok-excl", "ok-nogpu", "fail", "pipe", "newline", "latin1", "utf8", "quotes",
        "norq-victim", "preemptor3(cancelled)", "cancpend", "cancrun",
    }  # fmt: skip
    assert {n for n in running | pending | ended if job(release, n).state is JobState.RUNNING} == running
    assert {n for n in running | pending | ended if job(release, n).state is JobState.PENDING} == pending
    assert {n for n in running | pending | ended if job(release, n).state is JobState.OTHER} == ended
    assert job(release, "suspended").state is JobState.SUSPENDED


@releases
@pytest.mark.parametrize(
    ("name", "text", "comment"),
    [
        ("pipe", "pipe|name", "c|omment"),
        ("newline", "new\nline", ""),
        ("latin1", "latin\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}", ""),
        ("utf8", "uni-é-日本", ""),
        ("quotes", 'sp ace=eq "q" \\b', "a=b QOS=backed x"),
        ("ok-untyped", "ok-untyped", "user comment"),
    ],
)
def test_free_text_is_kept_and_decides_nothing(release: str, name: str, text: str, comment: str) -> None:
    found = job(release, name)
    assert found.name == text
    assert found.comment == comment
    assert found.qos == ("backed" if name == "ok-untyped" else "spare")
    assert found.marker == f"bk1:{found.qos}:1800"
    assert (found.user, found.account) == ("alice", "pa")


@releases
def test_what_runs_and_where(release: str) -> None:
    held = (("requeued2", "n1", 4), ("preemptor", "n2", 4), ("susres", "n4", 1), ("suspended", "n4", 1))
    for name, node, gpus in held:
        found = job(release, name)
        assert found.allocation == (NodeShare(node, gpus, 1, 0, (("a100", gpus),)),), name
        assert (found.held_tres.gpus, dict(found.held_tres.gpus_by_type)) == (gpus, {"a100": gpus})
        assert found.start is not None
        assert found.qos == "backed"
    assert job(release, "requeued2").restarts == 2
    inside = job(release, "inresv")
    assert (inside.reservation, inside.time_limit, inside.held_tres.gpus) == ("ract", 1800, 0)
    assert inside.allocation == (NodeShare("n2", 0, 1, 0),)


@releases
def test_what_waits_holds_nothing(release: str) -> None:
    for found in recorded_jobs(release).values():
        if found.state is JobState.PENDING:
            assert found.start is None
            assert found.allocation == ()
            assert found.held_tres.gpus == 0, "also where 22.05 shows the last run's TRES"


@releases
def test_starts(release: str) -> None:
    """A job that was cancelled while it waited has a StartTime, its end, but no start."""
    assert job(release, "cancpend").start is None
    cancelled = job(release, "cancrun")
    assert cancelled.start is not None
    assert 0 <= cancelled.start - cancelled.key.submit <= 1


@releases
def test_eligible(release: str) -> None:
    """Held and dependent jobs are eligible never (yet); one with a begin time has it in the future."""
    assert job(release, "dep").eligible is None
    assert job(release, "dep").reason == "Dependency"
    begin = job(release, "begin")
    assert begin.eligible is not None
    assert begin.eligible - begin.key.submit == 3600
    for name in ("victim", "preemptor2"):
        again = job(release, name)
        assert again.reason == "BeginTime"
        assert again.eligible is not None
        assert again.eligible - again.key.submit == 121
    toobig = job(release, "toobig")
    assert toobig.eligible == toobig.key.submit


@releases
def test_arrays(release: str) -> None:
    jobs, ids = recorded_jobs(release), scenario(release)
    arr = ids["arr"]
    first, second, rest = jobs[f"{arr}_0"], jobs[f"{arr}_1"], jobs[f"{arr}_[2-9]"]
    assert [j.key.job_id - arr for j in (first, second, rest)] == [1, 2, 0]
    assert [j.state for j in (first, second, rest)] == [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]
    assert rest.tasks == tuple(range(2, 10))
    assert (first.tasks, first.array_job_id) == ((), arr)
    held = jobs[f"{ids['arrheld']}_[1,3,5,10,15,20,25,30,35,40]"]
    assert held.tasks == (1, 3, 5, 10, 15, 20, 25, 30, 35, 40)
    assert (held.eligible, held.priority) == (None, 0)
    assert len(jobs[f"{ids['arrlong']}_[{LONG_ARRAY}]"].tasks) == 28
    assert jobs[f"{ids['arrpend']}_[0-3]"].tasks == (0, 1, 2, 3)


@releases
def test_a_cut_array_expression_is_refused(release: str) -> None:
    with pytest.raises(SlurmOutputError, match=rf"job {scenario(release)['arrlong']}: .*cut off"):
        jobs_of(job_records(recorded(release, "scontrol_show_job_dd_o")), lambda _: None)


@releases
def test_het_components(release: str) -> None:
    leader = scenario(release)["het"]
    parts = [recorded_jobs(release)[f"{leader}+{offset}"] for offset in (0, 1)]
    assert [p.request.gpus for p in parts] == [1, 2]
    assert [p.key.job_id for p in parts] == [leader, leader + 1]
    assert all(p.het and p.state is JobState.PENDING for p in parts)


@releases
def test_requests(release: str) -> None:
    victim = job(release, "victim").request
    assert (victim.nodes_min, victim.nodes_max, victim.gpus, victim.cpus) == (3, 3, 12, 3)
    toobig = job(release, "toobig").request
    assert (toobig.nodes_min, toobig.nodes_max, toobig.gpus, toobig.gpus_per_node) == (4, 4, 16, 4)
    assert toobig.exclusive
    multi = job(release, "multi").request
    assert (multi.nodes_max, multi.gpus_per_node, multi.exclusive, multi.special) == (3, 2, False, None)
    assert multi.nodes_min == (3 if release == "25.11.7" else 2), "25.11 prints what backfill settled on"
    assert job(release, "preemptor").request.gpu_type == "a100"
    assert job(release, "preemptor2").request.gpu_type is None
    assert job(release, "begin").request.special is None
    assert job(release, "dep").request.special == "a dependency"
    assert job(release, "inresv").request.special == "a reservation"
    assert job(release, "toobig").time_limit == 86400


@releases
def test_what_cannot_be_requeued(release: str) -> None:
    kept = {name for name in scenario(release) if name in ("norq-victim", "victim")}
    assert kept == {"norq-victim", "victim"}
    assert not job(release, "norq-victim").can_requeue
    assert job(release, "victim").can_requeue
    interactive = {j.name: j for j in recorded_jobs(release).values() if not j.batch}
    assert set(interactive) == {"intsrun", "intsalloc", "intvictim"}
    assert not any(j.can_requeue for j in interactive.values())
