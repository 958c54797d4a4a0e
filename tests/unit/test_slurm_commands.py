"""What is sent to scontrol, and what a refusal becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.errors import SlurmctldError, SlurmPermissionError, SlurmRefusedError, UsageError
from pyslurm_budget.service.ports import JobUpdate
from pyslurm_budget.slurm.commands import SlurmCommands, words
from pyslurm_budget.slurm.run import Runner
from tests.unit.slurm_fakes import Fakes, make


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return make(tmp_path, monkeypatch)


def sent(fakes: Fakes) -> list[str]:
    return [" ".join(args) for _, args, _, _ in fakes.calls()]


def test_an_update_is_one_command(fakes: Fakes) -> None:
    fakes.answer("update")
    commands = SlurmCommands(Runner())
    commands.update_job("100_[3-9]", qos="spare", site_factor=-5, time_limit=3601)
    commands.update_job("7", unlimited=True, reservation="")
    assert sent(fakes) == [
        "update jobid=100_[3-9] qos=spare sitefactor=-5 timelimit=61",
        "update jobid=7 timelimit=UNLIMITED reservationname=",
    ]


def test_requeue(fakes: Fakes) -> None:
    fakes.answer("requeue Incomplete 9", err="Only batch jobs are accepted or processed for job 9\n", status=1)
    fakes.answer("requeue Incomplete")
    commands = SlurmCommands(Runner())
    commands.requeue("100_7")
    commands.requeue("200+1")
    with pytest.raises(SlurmRefusedError, match="Only batch jobs"):
        commands.requeue("9")
    assert sent(fakes) == ["requeue Incomplete 100_7", "requeue Incomplete 200", "requeue Incomplete 9"]


def test_a_reservation_in_utc(fakes: Fakes) -> None:
    fakes.answer("create reservation")
    nodes = ["n2", "n1", "n3", "gpu7"]
    commands = SlurmCommands(Runner())
    commands.reserve("sbudget_w1", nodes=nodes, start=1796102012, end=1796105612, accounts=["pa"])
    assert sent(fakes) == [
        "create reservation reservationname=sbudget_w1 starttime=2026-12-01T05:13:32 endtime=2026-12-01T06:13:32"
        " nodes=gpu7,n[1-3] accounts=pa flags=IGNORE_JOBS"
    ]
    assert fakes.calls()[0][3]["TZ"] == "UTC"
    for idle, minutes in ((300, 5), (61, 2), (0, 1)):
        commands.reserve("sbudget_w1", nodes=nodes, start=1796102012, end=1796105612, accounts=["pa"], idle=idle)
        assert sent(fakes)[-1].endswith(f" flags=IGNORE_JOBS,PURGE_COMP={minutes}")


def test_release_is_content_if_the_reservation_is_gone(fakes: Fakes) -> None:
    fakes.answer("=sbudget_gone", err="Error deleting reservation: Requested reservation is invalid\n", status=1)
    fakes.answer("=sbudget_used", err="Error deleting reservation: Requested reservation is in use\n", status=1)
    fakes.answer("=sbudget_down", err="Unable to contact slurm controller (connect failure)\n", status=1)
    fakes.answer("=sbudget_there")
    commands = SlurmCommands(Runner())
    commands.release("sbudget_gone")
    commands.release("sbudget_there")
    with pytest.raises(SlurmRefusedError, match="is in use"):
        commands.release("sbudget_used")
    with pytest.raises(SlurmctldError):
        commands.release("sbudget_down")


@pytest.mark.parametrize(
    "ref", ["1,2", "", "all", "1_", "1_[3-9", "--help", "1 qos=x", "1_[0-8:2]", "1;2", "1\n2", "1_*"]
)
def test_only_one_record_can_be_addressed(ref: str) -> None:
    commands = SlurmCommands(Runner())
    for act in (lambda: commands.update_job(ref, qos="x"), lambda: commands.requeue(ref)):
        with pytest.raises(UsageError, match="is not a job"):
            act()


@given(st.text(max_size=20))
def test_no_name_becomes_another_argument(name: str) -> None:
    try:
        found = words(JobUpdate("1", qos=name))
    except UsageError:
        return
    assert found == ["jobid=1", f"qos={name}"]
    assert not set(name) & set(" \n\t'\"=,;")


def test_a_site_factor_that_slurm_would_ignore_is_refused() -> None:
    with pytest.raises(UsageError, match="beyond"):
        words(JobUpdate("1", site_factor=2_147_483_646))


def many(*refs: str) -> list[JobUpdate]:
    return [JobUpdate(ref, qos="spare") for ref in refs]


def test_many_updates_go_to_one_scontrol(fakes: Fakes) -> None:
    fakes.answer("", out="scontrol: ...")
    assert SlurmCommands(Runner()).update_many(many("1", "2_[3-4]")) == {}
    assert SlurmCommands(Runner()).update_many([]) == {}
    ((_, args, stdin, _),) = fakes.calls()
    assert args == []
    assert stdin == "update jobid=1 qos=spare\nupdate jobid=2_[3-4] qos=spare\nquit\n"


def test_refusals_of_many_are_told_apart(fakes: Fakes) -> None:
    """The lines that 22.05.8 prints: the job at the end, an array task at the beginning."""
    words = (
        "Invalid qos specification for job 3\nJob has already finished for job 1\n"
        "15_8: Invalid qos specification\nInvalid job id specified for job 15_[0-4,12]\n"
    )
    fakes.answer("", err=words, status=1)
    refused = SlurmCommands(Runner()).update_many(many("1", "2", "3", "15_8", "15_[0-4,12]", "15"))
    assert set(refused) == {"1", "3", "15_8", "15_[0-4,12]"}
    assert refused["1"] == "Job has already finished for job 1"
    assert len(fakes.calls()) == 1


def test_a_refusal_that_names_no_record_is_found_one_by_one(fakes: Fakes) -> None:
    fakes.answer("update jobid=1 qos=spare\n", err="3298_0-1: Job is no longer pending execution\n", status=1)
    fakes.answer("jobid=3298", err="3298_0-1: Job is no longer pending execution\n", status=1)
    fakes.answer("update")
    refused = SlurmCommands(Runner()).update_many(many("1", "3298"))
    assert set(refused) == {"3298"}
    assert len(fakes.calls()) == 3


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("Unexpected message received for job 1\nUnexpected message received for job 2\n", SlurmctldError),
        ("Access/permission denied for job 1\nAccess/permission denied for job 2\n", SlurmPermissionError),
    ],
)
def test_what_concerns_all_is_raised(fakes: Fakes, words: str, error: type[Exception]) -> None:
    fakes.answer("", err=words, status=1)
    with pytest.raises(error):
        SlurmCommands(Runner()).update_many(many("1", "2"))


def test_one_missing_right_is_one_refusal(fakes: Fakes) -> None:
    fakes.answer("", err="Invalid user id for job 1\n", status=1)
    assert set(SlurmCommands(Runner()).update_many(many("1", "2"))) == {"1"}


@pytest.mark.parametrize(
    ("qos", "limit", "sent"),
    [
        ("spare", 3600, ["qos=spare", "sitefactor=5", "timelimit=60"]),
        ("spare", None, ["qos=spare", "sitefactor=5", "timelimit=UNLIMITED"]),
        (None, 3600, ["sitefactor=5"]),
        (None, None, ["sitefactor=5"]),
    ],
)
def test_the_time_limit_goes_with_every_qos_and_with_nothing_else(
    qos: str | None, limit: int | None, sent: list[str]
) -> None:
    assert words(JobUpdate.of_job("1", qos, 5, limit)) == ["jobid=1", *sent]
