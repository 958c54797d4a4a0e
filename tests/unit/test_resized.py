"""A job whose size is changed while it runs: one run after the other, each second once, and one contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyslurm_budget.domain.model import Job, Mode, RunKey, RunRecord, Tres, WorkClass
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import Situation
from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.gather import ENFORCED_SINCE, Gatherer
from tests.build import CPUS_PER_GPU, HOUR, MEMORY_PER_GPU, MINUTE, NOW, held, nodes, running, snapshot, tree

START = NOW - HOUR
RESIZED = NOW + 10 * MINUTE
KEY, NEXT = RunKey(5, START), RunKey(5, RESIZED)


def row(submit: int, gpus: int, end: int | None = None, state: str = "RUNNING") -> RunRecord:
    """A row of the job as slurmdbd writes it: they all have its first start."""
    tres = Tres(gpus * CPUS_PER_GPU, gpus * MEMORY_PER_GPU, 1, gpus)
    return RunRecord(
        key=RunKey(5, submit),
        job_ref="5",
        account="blue",
        user="bob",
        qos="backed",
        partition="gpu",
        state=state,
        eligible=submit,
        start=START,
        end=end,
        suspended=0,
        time_limit=None,
        tres=tres,
        requested_gpus=8,
        nodes=("n1",),
    )


def job(gpus: int, submit: int = START, comment: str = "min-runtime=2h", **changes: object) -> Job:
    found = running(5, held("n1", gpus), start=START, submit=START, comment=comment, **changes)
    return replace(found, key=RunKey(5, submit), resized=submit > START)


class Site:
    """A ledger and the cycles that read into it; in each a job may run on one of two nodes."""

    def __init__(self, ledger: SqlLedger, mode: Mode) -> None:
        self.ledger = ledger
        self.mode = mode
        self.rows: list[RunRecord] = []

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        return iter(self.rows)

    def cycle(self, now: int, *jobs: Job, rows: list[RunRecord] | None = None) -> Situation:
        self.rows = self.rows if rows is None else rows
        gatherer = Gatherer(self, self.ledger, Policy(), self.mode, snapshot(jobs, nodes(2), now))
        gatherer.sync()
        return gatherer.situation()

    def counted(self) -> list[tuple[int, int | None, int | None, int | None, int | None]]:
        """Submit, rate, begin, end, and where the charge ends for each run of the job."""
        runs = self.ledger.runs_of_job("5")
        return [(run.key.submit, run.gpus, run.start, run.end, run.charged_to) for run in runs]


@pytest.fixture(params=[Mode.OBSERVE, Mode.ENFORCE])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    upgrade(url)
    ledger = SqlLedger(url, "alpha")
    ledger.save_budgets(tree().budgets.values(), 0, "root", "")
    ledger.put(ENFORCED_SINCE, str(START - 1))
    yield Site(ledger, request.param)
    ledger.close()


def test_it_counts_at_its_size_and_goes_on_with_its_contract(site: Site) -> None:
    site.cycle(NOW, job(8), rows=[row(START, 8)])
    (before,) = site.ledger.contracts()
    assert (before.minimum, before.protected_until) == (2 * HOUR, START + 2 * HOUR)
    resized = [row(START, 8, RESIZED, "RESIZING"), row(RESIZED, 2)]
    longer = job(2, RESIZED, comment="min-runtime=3h")
    for minutes in (11, 12, 13):
        situation = site.cycle(NOW + minutes * MINUTE, longer, rows=resized)
        (run,) = situation.runs
        assert (run.rate, run.start, run.protected_until) == (2000, RESIZED, START + 2 * HOUR)
        assert run.stoppable
        assert [(use.rate, use.start) for use in situation.uses] == [(2000, RESIZED)]
    assert site.counted() == [(START, 8, START, RESIZED, None), (RESIZED, 2, RESIZED, None, None)]
    ended = [resized[0], row(RESIZED, 2, RESIZED + HOUR, "COMPLETED")]
    site.cycle(RESIZED + HOUR + 1, rows=ended)
    assert site.counted() == [(START, 8, START, RESIZED, None), (RESIZED, 2, RESIZED, RESIZED + HOUR, None)]
    assert site.ledger.verify_usage()[1] == ()


def test_two_changes_in_one_second(site: Site) -> None:
    """slurmdbd has one row for both, and it ends in that second until the job is over."""
    site.cycle(NOW, job(8), rows=[row(START, 8)])
    told = [row(START, 8, RESIZED, "RESIZING"), row(RESIZED, 2, RESIZED, "RESIZING")]
    for minutes in (11, 12):
        (run,) = site.cycle(NOW + minutes * MINUTE, job(2, RESIZED), rows=told).runs
        assert run.rate == 2000
    assert site.counted()[1:] == [(RESIZED, 2, RESIZED, None, None)]
    site.cycle(RESIZED + HOUR + 1, rows=[told[0], row(RESIZED, 2, RESIZED + HOUR, "COMPLETED")])
    assert site.counted()[1:] == [(RESIZED, 2, RESIZED, RESIZED + HOUR, None)]


def test_a_change_that_accounting_does_not_show_yet(site: Site) -> None:
    site.cycle(NOW, job(8), rows=[row(START, 8)])
    (run,) = site.cycle(RESIZED + 5, job(2, RESIZED)).runs
    assert (run.rate, run.start, run.protected_until) == (2000, RESIZED, START + 2 * HOUR)
    assert site.counted()[1:] == [(RESIZED, 2, RESIZED, None, None)]


def test_a_run_put_back_after_a_change_stays_as_it_ended(site: Site) -> None:
    """slurmdbd writes the end and the size of the job's next run, which gets no row, into that of the resized one."""
    site.cycle(NOW, job(8), rows=[row(START, 8)])
    put_back = [row(START, 8, RESIZED, "RESIZING"), row(RESIZED, 2, RESIZED + 60, "REQUEUED")]
    again = replace(job(8, RESIZED + 60), resized=False, start=RESIZED + 600)
    site.cycle(RESIZED + 700, again, rows=put_back)
    told = [put_back[0], row(RESIZED, 8, RESIZED + 1000, "COMPLETED")]
    for later in (1001, 1100):
        site.cycle(RESIZED + later, rows=told)
    assert site.counted() == [
        (START, 8, START, RESIZED, None),
        (RESIZED, 2, RESIZED, RESIZED + 60, None),
        (RESIZED + 60, 8, RESIZED + 600, None, RESIZED + 1001),
    ]


def test_the_class_is_that_of_the_run_before(site: Site) -> None:
    """It would not fit now: another has taken all."""
    site.cycle(NOW, job(8), rows=[row(START, 8)])
    (known,) = site.ledger.runs_of_job("5")
    site.ledger.save_budgets(tree(red="1", blue="0").budgets.values(), NOW + 1, "root", "")
    site.cycle(RESIZED + 60, job(2, RESIZED), rows=[row(START, 8, RESIZED, "RESIZING"), row(RESIZED, 2)])
    assert known.shadow is WorkClass.BACKED
    assert [run.shadow for run in site.ledger.runs_of_job("5")] == [WorkClass.BACKED] * 2


@pytest.mark.parametrize(
    ("start", "end", "begun"),
    [
        (None, None, None),
        (100, None, 100),
        (100, 9, 100),
        (90, None, 100),
        (90, 150, 100),
        (90, 100, 100),
        (90, 99, 90),
    ],
)
def test_since_when_a_row_counts(start: int | None, end: int | None, begun: int | None) -> None:
    """Not before Submit, which is the time of a resize; an end before it is that of a clock that was set back."""
    assert replace(row(100, 1), start=start, end=end).begun == begun
