"""Starting commands: their environment, their failures, streams that end half-way, silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyslurm_budget.errors import (
    SbudgetError,
    SlurmctldError,
    SlurmdbdError,
    SlurmMissingError,
    SlurmOutputError,
    SlurmPermissionError,
    SlurmRefusedError,
    SlurmSetupError,
)
from pyslurm_budget.slurm.failures import failure, sentence, unknown_job
from pyslurm_budget.slurm.run import Runner
from tests.shared_data import shared
from tests.unit.slurm_fakes import Fakes, make


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return make(tmp_path, monkeypatch)


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")
    (folder / name).chmod(0o755)


def test_the_environment_does_not_depend_on_the_callers() -> None:
    caller = {
        "PATH": "/bin", "HOME": "/root", "SLURM_CONF": "/a", "SLURM_CLUSTERS": "b", "SACCT_FORMAT": "x",
        "SQUEUE_ALL": "1", "LC_TIME": "de_DE", "TZ": "CET", "SLURM_TIME_FORMAT": "relative",
    }  # fmt: skip
    ours = {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    kept = {"PATH": "/bin", "HOME": "/root"}
    assert Runner().environment(caller) == kept | ours | {"SLURM_CONF": "/a"}
    assert Runner("/mine").environment(caller) == kept | ours | {"SLURM_CONF": "/mine"}
    assert Runner().environment({"PATH": "/bin"}) == {"PATH": "/bin"} | ours


def test_output_is_decoded_with_replacement_and_input_is_closed(fakes: Fakes) -> None:
    program(fakes.folder, "scontrol", "cat; printf 'latin\\351 \\346\\227\\245\\n'")
    assert Runner().read("scontrol", "show") == "latin\N{REPLACEMENT CHARACTER} 日\n"
    assert list(Runner().lines("scontrol")) == ["latin\N{REPLACEMENT CHARACTER} 日"]


def test_arguments_are_never_a_shells(fakes: Fakes) -> None:
    fakes.answer("", out="x")
    Runner().read("scontrol", "update", "jobid=$(reboot); *")
    assert fakes.calls()[0][1] == ["update", "jobid=$(reboot); *"]


def test_lines_end_only_with_a_newline(fakes: Fakes) -> None:
    fakes.answer("", out="a\x0b\x0c\x1cb\u2028c\r\nd\n\ne")
    assert list(Runner().lines("sacct")) == ["a\x0b\x0c\x1cb\u2028c\r", "d", "", "e"]


def test_a_stream_that_fails_after_rows_raises(fakes: Fakes) -> None:
    fakes.answer("", out="header\nrow\n", err="sacct: error: Problem talking to the database\n", status=0)
    lines = Runner().lines("sacct")
    assert [next(lines), next(lines)] == ["header", "row"]
    with pytest.raises(SlurmdbdError, match="Problem talking to the database"):
        next(lines)


def test_a_stream_with_a_bad_status_raises(fakes: Fakes) -> None:
    fakes.answer("", out="header\n", status=3)
    with pytest.raises(SlurmOutputError, match="status 3"):
        list(Runner().lines("sacct"))


def test_a_stream_that_is_left_early_ends_its_command(fakes: Fakes) -> None:
    program(fakes.folder, "sacct", f"echo $$ > {fakes.folder}/pid; echo row; exec sleep 60")
    lines = Runner().lines("sacct")
    next(lines)
    lines.close()  # type: ignore[attr-defined]
    assert not Path(f"/proc/{(fakes.folder / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(("name", "error"), [("scontrol", SlurmctldError), ("sacct", SlurmdbdError)])
def test_silence_is_the_daemons_failure(fakes: Fakes, name: str, error: type[SbudgetError]) -> None:
    program(fakes.folder, name, "exec sleep 60")
    with pytest.raises(error, match=r"said nothing for 0\.2 s"):
        Runner(timeout=0.2).read(name, "show")
    with pytest.raises(error, match=r"said nothing for 0\.2 s"):
        list(Runner(timeout=0.2).lines(name, "show"))


def test_a_command_that_is_not_installed(fakes: Fakes) -> None:
    (fakes.folder / "sacct").unlink()
    with pytest.raises(SlurmMissingError, match="Cannot run sacct: No such file"):
        Runner().read("sacct")
    with pytest.raises(SlurmMissingError, match="Cannot run sacct: No such file"):
        list(Runner().lines("sacct"))
    with pytest.raises(SlurmMissingError, match="Cannot run chroot-of-another-release"):
        Runner(prefix=("chroot-of-another-release", "/d")).read("scontrol")


def test_strict_reads_take_errors_on_standard_error_for_failures(fakes: Fakes) -> None:
    fakes.answer("", out="x", err="scontrol: error: a message of the submit plugin\n")
    assert Runner().read("scontrol") == "x"
    with pytest.raises(SlurmOutputError, match="a message of the submit plugin"):
        Runner().read("scontrol", strict=True)


@pytest.mark.parametrize(
    ("command", "said", "error"),
    [
        # As printed by real daemons of 22.05.8 (slurmctld or slurmdbd stopped, no file, no right).
        ("scontrol show job", "Unable to contact slurm controller (connect failure)", SlurmctldError),
        ("squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmctldError),
        ("scontrol update jobid=2", "Unexpected message received for job 2", SlurmctldError),
        ("sacct -a", "sacct: error: Sending PersistInit msg: Connection refused\n"
         "sacct: error: Problem talking to the database: Connection refused", SlurmdbdError),
        ("sacctmgr show assoc", "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent "
         "connection to host:localhost:24001: Connection refused", SlurmdbdError),
        ("scontrol show job", "scontrol: error: ClusterName needs to be specified\n"
         "scontrol: fatal: Unable to process configuration file", SlurmMissingError),
        ("scontrol show config", "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
         "scontrol: fatal: Could not establish a configuration source", SlurmMissingError),
        ("sacct -a", "Slurm accounting storage is disabled", SlurmSetupError),
        ("scontrol requeue Incomplete 3", "Access/permission denied for job 3", SlurmPermissionError),
        ("scontrol update jobid=3", "Invalid user id for job 3", SlurmPermissionError),
        ("sacctmgr show assoc", "sacctmgr: error: Access/permission denied", SlurmPermissionError),
        ("sacct -a", 'sacct: error: Invalid field requested: "NoSuchField"', SlurmOutputError),
        ("scontrol show node nosuch", "Node nosuch not found", SlurmOutputError),
        ("scontrol update jobid=3", "Job is no longer pending execution for job 3", SlurmRefusedError),
        ("scontrol update jobid=3", "Invalid qos specification for job 3", SlurmRefusedError),
        ("scontrol update jobid=3", "Job has already finished for job 3", SlurmRefusedError),
        ("scontrol update jobid=3", "Invalid job id specified for job 3", SlurmRefusedError),
        ("scontrol requeue Incomplete 3", "Only batch jobs are accepted or processed for job 3", SlurmRefusedError),
        ("scontrol requeue Incomplete 3", "Requested operation is presently disabled for job 3", SlurmRefusedError),
        ("scontrol requeue Incomplete 3", "Job is pending execution for job 3", SlurmRefusedError),
        ("scontrol create reservation", "Error creating the reservation: Requested nodes busy", SlurmRefusedError),
    ],
)  # fmt: skip
def test_what_slurm_says_decides_the_failure(command: str, said: str, error: type[SbudgetError]) -> None:
    found = failure(command.split(), said, 1)
    assert type(found) is error
    assert "\n" not in str(found)
    assert sentence(said) in str(found)


def test_public_vectors_of_refusals() -> None:
    import json

    vectors = [v for v in json.loads(shared("data/vectors.json").read_text()) if v["kind"] == "scontrol_error"]
    assert len(vectors) == 5
    for vector in vectors:
        assert isinstance(failure(["scontrol", "update"], vector["input"] + " for job 3", 1), SlurmRefusedError)


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5", "25.11.7", "26.05.5"])
def test_recorded_failures(release: str) -> None:
    def said(name: str) -> str:
        return shared(f"data/recorded/{release}/{name}").read_text()

    assert unknown_job(said("err_badjob_scontrol.txt.err"))
    assert isinstance(failure(["sacct"], said("err_badfield.txt.err"), 1), SlurmOutputError)
    assert not unknown_job(said("err_badfield.txt.err"))


def test_a_failure_without_a_word() -> None:
    assert "status 9 and no message" in str(failure(["scontrol", "show", "job"], "", 9))
