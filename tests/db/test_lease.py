"""Of many controllers one holds the lease, on every database, also when they ask at the same moment."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.errors import LeaseHeldError
from tests.db import other
from tests.db.conftest import new_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger


def test_another_holder_waits_until_it_expires(ledger: SqlLedger) -> None:
    first = ledger.take_lease("a:1", 100, 200)
    with pytest.raises(LeaseHeldError, match=r"a:1.*until 200"):
        ledger.take_lease("b:2", 199, 300)
    assert ledger.take_lease("b:2", 200, 300) > first
    with pytest.raises(LeaseHeldError, match="b:2"):
        ledger.take_lease("a:1", 201, 400)


def test_its_holder_renews_it_and_keeps_the_token(ledger: SqlLedger) -> None:
    first = ledger.take_lease("a:1", 100, 200)
    assert ledger.take_lease("a:1", 150, 250) == first
    with pytest.raises(LeaseHeldError, match="until 250"):
        ledger.take_lease("b:2", 200, 300)


def test_given_back_it_is_free_at_once(ledger: SqlLedger) -> None:
    first = ledger.take_lease("a:1", 100, 200)
    ledger.drop_lease("b:2")
    with pytest.raises(LeaseHeldError):
        ledger.take_lease("b:2", 101, 300)
    ledger.drop_lease("a:1")
    assert ledger.take_lease("b:2", 101, 300) == first + 1


def test_names_of_holders_differ_by_case(ledger: SqlLedger) -> None:
    ledger.take_lease("Host:1", 100, 200)
    with pytest.raises(LeaseHeldError):
        ledger.take_lease("host:1", 101, 300)


def test_each_cluster_has_its_own(opened: Callable[[str], SqlLedger]) -> None:
    opened(new_cluster()).take_lease("a:1", 100, 200)
    opened(new_cluster()).take_lease("b:2", 100, 200)


ROUNDS = 25


def test_processes_that_race_for_it(database: str) -> None:
    """Time is counted in rounds and a lease lasts one: nobody may win a round that another has won."""
    holders = ["a", "b", "c"]
    answers = other.race(database, new_cluster(), "lease", [[holder, str(ROUNDS)] for holder in holders])
    won: dict[int, list[str]] = {}
    tokens: dict[int, set[str]] = {}
    for holder, lines in zip(holders, answers, strict=True):
        for turn, token in (map(int, line.split()) for line in lines):
            won.setdefault(turn, []).append(holder)
            tokens.setdefault(token, set()).add(holder)
    assert all(len(winners) == 1 for winners in won.values()), won
    assert 0 in won
    assert all(len(owners) == 1 for owners in tokens.values()), tokens
    in_order = [won[turn][0] for turn in sorted(won)]
    changes = sum(before != after for before, after in pairwise(in_order))
    assert len(tokens) == changes + 1
