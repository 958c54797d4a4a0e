"""Grants and loans through whole cycles of the simulated site: what they let in, and what is booked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.grant import BORROWED
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.service.counts import GRANT, LOAN, RECALL, Entry
from pyslurm_budget.simulate.shapes import Settings, SubmitSpec, small

POOL = "a100"
POLICY = Policy(window=200, hour=10, cap=40, default_contract=20, floor=20, ceiling_part=Fraction(1), restart_quiet=0)


@pytest.fixture
def site() -> Iterator[SimulatedSite]:
    """8 GPUs; nlp has nothing, bio all: 1600 GPU-s in the window of 200 s."""
    budgets = [Budget("nlp", None, (ShareSince(BEGINNING, Fraction(0)),))]
    budgets.append(Budget("bio", None, (ShareSince(BEGINNING, Fraction(1)),)))
    made = SimulatedSite(small(2, 4, settings=Settings(backfill_interval=5)), POLICY, budgets, every=5)
    made.start()
    made.cycle()
    yield made
    made.close()


def give(site: SimulatedSite, gpu_seconds: int, seconds: int | None, lender: str | None = None) -> int:
    now = site.cluster.now
    kind, end = (LOAN if lender else GRANT), None if seconds is None else now + seconds
    entry = Entry(now, kind, "nlp", POOL, gpu_seconds * 1000, now, end, "carol", "a test", lender=lender)
    site.ledger.add_entries([entry])
    return site.ledger.grants(0)[-1].id


def play(site: SimulatedSite, seconds: int) -> None:
    for _ in range(seconds // 5):
        site.cluster.run_for(5)
        site.cycle()


def submit(site: SimulatedSite, gpus: int, work: int) -> str:
    spec = SubmitSpec("alice", "nlp", work, gpus_per_node=gpus, cpus=gpus, nodes=1, time_limit=600)
    return str(site.cluster.submit(spec))


def state(site: SimulatedSite, budget: str) -> dict[str, int]:
    assert site.last is not None
    (found,) = [b for b in site.last.plan.budgets if b.budget == budget]
    return {"charged": found.charged, "granted": found.granted, "allowance": found.allowance}


def booked(site: SimulatedSite) -> list[int]:
    return [g.booked for g in site.ledger.grants(0)]


def backed(site: SimulatedSite) -> int:
    """GPUs of nlp that run as backed."""
    jobs = [j for j in site.cluster.jobs() if j.account == "nlp" and j.qos == "backed" and j.state.value == "RUNNING"]
    return sum(j.held_tres.gpus or 0 for j in jobs)


def test_without_a_grant_it_is_spare(site: SimulatedSite) -> None:
    submit(site, 4, 100)
    play(site, 20)
    assert backed(site) == 0


def test_a_grant_lets_in_and_is_used_up_exactly(site: SimulatedSite) -> None:
    give(site, 300, None)
    play(site, 5)
    submit(site, 4, 100)
    play(site, 20)
    assert backed(site) == 4
    play(site, 100)  # 4 GPUs x 100 s = 400 GPU-s, of which 300 were granted
    assert booked(site) == [300_000]
    assert state(site, "nlp") == {"charged": 100_000, "granted": 0, "allowance": 0}
    play(site, 200)  # the window has gone over all of it: nothing comes back
    assert booked(site) == [300_000]
    assert state(site, "nlp") == {"charged": 0, "granted": 0, "allowance": 0}
    submit(site, 4, 100)
    play(site, 20)
    assert backed(site) == 0


def test_what_is_lent_is_paid_by_the_lender(site: SimulatedSite) -> None:
    give(site, 300, 100, "bio")
    play(site, 5)
    assert state(site, "bio")["allowance"] == 1_300_000
    submit(site, 4, 50)
    play(site, 80)
    assert booked(site) == [200_000]
    assert state(site, "nlp") == {"charged": 0, "granted": 100_000, "allowance": 100_000}
    assert state(site, "bio") == {"charged": 200_000, "granted": -100_000, "allowance": 1_500_000}
    play(site, 60)  # it has ended
    assert state(site, "bio")["granted"] == 0
    assert state(site, "nlp")["allowance"] == 0


def test_a_recalled_loan_takes_no_contract(site: SimulatedSite) -> None:
    number = give(site, 300, 1000, "bio")
    play(site, 5)
    submit(site, 4, 60)
    play(site, 10)
    assert backed(site) == 4
    now = site.cluster.now
    site.ledger.add_entries([Entry(now, RECALL, "nlp", POOL, 0, now, None, "bob", "needed", reverses=number)])
    play(site, 10)
    assert backed(site) == 4
    assert 0 < state(site, "nlp")["granted"] <= 80_000 == 4 * 20 * 1000
    play(site, 120)
    assert 80_000 <= booked(site)[0] <= 240_000
    assert state(site, "bio")["granted"] == 0


def test_a_borrower_uses_what_is_idle_and_owes_no_headroom(site: SimulatedSite) -> None:
    tree = [replace(b, borrow=b.account == "nlp") for b in site.ledger.budgets()]
    site.ledger.save_budgets(tree, site.cluster.now, "carol", "idle nights")
    play(site, 5)
    submit(site, 4, 60)
    play(site, 80)
    assert state(site, "nlp")["charged"] == 0
    lent = [b for b in site.ledger.bookings(0) if b.grant == BORROWED]
    assert sum(b.amount for b in lent) == 240_000
    assert site.last is not None
    assert not site.ledger.budgets()[0].borrow  # bio lends nothing and owes nothing
    assert state(site, "bio") == {"charged": 0, "granted": 0, "allowance": 1_600_000}
