"""The commands: up, down, status, env, and single daemons."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from devcluster_lib import accounting, daemons, files, packages
from devcluster_lib.layout import DevclusterError, Layout, stored

if TYPE_CHECKING:
    from pathlib import Path

    from devcluster_lib.layout import Options

NOT_ALL_UP = 3


def opened(root: Path) -> Layout:
    """The cluster in this folder; DevclusterError if there is none."""
    options = stored(root)
    if options is None:
        raise DevclusterError(f"{root} has no cluster; start one with: devcluster up --dir {root}", 2)
    return Layout(root, options)


def up(root: Path, options: Options) -> None:
    """Start everything that does not run; returns when a test job has run."""
    packages.require_root()
    packages.install()
    before = stored(root)
    if before is not None and before != options:
        raise DevclusterError(f"{root} holds a cluster with other options; take it down first", 2)
    layout = Layout(root, options)
    fresh = before is None
    if not fresh and all(daemons.pid_of(layout, d) is not None for d in layout.daemons()):
        return
    try:
        _start(layout, fresh=fresh)
    except BaseException:
        for daemon in reversed(layout.daemons()):
            daemons.stop(layout, daemon)
        daemons.end_left_behind(layout)
        if fresh:
            accounting.remove_users(layout)
            shutil.rmtree(root / "spool", ignore_errors=True)
            (root / "options.json").unlink(missing_ok=True)
        raise


def _start(layout: Layout, *, fresh: bool) -> None:
    files.write(layout, packages.release())
    daemons.prepare_database(layout)
    for daemon in ("munged", "mariadb"):
        daemons.start(layout, daemon)
    daemons.create_database(layout)
    daemons.start(layout, "slurmdbd")
    accounting.register(layout)
    daemons.start(layout, "slurmctld")
    for node in layout.nodes():
        daemons.start(layout, node)
    accounting.populate(layout)
    ready(layout)
    if fresh:
        test_job(layout)


def ready(layout: Layout) -> None:
    """Wait until every node takes work."""
    count = len(layout.nodes())

    def idle() -> bool:
        out = daemons.run(layout, ["sinfo", "-h", "-N", "-o", "%T"], 5).stdout.split()
        return len([s for s in out if s in ("idle", "mixed", "allocated")]) >= count

    daemons.wait_for("all nodes up", idle, 60, layout.log("slurmctld"))


def test_job(layout: Layout) -> None:
    """A GPU job through sbatch as the first user: it must run, and accounting must show it."""
    user, accounts = next(iter(layout.options.users.items()))
    argv = ["runuser", "-u", user, "--", "sbatch", "-A", accounts[0], "--gres=gpu:1", "-o", "/dev/null", "-t", "1"]
    submit = [*argv, "--parsable", "--wrap=true"]
    said = ""

    def submitted() -> bool:
        nonlocal said
        done = daemons.run(layout, submit, 15)
        said = done.stdout.strip() if done.returncode == 0 else ""
        return bool(said)

    daemons.wait_for(f"a test job of {user}", submitted, 30, layout.log("slurmctld"))

    def completed() -> bool:
        return "COMPLETED" in daemons.run(layout, ["sacct", "-n", "-P", "-X", "-j", said, "-o", "State"], 10).stdout

    daemons.wait_for(f"the end of test job {said}", completed, 60, layout.log("slurmctld"))


def down(root: Path, *, keep: bool = False) -> None:
    """End every process of the cluster, and remove what was made."""
    options = stored(root)
    if options is None:
        return
    packages.require_root()
    layout = Layout(root, options)
    for daemon in reversed(layout.daemons()):
        daemons.stop(layout, daemon)
    daemons.end_left_behind(layout)
    if not keep:
        accounting.remove_users(layout)
        for _ in range(20):
            shutil.rmtree(root, ignore_errors=True)
            if not root.exists():
                return
            time.sleep(0.1)
        raise DevclusterError(f"{root} could not be removed; remove it by hand")


def single(layout: Layout, command: str, daemon: str, *, kill9: bool = False) -> None:
    """start, stop or restart one daemon."""
    packages.require_root()
    if daemon not in layout.daemons():
        raise DevclusterError(f"{daemon} is no daemon of this cluster; it has {', '.join(layout.daemons())}", 2)
    if command in ("stop", "restart"):
        daemons.stop(layout, daemon, kill9=kill9)
    if command in ("start", "restart"):
        daemons.start(layout, daemon)


def status(layout: Layout) -> tuple[dict[str, int | None], str]:
    """Process id of each daemon (``None``: down), and sinfo's summary."""
    pids = {daemon: daemons.pid_of(layout, daemon) for daemon in layout.daemons()}
    nodes = daemons.run(layout, ["sinfo", "-h", "-o", "%P %D %T %G"], 5).stdout if pids["slurmctld"] else ""
    return pids, nodes
