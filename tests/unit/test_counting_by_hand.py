"""The job that docs/explanation/counting.md works out by hand, by the rules."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.model import RunKey, RunRecord, WorkClass
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.service.facts import FactMaker
from pyslurm_budget.service.pieces import pieces
from pyslurm_budget.slurm.fields import tres_of
from tests.build import node, snapshot

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "counting.md"
TRES = "cpu=32,gres/gpu=1,gres/gpu:a100=1,mem=64G,node=1"
WEEK = 7 * 86400


def _at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_the_page_and_the_rules_say_the_same() -> None:
    start, end = "2026-11-30T22:10:00", "2026-12-01T03:40:00"
    of = (node("n1", gpus=8, cpus=64, memory_mb=512 * 1024),)
    record = RunRecord(
        RunKey(4711, _at("2026-11-30T09:00:00")), "4711", "nlp", "alice", "backed", "gpu", "COMPLETED", None,
        _at(start), _at(end), 1800, None, tres_of(TRES), 1, ("n1",),
    )  # fmt: skip
    policy = Policy()
    run = FactMaker(policy, BudgetTree(), snapshot(on=of), PoolMap(policy.pools, of, ())).from_record(record)
    assert run is not None
    (piece,) = pieces(run, _at(end), WorkClass.BACKED)
    page = PAGE.read_text()
    assert f"| {start} | {end} | 00:30:00 |" in page
    assert TRES in page
    assert (piece.gpus, piece.rate) == (1, 4000)
    for now, charged in (("2026-12-07T23:00:00", "18.667"), ("2026-12-08T00:00:00", "14.667")):
        seconds = piece.end - max(piece.begin, _at(now) - WEEK)
        assert f"**{float(Fraction(piece.rate * seconds, 3_600_000)):.3f}" in page
        assert f"**{charged}" in page
    assert _at("2026-12-08T03:40:00") - WEEK == piece.end
