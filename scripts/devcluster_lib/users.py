"""UNIX users. Clusters on one machine share them: whoever is made here has its clusters written in its comment."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError
from devcluster_lib.locks import MACHINE, locked

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "devcluster"
LOCK_SECONDS = 120


def ensure(root: Path, names: Iterable[str]) -> None:
    """Make the users that are missing, and join those that another cluster made."""
    with locked(MACHINE, LOCK_SECONDS):
        for name in names:
            try:
                folders = _folders(pwd.getpwnam(name).pw_gecos)
            except KeyError:
                _call("useradd", "-M", "-d", "/", "-s", "/bin/sh", "-c", f"{MARK} {root}", name)
            else:
                if folders and str(root) not in folders:
                    _call("usermod", "-c", " ".join([MARK, *folders, str(root)]), name)


def leave(root: Path) -> None:
    """Remove the users that were made for this cluster, but those that another one still needs."""
    with locked(MACHINE, LOCK_SECONDS):
        for user in pwd.getpwall():
            folders = _folders(user.pw_gecos)
            if str(root) in folders:
                others = [folder for folder in folders if folder != str(root) and Path(folder).exists()]
                if others:
                    _call("usermod", "-c", " ".join([MARK, *others]), user.pw_name)
                else:
                    # By force: a process of theirs that has ended may still be listed as a zombie.
                    _call("userdel", "--force", user.pw_name)


def _folders(comment: str) -> list[str]:
    """The clusters that use a user; none if it was not made here."""
    mark, *folders = comment.split() or [""]
    return folders if mark == MARK else []


def _call(*argv: str) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60, check=False
    )
    if done.returncode:
        raise DevclusterError(f"{argv[0]} for user {argv[-1]} failed: {done.stderr.strip()}")
