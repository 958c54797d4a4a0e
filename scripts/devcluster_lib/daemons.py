"""Starting and ending the daemons: exactly those that belong to this cluster, by remembered process ids."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devcluster_lib.layout import Layout


def run(layout: Layout, argv: list[str], timeout: float = 20, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the cluster. Every call has an end: Slurm's commands block for minutes on a dead daemon."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SACCT"))}
    env |= {**layout.environment(), "LC_ALL": "C"}
    try:
        return subprocess.run(
            argv, env=env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"no answer within {timeout:.0f} s")


def wait_for(what: str, condition: Callable[[], bool], seconds: float, log: Path | None = None) -> None:
    """Wait with a deadline; the failure names the log's last lines."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    tail = ""
    if log is not None and log.exists():
        tail = " | ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])
    raise DevclusterError(f"{what} did not happen within {seconds:.0f} s; {log or 'no log'} ends with: {tail}")


def pid_of(layout: Layout, daemon: str) -> int | None:
    """Process id of a daemon if it is alive and ours, else ``None``."""
    try:
        pid = int(layout.pid_file(daemon).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return pid if _is_ours(layout, pid) else None


def _is_ours(layout: Layout, pid: int) -> bool:
    """Whether the process names this cluster's folder in its command line or its environment."""
    mark = os.fsencode(str(layout.root) + "/")
    for name in ("cmdline", "environ"):
        try:
            content = Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            return False
        if mark in content:
            return True
    return False


def _argv(layout: Layout, daemon: str) -> list[str]:
    root = layout.root
    if daemon == "munged":
        folder = root / "munge"
        return [
            "runuser", "-u", "munge", "--", "munged", "-F", f"--key-file={folder}/key", f"--socket={layout.socket}",
            f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed",
        ]  # fmt: skip
    if daemon == "mariadb":
        return [
            "mariadbd", "--no-defaults", "--user=mysql", f"--datadir={root}/db", f"--socket={root}/db/sock",
            f"--port={layout.port('mariadb')}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=2",
        ]  # fmt: skip
    if daemon == "slurmdbd":
        return ["slurmdbd", "-D"]
    if daemon == "slurmctld":
        return ["slurmctld", "-D"]
    return ["slurmd", "-D", "-N", daemon]


def start(layout: Layout, daemon: str) -> None:
    """Start one daemon in a session of its own and wait until it serves; nothing if it runs already."""
    if pid_of(layout, daemon) is not None:
        return
    if daemon != "munged":
        _free_port(layout.port(daemon), daemon)
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")} | layout.environment()
    with layout.log(daemon).open("ab") as log:
        process = subprocess.Popen(
            _argv(layout, daemon), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            start_new_session=True,
        )  # fmt: skip
    layout.pid_file(daemon).write_text(str(process.pid), encoding="utf-8")
    if daemon == "munged":
        wait_for("munged's socket", layout.socket.exists, 20, layout.log(daemon))
        pid_file = layout.root / "munge" / "pid"
        wait_for("munged's pid file", pid_file.exists, 20, layout.log(daemon))
        # runuser's own id is the wrong one
        layout.pid_file(daemon).write_text(pid_file.read_text(encoding="utf-8").strip(), encoding="utf-8")
        return
    wait_for(f"{daemon} on port {layout.port(daemon)}", lambda: _open(layout.port(daemon)), 60, layout.log(daemon))


def _open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port(port: int, daemon: str) -> None:
    deadline = time.monotonic() + 10
    while _open(port):
        if time.monotonic() > deadline:
            raise DevclusterError(f"port {port} (for {daemon}) is in use; choose another --base-port", 2)
        time.sleep(0.2)


def prepare_database(layout: Layout) -> None:
    """Make MariaDB's data folder once."""
    data = layout.root / "db"
    if (data / "mysql").exists():
        return
    argv = [
        "mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--force", "--skip-name-resolve",
        "--auth-root-authentication-method=normal", "--skip-test-db",
    ]  # fmt: skip
    done = run(layout, argv, timeout=180)
    if done.returncode:
        raise DevclusterError(f"mariadb-install-db failed: {done.stderr.strip()[-300:]}")
    shutil.chown(data, "mysql", "mysql")


def create_database(layout: Layout) -> None:
    """The database and the user of slurmdbd."""
    sql = "CREATE DATABASE IF NOT EXISTS slurm_acct_db;" + "".join(
        f"CREATE USER IF NOT EXISTS 'slurm'@'{host}' IDENTIFIED BY 'slurm';"
        f"GRANT ALL ON slurm_acct_db.* TO 'slurm'@'{host}';"
        for host in ("127.0.0.1", "localhost")
    )
    argv = ["mariadb", "--no-defaults", "-u", "root", f"--socket={layout.root}/db/sock"]
    wait_for("MariaDB's answer", lambda: run(layout, argv, 20, "SELECT 1").returncode == 0, 60, layout.log("mariadb"))
    done = run(layout, argv, 30, sql)
    if done.returncode:
        raise DevclusterError(f"MariaDB refused to make slurmdbd's database: {done.stderr.strip()}")


def stop(layout: Layout, daemon: str, *, kill9: bool = False) -> None:
    """End one daemon by its process group; slurmctld and slurmd may need KILL after a while."""
    pid = pid_of(layout, daemon)
    if pid is not None:
        _signal(pid, signal.SIGKILL if kill9 else signal.SIGTERM)
        deadline = time.monotonic() + (15 if daemon == "mariadb" else 4)
        while _alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        if _alive(pid):
            _signal(pid, signal.SIGKILL)
            while _alive(pid):
                time.sleep(0.05)
    layout.pid_file(daemon).unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    """Whether the process exists and is no zombie (as a child of ours it stays one until it is waited for)."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _signal(pid: int, number: int) -> None:
    """Signal the group of a session leader, or the process alone."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def left_behind(layout: Layout) -> list[int]:
    """slurmstepd and job processes of this cluster: those whose environment or command line names its folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and int(entry.name) != os.getppid():
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            marks = (b"SLURM_CONF=" + os.fsencode(str(layout.conf)), os.fsencode(f"{layout.root}/spool/"))
            job = b"SLURM_JOB_ID=" in environment and marks[0] in environment
            if job or (command.startswith(b"slurmstepd") and marks[0] in environment) or marks[1] in command:
                found.append(int(entry.name))
    return found


def end_left_behind(layout: Layout) -> None:
    """End what the cluster's jobs left."""
    for pid in left_behind(layout):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
