"""Real MariaDB and PostgreSQL servers for tests: on loopback, with their own folders and ports, ended with the tests.

Both are started with settings that a site may well have and that the ledger must not depend on: MariaDB compares
without case, is not strict and has latin1 as its default.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PASSWORD = "not/in:any@message"
POLICY = Path("/usr/sbin/policy-rc.d")
SHIPPED = ("/usr/sbin", "/usr/bin", "/usr/local/sbin")


@dataclass
class Server:
    """A running server. ``admin`` is the URL of an administrator without a database, ``port`` on 127.0.0.1."""

    scheme: str
    user: str
    port: int
    admin: str
    made: int = 0

    def url(self, database: str, password: str = PASSWORD) -> str:
        """URL of a database, as a site would write it."""
        quoted = "".join(f"%{ord(c):02X}" if c in "/:@" else c for c in password)
        return f"{self.scheme}://{self.user}:{quoted}@127.0.0.1:{self.port}/{database}"

    def new(self) -> str:
        """URL of a new, empty database."""
        self.made += 1
        name = f"ledger{self.made}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, statement: str) -> None:
        """Run one statement as administrator."""
        engine = create_engine(self.admin, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()


@contextmanager
def mariadb() -> Iterator[Server]:
    """A MariaDB server."""
    _need({"mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"})
    with _folder("mysql") as folder:
        port, data = _free_port(), folder / "data"
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--force", "--skip-test-db"]
        _call("mysql", [*install, "--auth-root-authentication-method=normal", "--skip-name-resolve"], folder)
        serve = [
            *("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={folder}/sock", f"--port={port}"),
            *("--bind-address=127.0.0.1", f"--pid-file={folder}/pid", "--skip-name-resolve", "--sql-mode="),
            *("--character-set-server=latin1", "--collation-server=latin1_swedish_ci"),
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--performance-schema=OFF"),
        ]
        admin = f"mysql+pymysql://root@127.0.0.1:{port}/mysql"
        server = Server("mysql+pymysql", "sbudget", port, admin)
        with _daemon("mysql", serve, folder, signal.SIGKILL, admin):
            server.run(f"CREATE USER 'sbudget'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'".replace(":", r"\:"))
            server.run("GRANT ALL ON *.* TO 'sbudget'@'127.0.0.1'")
            yield server


@contextmanager
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server."""
    _need({"initdb": "postgresql", "postgres": "postgresql"})
    with _folder("postgres") as folder:
        port, data, secret = _free_port(), folder / "data", folder / "secret"
        secret.write_text(PASSWORD, encoding="ascii")
        secret.chmod(0o644)
        init = ["initdb", "-D", str(data), "-U", "sbudget", "-A", "scram-sha-256", f"--pwfile={secret}"]
        _call("postgres", [*init, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"], folder)
        settings = {"port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(folder)}
        settings |= {"fsync": "off", "shared_buffers": "32MB", "full_page_writes": "off", "max_connections": "200"}
        serve = ["postgres", "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
        server = Server("postgresql+psycopg", "sbudget", port, "")
        server.admin = server.url("postgres")
        with _daemon("postgres", serve, folder, signal.SIGQUIT, server.admin):
            yield server


def _need(commands: dict[str, str]) -> None:
    """Install what is missing. Without root: skip on a person's machine, fail in CI, where nothing may be missing."""
    missing = sorted({package for command, package in commands.items() if _path(command) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        reason = f"not on this machine, and only root on Debian can install: {', '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    previous = POLICY.read_bytes() if POLICY.exists() else None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    try:
        # Without it the packages would start services of their own on the standard ports.
        POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        POLICY.chmod(0o755)
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            subprocess.run([*apt, *arguments], env=environment, capture_output=True, check=True, timeout=1200)
    finally:
        if previous is None:
            POLICY.unlink(missing_ok=True)
        else:
            POLICY.write_bytes(previous)


def _path(command: str) -> str | None:
    """Where a server's command is: Debian keeps PostgreSQL's out of PATH, and /usr/sbin is not in everybody's."""
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    return shutil.which(command, path=os.pathsep.join([*map(str, newest), *SHIPPED, os.environ.get("PATH", "")]))


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    """A folder that belongs to the server's user (servers refuse to run as root)."""
    folder = Path(tempfile.mkdtemp(prefix="sbudget-db-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as(user: str, argv: Sequence[str]) -> list[str]:
    """The command as the user, and ended by the kernel if the tests are killed."""
    drop = [f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups"] if os.geteuid() == 0 else []
    return ["setpriv", "--pdeathsig", "KILL", *drop, _path(argv[0]) or argv[0], *argv[1:]]


def _call(user: str, argv: Sequence[str], folder: Path) -> None:
    done = subprocess.run(_as(user, argv), cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{argv[0]}: {done.stderr.strip()[-500:]}"


@contextmanager
def _daemon(user: str, argv: Sequence[str], folder: Path, end: signal.Signals, admin: str) -> Iterator[None]:
    """Run the server until the block ends; its data are thrown away, so it is ended at once."""
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(_as(user, argv), cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        _wait(lambda: _answers(admin), process, log)
        yield
    finally:
        process.send_signal(end)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    engine = create_engine(url)
    try:
        engine.connect().close()
    except SQLAlchemyError:
        return False
    finally:
        engine.dispose()
    return True
