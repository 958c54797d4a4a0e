"""Reading accounting into the ledger, over the simulated cluster: what is refused, and what ends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import SlurmdbdError
from pyslurm_budget.simulate.shapes import Settings, SubmitSpec, small

POLICY = Policy(window=600, hour=20, cap=60, default_contract=20, floor=20, restart_quiet=0)


@pytest.fixture
def site() -> Iterator[SimulatedSite]:
    budgets = [Budget("nlp", None, (ShareSince(BEGINNING, Fraction(1, 2)),))]
    found = SimulatedSite(small(2, 4, settings=Settings(epilog=1)), POLICY, budgets)
    found.start()
    found.run_for(4)
    yield found
    found.close()


def _submit(site: SimulatedSite, seconds: int, limit: int = 400) -> str:
    return site.cluster.submit(SubmitSpec("alice", "nlp", seconds, qos="backed", gpus_per_node=4, time_limit=limit))


def _answer(site: SimulatedSite, monkeypatch: pytest.MonkeyPatch, runs: list[RunRecord]) -> None:
    """Let accounting answer with these rows from now on."""
    monkeypatch.setattr(site.cluster, "runs", lambda since, until: iter(runs))


def test_an_answer_without_any_run_is_a_failure_where_some_are_known(
    site: SimulatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _submit(site, 300)
    site.run_for(20)
    state, charged = site.ledger.sync_state(), site.ledger.open_runs()
    assert charged
    with monkeypatch.context() as patch:
        _answer(site, patch, [])
        site.run_for(10)
        assert isinstance(site.failure, SlurmdbdError)
        assert "no run at all" in str(site.failure)
        assert site.ledger.open_runs() == charged
    assert state is not None
    site.run_for(4)
    assert site.failure is None


def test_an_answer_without_any_run_is_right_on_a_new_cluster(site: SimulatedSite) -> None:
    site.run_for(20)
    assert site.failure is None
    assert site.ledger.sync_state() is not None


def test_a_row_that_slurm_lost_is_charged_until_it_was_missed(
    site: SimulatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has ended, slurmdbd has it running for ever (a runaway): seen so twice, its charge ends."""
    job = _submit(site, 30)
    site.run_for(20)
    (alive,) = [row for row in site.cluster.runs(0, site.cluster.now + 1) if row.job_ref == job]
    assert alive.end is None
    ended_about = site.cluster.now + 20
    _answer(site, monkeypatch, [alive])
    site.run_for(100)
    assert site.failure is None
    (run,) = site.ledger.open_runs()
    assert run.charged_to is not None
    assert abs(run.charged_to - ended_about) < 20
    repaired = replace(alive, end=run.charged_to - 5, state="FAILED")
    _answer(site, monkeypatch, [repaired])
    site.run_for(10)
    (run,) = site.ledger.runs_of_job(job)
    assert (run.end, run.charged_to, run.absent_since) == (repaired.end, None, None)
    assert site.ledger.verify_usage()[1] == ()
