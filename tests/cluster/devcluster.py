"""A real Slurm for a test: ``start`` one with scripts/devcluster, run commands in it, take it ``down`` again.

    with closing_cluster(Path("/var/tmp/dc-x"), 25000, nodes=2) as cluster:
        cluster.run(["sinfo"])

Skipped where it cannot be (no root, no apt-get); in CI, where it must be, that is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "devcluster"
BIN = Path(sys.executable).parent
# Another base lets two runs of the tests go on side by side on one machine; each process of a run has its own ports.
PORT = int(os.environ.get("SBUDGET_TEST_PORT", "21500")) + 500 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


@dataclass(frozen=True)
class Ran:
    """What a command said."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class DevCluster:
    """A cluster that runs. ``env`` is what Slurm's commands need beside the caller's environment."""

    folder: Path
    env: Mapping[str, str]

    @property
    def conf(self) -> Path:
        """slurm.conf."""
        return Path(self.env["SLURM_CONF"])

    def run(
        self,
        argv: Sequence[str],
        user: str | None = None,
        check: bool = True,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a command in the cluster, as a UNIX user if one is named; with ``check`` its failure fails the test."""
        as_user = ["runuser", "-u", user, "--"] if user else []
        given = dict(os.environ) | dict(self.env) | {"PATH": f"{BIN}:{os.environ['PATH']}"} | dict(env or {})
        done = subprocess.run(
            [*as_user, *argv], env=given, cwd="/", capture_output=True, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert not check or ran.status == 0, f"{' '.join(argv)}: {ran}"
        return ran

    def daemon(self, command: str, name: str) -> None:
        """``start``, ``stop`` or ``restart`` one daemon (slurmctld, slurmdbd, mariadb, munged, n1 ...)."""
        _script(command, self.folder, name)

    def wait(self, what: str, holds: Callable[[], bool], seconds: float = 90) -> None:
        """Wait until something holds; fails the test if it does not in time."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"{what}: not within {seconds} s"
            time.sleep(0.2)

    def submit(self, user: str, *options: str, seconds: int = 600) -> str:
        """Submit a sleeping job; returns its id."""
        argv = ["sbatch", "--parsable", "-o", "/dev/null", "-t", "30", *options, f"--wrap=sleep {seconds}"]
        return self.run(argv, user=user).out.strip()

    def job(self, job: str, name: str) -> str:
        """One field of a job as `scontrol show job` prints it."""
        words = self.run(["scontrol", "show", "job", "-o", job]).out.split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    def down(self) -> None:
        """End every process, and remove what was made."""
        _script("down", self.folder)


def start(folder: Path, base_port: int, **options: str | int | Sequence[str]) -> DevCluster:
    """Start a cluster in the folder, on ports from ``base_port`` on; options are those of ``scripts/devcluster up``
    with ``_`` for ``-``, a list is an option that is given several times. Returns when a test job has run."""
    require()
    words = []
    for name, value in options.items():
        for each in [value] if isinstance(value, str | int) else value:
            words += [f"--{name.replace('_', '-')}", str(each)]
    _script("up", folder, "--base-port", str(base_port), *words, timeout=600)
    return DevCluster(folder, json.loads(_script("env", folder, "--json")))


@contextmanager
def folder(name: str) -> Iterator[Path]:
    """A folder for one cluster that its users can enter (pytest's own they cannot); removed at the end."""
    made = Path(tempfile.mkdtemp(prefix=f"sbudget-{name}-", dir="/var/tmp"))
    try:
        made.chmod(0o755)
        yield made / "cluster"
    finally:
        shutil.rmtree(made)


@contextmanager
def closing_cluster(folder: Path, base_port: int, **options: str | int | Sequence[str]) -> Iterator[DevCluster]:
    """A cluster that is taken down whatever happens."""
    require()
    try:
        yield start(folder, base_port, **options)
    finally:
        _script("down", folder)


def slurm_release() -> tuple[int, int]:
    """Slurm's release on this machine, as (24, 11); after :func:`install`."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, env={"PATH": path}, check=True).stdout
    year, month, *_ = said.split()[-1].split(".")
    return int(year), int(month)


def claim_settings() -> list[str]:
    """What claims need in slurm.conf; nothing where the key would end every command."""
    return ["PreemptParameters=min_exempt_priority=1000000"] if slurm_release() >= (23, 2) else []


def install() -> None:
    """Install what a cluster needs; nothing where none can be."""
    if os.getuid() == 0 and shutil.which("apt-get"):
        argv = [sys.executable, str(SCRIPT), "install"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == 0, done.stderr


def require() -> None:
    """Skip where no cluster can be; fail in CI, where one must be."""
    lacking = "it needs root" if os.getuid() else "" if shutil.which("apt-get") else "it needs Debian's packages"
    if lacking and os.environ.get("CI"):
        pytest.fail(f"no real Slurm: {lacking}")
    if lacking:
        pytest.skip(f"no real Slurm on this machine: {lacking}")


def _script(command: str, folder: Path, *words: str, timeout: float = 120) -> str:
    argv = [sys.executable, str(SCRIPT), command, "--dir", str(folder), *words]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"devcluster {command}: {done.stderr or done.stdout}"
    return done.stdout
