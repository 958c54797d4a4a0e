"""The way of a row through the product: saved accounting, the ledger, the books of a moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from pyslurm_budget.domain.books import Books, marks
from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.budgets import read_budget_file
from pyslurm_budget.service.dump import DumpCounts, load_dump
from pyslurm_budget.service.facts import uses_of
from pyslurm_budget.service.ports import RunFacts
from pyslurm_budget.slurm.dump import DumpAccounting
from tests.counting.oracle import Row, Totals, by_piece

EVER = 1 << 40
# Account "far" has no budget: nobody pays for it.
BUDGETS = """
[budgets.lab]
share = "90%"
[budgets.nlp]
parent = "lab"
share = "50%"
[budgets.bio]
parent = "nlp"
share = "50%"
[budgets."(none)"]
share = "10%"
"""
PATHS = {"lab": ("lab",), "nlp": ("nlp", "lab"), "bio": ("bio", "nlp", "lab"), "(none)": ("(none)",)}
POOLS = ("gpu", "a100", "h100")
_numbers = count(1)


class Ledgers:
    """New ledgers in one SQLite file, a cluster each: to make a file for every example would take far longer."""

    def __init__(self, folder: Path) -> None:
        url = f"sqlite:///{folder}/ledger.sqlite"
        upgrade(url)
        self._ledger = SqlLedger(url, "c0")

    def new(self) -> SqlLedger:
        """A ledger of a new cluster; the one given before is it, too, from now on."""
        self._ledger._cluster = f"c{next(_numbers)}"
        self._ledger._groups.clear()
        self._ledger.save_budgets(read_budget_file(BUDGETS, 0), 0, "root", "")
        return self._ledger

    def close(self) -> None:
        """Close the file."""
        self._ledger.close()


def load(ledger: SqlLedger, text: str, when: int | None, zone: str = "UTC") -> DumpCounts:
    """Load what was saved ``when`` (``None``: nobody says); whatever is not read is an error here."""
    accounting = DumpAccounting(text, as_of=when, timezone=zone)
    counts = load_dump(accounting, ledger, Policy(), when or 0)
    assert accounting.summary.lost == 0, accounting.summary.examples
    return counts


def everything(ledger: SqlLedger) -> set[RunFacts]:
    """All runs of the ledger."""
    return set(ledger.runs_between(-EVER, EVER))


def books(ledger: SqlLedger, start: int, end: int) -> Books:
    """The books at ``end`` of the window that began at ``start``, as a cycle makes them."""
    policy = replace(Policy(), window=end - start, cap=min(Policy().cap, end - start))
    tree = BudgetTree({budget.account: budget for budget in ledger.budgets()})
    made = Books(tree, policy, {(b, p): 0 for b in tree.budgets for p in POOLS}, {}, end)
    made.enter(ledger.history(marks(policy, end), end))
    for run in ledger.open_runs():
        made.charge(uses_of(run, enforcing=True, live=False, now=end, run_on=policy.run_on_price))
    return made


def charges(of: Books) -> dict[tuple[str, str], int]:
    """Charged mGPU-s by (budget, pool), those that are not 0."""
    return {key: book.charged_now for key, book in of.books.items() if book.charged_now}


def users_in(of: Books, budget: str) -> dict[str, int]:
    """mGPU-s of each user of the budget and those below it, backed and spare, that are not 0."""
    found: dict[str, int] = defaultdict(int)
    for (name, _), book in of.books.items():
        if name == budget:
            for user, amount in book.user_all.items():
                found[user] += amount
    return {user: amount for user, amount in found.items() if amount}


def expected(rows: list[Row], start: int, end: int, spare: frozenset[str]) -> dict[tuple[str, str], int]:
    """The same by the counter of these tests: every account pays in its budget and in those above it."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for (account, flavor), total in by_piece(rows, start, end, end, ("account", "flavor"), spare=spare).items():
        for budget in PATHS.get(account, ()):
            found[budget, flavor] += total.charged
    return {key: amount for key, amount in found.items() if amount}


def users_of(rows: list[Row], budget: str, start: int, end: int) -> dict[str, int]:
    """The same by the counter of these tests."""
    found: dict[str, int] = defaultdict(int)
    groups: Totals = by_piece(rows, start, end, end, ("account", "user"))
    for (account, user), total in groups.items():
        if budget in PATHS.get(account, ()):
            found[user] += total.priced
    return {user: amount for user, amount in found.items() if amount}


def opened(folder: Path) -> Iterator[Ledgers]:
    """Ledgers for a fixture."""
    ledgers = Ledgers(folder)
    yield ledgers
    ledgers.close()
