"""What the rules do to a month of real jobs: the same trace under four ways of scheduling, in the simulator.

The trace is a CSV file with a header and the columns timestamp (UTC), duration (seconds), num_gpus and cluster (the
group); groups have equal shares. Each job asks for half as much time again as it needs, saves its work every hour and
declares a contract of an hour; a requeued job waits 121 s, as in Slurm.
"""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.outcome import Outcome, outcome
from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.service.ports import JobUpdate
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.shapes import ClusterSpec, QosSpec, Settings, SubmitSpec, small

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

HOUR, DAY = 3600, 86_400
GPUS = 8
CONTRACT = HOUR
CHECKPOINT = HOUR
HALF_LIFE = 7 * DAY


@dataclass(frozen=True)
class Site:
    """One month on one cluster."""

    jobs: tuple[tuple[int, SubmitSpec], ...]
    groups: tuple[str, ...]
    nodes: int
    start: int
    end: int
    every: int

    def cluster(self, settings: Settings | None = None) -> ClusterSpec:
        """Equal nodes of eight GPUs, a user for each group."""
        users = {group: (f"user-{group}",) for group in self.groups}
        return small(self.nodes, GPUS, users, settings or Settings(start=self.start, backfill_depth=500))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which month, on what, and which of the ways."""
    parser.add_argument("--trace", type=Path, required=True, metavar="FILE", help="CSV of jobs")
    parser.add_argument("--start", default="2017-10-01", metavar="DATE", help="first day, UTC (default: %(default)s)")
    parser.add_argument("--days", type=int, default=31, help="how many days (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=60, help="nodes of 8 GPUs (default: %(default)s)")
    parser.add_argument("--every", type=int, default=60, help="seconds between cycles (default: %(default)s)")
    parser.add_argument("--arm", action="append", choices=sorted(ARMS), help="only this way (may be repeated)")


def measure(*, arm: list[str] | None, **month: Any) -> list[dict[str, object]]:
    """The outcome of each way, beside the first one where that is what the target speaks of."""
    site = load(**month)
    rows: list[dict[str, object]] = []
    first: Outcome | None = None
    for name in arm or ARMS:
        began = time.process_time()
        found = outcome(site, ARMS[name](site))
        rows += _rows(name, found, first, time.process_time() - began)
        first = found if name == "first-come" else first
    return rows


def load(*, trace: Path, start: str, days: int, nodes: int, every: int) -> Site:
    """The jobs that the trace submits in these days."""
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    first, end = int(begin.timestamp()), int((begin + timedelta(days=days)).timestamp())
    jobs = []
    with trace.open() as file:
        for line in csv.DictReader(file):
            at = int(datetime.fromisoformat(line["timestamp"]).replace(tzinfo=UTC).timestamp())
            if first <= at < end:
                work = max(1, int(float(line["duration"])))
                jobs.append((at, job(line["cluster"], int(line["num_gpus"]), work)))
    jobs.sort(key=lambda one: one[0])
    return Site(tuple(jobs), tuple(sorted({spec.account for _, spec in jobs})), nodes, first, end, every)


def job(group: str, gpus: int, work: int) -> SubmitSpec:
    """One job of the trace: whole nodes where it needs more than one, if its GPUs divide among them evenly."""
    count = -(-gpus // GPUS)
    spec = SubmitSpec(
        f"user-{group}", group, work, nodes=count, cpus=gpus, time_limit=work + work // 2 + 60,
        comment=f"min-runtime={CONTRACT}s", stops_in=1, checkpoint=CHECKPOINT,
    )  # fmt: skip
    if gpus % count:
        return replace(spec, gpus=gpus)
    return replace(spec, gpus_per_node=gpus // count)


# --- the ways


def first_come(site: Site) -> SimulatedCluster:
    """Jobs in the order of their submission, with backfill: Slurm as it comes."""
    cluster = _plain(site)
    cluster.run_until(site.end)
    return cluster


def fair_share(site: Site) -> SimulatedCluster:
    """The group with the least use goes first; use halves every 7 days, nothing is stopped."""
    cluster = _plain(site)
    used = dict.fromkeys(site.groups, 0.0)
    while cluster.now < site.end:
        jobs = cluster.jobs()
        fade = 0.5 ** (site.every / HALF_LIFE)
        used = {group: use * fade for group, use in used.items()}
        for one in jobs:
            if one.state is JobState.RUNNING:
                used[one.account] += site.every * sum(share.gpus for share in one.allocation)
        factor = {group: 1 + rank for rank, group in enumerate(sorted(used, key=lambda g: -used[g]))}
        # With one QOS the priority is the site's factor alone.
        wrong = [x for x in jobs if x.state is JobState.PENDING and x.priority != factor[x.account]]
        cluster.update_many([JobUpdate(one.ref, site_factor=factor[one.account]) for one in wrong])
        cluster.run_until(min(cluster.now + site.every, site.end))
    return cluster


def rules(site: Site, policy: Policy | None = None) -> SimulatedCluster:
    """Our rules, as they are by default."""
    share = Fraction(1, len(site.groups))
    budgets = [Budget(group, None, (ShareSince(BEGINNING, share),)) for group in site.groups]
    whole = SimulatedSite(site.cluster(), policy or Policy(), budgets, every=site.every, lease=2 * site.every)
    _submit(site, whole.cluster)
    whole.start()
    whole.run_for(site.end - site.start)
    whole.close()
    return whole.cluster


def no_moving(site: Site) -> SimulatedCluster:
    """Our rules, but small runs are not moved to make whole nodes."""
    return rules(site, Policy(moves_per_cycle=0))


ARMS: dict[str, Callable[[Site], SimulatedCluster]] = {
    "first-come": first_come,
    "fair-share": fair_share,
    "no-moving": no_moving,
    "rules": rules,
}


def _plain(site: Site) -> SimulatedCluster:
    """A cluster with one QOS and nothing of ours."""
    spec = site.cluster()
    accounts = tuple(replace(a, qos=("normal",), default_qos="normal") for a in spec.accounts)
    cluster = SimulatedCluster(replace(spec, accounts=accounts, qos=(QosSpec("normal"),)))
    _submit(site, cluster)
    return cluster


def _submit(site: Site, cluster: SimulatedCluster) -> None:
    for at, spec in site.jobs:
        cluster.at(at, lambda spec=spec: _one(cluster, spec))  # type: ignore[misc]


def _one(cluster: SimulatedCluster, spec: SubmitSpec) -> None:
    try:
        cluster.submit(spec)
    except SlurmRefusedError:
        return  # in the event log, and counted there


# --- the table


def _rows(name: str, found: Outcome, first: Outcome | None, seconds: float) -> Iterable[dict[str, object]]:
    """Targets are for the rules alone; the last one needs the first way beside it."""
    ours = name == "rules"
    values: list[tuple[str, float, str, float | None, bool]] = [
        ("delivered of owed, hour by hour, all", found.delivered, "%", 99.5, found.delivered >= 99.5),
        ("delivered of owed, worst group", found.worst, "%", 98, found.worst >= 98),
        ("delivered of owed in 7 days, all", found.week, "%", None, True),
        ("delivered of owed in 7 days, worst group", found.week_worst, "%", None, True),
        ("occupancy", found.occupancy, "%", *_within(found, first)),
        ("idle while jobs wait", found.idle_waiting, "%", 1.5, found.idle_waiting <= 1.5),
        ("wait p50", found.wait(50), "s", None, True),
        ("wait of short jobs p90", found.wait(90, short=True), "s", 60, found.wait(90, short=True) <= 60),
        ("wait of short jobs p99", found.wait(99, short=True), "s", None, True),
        ("GPU time lost to preemption", found.lost, "%", 2, found.lost <= 2),
        ("runs requeued", found.requeues, "", None, True),
        ("backed runs stopped inside their contract", found.broken, "", 0, not found.broken),
        ("jobs refused", found.refused, "", None, True),
        ("CPU time of the simulation", seconds, "s", None, True),
    ]
    for what, value, unit, target, ok in values:
        wanted = target if ours else None
        good = ok or wanted is None
        yield {"what": f"{name}: {what}", "value": round(value, 2), "unit": unit, "target": wanted, "ok": good}


def _within(found: Outcome, first: Outcome | None) -> tuple[float | None, bool]:
    """At most half a point below first come first served."""
    if first is None:
        return None, True
    return round(first.occupancy - 0.5, 2), found.occupancy >= first.occupancy - 0.5
