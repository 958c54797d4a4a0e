"""The recorded answers of real daemons, by release, and the ids of the scenario's jobs by name (README of each)."""

from __future__ import annotations

import re
from functools import lru_cache

from pyslurm_budget.domain.model import Job
from pyslurm_budget.slurm.jobs import jobs_of
from pyslurm_budget.slurm.records import job_records
from tests.shared_data import shared

RELEASES = ("22.05.8", "24.11.5", "25.11.7", "26.05.5")
# The recording was made without SLURM_BITSTR_LEN=0; the expression is the one of the job's own command line.
LONG_ARRAY = "1,3-4,7-8,11,15,17,22,25,29,33,36,40,44,49,52,57,61,66,70,77,79,83,88,91,95,99"


def recorded(release: str, name: str) -> str:
    """One recorded answer, decoded as the runner decodes."""
    return shared(f"data/recorded/{release}/{name}.txt").read_bytes().decode("utf-8", errors="replace")


@lru_cache
def scenario(release: str) -> dict[str, int]:
    """Job id by the scenario's name of it."""
    readme = shared(f"data/recorded/{release}/README.md").read_text()
    line = re.search(r"^jobs: (.*?);", readme, re.MULTILINE)
    assert line is not None
    return {name: int(job_id) for name, job_id in (pair.split("=") for pair in line[1].split())}


def begin(release: str) -> int:
    """Time of the first submission of the scenario."""
    return min(int(cell) for cell in re.findall(r"\x1f(1796[0-9]{6})\x1f", recorded(release, "sacct")))


def whole(text: str) -> str:
    """The answer with the cut array expression made whole, as SLURM_BITSTR_LEN=0 prints it."""
    return re.sub(r"1,3-4,7-8,11,[0-9,-]*\.\.\.", LONG_ARRAY, text)


@lru_cache
def recorded_jobs(release: str, name: str = "scontrol_show_job_dd_o") -> dict[str, Job]:
    """Jobs of a recorded answer by their reference."""
    jobs = jobs_of(job_records(whole(recorded(release, name))), lambda _: None)
    assert len({job.ref for job in jobs}) == len(jobs)
    return {job.ref: job for job in jobs}
