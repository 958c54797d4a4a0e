"""One cycle on a real Slurm with 500 pending and 16 running jobs: the whole command, and each of its stages."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from place import USERS, Site

if TYPE_CHECKING:
    import argparse

FOLDER = Path("/var/tmp/sbudget-bench")
BASE_PORT = 18800
PENDING = 500
RUNNING = 16
CYCLES = 7
TARGET_SECONDS = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """It has no options of its own."""


def measure() -> list[dict[str, object]]:
    """Start a cluster, fill it, and time cycles that find little to change (the first, which changes much, apart)."""
    site = Site(FOLDER, BASE_PORT, window=3600, cap=600)
    try:
        site.up()
        site.configure()
        site.sbudget("setup", "apply")
        site.sbudget("budget", "apply", str(site.budgets))
        site.sbudget("reconcile", "--apply")
        _fill(site)
        first, _ = _cycle(site)
        found = [_cycle(site) for _ in range(CYCLES)]
    finally:
        site.down()
    whole = statistics.median(seconds for seconds, _ in found)
    rows = [
        _row(f"cycle, {PENDING} pending and {RUNNING} running, whole command", whole, TARGET_SECONDS),
        _row("the first of them, which orders the queue", first, None),
    ]
    names = dict.fromkeys(name for _, stages in found for name in stages)
    for name in names:
        rows.append(_row(f"  stage {name}", statistics.median(s.get(name, 0) for _, s in found) / 1e6, None))
    return rows


def _fill(site: Site) -> None:
    groups = list(USERS)
    for i in range(RUNNING):
        site.submit(groups[i % 3], 1, 3000, contract="5m")
    deadline = time.monotonic() + 60
    while len(site.run(["squeue", "-h", "-t", "R"]).out.split("\n")) <= RUNNING and time.monotonic() < deadline:
        time.sleep(0.5)
    for group in groups:
        count = PENDING // 3 + (1 if group == groups[0] else 0) + (1 if group == groups[1] else 0)
        submit = f"sbatch -Q -A {group} --gres=gpu:1 -t 30 -o /dev/null --wrap 'sleep 60'"
        script = f"for i in $(seq {count}); do {submit}; done"
        site.run(["sh", "-c", script], user=USERS[group], timeout=300)


def _cycle(site: Site) -> tuple[float, dict[str, int]]:
    """Wall time of one whole command, and the microseconds of its stages."""
    began = time.monotonic()
    out = site.sbudget("reconcile", "--apply", "--json").out
    return time.monotonic() - began, json.loads(out)["result"]["stages"]


def _row(what: str, value: float, target: float | None) -> dict[str, object]:
    return {"what": what, "value": value, "unit": "s", "target": target, "ok": target is None or value <= target}
