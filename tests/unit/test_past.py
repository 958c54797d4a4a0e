"""What nodes were while nobody looked, and reservations, through whole cycles over the simulated cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.holding import NodeEvent
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import SlurmdbdError
from pyslurm_budget.simulate.shapes import Settings, small
from tests.unit.sim import job

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3600
WEEK = 7 * 24 * HOUR
POLICY = Policy(restart_quiet=0, overdraft=Fraction(0))


@pytest.fixture
def site() -> Iterator[SimulatedSite]:
    """Four nodes of four GPUs; three budgets of a quarter each; a cycle every ten minutes."""
    budgets = [Budget(name, None, (ShareSince(BEGINNING, Fraction(1, 4)),)) for name in ("nlp", "vision", "bio")]
    spec = small(4, 4, settings=Settings(kill_wait=0, epilog=0))
    made = SimulatedSite(spec, POLICY, budgets, every=600, lease=5)
    yield made
    made.close()


def row(site: SimulatedSite, budget: str) -> dict[str, Any]:
    assert site.published.state is not None
    (found,) = [r for r in json.loads(site.published.state)["budgets"] if r["budget"] == budget]
    return dict(found)


def lost(site: SimulatedSite) -> int:
    """GPU-seconds that the pool has less than whole."""
    return WEEK * 16 - 4 * row(site, "nlp")["allowance"] // 1000


def test_a_node_that_was_down_while_no_controller_ran_leaves_the_capacity(site: SimulatedSite) -> None:
    site.start()
    site.run_for(HOUR)
    assert lost(site) == 0
    site.kill()
    site.cluster.fail_node("n1")
    site.cluster.run_for(5 * HOUR)
    site.cluster.recover_node("n1")
    site.cluster.run_for(3 * HOUR)
    site.start()
    site.run_for(1)
    assert lost(site) == 4 * 5 * HOUR


def test_sampled_time_is_not_counted_again_by_events(site: SimulatedSite) -> None:
    site.start()
    site.run_for(600)
    site.cluster.drain("n1")
    site.run_for(3 * HOUR)
    assert lost(site) == 4 * 3 * HOUR
    site.kill()
    site.cluster.run_for(2 * HOUR)
    site.start()
    site.run_for(1)
    assert lost(site) == 4 * 5 * HOUR


def test_events_before_the_install_are_known(site: SimulatedSite) -> None:
    site.cluster.fail_node("n1")
    site.cluster.run_for(HOUR)
    site.cluster.recover_node("n1")
    site.cluster.run_for(10 * HOUR)
    site.start()
    site.run_for(1)
    assert lost(site) == 4 * HOUR


def test_a_drain_counts_from_when_the_node_is_empty(site: SimulatedSite) -> None:
    ref = site.cluster.submit(job(gpus=4, work=1000))
    site.cluster.run_for(10)
    found = site.cluster.job(ref)
    assert found is not None
    node = found.allocation[0].node
    site.cluster.drain(node)
    begin = site.cluster.now
    assert site.cluster.node_events(0, 1 << 40) == ()
    site.cluster.run_for(2000)
    (event,) = site.cluster.node_events(0, 1 << 40)
    assert event == NodeEvent(node, event.start, None, "DRAIN")
    assert begin + 900 < event.start < begin + 1000


def test_events_are_read_once_an_hour_and_a_failure_is_no_empty_answer(site: SimulatedSite) -> None:
    site.start()
    site.run_for(1)
    first = site.ledger.past_read()
    site.run_for(HOUR - 600)
    assert site.ledger.past_read() == first
    site.cluster.fail_reads("accounting", site.cluster.now + HOUR)
    site.run_for(1200)
    assert isinstance(site.failure, SlurmdbdError)
    assert site.ledger.past_read() == first
    site.run_for(HOUR)
    assert site.ledger.past_read() != first


def test_the_idle_part_of_a_bought_reservation_is_charged(site: SimulatedSite) -> None:
    """Two nodes for two hours; nlp runs four GPUs in it for about half an hour."""
    site.start()
    site.run_for(1)
    begin = site.cluster.now
    site.cluster.reserve("bought", nodes=["n1", "n2"], start=begin, end=begin + 2 * HOUR, accounts=["nlp"])
    site.cluster.submit(replace(job(gpus=4, work=1800), reservation="bought", time_limit=HOUR))
    site.run_for(HOUR)
    state = row(site, "nlp")
    seen = json.loads(site.published.state or "")["as_of"]
    assert state["charged"] == 8000 * (seen - begin)
    site.run_for(3 * HOUR)
    assert row(site, "nlp")["charged"] == 8000 * 2 * HOUR
    assert row(site, "vision")["charged"] == 0
    assert lost(site) == 0


def test_two_accounts_pay_half_each_and_a_reservation_of_ours_costs_nothing(site: SimulatedSite) -> None:
    site.start()
    begin = site.cluster.now
    site.cluster.reserve("both", nodes=["n1"], start=begin, end=begin + HOUR, accounts=["nlp", "bio"])
    site.cluster.reserve("sbudget_1", nodes=["n2"], start=begin, end=begin + HOUR, accounts=["vision"])
    site.run_for(2 * HOUR)
    assert [row(site, name)["charged"] for name in ("nlp", "bio", "vision")] == [2000 * HOUR, 2000 * HOUR, 0]
    assert lost(site) == 0


def test_a_reservation_that_nobody_pays_for_leaves_the_capacity(site: SimulatedSite) -> None:
    """Also the part of it that no controller saw."""
    site.start()
    site.run_for(1)
    begin = site.cluster.now
    site.cluster.reserve("course", nodes=["n1"], start=begin, end=begin + 6 * HOUR, accounts=["strangers"])
    site.run_for(2 * HOUR)
    seen = json.loads(site.published.state or "")["as_of"]
    assert abs(lost(site) - 4 * (seen - begin)) <= 4 * 600  # to a cycle
    site.kill()
    site.cluster.run_for(10 * HOUR)
    site.start()
    site.run_for(1)
    assert abs(lost(site) - 4 * 6 * HOUR) <= 4 * 600
    assert row(site, "nlp")["charged"] == 0


def test_one_that_was_deleted_early_costs_until_then(site: SimulatedSite) -> None:
    site.start()
    site.run_for(1)
    begin = site.cluster.now
    site.cluster.reserve("bought", nodes=["n1"], start=begin, end=begin + 9 * HOUR, accounts=["nlp"])
    site.run_for(HOUR)
    site.kill()
    site.cluster.release("bought")
    over = site.cluster.now
    site.cluster.run_for(3 * HOUR)
    site.start()
    site.run_for(1)
    assert row(site, "nlp")["charged"] == 4000 * (over - begin)


def test_a_fixed_capacity_counts_whatever_the_nodes_do(site: SimulatedSite) -> None:
    """For the allowance and the ceiling of contracts."""
    site.policy = replace(POLICY, fixed={"a100": 100})
    site.cluster.fail_node("n1")
    site.start()
    site.run_for(HOUR)
    assert row(site, "nlp")["allowance"] == 1000 * 25 * WEEK


def test_a_node_failure_is_credited_in_the_next_cycle_and_once(site: SimulatedSite) -> None:
    """Contracts of 1,000 s: a run that fails after 2,500 s has lost 500 s, and pays for the rest."""
    site.start()
    site.run_for(1)
    ref = site.cluster.submit(job(gpus=4, work=9000, comment="min-runtime=1000s"))
    site.cluster.run_for(1)
    (live,) = [j for j in site.cluster.jobs() if j.ref == ref]
    assert live.start is not None
    site.run_for(live.start + 2500 - site.cluster.now)
    site.cluster.fail_node(live.allocation[0].node)
    site.cluster.drain("n1")
    for _ in range(2):
        site.run_for(600)
        (entry,) = site.ledger.entries_of([live.key])
        assert (entry.kind, entry.amount, entry.end) == ("credit", 4000 * 500, live.start + 2500)
        again = [r for r in site.ledger.runs_of_job(ref) if r.key != live.key and r.start is not None]
        seen = json.loads(site.published.state or "")["as_of"]
        assert row(site, "nlp")["charged"] == 4000 * (2000 + sum(seen - (r.start or 0) for r in again))


def test_the_ceiling_of_contracts_is_a_part_of_the_fixed_capacity(site: SimulatedSite) -> None:
    """Of two GPUs at most three quarters may be under contract for a budget of a quarter: no job of two GPUs."""
    site.policy = replace(POLICY, fixed={"a100": 2}, ceiling_part=Fraction(0))
    site.cluster.submit(job(gpus=2, work=60))
    site.start()
    site.run_for(1)
    (judged,) = site.ledger.admissions()
    assert (judged.reason.code, judged.reason.numbers["left"]) == ("not-admitted-ceiling", 1500)
