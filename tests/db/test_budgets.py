"""The budget tree, its history, the class map and named values, on every database."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from pyslurm_budget.domain.budget import Budget, ShareSince
from tests.db.conftest import new_cluster
from tests.db.made import ODD

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger

ROOT = Budget("lab", None, (ShareSince(0, Fraction(1)),))
NLP = Budget("nlp", "lab", (ShareSince(0, Fraction(1, 3)), ShareSince(0, Fraction(1, 7), "h100")))
BIO = Budget("bio", "lab", (ShareSince(0, Fraction(2, 3)),))


def test_a_tree_comes_back_exactly_and_in_order(ledger: SqlLedger) -> None:
    assert ledger.budgets() == ()
    odd = Budget("odd", "lab", (ShareSince(0, ODD), ShareSince(10, Fraction(0)), ShareSince(9, -ODD, "a")))
    ledger.save_budgets([odd, ROOT, BIO], 100, "carol", "the first tree")
    by_time = Budget("odd", "lab", (ShareSince(0, ODD), ShareSince(9, -ODD, "a"), ShareSince(10, Fraction(0))))
    assert ledger.budgets() == (BIO, ROOT, by_time)


def test_what_changed_is_told_with_who_when_and_why(ledger: SqlLedger) -> None:
    ledger.save_budgets([ROOT, NLP], 100, "carol", "the first tree")
    assert ledger.budget_changes() == (
        (100, "carol", "the first tree", "added lab below the top"),
        (100, "carol", "the first tree", "share of lab in pool *: 1/1 from 0"),
        (100, "carol", "the first tree", "added nlp below lab"),
        (100, "carol", "the first tree", "share of nlp in pool *: 1/3 from 0"),
        (100, "carol", "the first tree", "share of nlp in pool h100: 1/7 from 0"),
    )
    less = Budget("nlp", None, (NLP.shares[0], ShareSince(200, Fraction(1, 4))))
    ledger.save_budgets([less], 200, "bob", "agreed in March")
    assert ledger.budget_changes()[5:] == (
        (200, "bob", "agreed in March", "removed lab"),
        (200, "bob", "agreed in March", "moved nlp from lab to the top"),
        (200, "bob", "agreed in March", "share of nlp in pool *: 1/4 from 200"),
        (200, "bob", "agreed in March", "forgotten: share of nlp in pool h100 since 0: 1/7"),
    )
    assert ledger.budgets() == (less,)


def test_the_same_tree_again_changes_nothing(ledger: SqlLedger) -> None:
    ledger.save_budgets([ROOT, NLP], 100, "carol", "first")
    before = ledger.budget_changes()
    turned = Budget("nlp", "lab", tuple(reversed(NLP.shares)))
    ledger.save_budgets([turned, ROOT], 200, "bob", "again")
    assert (ledger.budgets(), ledger.budget_changes()) == ((ROOT, NLP), before)


def test_a_tree_is_never_read_half_old_half_new(opened: Callable[[str], SqlLedger]) -> None:
    """Another process applies a tree between the two statements of a read."""
    cluster = new_cluster()
    reader, writer = opened(cluster), opened(cluster)
    old = (Budget("lab", None, (ShareSince(0, Fraction(1, 2)),)),)
    new = (Budget("all", None, (ShareSince(0, Fraction(1)),)), Budget("lab", "all", (ShareSince(0, Fraction(1, 4)),)))
    writer.save_budgets(old, 100, "carol", "old")
    done: list[int] = []

    def between(_c: object, _u: object, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT") and not done:
            done.append(1)
            writer.save_budgets(new, 200, "carol", "new")

    event.listen(reader._engine, "after_cursor_execute", between)
    assert reader.budgets() == old
    assert done
    assert reader.budgets() == new


def test_two_who_change_the_tree_at_once_both_stand_in_its_history(opened: Callable[[str], SqlLedger]) -> None:
    """Played from the beginning, the history gives the tree, whoever came second."""
    cluster = new_cluster()
    people = {name: opened(cluster) for name in ("bob", "carol")}

    def apply(name: str) -> None:
        for turn in range(15):
            people[name].save_budgets([Budget(f"{name}{turn % 3}", None, ())], turn, name, "")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(apply, people))
    played: set[str] = set()
    for _, _, _, change in people["bob"].budget_changes():
        found = re.fullmatch(r"(added|removed) (\w+)( below the top)?", change)
        assert found is not None
        if found[1] == "added":
            assert found[2] not in played
            played.add(found[2])
        else:
            played.remove(found[2])
    assert played == {b.account for b in people["bob"].budgets()}


def test_the_class_map_has_a_history(ledger: SqlLedger) -> None:
    assert ledger.class_map() == {}
    ledger.save_class_map({"normal": "normal-spare", "high": "high-spare"}, 100)
    ledger.save_class_map({"normal": "normal-spare", "high": "high-spare"}, 150)
    ledger.save_class_map({"normal": "spare"}, 200)
    assert ledger.class_map() == {"normal": "spare"}
    assert ledger.class_map(199) == {"normal": "normal-spare", "high": "high-spare"}
    assert ledger.class_map(99) == {}
    ledger.save_class_map({}, 200)
    assert ledger.class_map() == {}
    ledger.save_class_map({"high": "x"}, 300)
    assert ledger.class_map() == {"high": "x"}


def test_named_values(ledger: SqlLedger) -> None:
    assert ledger.get("breaker") is None
    ledger.put("breaker", "3 jobs lost")
    ledger.put("Breaker", "")
    ledger.put("breaker", "x" * 100_000 + "🦊")
    assert (ledger.get("breaker"), ledger.get("Breaker")) == ("x" * 100_000 + "🦊", "")
    ledger.put("breaker", None)
    ledger.put("breaker", None)
    assert ledger.get("breaker") is None


def test_many_may_set_a_value_for_the_first_time_at_once(opened: Callable[[str], SqlLedger]) -> None:
    cluster = new_cluster()
    ledgers = [opened(cluster) for _ in range(4)]

    def put(ledger: SqlLedger) -> None:
        for turn in range(10):
            ledger.put(f"name{turn}", "value")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, ledgers))
    assert {ledgers[0].get(f"name{turn}") for turn in range(10)} == {"value"}
