"""The decision table as it lies on the disk: whole, and nobody's but ours.

The submit plugin reads it inside slurmctld, where Lua can neither see whose a file is nor tell anybody but the log.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pyslurm_budget.domain.table import parse

if TYPE_CHECKING:
    from pathlib import Path

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def fault_of(path: Path, beside: Path) -> str | None:
    """What is wrong with the published table, as a sentence with what to do; ``None`` if nothing is.

    ``beside`` is the public state, which is written by whoever writes the table.
    """
    try:
        with path.open("rb") as file:
            status, content = os.fstat(file.fileno()), file.read()
        folder = path.parent.stat()
        writers = {0, beside.stat().st_uid if beside.exists() else status.st_uid}
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}): new jobs get no class; does the controller run?"
    if status.st_uid not in writers:
        return (
            f"{path} belongs to user {status.st_uid}, {beside.name} to {max(writers)}: look into it, then remove the "
            "table; the next cycle writes it again"
        )
    for name, mode in ((path, status.st_mode & OTHERS_MAY_WRITE), (path.parent, _open_folder(folder.st_mode))):
        if mode:
            return f"others than its owner may write {name}: chmod go-w {name}"
    return _unreadable(path, content)


def _open_folder(mode: int) -> int:
    """In a folder with the sticky bit (such as /tmp) nobody replaces files of others."""
    return 0 if mode & stat.S_ISVTX else mode & stat.S_IWOTH


def _unreadable(path: Path, content: bytes) -> str | None:
    try:
        parse(content.decode())
    except ValueError as error:
        why = "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return f"{path} cannot be used, the plugin falls back: {why.rstrip('.')}; the next cycle writes it again"
    return None
