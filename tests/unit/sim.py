"""Short words for the tests of the simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyslurm_budget.domain.model import Job, RunRecord
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.shapes import Settings, SubmitSpec, small

ACCOUNTS = {"alice": "nlp", "bob": "vision", "carol": "bio"}


def cluster(nodes: int = 2, gpus: int = 4, *, claim: bool = False, **settings: Any) -> SimulatedCluster:
    """Two nodes of four GPUs; KillWait 10 s and no epilog, unless a test says otherwise."""
    return SimulatedCluster(small(nodes, gpus, settings=Settings(**{"kill_wait": 10, **settings}), claim=claim))


def job(user: str = "alice", gpus: int = 4, work: int = 1000, **more: Any) -> SubmitSpec:
    """A job of so many GPUs on one node."""
    base = SubmitSpec(user, ACCOUNTS[user], work, gpus_per_node=gpus or None, time_limit=3600)
    return replace(base, **more)


def live(c: SimulatedCluster, ref: str) -> Job:
    """The record, which must be there."""
    found = c.job(ref)
    assert found is not None
    return found


def rows(c: SimulatedCluster, ref: str) -> list[RunRecord]:
    """All rows of a job, oldest first; also those that become eligible later."""
    found = [r for r in c.runs(0, 1 << 40) if r.job_ref == ref]
    return sorted(found, key=lambda r: r.key.submit)


def state(c: SimulatedCluster, ref: str) -> str:
    """State and reason in one word: ``PENDING:BeginTime``, ``RUNNING``."""
    found = live(c, ref)
    word = f"{found.state}:{found.reason}" if found.state == "PENDING" and not found.completing else str(found.state)
    return f"{word}|COMPLETING" if found.completing else word
