"""Arrays: one record for the waiting tasks, records of their own for those that were split off."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.refs import expression, parse, ref_of
from tests.unit.sim import cluster, job, live, rows, state


def array(tasks: int = 6, **more: Any) -> Any:
    return job(gpus=more.pop("gpus", 4), array=tuple(range(tasks)), **more)


def refs(c: SimulatedCluster) -> list[tuple[int, str]]:
    return [(j.key.job_id, j.ref) for j in c.jobs()]


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("12", (12, None)),
        ("12_3", (12, (3,))),
        ("12_[3-5,9]", (12, (3, 4, 5, 9))),
        ("12_", None),
        ("x", None),
        ("12_[]", None),
        ("12 ", None),
        ("12+1", None),
    ],
)
def test_references_are_read_as_slurm_reads_them(ref: str, expected: object) -> None:
    assert parse(ref) == expected


def test_references_are_written_so_that_they_are_read_back() -> None:
    assert ref_of(5, None, ()) == "5"
    assert ref_of(7, 5, (3,)) == "5_3"
    assert ref_of(5, 5, (0, 1, 2, 7)) == "5_[0-2,7]"
    assert expression((1, 3, 4)) == "1,3-4"


def test_a_waiting_array_is_one_record_and_each_started_task_has_a_raw_id_of_its_own() -> None:
    c = cluster(nodes=2)
    assert c.submit(array(4)) == "1"
    (waiting,) = c.jobs()
    assert (waiting.ref, waiting.tasks, waiting.array_job_id) == ("1_[0-3]", (0, 1, 2, 3), 1)
    assert [r.job_ref for r in c.runs(0, 1 << 40)] == ["1_[0-3]"]
    c.run_for(5)
    assert refs(c) == [(1, "1_[2-3]"), (2, "1_0"), (3, "1_1")]
    assert [r.job_ref for r in c.runs(0, 1 << 40)] == ["1_[2-3]", "1_0", "1_1"]
    assert live(c, "1_0").tasks == ()
    assert live(c, "1_0").array_job_id == 1
    assert live(c, "1_3").ref == "1_[2-3]"
    assert live(c, "1").ref == "1_[2-3]"


def test_the_last_task_keeps_the_arrays_id_and_a_bare_id_reaches_all_running_tasks() -> None:
    c = cluster(nodes=2)
    ref = c.submit(array(2))
    c.run_for(5)
    assert refs(c) == [(1, "1_1"), (2, "1_0")]
    c.requeue(ref)
    assert all(j.completing for j in c.jobs())


def test_a_command_on_one_waiting_task_splits_it_off() -> None:
    c = cluster(nodes=1)
    c.submit(job("bob", work=500))
    c.run_for(5)
    c.submit(array(4))
    c.update_job("2_2", qos="spare")
    assert {j.ref: j.qos for j in c.jobs() if j.array_job_id} == {"2_[0-1,3]": "backed", "2_2": "spare"}
    c.update_job("2_[0-1,3]", qos="spare", site_factor=5)
    assert {j.ref: (j.qos, j.priority) for j in c.jobs() if j.array_job_id} == {
        "2_[0-1,3]": ("spare", 15),
        "2_2": ("spare", 10),
    }
    assert c.check() == ()


@pytest.mark.parametrize(("release", "second"), [((24, 11, 5), "backed"), ((22, 5, 8), "spare")])
def test_newer_releases_give_the_qos_to_the_first_of_several_records_only(
    release: tuple[int, int, int], second: str
) -> None:
    c = cluster(nodes=1, release=release)
    c.submit(job("bob", work=500))
    c.run_for(5)
    c.submit(array(4))
    c.update_job("2_[1-2]", qos="spare", time_limit=77)
    found = {j.ref: (j.qos, j.time_limit) for j in c.jobs() if j.array_job_id}
    assert found == {"2_1": ("spare", 77), "2_2": (second, 77), "2_[0,3]": ("backed", 3600)}


def test_a_bare_id_passes_over_running_tasks_or_is_refused_for_them_on_older_releases() -> None:
    for release, refused in (((24, 11, 5), False), ((22, 5, 8), True)):
        c = cluster(nodes=1, release=release)
        c.submit(array(3))
        c.run_for(5)
        if refused:
            with pytest.raises(SlurmRefusedError, match="no longer pending"):
                c.update_job("1", qos="spare")
        else:
            c.update_job("1", qos="spare")
        assert {j.ref: j.qos for j in c.jobs()} == {"1_[1-2]": "spare", "1_0": "backed"}


def test_a_throttle_lets_only_so_many_run_and_says_why_the_rest_waits() -> None:
    c = cluster(nodes=4)
    c.submit(array(5, gpus=1, throttle=2, work=100))
    c.run_for(10)
    assert state(c, "1_4") == "PENDING:JobArrayTaskLimit"
    assert live(c, "1_4").eligible is None
    running = []
    for _ in range(400):
        c.run_for(1)
        running.append(sum(j.state == "RUNNING" for j in c.jobs()))
    assert max(running) == 2
    assert Counter(c._state.finished.values()) == {"COMPLETED": 5}


def test_a_requeued_task_stays_a_record_of_its_own() -> None:
    c = cluster(nodes=1)
    c.submit(array(3, work=500))
    c.run_for(5)
    c.requeue("1_0")
    c.run_for(130)
    assert [r.state for r in rows(c, "1_0")] == ["REQUEUED", "PENDING"]
    assert {j.ref for j in c.jobs()} == {"1_2", "1_0", "1_1"}
    c.run_for(5000)
    assert [c._state.finished[f"1_{i}"] for i in range(3)] == ["COMPLETED"] * 3
    assert c.check() == ()


def test_cancelling_an_array_ends_all_its_tasks_and_what_depends_on_it_never_starts() -> None:
    c = cluster(nodes=1)
    ref = c.submit(array(4))
    after = c.submit(job("bob", after_ok=ref))
    c.run_for(5)
    c.cancel(ref)
    c.run_for(50)
    assert c._state.finished == {f"1_{i}": "CANCELLED" for i in range(4)}
    assert state(c, after) == "PENDING:DependencyNeverSatisfied"
    assert {r.state for r in c.runs(0, 1 << 40) if r.job_ref.startswith("1_")} == {"CANCELLED"}
    assert c.check() == ()


def test_a_job_may_wait_for_a_whole_array() -> None:
    c = cluster(nodes=1)
    ref = c.submit(array(2, work=100))
    after = c.submit(job("bob", after_ok=ref, work=10))
    c.run_for(201)
    assert state(c, after) == "PENDING:Dependency"
    c.run_for(20)
    assert rows(c, after)[0].start is not None


def test_a_held_array_waits_as_one_record() -> None:
    c = cluster(nodes=2)
    ref = c.submit(array(3, hold=True))
    c.run_for(50)
    assert state(c, "1_[0-2]") == "PENDING:JobHeldUser"
    c.release_job(ref)
    c.run_for(2)
    assert state(c, "1_0") == "RUNNING"
