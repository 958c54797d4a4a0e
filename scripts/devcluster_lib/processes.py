"""Whose process is it? What /proc says about processes, and ending those that are this cluster's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from devcluster_lib.layout import DevclusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devcluster_lib.layout import Layout

PROC = Path("/proc")


class Stat(NamedTuple):
    """A process as /proc/PID/stat shows it; ``start`` in clock ticks since boot."""

    parent: int
    group: int
    start: int


def stat_of(pid: int) -> Stat | None:
    """A living process, ``None`` for one that is gone or waits as a zombie for its parent."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child of this command stays a zombie until it is waited for
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before it may contain blanks and parentheses.
    words = text.rpartition(")")[2].split()
    return None if words[0] in "ZX" else Stat(int(words[1]), int(words[2]), int(words[19]))


def everything() -> dict[int, Stat]:
    """All living processes."""
    found = {int(entry.name): stat_of(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit()}
    return {pid: stat for pid, stat in found.items() if stat is not None}


def is_ours(pid: int, root: Path, conf: Path) -> bool:
    """Whether a process is a daemon or a job of the cluster in ``root``.

    A shell or a test with SLURM_CONF in its environment is not: only Slurm's own daemons and what runs in a job.
    """
    entry = PROC / str(pid)
    try:
        # In a chroot the same path is another cluster's.
        if not os.path.samestat((entry / "root").stat(), Path("/").stat()):
            return False
        words = (entry / "cmdline").read_bytes().split(b"\0")
        environment = (entry / "environ").read_bytes().split(b"\0")
        program = (entry / "exe").readlink().name
    except OSError:
        return False
    if any(os.fsencode(mark) in words for mark in (f"--datadir={root}/db", f"--key-file={root}/munge/key")):
        return True
    if b"SLURM_CONF=" + os.fsencode(conf) in environment:
        return program.startswith("slurm") or any(pair.startswith(b"SLURM_JOB_ID=") for pair in environment)
    # A slurmstepd of newer releases writes its title over its environment; it has its slurmd's log file open.
    return program.startswith("slurmstepd") and _has_open(entry, root)


def _has_open(entry: Path, root: Path) -> bool:
    with contextlib.suppress(OSError):
        for descriptor in (entry / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()).startswith(f"{root}/"):
                    return True
    return False


def left_behind(root: Path, conf: Path) -> list[int]:
    """Every process of the cluster, with what it started; never this command or one that waits for it."""
    living = everything()
    spared = set()
    pid = os.getpid()
    while pid in living and pid not in spared:
        spared.add(pid)
        pid = living[pid].parent
    found = {pid for pid in living if pid not in spared and is_ours(pid, root, conf)}
    grown = True
    while grown:
        more = {p for p, stat in living.items() if stat.parent in found and p not in spared} - found
        found |= more
        grown = bool(more)
    return sorted(found)


def end(starts: dict[int, int], patience: float, first: int = signal.SIGTERM) -> None:
    """End processes, given with their start times, and the groups that they lead: SIGKILL after ``patience``."""
    for number, seconds in ((first, patience), (signal.SIGKILL, 10.0)):
        living = _same(starts)
        for pid in living:
            _signal(pid, number)
        deadline = time.monotonic() + seconds
        while living and time.monotonic() < deadline:
            time.sleep(0.02)
            living = _same(starts)
        if not living:
            return
    raise DevclusterError(f"process {min(living)} does not end, not even by SIGKILL; see /proc/{min(living)}/stack")


def _same(starts: dict[int, int]) -> list[int]:
    """Those that still live, and are no newer process with the same id."""
    found = {pid: stat_of(pid) for pid in starts}
    return [pid for pid, stat in found.items() if stat is not None and stat.start == starts[pid]]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def end_left_behind(root: Path, conf: Path) -> None:
    """Kill whatever the cluster's daemons and jobs left; again, because a job may be starting another process."""
    for _ in range(5):
        pids = left_behind(root, conf)
        if not pids:
            return
        stats = {pid: stat_of(pid) for pid in pids}
        end({pid: stat.start for pid, stat in stats.items() if stat is not None}, 10, signal.SIGKILL)


def environment(layout: Layout) -> dict[str, str]:
    """The caller's environment without what would lead to another cluster."""
    foreign = ("SLURM", "SBATCH_", "SACCT", "SINFO_", "SQUEUE_", "SCONTROL_", "SALLOC_", "SRUN_", "MUNGE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return env | layout.environment() | {"LC_ALL": "C"}


def run(
    layout: Layout, argv: list[str], timeout: float = 20, stdin: str = "", user: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the cluster. Every call has an end: Slurm's commands block for minutes on a dead daemon."""
    as_user = ["runuser", "-u", user, "--"] if user else []
    try:
        return subprocess.run(
            [*as_user, *argv], env=environment(layout), input=stdin, capture_output=True, text=True,
            errors="replace", timeout=timeout, check=False, cwd="/",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"no answer within {timeout:.0f} s")


def wait_for(what: str, condition: Callable[[], bool], seconds: float, logs: Iterable[Path] = ()) -> None:
    """Wait with a deadline; the failure says what the logs end with."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DevclusterError(f"{what}: not within {seconds:.0f} s; {last_words(logs)}")
        time.sleep(0.05)


def last_words(logs: Iterable[Path]) -> str:
    """The ends of the logs, for a message."""
    said = []
    for log in logs:
        try:
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            continue
        tail = [line.strip() for line in lines if line.strip()][-3:]
        if tail:
            said.append(f"{log} ends with: {' | '.join(tail)}")
    return "; ".join(said) or "no log says why"
