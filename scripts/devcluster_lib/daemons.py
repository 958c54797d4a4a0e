"""Starting and ending the daemons: exactly those that belong to this cluster, by remembered processes."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError
from devcluster_lib.processes import end, environment, everything, is_ours, last_words, run, stat_of, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devcluster_lib.layout import Layout

START_SECONDS = 60


def pid_of(layout: Layout, daemon: str) -> int | None:
    """Process id of a daemon if it is alive and ours, else ``None``."""
    started = _remembered(layout, daemon)
    return None if started is None else started[0]


def _remembered(layout: Layout, daemon: str) -> tuple[int, int] | None:
    """Process id and start time: the id alone may be another process's by now."""
    try:
        pid, *start = map(int, layout.pid_file(daemon).read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return None
    stat = stat_of(pid)
    if stat is None or start not in ([], [stat.start]) or not is_ours(pid, layout.root, layout.conf):
        return None
    return pid, stat.start


def _argv(layout: Layout, daemon: str) -> list[str]:
    root = layout.root
    if daemon == "munged":
        folder = root / "munge"
        return [
            "munged", "-F", f"--key-file={folder}/key", f"--socket={layout.socket}",
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
        return ["slurmctld", "-D", "-f", str(layout.conf)]
    return ["slurmd", "-D", "-f", str(layout.conf), "-N", daemon]


def start(layout: Layout, names: Sequence[str]) -> None:
    """Start daemons together, each in a session of its own, and wait until all serve; those that run are left."""
    begun = []
    for daemon in names:
        if pid_of(layout, daemon) is None:
            _released(layout, daemon)
            begun.append((daemon, _begin(layout, daemon)))
    for daemon, process in begun:
        logs = (layout.log(daemon), layout.output(daemon))

        def serves(daemon: str = daemon, process: subprocess.Popen[bytes] = process) -> bool:
            status = process.poll()
            if status is not None:
                words = last_words((layout.log(daemon), layout.output(daemon)))
                raise DevclusterError(f"{daemon} ended at once with status {status}; {words}")
            return _serves(layout, daemon)

        wait_for(f"{daemon} is ready to serve", serves, START_SECONDS, logs)


def _begin(layout: Layout, daemon: str) -> subprocess.Popen[bytes]:
    # munged refuses to run as another user than the owner of its key; by `runuser` it would not be our child.
    user = "munge" if daemon == "munged" else None
    with layout.output(daemon).open("ab") as output:
        process = subprocess.Popen(
            _argv(layout, daemon), env=environment(layout), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            cwd="/", umask=0o022, start_new_session=True, user=user, group=user, extra_groups=[] if user else None,
        )  # fmt: skip
    stat = stat_of(process.pid)
    if stat is not None:
        layout.pid_file(daemon).write_text(f"{process.pid} {stat.start}\n", encoding="utf-8")
    return process


def _serves(layout: Layout, daemon: str) -> bool:
    port = layout.port(daemon)
    family, address = (socket.AF_UNIX, str(layout.socket)) if port is None else (socket.AF_INET, ("127.0.0.1", port))
    with socket.socket(family) as probe:
        probe.settimeout(1)
        return probe.connect_ex(address) == 0


def _free(port: int) -> bool:
    """Whether a daemon could listen on the port: it does not matter who has it, or if that one answers."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def require_ports(layout: Layout, names: Sequence[str]) -> None:
    """Refuse ports that something else has."""
    for daemon in names:
        port = layout.port(daemon)
        if port is not None and not _free(port):
            raise DevclusterError(f"port {port} (for {daemon}) is in use; choose another --base-port", 2)


def _released(layout: Layout, daemon: str) -> None:
    """Wait until a daemon that was killed has let go of its port and socket."""
    port = layout.port(daemon)
    if port is None:
        layout.socket.unlink(missing_ok=True)
        return
    deadline = time.monotonic() + 5
    while not _free(port):
        if time.monotonic() > deadline:
            raise DevclusterError(f"port {port} (for {daemon}) is in use by another program; end that one first", 2)
        time.sleep(0.05)


def stop(layout: Layout, names: Sequence[str], patience: float = 5, *, kill9: bool = False) -> None:
    """End daemons at the same time, with their helpers (slurmctld has one); SIGKILL after ``patience`` seconds."""
    remembered = {daemon: _remembered(layout, daemon) for daemon in names}
    leaders = dict(pair for pair in remembered.values() if pair is not None)
    living = everything() if leaders else {}
    helpers = {
        pid: stat.start
        for pid, stat in living.items()
        if stat.group in leaders and pid not in leaders and is_ours(pid, layout.root, layout.conf)
    }
    end(leaders, patience, signal.SIGKILL if kill9 else signal.SIGTERM)
    # They end by themselves when their daemon has; after its death by SIGKILL that takes a moment.
    end(helpers, 0.5)
    for daemon in names:
        layout.pid_file(daemon).unlink(missing_ok=True)


def prepare_database(layout: Layout) -> None:
    """Make MariaDB's data folder."""
    data = layout.root / "db"
    # Only root may be root in there, by the socket: the port is open to every user of the machine.
    argv = [
        "mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--force", "--skip-name-resolve",
        "--auth-root-authentication-method=socket", "--auth-root-socket-user=root", "--skip-test-db",
    ]  # fmt: skip
    done = run(layout, argv, timeout=180)
    if done.returncode:
        raise DevclusterError(f"mariadb-install-db failed: {(done.stderr or done.stdout).strip()[-300:]}")
    shutil.chown(data, "mysql", "mysql")
    data.chmod(0o700)


def create_database(layout: Layout, password: str) -> None:
    """The database and the user of slurmdbd."""
    sql = "CREATE DATABASE IF NOT EXISTS slurm_acct_db;" + "".join(
        f"CREATE USER IF NOT EXISTS 'slurm'@'{host}' IDENTIFIED BY '{password}';"
        f"GRANT ALL ON slurm_acct_db.* TO 'slurm'@'{host}';"
        for host in ("127.0.0.1", "localhost")
    )
    argv = ["mariadb", "--no-defaults", "-u", "root", f"--socket={layout.root}/db/sock"]
    logs = [layout.output("mariadb")]
    wait_for("MariaDB answers", lambda: run(layout, argv, 20, "SELECT 1").returncode == 0, START_SECONDS, logs)
    done = run(layout, argv, 30, sql)
    if done.returncode:
        raise DevclusterError(f"MariaDB refused to make slurmdbd's database: {done.stderr.strip()}")
