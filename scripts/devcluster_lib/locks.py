"""Locks between devcluster commands. A folder itself is locked, so that nothing is left behind."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What all clusters of a machine share is under /etc: users, packages.
MACHINE = Path("/etc")


@contextmanager
def locked(folder: Path, seconds: float, *, create: bool = False) -> Iterator[None]:
    """Hold the lock of a folder; DevclusterError if another command has it for longer than ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        if create:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # `down` removes the folder with the lock held: whoever waited for that one has to look again.
            if os.path.samestat(os.fstat(handle), folder.stat()):
                break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                raise DevclusterError(f"another devcluster command is at work on {folder}; try again later") from None
        except FileNotFoundError:
            if not create:
                os.close(handle)
                raise
        os.close(handle)
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(handle)
