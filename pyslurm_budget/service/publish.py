"""Puts the decision table and the public state where others read them: whole, or not at all.

Each file is written beside its place, synced, and renamed over it: a reader sees the old one or the new one, also
after a crash. A failed write leaves no file behind.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pyslurm_budget.errors import PublishError

READABLE = 0o644


class FilePublisher:
    """Publishes to two files; implements :class:`pyslurm_budget.service.ports.Publisher`."""

    def __init__(self, table_path: str | Path, state_path: str | Path) -> None:
        """Both folders must exist and be writable; they are not created, as a missing mount must not be hidden."""
        self._table = Path(table_path)
        self._state = Path(state_path)

    def publish(self, table: str, state: str) -> None:
        """Replace both files, each atomically, the table first; raises PublishError."""
        replace_file(self._table, table)
        replace_file(self._state, state)


def replace_file(path: Path, text: str) -> None:
    """Put ``text`` (UTF-8) in the place of the file, readable by all. Raises PublishError."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise PublishError(f"{path} cannot be written: it would hold {error.object[error.start]!r}.") from error
    new = path.with_name(f".{path.name}.new")
    if _open_to_all(path.parent):
        raise PublishError(
            f"{path} is not written: everybody may replace files in {path.parent}; chmod o-w {path.parent}"
        )
    try:
        _write(new, content)
        new.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        new.unlink(missing_ok=True)


def _open_to_all(folder: Path) -> bool:
    """Whether anybody may put another file in the place of ours; the plugin cannot see whose a file is."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False  # writing says what is wrong
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _write(path: Path, content: bytes) -> None:
    """Write and sync. The name is always the same: what a killed writer left is overwritten, not piled up."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, READABLE)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), READABLE)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a crash."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failure(path: Path, error: OSError) -> PublishError:
    why = error.strerror or type(error).__name__
    return PublishError(f"{path} cannot be written ({why}); the one before stays in force until it is stale.")
