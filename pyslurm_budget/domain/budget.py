"""The budget tree: who is entitled to which share, as a value.

A budget is bound to one Slurm account and covers the accounts below it, by parent links, up to the next account that
has a budget of its own. Shares are exact fractions of the parent, effective-dated: a changed share acts from then on
(design 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ANY_POOL = "*"
BEGINNING = 0


@dataclass(frozen=True, slots=True)
class ShareSince:
    """The share of the parent that a budget has from ``since`` on, in one pool or (``*``) in all of them."""

    since: int
    share: Fraction
    pool: str = ANY_POOL


@dataclass(frozen=True, slots=True)
class Budget:
    """One node of the tree; ``account`` is the Slurm account, lower case, and also the budget's id. With ``borrow``
    it may use what its siblings leave unused."""

    account: str
    parent: str | None
    shares: tuple[ShareSince, ...]
    borrow: bool = False

    def share_at(self, pool: str, when: int) -> Fraction:
        """Share of the parent in force at ``when``; a share set for the pool wins over one set for all pools."""
        for name in (pool, ANY_POOL):
            known = [s for s in self.shares if s.pool == name and s.since <= when]
            if known:
                return max(known, key=lambda s: s.since).share
        return Fraction(0)


@dataclass(frozen=True, slots=True)
class ShareLoan:
    """A share of the common parent that ``lender`` leaves to ``borrower``, its sibling, in [since, until)."""

    lender: str
    borrower: str
    share: Fraction
    since: int
    until: int
    pool: str = ANY_POOL

    def moves(self, account: str, pool: str, when: int) -> Fraction:
        """What it adds to the account's share in the pool at a time; below 0 for the lender."""
        if not self.since <= when < self.until or self.pool not in (ANY_POOL, pool):
            return Fraction(0)
        return self.share * ((account == self.borrower) - (account == self.lender))


@dataclass(frozen=True)
class BudgetTree:
    """All budgets of a cluster, by account. Checked by ``service.budgets.check_tree``."""

    budgets: Mapping[str, Budget] = field(default_factory=lambda: MappingProxyType({}))
    loans: tuple[ShareLoan, ...] = ()

    @cached_property
    def children(self) -> Mapping[str | None, tuple[str, ...]]:
        """Accounts of the child budgets by parent, in the order of their names; ``None`` lists the roots."""
        found: dict[str | None, list[str]] = {}
        for account in sorted(self.budgets):
            found.setdefault(self.budgets[account].parent, []).append(account)
        return {parent: tuple(names) for parent, names in found.items()}

    def path(self, account: str) -> tuple[str, ...]:
        """The budget and its ancestors, from the budget up to its root."""
        if account not in self._paths:
            found: list[str] = []
            at: str | None = account
            while at is not None:
                found.append(at)
                at = self.budgets[at].parent
            self._paths[account] = tuple(found)
        return self._paths[account]

    @cached_property
    def _paths(self) -> dict[str, tuple[str, ...]]:
        """Remembered paths."""
        return {}

    def path_of(self, account: str | None) -> tuple[str, ...]:
        """As ``path``; empty for what is no budget (any more)."""
        return self.path(account) if account is not None and account in self.budgets else ()

    def effective_share(self, account: str, pool: str, when: int) -> Fraction:
        """Product of the shares along the path (design section 2)."""
        share = Fraction(1)
        for name in self.path(account):
            share *= self.share_at(name, pool, when)
        return share

    def share_at(self, account: str, pool: str, when: int) -> Fraction:
        """Share of the parent in force at ``when``, with what is lent and borrowed of it; never below 0."""
        share = self.budgets[account].share_at(pool, when)
        return max(Fraction(0), share + sum((loan.moves(account, pool, when) for loan in self.loans), Fraction(0)))

    def changes(self, account: str) -> tuple[int, ...]:
        """When shares along the path change, ascending."""
        path = self.path(account)
        found = {s.since for name in path for s in self.budgets[name].shares}
        for loan in self.loans:
            if loan.lender in path or loan.borrower in path:
                found |= {loan.since, loan.until}
        return tuple(sorted(found))

    def budget_of(self, account: str, parents: Mapping[str, str | None]) -> str | None:
        """The budget that pays for a Slurm account: its own, else the nearest one above; ``None`` without any."""
        at: str | None = account
        seen: set[str] = set()
        while at is not None and at not in seen:
            if at in self.budgets:
                return at
            seen.add(at)
            at = parents.get(at)
        return None
