"""The budget file: read, checked against itself and against Slurm's accounts, merged with what was in force before.

One table a budget, flat, with the name of its parent (``docs/reference/configuration.md``)::

    [budgets.lab]
    share = "100%"

    [budgets.nlp]
    parent = "lab"
    share = "35%"                         # of lab's, in every pool

    [budgets.bio]
    parent = "lab"
    account = "biology"                   # Slurm's account, where it is not the name
    share = { "*" = "10%", h100 = "40%" } # other pools, and one of its own
    borrow = true                         # may use what its siblings leave unused
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyslurm_budget import values
from pyslurm_budget.domain.budget import ANY_POOL, BEGINNING, Budget, BudgetTree, ShareLoan, ShareSince
from pyslurm_budget.errors import BudgetFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_KEYS = ("parent", "account", "share", "borrow")


def read_budget_file(text: str, now: int, source: str = "budget file") -> tuple[Budget, ...]:
    """The budgets of the file's text, in its order, every share from ``now`` on. Raises BudgetFileError.

    Checks what the text alone can tell; :func:`check_tree` checks the rest.
    """
    try:
        document = values.read_toml(text)
    except tomllib.TOMLDecodeError as failure:
        raise BudgetFileError(f"{source}: is not valid TOML: {failure}") from failure
    for name in document:
        if name != "budgets":
            raise BudgetFileError(f"{source}: unknown key {name}; accepted are tables [budgets.NAME]")
    tables = document.get("budgets")
    if not isinstance(tables, dict) or not tables:
        raise BudgetFileError(f"{source}: has no budget; accepted are tables [budgets.NAME]")
    accounts = {name: _account(name, table, source) for name, table in tables.items()}
    _no_account_twice(accounts, source)
    return tuple(
        Budget(
            accounts[name],
            _parent(name, table, accounts, source),
            _shares(name, table, now, source),
            _borrow(name, table, source),
        )
        for name, table in tables.items()
    )


def _borrow(name: str, table: dict[str, Any], source: str) -> bool:
    borrow = table.get("borrow", False)
    if not isinstance(borrow, bool):
        raise BudgetFileError(
            f"{source}: budgets.{name}.borrow: found {values.shown(borrow)}; accepted is true or false"
        )
    return borrow


def _account(name: str, table: Any, source: str) -> str:
    if not isinstance(table, dict):
        raise BudgetFileError(f"{source}: budgets.{name}: found {values.shown(table)}; accepted is a table")
    for key in table:
        if key not in _KEYS:
            raise BudgetFileError(f"{source}: budgets.{name}: unknown key {key}{values.nearest(key, _KEYS)}")
    account = table.get("account", name)
    if not isinstance(account, str) or not account.strip():
        raise BudgetFileError(f"{source}: budgets.{name}.account: found {values.shown(account)}; accepted is a name")
    return account.strip().lower()


def _no_account_twice(accounts: Mapping[str, str], source: str) -> None:
    for account, count in Counter(accounts.values()).items():
        if count > 1:
            names = " and ".join(sorted(name for name, bound in accounts.items() if bound == account))
            raise BudgetFileError(f"{source}: account {account} is bound to {names}: an account has one budget")


def _parent(name: str, table: dict[str, Any], accounts: Mapping[str, str], source: str) -> str | None:
    parent = table.get("parent")
    if parent is None:
        return None
    if parent not in accounts:
        raise BudgetFileError(
            f"{source}: budgets.{name}: parent {values.shown(parent)} is no budget of this file"
            f"{values.nearest(str(parent), accounts)}"
        )
    return accounts[parent]


def _shares(name: str, table: dict[str, Any], now: int, source: str) -> tuple[ShareSince, ...]:
    where = f"{source}: budgets.{name}"
    if "share" not in table:
        raise BudgetFileError(f'{where}: has no share; write for example share = "10%"')
    share = table["share"]
    by_pool = share if isinstance(share, dict) else {ANY_POOL: share}
    if not by_pool:
        raise BudgetFileError(f"{where}.share: is empty")
    found = []
    for pool, value in by_pool.items():
        try:
            part = values.fraction(value)
        except ValueError as wrong:
            raise BudgetFileError(f"{where}.share ({_pool_words(pool)}): {wrong}") from None
        if part > 1:
            raise BudgetFileError(f"{where}.share ({_pool_words(pool)}): {share_words(part)} is more than the whole")
        found.append(ShareSince(now, part, pool))
    return tuple(found)


def check_tree(
    budgets: Sequence[Budget],
    slurm_parents: Mapping[str, str | None] | None,
    source: str = "budget file",
    loans: Sequence[ShareLoan] = (),
) -> BudgetTree:
    """The tree of these budgets and loans of shares (those that are not over), or BudgetFileError.

    ``slurm_parents`` maps every Slurm account to its parent account (``None``: do not check against Slurm). A child
    budget must lie below its parent's account, with no other budget's account between them: jobs are charged along
    Slurm's tree, and the two must tell the same.
    """
    _no_account_twice({f"{b.account} (entry {i + 1})": b.account for i, b in enumerate(budgets)}, source)
    tree = BudgetTree(MappingProxyType({budget.account: budget for budget in budgets}), tuple(loans))
    for budget in budgets:
        if budget.parent is not None and budget.parent not in tree.budgets:
            hint = values.nearest(budget.parent, tree.budgets.keys() - {budget.account})
            raise BudgetFileError(f"{source}: {budget.account}: parent {budget.parent} is no budget{hint}")
    for budget in budgets:
        _no_cycle(budget, tree, source)
    for parent, children in tree.children.items():
        _at_most_the_whole(parent, [tree.budgets[name] for name in children], source)
    for loan in loans:
        _can_be_lent(loan, tree, source)
    if slurm_parents is not None:
        for budget in budgets:
            _fits_slurm(budget, tree, slurm_parents, source)
    return tree


def _can_be_lent(loan: ShareLoan, tree: BudgetTree, source: str) -> None:
    """A share is lent between siblings, and nobody lends more than he has at any time of the loan."""
    of = [tree.budgets.get(name) for name in (loan.lender, loan.borrower)]
    until = f"{loan.lender} lends {loan.borrower} {share_words(loan.share)}"
    if None in of or len({budget.parent for budget in of if budget is not None}) != 1:
        raise BudgetFileError(f"{source}: {until}, but they are not budgets with the same parent; lend hours instead")
    lender = tree.budgets[loan.lender]
    pools = {s.pool for s in lender.shares} | {loan.pool} if loan.pool == ANY_POOL else {loan.pool}
    for pool in sorted(pools):
        mine = [other for other in tree.loans if other.lender == loan.lender]
        for moment in {loan.since, *(m.since for m in mine if loan.since <= m.since < loan.until)}:
            lent = sum((-other.moves(loan.lender, pool, moment) for other in mine), Fraction(0))
            if lent > current_share(lender, pool):
                raise BudgetFileError(
                    f"{source}: {until}: that is {share_words(lent)} lent in {_pool_words(pool)}, and "
                    f"{loan.lender} has {share_words(current_share(lender, pool))}"
                )


def _no_cycle(budget: Budget, tree: BudgetTree, source: str) -> None:
    path = [budget.account]
    at = budget.parent
    while at is not None:
        path.append(at)
        if at in path[:-1]:
            raise BudgetFileError(f"{source}: the budgets go round in a circle: {' -> '.join(path)}")
        at = tree.budgets[at].parent


def current_share(budget: Budget, pool: str) -> Fraction:
    """The share that was set last, for the pool or else for all pools."""
    return budget.share_at(pool, max((s.since for s in budget.shares), default=BEGINNING))


def _at_most_the_whole(parent: str | None, children: Sequence[Budget], source: str) -> None:
    for pool in sorted({s.pool for child in children for s in child.shares} | {ANY_POOL}):
        shares = {child.account: current_share(child, pool) for child in children}
        total = sum(shares.values(), Fraction(0))
        if total > 1:
            told = " + ".join(f"{name} {share_words(part)}" for name, part in shares.items())
            of = f"the children of {parent}" if parent else "the budgets without a parent"
            raise BudgetFileError(
                f"{source}: {of} have {share_words(total)} together in {_pool_words(pool)} ({told}); at most 100 %"
            )


def _fits_slurm(budget: Budget, tree: BudgetTree, parents: Mapping[str, str | None], source: str) -> None:
    account = budget.account
    if account not in parents:
        raise BudgetFileError(f"{source}: {account} is no account of Slurm{values.nearest(account, parents)}")
    at = parents[account]
    above = tree.budget_of(at, parents) if at is not None else None
    if above == budget.parent:
        return
    if budget.parent is None:
        raise BudgetFileError(
            f"{source}: {account} lies below {above} in Slurm and has no parent here; write parent = {above!r}"
        )
    if above is None:
        raise BudgetFileError(f"{source}: {account} has parent {budget.parent}, but does not lie below it in Slurm")
    raise BudgetFileError(
        f"{source}: {account} has parent {budget.parent}, but in Slurm the nearest budget above it is {above}"
    )


def merge_history(old: Iterable[Budget], new: Sequence[Budget], now: int) -> tuple[Budget, ...]:
    """The new tree with the shares' history: what changed acts from ``now`` on, what did not keeps its past.

    The very first tree acts from the beginning, so that the hours before it count. A budget that is new or has
    another parent begins at ``now``: what it would have had in the past was given to others then.
    """
    known = {budget.account: budget for budget in old}
    if not known:
        return tuple(replace(b, shares=_since(b, BEGINNING)) for b in new)
    return tuple(_merged(known.get(b.account), b, now) for b in new)


def _since(budget: Budget, when: int) -> tuple[ShareSince, ...]:
    return tuple(ShareSince(when, s.share, s.pool) for s in budget.shares)


def _merged(old: Budget | None, new: Budget, now: int) -> Budget:
    if old is None or old.parent != new.parent:
        return replace(new, shares=_since(new, now))
    shares = list(old.shares)
    for pool in sorted({s.pool for s in (*old.shares, *new.shares)}):
        wanted = current_share(new, pool)
        if not any(s.pool == pool for s in old.shares) or current_share(old, pool) != wanted:
            shares = [s for s in shares if (s.pool, s.since) != (pool, now)]
            shares.append(ShareSince(now, wanted, pool))
    return replace(new, shares=tuple(shares))


def difference(old: Iterable[Budget], new: Iterable[Budget]) -> list[str]:
    """What changes between two trees, a line each: ``+`` new, ``-`` gone, ``~`` another share or parent."""
    before = {b.account: b for b in old}
    after = {b.account: b for b in new}
    lines = [f"- {name}: no budget any more" for name in sorted(before.keys() - after.keys())]
    for name, budget in sorted(after.items()):
        had = before.get(name)
        if had is None:
            lines.append(f"+ {name}: {share_line(budget)} of {_of(budget)}")
        elif had.parent != budget.parent:
            lines.append(f"~ {name}: moves from {_of(had)} to {_of(budget)}, {share_line(budget)}")
        else:
            lines.extend(_changed_shares(had, budget))
        if budget.borrow != (had is not None and had.borrow):
            lines.append(f"~ {name}: {'borrows' if budget.borrow else 'does not borrow any more'}")
    return lines


def _changed_shares(had: Budget, budget: Budget) -> list[str]:
    lines = []
    for pool in sorted({s.pool for s in (*had.shares, *budget.shares)}):
        one, other = current_share(had, pool), current_share(budget, pool)
        if one != other:
            lines.append(
                f"~ {budget.account}: {share_words(one)} -> {share_words(other)} of {_of(budget)}"
                f"{'' if pool == ANY_POOL else f' in {pool}'}"
            )
    return lines


def _of(budget: Budget) -> str:
    return budget.parent or "the cluster"


def share_line(budget: Budget) -> str:
    """All shares of a budget that were set last: ``10 %, 40 % in h100``."""
    pools = sorted({s.pool for s in budget.shares}, key=lambda pool: (pool != ANY_POOL, pool))
    return ", ".join(
        f"{share_words(current_share(budget, pool))}{'' if pool == ANY_POOL else f' in {pool}'}" for pool in pools
    )


def _pool_words(pool: str) -> str:
    return "all pools" if pool == ANY_POOL else f"pool {pool}"


def share_words(share: Fraction) -> str:
    """A share as people write it: ``35 %``, ``12.5 %``; ``1/3`` where no percentage with two decimals is exact."""
    hundredths = share * 10_000
    if hundredths.denominator != 1:
        return f"{share.numerator}/{share.denominator}"
    whole, rest = divmod(hundredths.numerator, 100)
    decimals = f"{rest:02d}".rstrip("0")
    return f"{whole}.{decimals} %" if decimals else f"{whole} %"
