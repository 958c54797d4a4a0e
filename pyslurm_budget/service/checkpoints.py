"""Checkpoints that jobs report (``sbudget checkpoint``): the moment up to which a run's work is safe.

A report is an empty file of the job's user in a folder that all nodes see: no database, no load on slurmctld. Its
time of change is the report, its owner says whose it is. A false report gains nothing: what a run loses is counted
since its last full contract at most.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyslurm_budget.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Job


class Checkpoints(Protocol):
    """What jobs reported."""

    def reported(self, jobs: Iterable[Job]) -> Mapping[int, int]:
        """The time of the last report by raw job id; jobs without one are left out."""


class NoCheckpoints:
    """Where nothing is reported."""

    def reported(self, jobs: Iterable[Job]) -> Mapping[int, int]:
        """Nothing."""
        del jobs
        return {}


@dataclass(frozen=True)
class FolderCheckpoints:
    """Reports as files of one folder, which everybody may write to, and only owners delete in (as in ``/tmp``)."""

    folder: Path

    def report(self, job_id: int) -> None:
        """Report a checkpoint of a job now; raises CheckpointError."""
        file = self.folder / str(job_id)
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                os.utime(handle)
            finally:
                os.close(handle)
        except OSError as failure:
            raise CheckpointError(f"{file}: the checkpoint cannot be reported ({failure.strerror})") from failure

    def reported(self, jobs: Iterable[Job]) -> dict[int, int]:
        """See :class:`Checkpoints`. A file that is not of the job's user, or no plain file, says nothing; nor does a
        folder that cannot be read: then the contracts alone count."""
        users = {job.key.job_id: job.user for job in jobs}
        found: dict[int, int] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    user = users.get(int(entry.name)) if entry.name.isascii() and entry.name.isdigit() else None
                    if user is not None and (when := _time_of(entry, user)) is not None:
                        found[int(entry.name)] = when
        except OSError:
            return {}
        return found


def _time_of(entry: os.DirEntry[str], user: str) -> int | None:
    try:
        about = entry.stat(follow_symlinks=False)
        owner = pwd.getpwnam(user).pw_uid
    except (OSError, KeyError):
        return None
    return int(about.st_mtime) if stat.S_ISREG(about.st_mode) and about.st_uid == owner else None
