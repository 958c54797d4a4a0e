"""Live reads of slurmctld by its commands: the reference implementation of ``LiveCluster``."""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Snapshot
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.failures import failure, unknown_job
from pyslurm_budget.slurm.jobs import jobs_of, needs_partitions
from pyslurm_budget.slurm.nodes import nodes_of, partitions_of, reservations_of
from pyslurm_budget.slurm.records import job_records, record_ids, refuse_twins
from pyslurm_budget.slurm.settings import ASSOC_FORMAT, Associations, associations_of, controller_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.domain.model import Controller, Job, Node, Partition, Reservation
    from pyslurm_budget.slurm.records import Record
    from pyslurm_budget.slurm.run import Runner

_MOST_IDS = 5000  # one argument holds at most 128 KiB
_SHOW_JOBS = ("scontrol", "-a", "-d", "-o", "show", "job")


class SlurmQueue:
    """Jobs, nodes, partitions, reservations and settings of one cluster.

    ``assoc_seconds`` is how long the association lists of slurmdbd are remembered; ``clock`` counts those seconds.
    """

    def __init__(
        self, runner: Runner, assoc_seconds: float = 300.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runner = runner
        self._assoc_seconds = assoc_seconds
        self._clock = clock
        self._verified: set[int] = set()
        self._assoc: tuple[float, str, Associations] | None = None
        self._qos: tuple[float, frozenset[str]] | None = None

    def snapshot(self) -> Snapshot:
        """Read everything. The clock is read last, so that no job of the snapshot starts after ``now``."""
        partitions = self.partitions()
        jobs = self._jobs(partitions)
        nodes = self.nodes()
        reservations = self.reservations()
        controller = self.controller()
        allowed, parents = self.associations(controller.cluster)
        return Snapshot(controller, jobs, nodes, partitions, reservations, allowed, parents, self.qos())

    def jobs(self) -> tuple[Job, ...]:
        """Read the job records alone."""
        return self._jobs(None)

    def job(self, ref: str) -> Job | None:
        """Read one record by its reference; ``None`` only if slurmctld says that it knows no such job.

        ``100_7`` is the record that holds task 7, also before it was split off. The pending remainder of an array
        (``100_[3-9]``), which scontrol cannot show by that name, is the record that has the array's id, whichever
        tasks it holds by now.
        """
        asked = ref.partition("_[")[0]
        command = (*_SHOW_JOBS, asked)
        answer = self._runner.run(*command)
        if answer.status != 0:
            if unknown_job(answer.err):
                return None
            raise failure(command, answer.err or answer.out, answer.status)
        records = self._records(answer.out)
        if not records:
            raise SlurmOutputError(f"scontrol show job {ref}: no record and no error")
        found = self._built(records, None)
        exact = [job for job in found if ref in (job.ref, str(job.key.job_id))]
        same_record = [job for job in found if str(job.key.job_id) == asked]
        return (exact or same_record or list(found))[0]

    def nodes(self) -> tuple[Node, ...]:
        """Read the nodes."""
        return nodes_of(self._runner.read("scontrol", "-a", "-d", "-o", "show", "node"))

    def partitions(self) -> tuple[Partition, ...]:
        """Read the partitions, hidden ones included."""
        return partitions_of(self._runner.read("scontrol", "-a", "-o", "show", "partition"))

    def reservations(self) -> tuple[Reservation, ...]:
        """Read the reservations."""
        return reservations_of(self._runner.read("scontrol", "-a", "-o", "show", "reservation"))

    def controller(self) -> Controller:
        """Read slurmctld's clock, release and settings."""
        return controller_of(self._runner.read("scontrol", "show", "config"))

    def associations(self, cluster: str) -> Associations:
        """The QOS names by (account, user) and the parent by account, at most ``assoc_seconds`` old."""
        now = self._clock()
        if self._assoc is not None and self._assoc[1] == cluster and now - self._assoc[0] < self._assoc_seconds:
            return self._assoc[2]
        text = self._runner.read(
            "sacctmgr", "-nP", "show", "assoc", f"cluster={cluster}", f"format={ASSOC_FORMAT}", strict=True
        )
        found = associations_of(text)
        self._assoc = (now, cluster, found)
        return found

    def qos(self) -> frozenset[str]:
        """The names of all QOS, at most ``assoc_seconds`` old."""
        now = self._clock()
        if self._qos is None or now - self._qos[0] >= self._assoc_seconds:
            text = self._runner.read("sacctmgr", "-nP", "show", "qos", "format=name", strict=True)
            self._qos = (now, frozenset(text.split()))
        return self._qos[1]

    def _jobs(self, partitions: tuple[Partition, ...] | None) -> tuple[Job, ...]:
        """Read and build all jobs."""
        records = self._records(self._runner.read(*_SHOW_JOBS))
        self._verified &= {record.job_id for record in records}
        return self._built(records, partitions)

    def _records(self, text: str) -> list[Record]:
        """Read the records, and ask squeue whether the jobs seen for the first time are jobs at all.

        Free text with a line break can imitate a whole record; squeue's list without free text cannot be fooled. An
        ended job that slurmctld forgets between the two commands is taken for an imitation and left out, as it would
        have been a moment later.
        """
        unknown: set[int] = set()
        if fresh := set(record_ids(text)) - self._verified:
            which = ("-j", ",".join(map(str, sorted(fresh)))) if 1 < len(fresh) <= _MOST_IDS else ()
            unknown = fresh - self._asked(which, "").keys()
            self._verified |= fresh - unknown
        records = job_records(text, self._name_of, unknown)
        refuse_twins(records)
        return records

    def _built(self, records: list[Record], partitions: tuple[Partition, ...] | None) -> tuple[Job, ...]:
        """Build jobs; partitions are read only if a time limit depends on them."""
        if partitions is None:
            partitions = self.partitions() if needs_partitions(records) else ()
        limits = {p.name: p.max_time if p.default_time is None else p.default_time for p in partitions}

        def partition_limit(names: tuple[str, ...]) -> int | None:
            known = [limits.get(name) for name in names]
            return None if None in known else max((k for k in known if k is not None), default=None)

        return jobs_of(records, partition_limit)

    def _name_of(self, job_id: int) -> str | None:
        """The name of one job, asked for alone between marks that no user can know."""
        return self._asked(("-j", str(job_id)), "%j").get(job_id)

    def _asked(self, which: tuple[str, ...], field: str) -> dict[int, str]:
        """One free-text field of squeue by raw job id."""
        mark = f"<{secrets.token_hex(8)}>"
        wanted = f"{mark}%A{mark}{field}{mark}"
        text = self._runner.read("squeue", "-h", "-a", "-r", "-t", "all", *which, "-o", wanted)
        cells = re.findall(rf"{mark}([0-9]+){mark}(.*?){mark}", text, re.DOTALL)
        return {int(job_id): value for job_id, value in cells}
