"""Submission: what the submit plugin and slurmctld check before a job gets an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.facts import allowed_qos
from pyslurm_budget.simulate.lifecycle import HELD_BY_USER
from pyslurm_budget.simulate.place import could_ever, need_of
from pyslurm_budget.simulate.shapes import SubmitDecision
from pyslurm_budget.simulate.state import Record

if TYPE_CHECKING:
    from pyslurm_budget.simulate.shapes import PartitionSpec, SubmitHook, SubmitSpec
    from pyslurm_budget.simulate.state import State


class Door:
    """Turns requests into records, or refuses them with Slurm's words."""

    def __init__(self, state: State, hook: SubmitHook | None) -> None:
        """``hook`` stands for the submit plugin; without one a job gets the QOS that it asked for."""
        self._s = state
        self._hook = hook
        self._allowed = allowed_qos(state.spec)
        self._default = {a.name: a.default_qos or (a.qos or (None,))[0] for a in state.spec.accounts}

    def admit(self, spec: SubmitSpec) -> Record:
        """The new record, not yet in the tables; raises SlurmRefusedError."""
        s = self._s
        if spec.work < 1 or spec.nodes < 1 or spec.gpus < 0:
            raise ValueError(f"a job needs at least one second of work and one node: {spec}")
        decision = self._hook(spec, s.now) if self._hook is not None else SubmitDecision(None)
        partition = self._partition(spec)
        qos = self._qos(spec, decision.qos)
        limit = spec.time_limit
        if limit is None:
            limit = partition.max_time if partition.default_time is None else partition.default_time
        if partition.max_time is not None and (limit is None or limit > partition.max_time):
            raise _refused("Requested time limit is invalid (missing or exceeds some limit)")
        if not could_ever(need_of(spec), [s.nodes[n].spec for n in partition.nodes]):
            raise _refused("Requested node configuration is not available")
        self.check_reservation(spec.reservation, spec.account)
        after = spec.after_ok
        if after is not None and after not in s.submitted and after not in s.array_tasks:
            raise _refused("Job dependency problem")
        return Record(
            job_id=s.next_id,
            spec=spec,
            partition=partition.name,
            qos=qos,
            site_factor=decision.site_factor,
            limit=limit,
            submit=s.now,
            array_id=s.next_id if spec.array else None,
            tasks=tuple(sorted(set(spec.array))),
            marker=decision.marker,
            comment=spec.comment,
            reservation=spec.reservation,
            held=HELD_BY_USER if spec.hold else "",
            begin=spec.begin or 0,
        )

    def check_reservation(self, name: str | None, account: str) -> None:
        """Refuse a reservation that is not there or is not for the account."""
        if name is None:
            return
        found = self._s.reservations.get(name)
        if found is None:
            raise _refused("Requested reservation is invalid")
        if account not in found.accounts:
            raise _refused("Access denied to requested reservation")

    def _partition(self, spec: SubmitSpec) -> PartitionSpec:
        partitions = self._s.partitions
        if spec.partition is None:
            default = next((p for p in partitions.values() if p.default), None)
            if default is None:
                raise _refused("No partition specified or system default partition")
            return default
        if spec.partition not in partitions:
            raise _refused("Invalid partition name specified")
        return partitions[spec.partition]

    def _qos(self, spec: SubmitSpec, wanted: str | None) -> str:
        """The QOS that the association allows."""
        allowed = self._allowed.get((spec.account, spec.user))
        if allowed is None:
            raise _refused("Invalid account or account/partition combination specified")
        qos = wanted or spec.qos or self._default[spec.account] or min(allowed)
        if qos not in allowed:
            raise _refused("Invalid qos specification")
        return qos


def _refused(words: str) -> SlurmRefusedError:
    return SlurmRefusedError(f"Batch job submission failed: {words}")
