"""Credits after a node failure (design 4.2): what is lost since the last full contract leaves the charge."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.books import Books, History, marks
from pyslurm_budget.domain.credit import Credit, credit_history, lost_time
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.service.credits import credits_of
from pyslurm_budget.service.ports import RunFacts, RunPart
from tests.build import DAY, HOUR, NOW, POOL, tree
from tests.unit import made


def run(hours: int = 7, state: str = "NODE_FAIL", **changes: Any) -> RunFacts:
    return made.run(made.MONDAY, made.MONDAY, made.MONDAY + hours * HOUR, state, **changes)


@given(st.integers(0, 10**6), st.integers(0, 5000), st.integers(0, 700))
def test_lost_is_what_the_contracts_do_not_cover(start: int, length: int, minimum: int) -> None:
    """Against counting whole contracts one by one."""
    at = start
    while minimum and at + minimum <= start + length:
        at += minimum
    expected = (at, start + length) if minimum and at < start + length else None
    assert lost_time(start, start + length, minimum) == expected


def test_a_run_is_credited_once_for_the_time_since_its_last_full_contract() -> None:
    (entry,) = credits_of(run(), made.contract(run(), 3 * HOUR), now=5)
    assert (entry.kind, entry.account, entry.pool, entry.key) == ("credit", "olmo", "a100", run().key)
    assert (entry.begin, entry.end) == (made.MONDAY + 6 * HOUR, made.MONDAY + 7 * HOUR)
    assert entry.amount == 64_000 * HOUR
    assert entry.at == 5


@pytest.mark.parametrize(
    ("changes", "minimum"),
    [
        ({"state": "PREEMPTED"}, HOUR * 3),
        ({"state": "FAILED"}, HOUR * 3),
        ({"charged_as": WorkClass.SPARE}, HOUR * 3),
        ({"budget": None}, HOUR * 3),
        ({"hours": 6}, HOUR * 3),
        ({}, 0),
    ],
)
def test_no_credit(changes: dict[str, Any], minimum: int) -> None:
    """Not a node failure, nothing was charged, or nothing was lost."""
    of = run(**changes)
    assert list(credits_of(of, made.contract(of, minimum), now=5)) == []


def test_each_pool_of_a_run_has_its_entry() -> None:
    parts = (RunPart("a100", "a100", 1, 1000), RunPart("h100", "h100", 2, 2000), RunPart("a100", "a100-80", 1, 500))
    of = run(parts=parts)
    found = list(credits_of(of, made.contract(of, 6 * HOUR), now=5))
    assert [(e.kind, e.pool, e.amount) for e in found] == [
        ("credit", "a100", 1500 * HOUR),
        ("credit-2", "h100", 2000 * HOUR),
    ]


@given(
    st.integers(1, 8), st.integers(-8 * DAY, -1), st.integers(1, 12 * HOUR), st.integers(1, 8 * HOUR), st.booleans()
)
def test_a_credit_leaves_the_charge_at_every_mark(gpus: int, ago: int, length: int, minimum: int, half: bool) -> None:
    """A run and its credit charge as the run without its lost seconds, to the second, at each segment's window."""
    start, end = NOW + ago - length, NOW + ago
    lost = lost_time(start, end, minimum)
    policy = Policy(run_on_price=Fraction(1, 2) if half else Fraction(1))
    begins = marks(policy, NOW)
    protected = min(start + minimum, end)

    def held(low: int, high: int) -> tuple[int, ...]:
        return tuple(1000 * gpus * max(0, high - max(low, begin)) for begin in begins)

    def books(parts: list[History]) -> Books:
        found = Books(tree(), policy, {("red", POOL): 10**12}, {POOL: 8}, NOW)
        found.enter(parts)
        return found

    whole = [
        History("red", "alice", POOL, WorkClass.BACKED, False, held(start, protected)),
        History("red", "alice", POOL, WorkClass.BACKED, True, held(protected, end)),
    ]
    left = list(whole)
    if lost is not None:
        run_on = lost[0] >= start + minimum
        whole.append(
            credit_history(Credit("red", "alice", POOL, run_on, 1000 * gpus * (end - lost[0]), *lost), begins)
        )
        kept = (start, min(protected, lost[0])), (min(protected, lost[0]), lost[0])
        left = [
            History("red", "alice", POOL, WorkClass.BACKED, False, held(*kept[0])),
            History("red", "alice", POOL, WorkClass.BACKED, True, held(*kept[1])),
        ]
    mine, right = books(whole).books["red", POOL], books(left).books["red", POOL]
    assert mine.charged == right.charged
    assert mine.charged_now == right.charged_now
    assert {k: v for k, v in mine.user_use.items() if v} == {k: v for k, v in right.user_use.items() if v}
    assert mine.spare_used == 0
