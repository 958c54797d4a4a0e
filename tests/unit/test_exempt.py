"""Protected and interactive jobs: charged, stopped by nobody of us, few, and never for nothing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.candidate import contract_of
from pyslurm_budget.domain.evaluate import drains, evaluate, open_books
from pyslurm_budget.domain.exempt import Protection, obstacle, protection_of
from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import NotFoundError, ProtectionError
from pyslurm_budget.service.protections import protect, unprotect
from tests.build import (
    DAY,
    HOUR,
    NOW,
    POOL,
    array,
    held,
    live,
    node,
    nodes,
    pending,
    running,
    situation,
    snapshot,
    use,
)
from tests.unit.made import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyslurm_budget.ledger.store import SqlLedger


def protection(ref: str = "1", **changes: Any) -> Protection:
    given: dict[str, Any] = {
        "ref": ref,
        "job_id": int(ref.partition("_")[0]),
        "at": NOW - HOUR,
        "until": NOW + DAY,
        "who": "root",
        "why": "the demo on Friday",
    }
    return Protection(**{**given, **changes})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from open_ledger(tmp_path)


def test_a_waiting_protected_job_is_backed_whatever_its_budget_has_left() -> None:
    broke: dict[str, Any] = {"uses": (use("red", 1300 * HOUR),)}
    job = pending(1, 8, comment="min-runtime=0")
    assert evaluate(situation([job], on=nodes(4), **broke)).plan.admissions[0].work_class is WorkClass.SPARE
    plan = evaluate(situation([job], on=nodes(4), protections=(protection(),), **broke)).plan
    assert (plan.admissions[0].work_class, plan.admissions[0].reason.code) == (WorkClass.BACKED, "exempt")
    assert plan.notes[0].code == "is-exempt"


def test_without_a_budget_nobody_would_pay_for_it() -> None:
    job = pending(1, 8, account="nobody")
    plan = evaluate(situation([job], protections=(protection(),))).plan
    assert [a.reason.code for a in plan.admissions] == ["no-budget"]


def test_until_it_expires_it_is_not_requeued_for_a_drain_and_what_it_will_use_is_promised() -> None:
    run = live(running(101, held("n1", 8)))
    on = [node("n1", draining=True, reason="xid", reason_since=NOW - HOUR), *nodes(9)[1:]]
    exempt = replace(run, exempt_until=NOW + 60, stoppable=False)
    assert [a.ref for a in drains(situation((), [run], on))] == ["101"]
    assert drains(situation((), [exempt], on)) == []
    spare = live(running(101, held("n1", 8), qos="spare"), exempt_until=NOW + 60)
    assert drains(situation((), [spare], on)) == []
    books = open_books(situation((), [exempt], on))
    assert books.books["blue", POOL].outstanding == 60 * 8000


@given(st.integers(-3, 3), st.none() | st.integers(-3, 3))
def test_it_is_in_force_from_its_begin_to_its_end(until: int, ended: int | None) -> None:
    p = protection("101", until=NOW + until, ended=None if ended is None else NOW + ended)
    assert (protection_of(running(101), [p], NOW) is not None) == (until > 0 and ended is None)
    assert protection_of(running(102), [p], NOW) is None


@pytest.mark.parametrize(
    ("job", "until", "words"),
    [
        (running(), NOW, "over already"),
        (running(), NOW + 31 * DAY, "longest protection is 30 d"),
        (array(7, [1, 2]), NOW + HOUR, "name one task"),
        (replace(running(), state=JobState.OTHER), NOW + HOUR, "has ended"),
        (running(qos="other"), NOW + HOUR, "not managed"),
        (running(qos="spare"), NOW + HOUR, "runs as spare"),
        (running(), NOW + 30 * DAY, None),
        (pending(qos="spare"), NOW + HOUR, None),
    ],
)
def test_what_cannot_be_protected_is_said(job: Any, until: int, words: str | None) -> None:
    said = obstacle(job, until, NOW, Policy())
    assert said is None if words is None else words in (said or "")


def test_together_they_are_capped(ledger: SqlLedger) -> None:
    jobs = [running(101, held("n1", 8)), running(102, held("n2", 4)), pending(103, 4), pending(104, 1)]
    policy = Policy(exempt_part=Fraction(1, 2), exempt_least_gpus=8)
    shot = snapshot(jobs, nodes(4))

    def ask(ref: str, why: str = "a service") -> None:
        protect(ledger, shot, policy, protection(ref, at=NOW, why=why))

    for ref in ("101", "102", "103"):
        ask(ref)
    with pytest.raises(ProtectionError, match="holds 1 GPUs, and 16 of at most 16 in a100 are exempt"):
        ask("104")
    ask("103")  # again: it is counted once
    unprotect(ledger, "102", NOW, "root")
    ask("104")
    assert [p.ref for p in ledger.protections(since=NOW)] == ["101", "103", "104"]
    with pytest.raises(NotFoundError, match="not protected"):
        unprotect(ledger, "102", NOW, "root")
    with pytest.raises(NotFoundError, match="not known"):
        ask("999")
    with pytest.raises(ProtectionError, match="reason"):
        ask("104", " ")


NAMES = st.text("abo-.%*?[]", max_size=6)


@given(st.text("abo-.%", max_size=4), NAMES)
def test_patterns_mean_what_they_say(name: str, pattern: str) -> None:
    def found(text: str, by: str) -> bool:
        if not by:
            return not text
        if by[0] == "*":
            return any(found(text[i:], by[1:]) for i in range(len(text) + 1))
        return bool(text) and by[0] in ("?", text[0]) and found(text[1:], by[1:])

    assert Interactive(names=(pattern,)).matches((), "backed", name) == found(name, pattern)


def test_an_interactive_job_has_its_time_limit_as_its_contract() -> None:
    policy = Policy(interactive=Interactive(("ood",), ("backed",), ("jupyter*",)))
    for job in (
        pending(partitions=("gpu", "ood"), qos="x"),
        pending(qos="spare"),
        pending(name="jupyter-7", qos="x"),
    ):
        assert contract_of(policy, replace(job, time_limit=6 * HOUR)) == (6 * HOUR, None)
        _, why = contract_of(policy, replace(job, time_limit=9 * HOUR))
        assert why is not None
        assert why.code == "cannot-requeue-too-long"
    assert contract_of(policy, pending(name="my-jupyter", qos="x")) == (HOUR, None)
