"""Samples of every cycle: GPUs in service, and demand, by hour."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import select

from pyslurm_budget.ledger import tables
from pyslurm_budget.ledger.base import Base, chunks, upsert
from pyslurm_budget.service.counts import CapacitySlice, DemandSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from pyslurm_budget.service.counts import Sampled

SAMPLED = "sampled"
HOUR = 3600
STRETCHES_KEPT = 500


class Counts(Base):
    """The part of the ledger that samples are added to."""

    def add_samples(
        self, capacity: Iterable[CapacitySlice], demand: Iterable[DemandSlice], begin: int, end: int
    ) -> None:
        """Add to the hours, and note what is covered."""
        with self._begin() as connection:
            self._alone(connection, "samples")
            new = [{"cluster": self._cluster, **asdict(s)} for s in capacity]
            upsert(connection, tables.capacity, new, adding=("gpu_seconds", "covered"))
            for chunk in chunks(demand):
                wanted = [{"cluster": self._cluster, **asdict(s)} for s in chunk]
                upsert(connection, tables.demand, wanted, adding=("running", "pending", "covered"))
            stretches = self._sampled(connection)
            if stretches and stretches[-1][1] == begin:
                begin = stretches.pop()[0]
            stretches = [*stretches, (begin, end)][-STRETCHES_KEPT:]
            self._put(connection, SAMPLED, json.dumps(stretches))

    def _sampled(self, connection: Connection) -> list[tuple[int, int]]:
        return [(begin, end) for begin, end in json.loads(self._get(connection, SAMPLED) or "[]")]

    def capacity(self, since: int) -> tuple[tuple[CapacitySlice, ...], Sampled]:
        """Slices from the hour of ``since`` on, and what is covered."""
        t = tables.capacity
        first = since - since % HOUR
        query = select(t).where(t.c.cluster == self._cluster, t.c.hour >= first).order_by(t.c.hour)
        with self._read() as connection:
            found = [
                CapacitySlice(r.pool, r.hour, r.gpu_seconds, r.covered, r.gpus) for r in connection.execute(query)
            ]
            sampled = self._sampled(connection)
        return tuple(sorted(found, key=lambda s: (s.pool, s.hour))), tuple(sampled)

    def demand(self, since: int, until: int) -> tuple[DemandSlice, ...]:
        """Slices of the hours that begin in [since, until)."""
        t = tables.demand
        query = select(t).where(t.c.cluster == self._cluster, t.c.hour >= since, t.c.hour < until)
        with self._read() as connection:
            found = [
                DemandSlice(r.pool, r.account, r.hour, r.running, r.pending, r.covered)
                for r in connection.execute(query)
            ]
        return tuple(sorted(found, key=lambda s: (s.pool, s.account, s.hour)))
