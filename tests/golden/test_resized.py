"""Resized jobs as slurmdbd 22.05.8 has them: what was done to three of them, and what their rows come to.

The rows of one job overlap in what they print: each has the job's Start, and a Submit that is the time of its resize.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyslurm_budget.domain.model import RunKey, RunRecord
from pyslurm_budget.slurm.dump import DumpAccounting
from pyslurm_budget.slurm.jobs import jobs_of
from pyslurm_budget.slurm.records import job_records
from pyslurm_budget.slurm.sacct import runs_of

HERE = Path(__file__).parent


def by_sacct() -> list[RunRecord]:
    return list(runs_of((HERE / "resized_sacct.txt").read_text().splitlines(), "|"))


def by_dump() -> list[RunRecord]:
    with (HERE / "resized_sacct.txt").open("rb") as stream:
        return list(DumpAccounting(stream, timezone="UTC").runs(0, 1 << 40))


@pytest.mark.parametrize("read", [by_sacct, by_dump])
def test_each_second_of_a_resized_job_counts_once(read: Callable[[], list[RunRecord]]) -> None:
    found: dict[int, list[tuple[int | None, int | None, int | None]]] = {}
    for run in sorted(read(), key=lambda run: run.key):
        found.setdefault(run.key.job_id, []).append((run.tres.gpus, run.begun, run.end))
    began, twice, again = 1796302558, 1796302674, 1796302718
    # 3 nodes, after a second 2, then 1 and cancelled in the same second
    assert found[3] == [(3, began, began + 1), (2, began + 1, began + 24), (1, began + 24, began + 24)]
    # 4 nodes, then 3 and 2 in one second, which leaves one row, suspended for 3 s, cancelled
    assert found[11] == [(4, twice, twice + 9), (2, twice + 9, twice + 21)]
    # 4 nodes, then 3, requeued after 2 s; 7 s later it ran again on 4, and slurmdbd wrote that into the row of before
    assert found[12] == [(4, again, again + 7), (4, again + 7, again + 23)]


def test_a_resized_job_is_the_run_of_its_last_row() -> None:
    (job,) = jobs_of(job_records((HERE / "resized_job.txt").read_text()), lambda _: None)
    assert (job.key, job.start, job.resized) == (RunKey(13, 1796302952), 1796302946, True)
    (before,) = jobs_of(
        job_records((HERE / "resized_job.txt").read_text().replace("ResizeTime=1796302952 ", "")), lambda _: None
    )
    assert (before.key, before.resized) == (RunKey(13, 1796302946), False)
    (requeued,) = jobs_of(
        job_records((HERE / "resized_job.txt").read_text().replace("SubmitTime=1796302946", "SubmitTime=1796302999")),
        lambda _: None,
    )
    assert (requeued.key, requeued.resized) == (RunKey(13, 1796302999), False)
