"""Workloads to play: lists of (seconds from the beginning, request), the same for the same arguments and seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyslurm_budget.simulate.shapes import SubmitSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from pyslurm_budget.simulate.cluster import SimulatedCluster

Load = list[tuple[int, SubmitSpec]]


@dataclass(frozen=True, slots=True)
class Group:
    """Who submits: an account and its users, who take turns."""

    account: str
    users: tuple[str, ...]

    def spec(self, turn: int, gpus: int, work: int) -> SubmitSpec:
        """A one-node job of the user whose turn it is, with a time limit of half as much again as it needs."""
        user = self.users[turn % len(self.users)]
        return SubmitSpec(user, self.account, work, gpus_per_node=gpus, cpus=gpus, time_limit=work + work // 2 + 60)


def steady(group: Group, *, gpus: int, work: int, keep: int, seconds: int) -> Load:
    """Jobs at even intervals, so that ``keep`` GPUs of work arrive all the time."""
    every = max(1, gpus * work // keep)
    return [(at, group.spec(i, gpus, work)) for i, at in enumerate(range(0, seconds, every))]


def burst(group: Group, *, at: int, jobs: int, gpus: int, work: int) -> Load:
    """Many jobs in one second."""
    return [(at, group.spec(i, gpus, work)) for i in range(jobs)]


def long_contracts(group: Group, *, at: int, jobs: int, gpus: int, hours: int) -> Load:
    """Jobs that declare the whole of a long run as their minimum runtime."""
    comment = f"min-runtime={hours}h"
    load = burst(group, at=at, jobs=jobs, gpus=gpus, work=hours * 3600)
    return [(time, replace(spec, comment=comment)) for time, spec in load]


def arrays(group: Group, *, at: int, tasks: int, gpus: int, work: int, throttle: int | None = None) -> Load:
    """One array."""
    return [(at, replace(group.spec(0, gpus, work), array=tuple(range(tasks)), throttle=throttle))]


def mixed(groups: Sequence[Group], random: Random, *, jobs: int, seconds: int, mean_work: int) -> Load:
    """Jobs of all groups at random times, mostly small and short, a few of several nodes."""
    load: Load = []
    for i in range(jobs):
        group = groups[random.randrange(len(groups))]
        gpus = random.choice((1, 1, 1, 2, 2, 4, 8))
        work = 30 + round(random.expovariate(1 / mean_work))
        spec = group.spec(i, gpus, work)
        if random.random() < 0.05:
            spec = replace(spec, nodes=2, gpus_per_node=8, cpus=16)
        load.append((random.randrange(seconds), spec))
    return sorted(load, key=lambda entry: entry[0])


def play(cluster: SimulatedCluster, *loads: Iterable[tuple[int, SubmitSpec]]) -> None:
    """Let the cluster submit all of it, from now on, while time runs."""
    begin = cluster.now
    for load in loads:
        for at, spec in load:
            cluster.submit_at(begin + at, spec)
