"""The site of the simulated story: what its users do, and what the simulated Slurm says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState
from pyslurm_budget.render.clock import Clock
from pyslurm_budget.render.story import text
from pyslurm_budget.service.explain import story
from pyslurm_budget.simulate.shapes import GROUPS, SubmitSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.cli.simulated import SimulatedSite
    from pyslurm_budget.domain.model import Job, RunRecord

FOREVER = 1 << 40


class StorySite:
    """Short words for the story, over one simulated site."""

    def __init__(self, site: SimulatedSite) -> None:
        """The site's controller may come and go."""
        self.site = site
        self.cluster = site.cluster

    @property
    def now(self) -> int:
        """The simulated Slurm's clock."""
        return self.cluster.now

    def run_for(self, seconds: int) -> None:
        """Let time pass, with the cycles of the controller if there is one."""
        self.site.run_for(seconds)

    def submit(
        self, group: str, gpus: int, seconds: int, *, contract: str, array: Iterable[int] = ()
    ) -> tuple[str, str]:
        """Submit a sleeping job of a group; returns its id and what its owner was told."""
        spec = SubmitSpec(
            user=GROUPS[group][0],
            account=group,
            work=seconds,
            gpus_per_node=gpus,
            time_limit=1800,
            comment=f"min-runtime={contract}",
            array=tuple(array),
            stops_in=1,
        )
        return self.cluster.submit(spec), self.site.plugin.said

    def job(self, ref: str) -> Job:
        """The record as Slurm has it; raises LookupError if it has none."""
        found = self.cluster.job(ref)
        if found is None:
            raise LookupError(f"Slurm knows no job {ref}")
        return found

    def state(self, ref: str) -> str:
        """JobState of a job; ``COMPLETING`` while it is on its way out."""
        found = self.job(ref)
        return "COMPLETING" if found.completing else str(found.state)

    def qos(self, ref: str) -> str:
        """QOS of a job."""
        return self.job(ref).qos

    def classes(self, array: str) -> Counter[str]:
        """How many waiting and running tasks of an array have which QOS."""
        found: Counter[str] = Counter()
        for job in self.cluster.jobs():
            if job.array_job_id == int(array) and job.state is not JobState.OTHER:
                found[job.qos] += max(1, len(job.tasks))
        return found

    def rows(self, *refs: str) -> list[RunRecord]:
        """Accounting rows, requeued runs included, oldest first; all that ran, without a list."""
        found = [r for r in self.cluster.runs(0, FOREVER) if not refs or r.job_ref in refs]
        return sorted((r for r in found if r.start is not None), key=lambda r: (r.key.submit, r.key.job_id))

    def why(self, ref: str) -> str:
        """What ``sbudget why`` says."""
        told = story(self.site.ledger, self.cluster.job(ref), ref, self.now)
        return text(told, Clock(self.now, "UTC"))

    def cancel_all(self) -> None:
        """Cancel everything and wait until the nodes are empty."""
        for job in self.cluster.jobs():
            if job.state is not JobState.OTHER:
                self.cluster.cancel(job.ref)
        self.run_for(12)
