"""A network of their own for the clusters of these tests: nobody else's ports, and a loopback that is quick.

slurmdbd of 22.05 and its clients write each message in two parts, and the kernel delays the answer to the first by
40 ms, eight times for one sacctmgr. The route's ``quickack`` ends that; on the machine's own loopback that would be
a change for everybody, in a namespace it is ours alone, and gone with its last process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
LOOPBACK = (
    "link set lo up",
    # Slurm asks for addresses of families that the machine has, and the loopback's own do not count.
    "addr add 192.0.2.1/32 dev lo",
    "route change local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1 quickack 1",
    "route change local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 quickack 1",
)


@contextmanager
def private_network() -> Iterator[bool]:
    """What is started inside is in a network of its own; where that cannot be (no root, a container) it is in the
    machine's, which is slower and no less right. Tells which."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        made = libc.unshare(CLONE_NEWNET) == 0
        if made and not _set_up():
            _back(libc, before)
            made = False
        try:
            yield made
        finally:
            if made:
                _back(libc, before)
    finally:
        os.close(before)


def _set_up() -> bool:
    try:
        return all(
            subprocess.run(["ip", *line.split()], capture_output=True, timeout=10, check=False).returncode == 0
            for line in LOOPBACK
        )
    except OSError:
        return False


def _back(libc: ctypes.CDLL, before: int) -> None:
    if libc.setns(before, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the tests cannot go back to the machine's network")
