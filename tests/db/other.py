"""Other processes that use the ledger at the same time: ``python -m tests.db.other URL CLUSTER WHAT [ARGUMENT...]``.

Each says ``ready`` once it has loaded everything, and begins when it is told to, so that they really race.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from pyslurm_budget.errors import LeaseHeldError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.ports import SyncState
from tests.db.made import runs_of_version

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]


def start(url: str, cluster: str, what: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start one; it waits for a line on its input."""
    argv = [sys.executable, "-m", "tests.db.other", url, cluster, what, *arguments]
    return subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def race(url: str, cluster: str, what: str, arguments: Sequence[Sequence[str]]) -> list[list[str]]:
    """Run one process for each list of arguments, all at once; returns the lines that each printed."""
    processes = [start(url, cluster, what, each) for each in arguments]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return answers


def lease(ledger: SqlLedger, holder: str, rounds: str) -> None:
    """Try to take the lease for each round, and print the rounds that were won with their tokens."""
    for turn in range(int(rounds)):
        try:
            token = ledger.take_lease(holder, turn * 10, turn * 10 + 10)
        except LeaseHeldError:
            continue
        print(turn, token)


def save(ledger: SqlLedger, version: str, step: str) -> None:
    """Save runs, and die at that step: after so many chunks were inserted, or at ``commit``, or ``after`` it."""
    engine, seen = ledger._engine, 0

    def statement(_c: object, _u: object, text: str, *_: Any) -> None:
        nonlocal seen
        seen += text.startswith("INSERT")
        if str(seen) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    event.listen(engine, "after_cursor_execute", statement)
    if step == "commit":
        event.listen(engine, "commit", commit)
    ledger.save_runs(runs_of_version(int(version)), SyncState(int(version), int(version), True))
    os.kill(os.getpid(), signal.SIGKILL)


def archive(ledger: SqlLedger, folder: str, step: str) -> None:
    """Archive and delete, and die before the first or second rename, after the DELETE, at its commit, or after it."""
    import time

    from pyslurm_budget.ledger.files import Folder
    from pyslurm_budget.service.archive import Archive
    from pyslurm_budget.service.zones import Zone

    ends = {"temp": ".parquet", "manifest": ".json"}
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if step in ends and target.suffix == ends[step]:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    def statement(_c: object, _u: object, text: str, *_: Any) -> None:
        nonlocal deleting
        deleting = deleting or text.startswith("DELETE")
        if deleting and step == "delete":
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(_: Any) -> None:
        if deleting and step == "commit":
            os.kill(os.getpid(), signal.SIGKILL)

    deleting = False
    event.listen(ledger._engine, "after_cursor_execute", statement)
    event.listen(ledger._engine, "commit", commit)
    Path.replace = replace  # type: ignore[method-assign,assignment]
    zone = Zone("Europe/Berlin")
    work = Archive(ledger, Folder(Path(folder), ledger._cluster, zone.name), zone)
    for month in work.months(int(time.time()), None):
        work.delete(work.keep(month, over=False))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Wait for the word, then do it."""
    url, cluster, what, *arguments = sys.argv[1:]
    if what == "open":
        print("ready", flush=True)
        sys.stdin.readline()
        SqlLedger(url, cluster).close()
        return
    ledger = SqlLedger(url, cluster)
    print("ready", flush=True)
    sys.stdin.readline()
    {"lease": lease, "save": save, "archive": archive}[what](ledger, *arguments)
    ledger.close()


if __name__ == "__main__":
    main()
