"""Debian's packages: installed when something is missing, without starting what they bring."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError
from devcluster_lib.locks import MACHINE, locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLURM = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
)
PACKAGES = (*SLURM, "munge", "mariadb-server", "adduser", "passwd", "procps", "util-linux")
POLICY = Path("/usr/sbin/policy-rc.d")
INSTALL_SECONDS = 1800


def require_root() -> None:
    """Refuse early what cannot work."""
    if os.geteuid() != 0:
        raise DevclusterError("devcluster needs root: its daemons run jobs as other users", 2)


def install() -> None:
    """Install what is missing; apt is not even asked when everything is there."""
    missing_programs = [program for program in ("apt-get", "dpkg-query") if shutil.which(program) is None]
    if missing_programs:
        raise DevclusterError(f"devcluster needs Debian's packages, and there is no {missing_programs[0]} here", 2)
    ensure(PACKAGES)


def ensure(names: Sequence[str]) -> None:
    """Install those of the packages that are missing, without starting a service."""
    if not _missing(names):
        return
    # Held over the whole installation: of two at a time, the second would put back the first one's policy-rc.d.
    with locked(MACHINE, INSTALL_SECONDS), _no_services():
        missing = _missing(names)
        if missing:
            _apt("update", "-qq")
            _apt("install", "-y", "-qq", "--no-install-recommends", *missing)


def _missing(names: Sequence[str]) -> list[str]:
    """Packages that are not installed; Slurm's are not asked for where slurmctld came without packages."""
    argv = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names]
    out = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    installed = {line.split()[0] for line in out.splitlines() if line.endswith(" installed")}
    foreign = "slurmctld" not in installed and shutil.which("slurmctld") is not None
    return [p for p in names if p not in installed and not (foreign and p in SLURM)]


@contextmanager
def _no_services() -> Iterator[None]:
    """While this lasts, packages start no service: theirs would be on the standard ports, with other files."""
    before = (POLICY.read_bytes(), POLICY.stat().st_mode & 0o7777) if POLICY.exists() else None
    try:
        POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        POLICY.chmod(0o755)
        yield
    finally:
        if before is None:
            POLICY.unlink(missing_ok=True)
        else:
            POLICY.write_bytes(before[0])
            POLICY.chmod(before[1])


def _apt(*arguments: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200, check=False
        )
    except subprocess.TimeoutExpired:
        raise DevclusterError(f"apt-get {arguments[0]} was not over after 20 minutes; run it by hand") from None
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise DevclusterError(f"apt-get {arguments[0]} failed ({' '.join(tail)}); run it by hand, then again this")


def release() -> tuple[int, int]:
    """Slurm's release, as (22, 5)."""
    out = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", out)
    if found is None:
        raise DevclusterError(f"slurmctld -V says {out.strip()!r}, which is no release; is Slurm installed whole?")
    return int(found.group(1)), int(found.group(2))
