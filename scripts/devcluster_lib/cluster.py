"""The commands: up, down, status, and single daemons."""

from __future__ import annotations

import contextlib
import shutil
import stat
from typing import TYPE_CHECKING

from devcluster_lib import accounting, check, daemons, files, packages, processes, users
from devcluster_lib.layout import OPTIONS_FILE, READY_FILE, DevclusterError, Layout, Options, stored
from devcluster_lib.locks import locked

if TYPE_CHECKING:
    from pathlib import Path

NOT_ALL_UP = 3
LOCK_SECONDS = 300
# A cluster that did not come up leaves this, for whoever wants to know why.
REMAINS = {"log"}


def opened(root: Path, status: int = 2) -> Layout:
    """The cluster in this folder; DevclusterError with ``status`` if there is none."""
    options = stored(root)
    if options is None:
        raise DevclusterError(f"{root} has no cluster; start one with: devcluster up --dir {root}", status)
    return Layout(root, options)


def up(root: Path, options: Options) -> None:
    """Start everything that does not run; returns when a test job has run."""
    packages.require_root()
    packages.install()
    layout = Layout(root, options)
    existed = root.exists()
    with locked(root, LOCK_SECONDS, create=True):
        try:
            complete = _recognised(layout)
            if not complete:
                # What an `up` left that was killed.
                _end_everything(layout, keep=False)
            missing = [daemon for daemon in layout.daemons() if daemons.pid_of(layout, daemon) is None]
            daemons.require_ports(layout, missing)
            _enterable(root)
        except DevclusterError:
            if not existed:
                root.rmdir()
            raise
        if complete:
            _repair(layout, missing)
        else:
            _create(layout)


def _recognised(layout: Layout) -> bool:
    """Whether a complete cluster is in the folder; DevclusterError if it is not ours to use."""
    root = layout.root
    before = stored(root)
    if before is None:
        foreign = sorted(entry.name for entry in root.iterdir() if entry.name not in REMAINS)
        if foreign:
            raise DevclusterError(f"{root} is no cluster's folder, it has {foreign[0]}; choose another --dir", 2)
        return False
    if before != layout.options:
        differing = ", ".join(before.differing(layout.options))
        raise DevclusterError(f"{root} holds a cluster with other options ({differing}); take it down first", 2)
    return (root / READY_FILE).exists()


def _enterable(root: Path) -> None:
    """Users read slurm.conf: every folder above must let them through."""
    for folder in root.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise DevclusterError(f"{folder} is closed to other users, who need {root}; choose another --dir", 2)


def _create(layout: Layout) -> None:
    root, options = layout.root, layout.options
    try:
        shutil.rmtree(root / "log", ignore_errors=True)
        (root / OPTIONS_FILE).write_text(options.text(), encoding="utf-8")
        password = files.write(layout, packages.release())
        operator = [options.operator] if options.operator else []
        users.ensure(root, [*options.users, *operator])
        daemons.prepare_database(layout)
        daemons.start(layout, ["munged", "mariadb"])
        daemons.create_database(layout, password)
        daemons.start(layout, ["slurmdbd"])
        accounting.register(layout)
        daemons.start(layout, ["slurmctld", *layout.nodes()])
        accounting.populate(layout)
        check.idle(layout, check.NODE_SECONDS)
        check.test_job(layout)
        # The first thing that a test sees should not be the test job's epilog.
        check.idle(layout, check.NODE_SECONDS + options.epilog_seconds)
        (root / READY_FILE).touch()
    except BaseException:
        _end_everything(layout, keep=False)
        raise


def _repair(layout: Layout, missing: list[str]) -> None:
    """Start what does not run. Files and accounts stay as they are: since `up` others may have changed them."""
    if not missing:
        return
    try:
        daemons.start(layout, [daemon for daemon in ("munged", "mariadb") if daemon in missing])
        daemons.start(layout, [daemon for daemon in missing if daemon == "slurmdbd"])
        accounting.register(layout)
        daemons.start(layout, missing)
        check.answer(layout, layout.nodes())
        if check.quiet(layout):
            check.test_job(layout)
    except BaseException:
        daemons.stop(layout, list(reversed(missing)))
        raise


def down(root: Path, *, keep: bool = False) -> None:
    """End every process of the cluster, and remove what was made."""
    packages.require_root()
    options = stored(root)
    layout = Layout(root, options or Options())
    if options is None:
        # Without its folder a cluster can be left as well.
        processes.end_left_behind(root, layout.conf)
        users.leave(root)
        if root.is_dir() and {entry.name for entry in root.iterdir()} == REMAINS:
            shutil.rmtree(root, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError), locked(root, LOCK_SECONDS):
        _end_everything(layout, keep=keep)
        if not keep:
            shutil.rmtree(root)


def _end_everything(layout: Layout, *, keep: bool) -> None:
    """End all processes; without ``keep`` remove everything but the log files."""
    daemons.stop(layout, ["slurmctld", *layout.nodes()], 5 if keep else 2)
    daemons.stop(layout, ["slurmdbd"], 5 if keep else 2)
    # A database that will be removed needs no time to put itself in order.
    daemons.stop(layout, ["mariadb", "munged"], 30, kill9=not keep)
    processes.end_left_behind(layout.root, layout.conf)
    if keep:
        return
    users.leave(layout.root)
    for entry in layout.root.iterdir():
        # The options last: they tell that this is a cluster's folder.
        if entry.name not in REMAINS | {OPTIONS_FILE}:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    (layout.root / OPTIONS_FILE).unlink(missing_ok=True)


def single(layout: Layout, command: str, daemon: str, *, kill9: bool = False) -> None:
    """start, stop or restart one daemon."""
    packages.require_root()
    if daemon not in layout.daemons():
        raise DevclusterError(f"{daemon} is no daemon of this cluster; it has {', '.join(layout.daemons())}", 2)
    with locked(layout.root, LOCK_SECONDS):
        if command in ("stop", "restart"):
            daemons.stop(layout, [daemon], 30 if daemon == "mariadb" else 5, kill9=kill9)
        if command in ("start", "restart"):
            daemons.start(layout, [daemon])
            nodes = _expected(layout, daemon)
            if nodes:
                check.answer(layout, nodes)


def _expected(layout: Layout, started: str) -> list[str]:
    """The nodes that slurmctld will hear of after the start of a daemon, where others may be down on purpose."""
    candidates = layout.nodes() if started == "slurmctld" else [started] if started in layout.nodes() else []
    if any(daemons.pid_of(layout, needed) is None for needed in ("munged", "slurmctld")):
        return []
    return [node for node in candidates if daemons.pid_of(layout, node) is not None]


def status(layout: Layout) -> tuple[dict[str, int | None], str]:
    """Process id of each daemon (``None``: down), and sinfo's summary."""
    packages.require_root()
    pids = {daemon: daemons.pid_of(layout, daemon) for daemon in layout.daemons()}
    ask = ["sinfo", "-h", "-o", "%P %D %T %G"]
    nodes = processes.run(layout, ask, 5).stdout if pids["slurmctld"] and pids["munged"] else ""
    return pids, nodes
