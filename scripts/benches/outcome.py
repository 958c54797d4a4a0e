"""What a simulated month came to, from the event log alone: nothing that the product computed is used."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benches.effect import Site
    from pyslurm_budget.simulate.cluster import SimulatedCluster

HOUR = 3600
WEEK = 7 * 24
SHORT_WORK, SHORT_GPUS = 900, 2
GPUS, CONTRACT, CHECKPOINT = 8, 3600, 3600
BY_US = ("PREEMPTED", "REQUEUED")


@dataclass
class Life:
    """One job: its runs as (start, end, final state, QOS at the start); the last one may still be going on."""

    group: str
    gpus: int
    submit: int
    work: int
    runs: list[tuple[int, int, str, str]]
    done: int | None = None

    @property
    def short(self) -> bool:
        """Whether it is a test run: at most 15 minutes on at most two GPUs."""
        return self.work <= SHORT_WORK and self.gpus <= SHORT_GPUS


@dataclass(frozen=True)
class Outcome:
    """Percentages, counts, and waiting times in seconds (sorted, of all jobs and of short ones)."""

    delivered: float
    worst: float
    week: float
    week_worst: float
    occupancy: float
    idle_waiting: float
    lost: float
    requeues: int
    broken: int
    refused: int
    waits: tuple[int, ...]
    short_waits: tuple[int, ...]

    def wait(self, percent: int, *, short: bool = False) -> float:
        """The percentile of the wait until a job's first start; a job that never started waited until the end."""
        values = self.short_waits if short else self.waits
        return float(values[min(len(values) - 1, len(values) * percent // 100)]) if values else 0.0


def outcome(site: Site, cluster: SimulatedCluster) -> Outcome:
    """Count what happened until the month's end."""
    lives = list(_lives(site, cluster).values())
    size = site.nodes * GPUS
    hours = (site.end - site.start) // HOUR
    got = {group: [0] * hours for group in site.groups}
    want = {group: [0] * hours for group in site.groups}
    for life in lives:
        _spread(want[life.group], site.start, life.submit, life.done or site.end, life.gpus)
        for start, end, _, _ in life.runs:
            _spread(got[life.group], site.start, start, end, life.gpus)
    part = size * HOUR / len(site.groups)
    owed = {group: [min(part, x) for x in want[group]] for group in site.groups}
    hourly = {g: (sum(map(min, got[g], owed[g])), sum(owed[g])) for g in site.groups}
    weekly = {g: _weekly(got[g], owed[g]) for g in site.groups}
    used = sum(sum(x) for x in got.values())
    runs = [(life, run) for life in lives for run in life.runs]
    stopped = [(life, run) for life, run in runs if run[2] in BY_US]
    return Outcome(
        *_ratios(hourly),
        *_ratios(weekly),
        occupancy=100 * used / (size * (site.end - site.start)),
        idle_waiting=100 * _idle(lives, site, size) / (size * (site.end - site.start)),
        lost=100 * sum(life.gpus * ((run[1] - run[0]) % CHECKPOINT) for life, run in stopped) / max(1, used),
        requeues=len(stopped),
        broken=sum(run[3] == "backed" and run[1] - run[0] < CONTRACT for _, run in stopped),
        refused=sum(event.kind == "refused" for event in cluster.events),
        waits=_waits(site, lives),
        short_waits=_waits(site, [life for life in lives if life.short]),
    )


def _lives(site: Site, cluster: SimulatedCluster) -> Mapping[str, Life]:
    """Every job, from the event log."""
    lives: dict[str, Life] = {}
    begun: dict[str, tuple[int, str]] = {}
    for event in cluster.events:
        ref = event.ref
        if event.kind == "submit":
            spec = cluster.submission(ref)
            gpus = spec.gpus or (spec.gpus_per_node or 0) * spec.nodes
            lives[ref] = Life(spec.account, gpus, event.time, spec.work, [])
        elif event.kind == "start":
            begun[ref] = (event.time, str(event.detail["qos"]))
        elif event.kind == "stop":
            start, qos = begun.pop(ref)
            state = str(event.detail["state"])
            lives[ref].runs.append((start, event.time, state, qos))
            if state not in BY_US:
                lives[ref].done = event.time
    for ref, (start, qos) in begun.items():
        lives[ref].runs.append((start, site.end, "RUNNING", qos))
    return lives


def _spread(hours: list[int], begin: int, start: int, end: int, gpus: int) -> None:
    """Add the GPU-seconds of [start, end) to the hours in which they fall."""
    at = start
    while at < end:
        index = (at - begin) // HOUR
        if index >= len(hours):
            return
        until = min(end, begin + (index + 1) * HOUR)
        hours[index] += gpus * (until - at)
        at = until


def _weekly(got: list[int], owed: list[float]) -> tuple[float, float]:
    """Delivered and owed over all windows of 7 days, one ending at each day's end (shorter ones at the beginning)."""
    delivered = total = 0.0
    for end in range(24, len(got) + 1, 24):
        window = slice(max(0, end - WEEK), end)
        due = sum(owed[window])
        delivered += min(sum(got[window]), due)
        total += due
    return delivered, total


def _ratios(pairs: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """All groups' ratio and that of the worst one, in percent."""
    delivered, owed = (sum(x) for x in zip(*pairs.values(), strict=True))
    worst = min((100 * d / o for d, o in pairs.values() if o), default=100.0)
    return 100 * delivered / owed if owed else 100.0, worst


def _idle(lives: Iterable[Life], site: Site, size: int) -> int:
    """GPU-seconds that stood idle while some job could have started at once, were it only for its GPUs.

    A job counts while it waits and asks for no more GPUs than are idle (on whatever nodes: what is scattered is
    exactly what this is to show)."""
    changes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # time: GPUs taken, size of a waiter, +1 or -1
    for life in lives:
        free = life.submit
        for start, end, _, _ in life.runs:
            changes[free].append((0, life.gpus, 1))
            changes[start].append((life.gpus, life.gpus, -1))
            changes[end].append((-life.gpus, 0, 0))
            free = end
        if life.done is None and not (life.runs and life.runs[-1][2] == "RUNNING"):
            changes[free].append((0, life.gpus, 1))
    waiting: dict[int, int] = defaultdict(int)
    busy = found = 0
    last = site.start
    for at in [*sorted(t for t in changes if t < site.end), site.end]:
        idle = size - busy
        if idle and any(count and gpus <= idle for gpus, count in waiting.items()):
            found += idle * (at - last)
        for taken, gpus, step in changes.get(at, ()):
            busy += taken
            waiting[gpus] += step
        last = at
    return found


def _waits(site: Site, lives: Iterable[Life]) -> tuple[int, ...]:
    return tuple(sorted((life.runs[0][0] if life.runs else site.end) - life.submit for life in lives))
