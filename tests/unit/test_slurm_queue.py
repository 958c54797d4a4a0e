"""The live reader as a whole: what it asks, what it remembers, and that a failure is never an empty answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyslurm_budget.errors import SlurmctldError, SlurmdbdError, SlurmOutputError
from pyslurm_budget.slurm.queue import SlurmQueue
from pyslurm_budget.slurm.run import Runner
from tests.unit.slurm_fakes import Fakes, make
from tests.unit.test_slurm_records import IMITATION, line

CONFIG = """Configuration data as of 1796102012
BOOT_TIME               = 1796101721
ClusterName             = lv
KillWait                = 5 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/qos
PriorityWeightQOS       = 1000
PriorityWeightTRES      = CPU=10.5,GRES/gpu=20
SLURM_VERSION           = 24.11.5
"""
NODE = (
    "NodeName=n1 CPUAlloc=1 CPUEfctv=16 CPUTot=16 Gres=gpu:a100:4 RealMemory=100 AllocMem=7 State=MIXED "
    "Partitions=gpu CfgTRES=cpu=16,mem=100M,gres/gpu=4 AllocTRES=cpu=1,gres/gpu=2\n"
)
PARTITION = "PartitionName=gpu Default=YES DefaultTime=01:00:00 MaxTime=UNLIMITED Nodes=n1 State=UP\n"


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return make(tmp_path, monkeypatch)


def cluster(fakes: Fakes, jobs: str) -> None:
    fakes.answer("show job", jobs)
    fakes.answer("show node", NODE)
    fakes.answer("show partition", PARTITION)
    fakes.answer("show reservation", "No reservations in the system\n")
    fakes.answer("show config", CONFIG)
    fakes.answer("show assoc", "root|||normal\npa||root|\npa|alice||\n")
    fakes.answer("show qos", "normal\nbacked\nspare\n")


def squeue(fakes: Fakes, ids: str, name: str = "") -> None:
    """Let squeue answer in the format that it is asked for."""
    (fakes.folder / "squeue").write_text(
        "#!/bin/sh\nPATH=/bin:/usr/bin\n"
        f'name=$(cat <<"EOF"\n{name}\nEOF\n)\n'
        'for last; do :; done\nmark=${last%%%A*}\nfor i in ' + ids + '; do\n'
        'case $last in *%j*) text=$name;; *) text=;; esac\n'
        'printf "%s\\n" "$mark$i$mark$text$mark"; done\n'
    )  # fmt: skip


def test_a_snapshot_has_everything(fakes: Fakes) -> None:
    cluster(fakes, line(5) + line(6, TimeLimit="Partition_Limit"))
    squeue(fakes, "5 6")
    snapshot = SlurmQueue(Runner()).snapshot()
    assert [job.ref for job in snapshot.jobs] == ["5", "6"]
    assert [job.time_limit for job in snapshot.jobs] == [3600, 3600]
    assert (snapshot.now, snapshot.controller.release) == (1796102012, (24, 11, 5))
    assert snapshot.controller.weights == 1000 + 11 + 20
    assert (snapshot.nodes[0].gpus_used, snapshot.partitions[0].default_time) == (2, 3600)
    assert snapshot.allowed_qos == {("pa", "alice"): {"normal"}}
    assert snapshot.parents == {"root": None, "pa": "root"}
    assert snapshot.qos == {"normal", "backed", "spare"}
    commands = [" ".join(args) for name, args, _, _ in fakes.calls() if name == "scontrol"]
    assert commands[-1] == "show config", "the clock is read after the jobs: none starts after now"


@pytest.mark.parametrize("part", ["show job", "show node", "show partition", "show reservation", "show config"])
def test_no_part_of_a_snapshot_may_fail(fakes: Fakes, part: str) -> None:
    fakes.answer(part, err="Unable to contact slurm controller (connect failure)\n", status=1)
    cluster(fakes, line(5))
    squeue(fakes, "5")
    with pytest.raises(SlurmctldError):
        SlurmQueue(Runner()).snapshot()


@pytest.mark.parametrize("part", ["show job", "show node", "show partition", "show config", "show reservation"])
def test_no_part_of_a_snapshot_may_be_empty(fakes: Fakes, part: str) -> None:
    fakes.answer(part, "")
    cluster(fakes, line(5))
    squeue(fakes, "5")
    with pytest.raises(SlurmOutputError):
        SlurmQueue(Runner()).snapshot()


def test_associations_are_remembered_for_a_while(fakes: Fakes) -> None:
    cluster(fakes, line(5))
    now = [100.0]
    queue = SlurmQueue(Runner(), assoc_seconds=60, clock=lambda: now[0])
    first = queue.associations("lv")
    now[0] = 159
    assert queue.associations("lv") is first
    now[0] = 161
    again = queue.associations("lv")
    assert again is not first
    assert queue.associations("other") is not again
    assert [name for name, *_ in fakes.calls()] == ["sacctmgr"] * 3


def test_a_failed_read_of_associations_raises(fakes: Fakes) -> None:
    fakes.answer("show assoc", "pa|||x\n", err="sacctmgr: error: Problem talking to the database\n")
    with pytest.raises(SlurmdbdError):
        SlurmQueue(Runner()).associations("lv")


def test_one_job(fakes: Fakes) -> None:
    fakes.answer("job 404", err="slurm_load_jobs error: Invalid job id specified\n", status=1)
    fakes.answer("job 13", err="Unable to contact slurm controller (connect failure)\n", status=1)
    fakes.answer("job 14", "")
    fakes.answer("job 5", line(5, head="ArrayJobId=5 ArrayTaskId=8-9 ") + line(9, head="ArrayJobId=5 ArrayTaskId=7 "))
    squeue(fakes, "5 9")
    queue = SlurmQueue(Runner())
    assert queue.job("404") is None
    with pytest.raises(SlurmctldError):
        queue.job("13")
    with pytest.raises(SlurmOutputError, match="empty answer"):
        queue.job("14")
    found = [queue.job(ref) for ref in ("5_7", "5_[8-9]", "5_[7-9]", "5")]
    assert [job.key.job_id for job in found if job] == [9, 5, 5, 5]


def test_squeue_settles_what_a_name_imitates(fakes: Fakes) -> None:
    name = "x" + IMITATION + "\nJobId=99 JobName=y"
    fakes.answer("show job", line(5, name=name) + line(6))
    squeue(fakes, "5 6", name)
    jobs = SlurmQueue(Runner()).jobs()
    assert [(job.ref, job.user, job.qos) for job in jobs] == [("5", "alice", "spare"), ("6", "alice", "spare")]
    assert jobs[0].name == name


def test_an_id_that_a_name_takes_from_another_job_is_refused(fakes: Fakes) -> None:
    fakes.answer("show job", line(5, name="x" + IMITATION + "\nJobId=6 JobName=y") + line(6))
    squeue(fakes, "5 6")
    with pytest.raises(SlurmOutputError, match="job 6 is listed twice; the free text of job 5"):
        SlurmQueue(Runner()).jobs()


def test_each_job_is_asked_for_once(fakes: Fakes) -> None:
    fakes.answer("show job", line(5) + line(6))
    fakes.answer("squeue", "")
    squeue(fakes, f"5 6 $(echo x >> {fakes.folder}/asked)")
    queue = SlurmQueue(Runner())
    queue.jobs()
    queue.jobs()
    assert (fakes.folder / "asked").read_text() == "x\n"
