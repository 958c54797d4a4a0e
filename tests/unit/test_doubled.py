"""A job that was requeued as often as one may be in a day gets twice the contract, pays for it, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.candidate import candidates, contract_of
from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import RunKey
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import Requeued
from tests.build import HOUR, NOW, pending, situation

OFTEN = Policy().requeues_per_job_day


@given(st.integers(0, 9 * HOUR), st.none() | st.integers(1, 20 * HOUR), st.integers(0, 6))
def test_twice_up_to_the_cap_and_the_time_limit(minimum: int, limit: int | None, requeues: int) -> None:
    policy = Policy()
    job = pending(comment=f"min-runtime={minimum}s", time_limit=limit)
    once, why = contract_of(policy, job)
    now, why_now = contract_of(policy, job, requeues)
    assert why_now == why
    if requeues < OFTEN:
        assert now == once
    else:
        assert now == min(2 * once, policy.cap, max(limit or policy.cap, once))
    assert once <= now <= policy.cap


@pytest.mark.parametrize("count", [OFTEN - 1, OFTEN])
def test_it_is_priced_at_what_it_gets(count: int) -> None:
    past = tuple(
        Requeued(NOW - i - 1, ActionKind.DISPLACE, "1", RunKey(1, i), "done", "red", "9", "blue", 1)
        for i in range(count)
    )
    other = Requeued(NOW - 1, ActionKind.DISPLACE, "2", RunKey(2, 1), "done", "red", "9", "blue", 1)
    (found,) = candidates(situation([pending(1, 8, comment="min-runtime=2h")], requeued=(*past, other)))
    expected = 4 * HOUR if count == OFTEN else 2 * HOUR
    assert (found.contract, found.price.amount) == (expected, 8000 * expected)


def test_an_interactive_job_has_its_time_limit_as_ever() -> None:
    policy = Policy(interactive=Interactive(names=("ood*",)))
    assert contract_of(policy, pending(name="ood", time_limit=3 * HOUR), OFTEN) == (3 * HOUR, None)
