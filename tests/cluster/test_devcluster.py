"""scripts/devcluster on a real Slurm: up, down, status, env and single daemons, and what they must leave alone."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from devcluster_lib import accounting, files, options, packages, releases  # noqa: E402
from devcluster_lib.layout import DevclusterError, Layout, Options  # noqa: E402

from tests.cluster.devcluster import PORT, require  # noqa: E402

pytestmark = pytest.mark.cluster

OTHER_PORT = PORT + 40
UP = ("--base-port", str(PORT), "--flavors", "a100:1,h100:1", "--accounts", "lab/deep,bio", "--qos", "backed,spare",
      "--users", "dctone:deep,dcttwo:bio:lab", "--operator", "dctop", "--conf", "maxarraysize=5", "--conf",
      "MaxJobCount=")  # fmt: skip
USERS = ("dctone", "dcttwo", "dctop")


def devcluster(command: str, folder: Path, *words: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit status, output and error output of scripts/devcluster."""
    argv = [sys.executable, str(SCRIPTS / "devcluster"), command, "--dir", str(folder), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, cwd="/", env=env)
    return done.returncode, done.stdout, done.stderr


def done(command: str, folder: Path, *words: str) -> str:
    status, out, err = devcluster(command, folder, *words)
    assert status == 0, f"devcluster {command}: {err}"
    return out


def processes(folder: Path) -> dict[int, str]:
    """Living processes that have the folder in their command line or environment, or a file in it open."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            links = [str(link.readlink()) for link in (entry / "fd").iterdir() if link.is_symlink()]
            alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and (os.fsencode(folder) in words or any(link.startswith(f"{folder}/") for link in links)):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def running(marker: str) -> list[int]:
    """Living processes with this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def exists(user: str) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(user))
    return False


def wait(what: str, holds: object, seconds: float = 20) -> None:
    assert callable(holds)
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.1)


@dataclass(frozen=True)
class Made:
    """A cluster that is up."""

    folder: Path

    def run(self, *argv: str, user: str | None = None) -> str:
        env = {**os.environ, "SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}
        as_user = ["runuser", "-u", user, "--"] if user else []
        done = subprocess.run(
            [*as_user, *argv], env=env, capture_output=True, text=True, timeout=60, check=False, cwd="/"
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, user: str, script: str, *words: str) -> str:
        job = self.run(
            "sbatch", "--parsable", "-o", "/dev/null", "--gres=gpu:1", *words, f"--wrap={script}", user=user
        )
        wait(f"job {job} runs", lambda: self.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING")
        return job

    def daemons(self) -> dict[str, dict[str, object]]:
        _, out, _ = devcluster("status", self.folder, "--json")
        found = json.loads(out)["daemons"]
        assert isinstance(found, dict)
        return found

    def pids(self) -> dict[str, object]:
        return {name: daemon["pid"] for name, daemon in self.daemons().items()}


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    """Skipped where no cluster can be; in CI that is a failure."""
    require()


@pytest.fixture(scope="module")
def space() -> Iterator[Path]:
    """A folder that users can enter, as pytest's own cannot be."""
    made = Path(tempfile.mkdtemp(prefix="sbudget-devcluster-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def made(space: Path) -> Iterator[Made]:
    folder = space / "one"
    try:
        done("up", folder, *UP)
        yield Made(folder)
    finally:
        devcluster("down", folder)


def test_up_has_run_a_gpu_job_and_left_idle_nodes(made: Made) -> None:
    state, user, tres = made.run("sacct", "-a", "-X", "-n", "-P", "-j", "1", "-o", "State,User,AllocTRES").split("|")
    assert (state, user) == ("COMPLETED", "dctone")
    assert "gres/gpu=1" in tres.split(",")
    nodes = made.run("sinfo", "-h", "-N", "-o", "%N %P %T %G %f %c %m %l").splitlines()
    assert nodes == [
        "n1 gpu* idle gpu:a100:4 a100 16 64000 infinite",
        "n2 gpu* idle gpu:h100:4 h100 16 64000 infinite",
    ]


def test_accounts_users_qos_and_the_operator(made: Made) -> None:
    rows = made.run("sacctmgr", "-n", "-P", "show", "assoc", "format=account,user,parentname,qos").splitlines()
    assert sorted(row for row in rows if not row.startswith("root")) == [
        "bio|dcttwo||backed,normal,spare",
        "bio||root|backed,normal,spare",
        "deep|dctone||backed,normal,spare",
        "deep|dctop||backed,normal,spare",
        "deep||lab|backed,normal,spare",
        "lab|dcttwo||backed,normal,spare",
        "lab||root|backed,normal,spare",
    ]
    users = made.run("sacctmgr", "-n", "-P", "show", "user", "format=user,defaultaccount,adminlevel").splitlines()
    assert sorted(users) == ["dctone|deep|None", "dctop|deep|Operator", "dcttwo|bio|None", "root|root|Administrator"]
    assert all(exists(user) for user in USERS)


def test_users_read_the_configuration_and_no_secret(made: Made) -> None:
    secrets = ["etc/slurmdbd.conf", "munge/key", "db/sock", "spool/ctld/clustername"]
    for name in secrets:
        assert (made.folder / name).exists()
        with pytest.raises(AssertionError, match="denied"):
            made.run("ls", str(made.folder / name)) and made.run("cat", str(made.folder / name), user="dctone")
    for name in ("slurm.conf", "gres.conf", "cgroup.conf", "job_submit.lua"):
        made.run("cat", str(made.folder / "etc" / name), user="dctone")
    assert stat.S_ISCHR((made.folder / "dev" / "gpu3").stat().st_mode)


def test_conf_replaces_and_removes_lines(made: Made) -> None:
    lines = (made.folder / "etc" / "slurm.conf").read_text().splitlines()
    assert [line for line in lines if line.lower().startswith(("maxarraysize", "maxjobcount"))] == ["MaxArraySize=5"]
    assert "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:h100" in lines


def test_a_requeued_job_may_start_again_soon(made: Made) -> None:
    job = made.submit("dctone", "sleep 300")
    made.run("scontrol", "requeue", job)

    def eligible() -> dict[str, str]:
        shown = made.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "job", "-o", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    wait("the job is pending", lambda: eligible()["JobState"] == "PENDING")
    assert 0 < int(eligible()["EligibleTime"]) - time.time() < 10
    made.run("scancel", job)


def test_a_second_up_is_quick_and_changes_nothing(made: Made) -> None:
    def picture() -> list[tuple[str, float]]:
        return [
            (str(p), p.stat().st_mtime) for part in ("etc", "munge", "run") for p in (made.folder / part).iterdir()
        ]

    before, began = (made.pids(), picture()), time.monotonic()
    done("up", made.folder, *UP)
    assert time.monotonic() - began < 3
    assert (made.pids(), picture()) == before


def test_other_options_are_refused_and_named(made: Made) -> None:
    before = made.pids()
    status, _, err = devcluster("up", made.folder, *UP, "--kill-wait", "3", "--partition", "other")
    assert (status, err.count("\n")) == (2, 1)
    assert "(--kill-wait, --partition)" in err
    assert made.pids() == before


def test_status_and_env(made: Made) -> None:
    status, out, _ = devcluster("status", made.folder)
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:6]] == ["munged", "mariadb", "slurmdbd", "slurmctld", "n1", "n2"]
    assert f"port {PORT + 11}" in lines[4]
    assert "gpu* 1 idle gpu:h100:4" in lines
    conf = made.folder / "etc" / "slurm.conf"
    script = f'eval "$({SCRIPTS}/devcluster env --dir {made.folder})" && echo $SLURM_CONF && sinfo -h -o %P'
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=True).stdout
    assert told.split() == [str(conf), "gpu*"]
    assert json.loads(done("env", made.folder, "--json")) == {"SLURM_CONF": str(conf)}


def test_up_again_after_daemons_were_killed(made: Made) -> None:
    job = made.submit("dctone", "sleep 300")
    wait("the job runs", lambda: made.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING")
    # What slurmctld has not written yet, a few seconds' worth, is lost with it. It writes after a change only, and
    # may have done so already: so one change more, and a file from after it.
    seen = time.time()
    time.sleep(0.1)
    made.run("scontrol", "update", f"JobId={job}", "Comment=saved")
    wait("slurmctld has saved the job", lambda: (made.folder / "spool/ctld/job_state").stat().st_mtime > seen + 0.05)
    before = made.pids()
    done("stop", made.folder, "slurmctld", "--kill9")
    done("stop", made.folder, "n2")
    os.kill(int(str(before["munged"])), signal.SIGKILL)
    wait("munged is gone", lambda: made.pids()["munged"] is None)
    assert devcluster("status", made.folder)[0] == 3
    done("up", made.folder, *UP)
    after = made.pids()
    same = {name for name, pid in after.items() if pid == before[name]}
    assert same == {"mariadb", "slurmdbd", "n1"}
    assert all(after.values())
    assert made.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"
    made.run("scancel", job)


def test_single_daemons(made: Made) -> None:
    before = made.pids()
    done("restart", made.folder, "slurmdbd")
    wait("slurmdbd answers", lambda: made.run("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster") == "demo")
    assert {name for name, pid in made.pids().items() if pid != before[name]} == {"slurmdbd"}
    done("stop", made.folder, "n1")
    assert [name for name, daemon in made.daemons().items() if not daemon["up"]] == ["n1"]
    done("start", made.folder, "n1")
    assert devcluster("status", made.folder)[0] == 0
    status, _, err = devcluster("stop", made.folder, "n7")
    assert (status, "n7 is no daemon of this cluster" in err) == (2, True)


def test_two_side_by_side_and_down_leaves_nothing(made: Made, space: Path) -> None:
    before = made.pids()
    other = Made(space / "two")
    words = (
        "--base-port",
        str(OTHER_PORT),
        "--nodes",
        "1",
        "--users",
        "dctone:nlp,dctother:bio",
        "--operator",
        "dctop",
    )
    try:
        done("up", other.folder, *words)
        other.submit("dctone", "env -i sleep 98765.25")
        other.submit("dctone", "sleep 98765.25", "--export=NONE")
        # a job is RUNNING before its process is there
        wait("both jobs' processes", lambda: len(running("98765.25")) == 2)
    finally:
        done("down", other.folder)
    assert running("98765.25") == []
    assert processes(other.folder) == {}
    assert not other.folder.exists()
    assert {user: exists(user) for user in (*USERS, "dctother")} == {**dict.fromkeys(USERS, True), "dctother": False}
    assert made.pids() == before
    done("down", other.folder)


def test_a_cluster_that_does_not_come_up_leaves_only_its_logs(space: Path) -> None:
    folder = space / "three"
    words = ("--base-port", str(OTHER_PORT), "--nodes", "1", "--users", "dctthree:nlp", "--operator", "")
    status, _, err = devcluster("up", folder, *words, "--conf", "SelectType=select/none_such")
    assert (status, err.count("\n")) == (1, 1)
    assert f"{folder}/log/" in err
    assert "none_such" in err
    assert processes(folder) == {}
    assert [entry.name for entry in folder.iterdir()] == ["log"]
    assert not exists("dctthree")
    done("down", folder)
    assert not folder.exists()


def test_an_interrupted_up_ends_what_it_started(space: Path) -> None:
    folder = space / "four"
    argv = [sys.executable, str(SCRIPTS / "devcluster"), "up", "--dir", str(folder), "--base-port", str(OTHER_PORT)]
    argv += ["--nodes", "1", "--users", "dctfour:nlp", "--operator", ""]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        wait("MariaDB was started", (folder / "run" / "mariadb.id").exists)
        up.terminate()
        _, err = up.communicate(timeout=30)
    assert (up.returncode, err.count("\n")) == (1, 1)
    assert "interrupted by SIGTERM" in err
    assert processes(folder) == {}
    assert not exists("dctfour")
    done("down", folder)


def test_what_cannot_work_is_refused_with_nothing_made(space: Path) -> None:
    folder = space / "five"
    with socket.create_server(("127.0.0.1", OTHER_PORT + 11)):
        status, _, err = devcluster("up", folder, "--base-port", str(OTHER_PORT))
    assert (status, err.count("\n")) == (2, 1)
    assert f"port {OTHER_PORT + 11} (for n1) is in use" in err
    assert not folder.exists()

    (space / "mine").mkdir()
    (space / "mine" / "thesis").touch()
    status, _, err = devcluster("up", space / "mine", "--base-port", str(OTHER_PORT))
    assert (status, "is no cluster's folder, it has thesis" in err) == (2, True)
    done("down", space / "mine")
    assert (space / "mine" / "thesis").exists()

    closed = space / "closed"
    closed.mkdir(mode=0o700)
    status, _, err = devcluster("up", closed / "five", "--base-port", str(OTHER_PORT))
    assert (status, "is closed to other users" in err) == (2, True)

    status, _, err = devcluster("up", folder, env={"PATH": "/nowhere"})
    assert (status, "there is no apt-get here" in err) == (2, True)
    assert devcluster("status", folder)[0] == 3


def test_only_root(space: Path) -> None:
    copy = space / "scripts"
    shutil.copytree(SCRIPTS / "devcluster_lib", copy / "devcluster_lib")
    shutil.copy(SCRIPTS / "devcluster", copy / "devcluster")
    argv = [
        "runuser",
        "-u",
        "nobody",
        "--",
        "/usr/bin/python3",
        str(copy / "devcluster"),
        "up",
        "--dir",
        "/var/tmp/x",
    ]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, cwd="/")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "needs root" in told.stderr


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("up --release trixie --nodes 2", "up --nodes 2"),
        ("up --root=/x --nodes 2 --release=sid", "up --nodes 2"),
        ("status --json", "status --json"),
    ],
)
def test_what_is_left_to_do_inside_another_release(words: str, left: str) -> None:
    assert releases.without(words.split()) == left.split()


def test_a_release_goes_into_a_folder_of_its_own(tmp_path: Path) -> None:
    assert releases.root_for("sid", None) == releases.DEFAULT_ROOTS / "sid"
    assert releases.root_for("sid", tmp_path) == tmp_path
    (tmp_path / "thesis").touch()
    with pytest.raises(DevclusterError, match="is not empty, and no root of ours") as raised:
        releases.prepare("sid", tmp_path)
    assert raised.value.status == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis"]
    with pytest.raises(DevclusterError, match="it takes bookworm, trixie, sid"):
        releases.prepare("woody", tmp_path / "new")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--flavors a100", "--flavors a100"),
        ("--flavors a100:0", "--flavors a100:0"),
        ("--flavors a100:1,a100:2", "each type once"),
        ("--flavors a100:1 --nodes 3", "--flavors makes 1"),
        ("--nodes 0", "--nodes 0"),
        ("--gpus-per-node 0", "--gpus-per-node 0"),
        ("--base-port 80", "--base-port 80"),
        ("--base-port 65525", "the last node's port would be 65539"),
        ("--requeue-delay 4", "a number from 5 on"),
        ("--users alice", "at least one account"),
        ("--users alice:none", "--accounts has no none"),
        ("--users root:nlp", "--users root"),
        ("--accounts a/b,c/b", "b has two parents, a and c"),
        ("--accounts NLP", "--accounts NLP"),
        ("--name De/mo", "--name De/mo"),
        ("--conf MaxJobCount", "KEY=VALUE"),
    ],
)
def test_options_that_cannot_be(words: str, said: str) -> None:
    with pytest.raises(DevclusterError, match=said) as raised:
        options.options_of(options.arguments("", ["up", *words.split()]))
    assert raised.value.status == 2


@pytest.mark.parametrize("folder", ["/", "/tmp", "/var/tmp/a b", "/var/tmp/a:b", "/var/tmp/" + "x" * 90])
def test_folders_that_cannot_be(folder: str) -> None:
    with pytest.raises(DevclusterError, match="--dir") as raised:
        options.root_of(Path(folder))
    assert raised.value.status == 2


def test_parents_are_made_before_their_children() -> None:
    paths = ["a/b/c", "d", "a/e", "d/f/g"]
    assert accounting.children(paths) == {"root": ["d", "a"], "a": ["e", "b"], "b": ["c"], "d": ["f"], "f": ["g"]}


def test_the_requeue_delay_is_written_as_the_release_takes_it() -> None:
    layout = Layout(Path("/var/tmp/x"), Options(requeue_delay=7))
    for release, before in (((22, 5), True), ((24, 11), True), ((25, 5), True), ((25, 11), False), ((26, 5), False)):
        text = files.slurm_conf(layout, release)
        assert ("cred_expire=7" in text, "requeue_delay=7" in text) == (before, not before)
        assert "min_exempt_priority" not in text


@pytest.mark.parametrize("before", [None, ("#!/bin/sh\nexit 0\n", 0o750)])
def test_policy_rc_d_is_put_back(
    before: tuple[str, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    if before:
        policy.write_text(before[0])
        policy.chmod(before[1])
    calls: list[tuple[str, ...]] = []

    def apt(*words: str) -> None:
        calls.append(words)
        assert subprocess.run([str(policy)], check=False).returncode == 101
        if words[0] == "install":
            raise DevclusterError("no network")

    monkeypatch.setattr(packages, "POLICY", policy)
    monkeypatch.setattr(packages, "_missing", lambda _: ["munge"])
    monkeypatch.setattr(packages, "_apt", apt)
    with pytest.raises(DevclusterError, match="no network"):
        packages.install()
    assert [words[0] for words in calls] == ["update", "install"]
    assert calls[1][-2:] == ("--no-install-recommends", "munge")
    now = (policy.read_text(), policy.stat().st_mode & 0o777) if policy.exists() else None
    assert now == before


def test_apt_is_not_asked_when_everything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_apt", lambda *words: pytest.fail("apt was called"))
    packages.install()


def test_last_of_all_down_leaves_no_process_no_folder_and_no_user(made: Made) -> None:
    made.submit("dctone", "sleep 300")
    began = time.monotonic()
    done("down", made.folder)
    assert time.monotonic() - began < 15
    assert processes(made.folder) == {}
    assert not made.folder.exists()
    assert not any(exists(user) for user in USERS)
    assert devcluster("env", made.folder)[0] == 2
    done("down", made.folder)
