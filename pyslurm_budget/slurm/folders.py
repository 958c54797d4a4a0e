"""The folders on this host that the budgets need, and who can read them."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmSetupError
from pyslurm_budget.service.setup_point import Point, Verdict
from pyslurm_budget.slurm.install import unwritable

if TYPE_CHECKING:
    from pathlib import Path


def table_point(table: Path, user: str, uid: int) -> Point:
    """The check's point about the folder of the table, which slurmctld reads as SlurmUser."""
    folder = table.parent
    if not folder.is_dir():
        return Point("table", Verdict.MUST, f"{folder} is missing", "sbudget setup apply", blocks=False)
    groups = groups_of(user, uid)
    closed = [path for path in (*reversed(folder.parents), folder) if not _may(path, uid, groups, os.X_OK)]
    if table.exists() and not _may(table, uid, groups, os.R_OK):
        closed.append(table)
    if closed:
        mode = "a+r" if closed[0] == table else "a+x"
        says = f"{closed[0]} is closed to {user}, as whom slurmctld reads {table}"
        return Point("table", Verdict.MUST, says, f"chmod {mode} {closed[0]}", blocks=False)
    return Point("table", Verdict.OK, f"{user} can read {table}")


def groups_of(user: str, uid: int) -> frozenset[int]:
    """The groups of a user on this host; none for one that it does not know."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    return frozenset(os.getgrouplist(found.pw_name or user, found.pw_gid))


def _may(path: Path, uid: int, groups: frozenset[int], right: int) -> bool:
    """Whether a user has a right (``os.R_OK``, ``os.X_OK``) by the file's mode; raises SlurmSetupError."""
    if uid == 0:
        return True
    try:
        status = path.stat()
    except OSError as error:
        raise SlurmSetupError(f"{path} cannot be looked at: {error.strerror}; run setup as root") from error
    shift = 6 if status.st_uid == uid else 3 if status.st_gid in groups else 0
    return bool(status.st_mode >> shift & right)


def missing_folders(*wanted: Path) -> list[Path]:
    """The folders that are not there: the first path itself, of the others the folder that they are in."""
    folders = dict.fromkeys([wanted[0], *(path.parent for path in wanted[1:])])
    return [folder for folder in folders if not folder.is_dir()]


def make_folders(*wanted: Path) -> int:
    """Make them, open to all (whatever the umask), owned as the folder that they are in; returns how many."""
    made = missing_folders(*wanted)
    for folder in made:
        for path in [*reversed([p for p in folder.parents if not p.exists()]), folder]:
            try:
                path.mkdir(exist_ok=True)
                path.chmod(0o755)
                above = path.parent.stat()
                if os.geteuid() == 0:
                    os.chown(path, above.st_uid, above.st_gid)
            except OSError as error:
                raise unwritable(path, error) from error
    return len(made)
