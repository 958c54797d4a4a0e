"""Soak the product on a real Slurm until it has requeued enough runs (scripts/soak)."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.cluster.devcluster import PORT, closing_cluster, folder
from tests.cluster.site import Site
from tests.soak import verdict
from tests.soak.accidents import Accidents, Controller
from tests.soak.load import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES, EPILOG = 8, 8
LIMITS = 'per_cycle = 20\nper_hour = 100000\nper_job_day = 100000\nlost_after = "60s"'


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--requeues", type=int, default=1000, help="how many runs to requeue (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=90, help="at most so long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the loads and accidents (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Set up, soak, judge; 0 if everything held."""
    given = arguments()
    random = Random(given.seed)
    with ExitStack() as stack:
        # Whoever ends us with SIGTERM wants the cluster gone as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        place = stack.enter_context(folder("soak"))
        cluster = stack.enter_context(
            closing_cluster(place, PORT + 800, nodes=NODES, epilog_seconds=EPILOG, requeue_delay=5)
        )
        site = Site(cluster, Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))))
        site.folder.chmod(0o755)
        site.configure()
        site.config.write_text(site.config.read_text().replace('lost_after = "15s"', LIMITS))
        site.install()
        controller = Controller(site)
        stack.callback(controller.end)
        load, accidents = Load(site, random), Accidents(site, random, controller, _nodes(site))
        _soak(site, load, accidents, given.requeues, time.monotonic() + 60 * given.minutes)
        return _judge(site, load, accidents)


def _nodes(site: Site) -> tuple[str, ...]:
    return tuple(sorted(set(site.cluster.run(["sinfo", "-h", "-N", "-o", "%N"]).out.split())))


def _soak(site: Site, load: Load, accidents: Accidents, wanted: int, end: float) -> None:
    """Load and accidents until there were enough requeues, or until the time is over."""
    accidents.controller.start()
    said = 0.0
    while time.monotonic() < end:
        now = time.monotonic()
        load.tick(now)
        accidents.tick(now)
        time.sleep(1)
        if now - said > 60 and site.cluster.run(["sacct", "-n", "-X", "-S", "now"], check=False).status == 0:
            said, made = now, verdict.requeues(site.sacct())
            print(f"{made} requeues, {len(load.jobs)} jobs, {len(accidents.log)} accidents", flush=True)
            if made >= wanted:
                break
    accidents.over()


def _judge(site: Site, load: Load, accidents: Accidents) -> int:
    """Let it settle, look; then end everything, and compare the counts."""
    if accidents.controller.process is None:
        accidents.controller.start()
    time.sleep(60)
    accidents.controller.end()
    site.settled()
    rows = site.sacct()
    faults = {
        "contracts broken by us": verdict.broken(rows),
        "jobs lost or held": verdict.lost(site, load.jobs, rows),
        "requeues for nothing": verdict.wasted(site, rows, accidents.log),
    }
    site.clean()
    site.sbudget("sync")
    faults["accounts whose ledger differs from sacct"] = verdict.unequal(site, site.sacct())
    checked = site.sbudget("db", "verify", check=False)
    faults["faults that db verify finds"] = [] if checked.status == 0 else [checked.out + checked.err]
    made = verdict.requeues(rows)
    print(f"{made} runs requeued, {len(load.jobs)} jobs of {len(set(load.jobs.values()))} groups")
    count = Counter(what for _, what in accidents.log)
    print("accidents: " + ", ".join(f"{n} x {what}" for what, n in sorted(count.items())))
    return _print(faults)


def _print(faults: dict[str, Sequence[str]]) -> int:
    """Each count, and what it consists of."""
    for what, found in faults.items():
        print(f"{len(found):>5} {what}")
        for line in found[:20]:
            print(f"      {line}")
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
