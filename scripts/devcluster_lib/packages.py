"""Debian's packages: installed when something is missing, without starting what they bring."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from devcluster_lib.layout import DevclusterError

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "munge",
    "mariadb-server",
    "passwd",
    "util-linux",
)
COMMANDS = ("slurmctld", "slurmd", "slurmdbd", "sacctmgr", "munged", "mariadbd", "useradd", "runuser")
POLICY = Path("/usr/sbin/policy-rc.d")


def require_root() -> None:
    """Refuse early what cannot work."""
    if os.geteuid() != 0:
        raise DevclusterError("devcluster needs root: the daemons run jobs as other users", 2)


def install(extra: tuple[str, ...] = ()) -> None:
    """Install what is missing; nothing is touched when all commands are there."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [c for c in COMMANDS if shutil.which(c) is None]
    if not missing and not extra:
        return
    if shutil.which("apt-get") is None:
        raise DevclusterError(f"missing commands: {', '.join(missing)}; install Slurm, MariaDB and munge", 2)
    previous = POLICY.read_bytes() if POLICY.exists() else None
    try:
        # Without it the packages would start services of their own on the standard ports.
        POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        POLICY.chmod(0o755)
        _apt("update", "-qq")
        _apt("install", "-y", "-qq", "--no-install-recommends", *PACKAGES, *extra)
    finally:
        if previous is None:
            POLICY.unlink(missing_ok=True)
        else:
            POLICY.write_bytes(previous)


def _apt(*arguments: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise DevclusterError(f"apt-get {arguments[0]} failed: {' '.join(tail)}")


def release() -> tuple[int, int]:
    """Slurm's release, as (22, 5)."""
    out = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, timeout=30, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", out)
    if found is None:
        raise DevclusterError(f"slurmctld -V says {out.strip()!r}: not a release")
    return int(found.group(1)), int(found.group(2))
