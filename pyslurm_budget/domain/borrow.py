"""Borrowing (design 4.1): a budget that may borrow uses, as backed work, what its siblings leave unused.

What it uses and promises beyond its own line takes nothing from the others: it does not count where *their* contracts
are tested, at no budget above. Its own are tested against all that is used and promised, borrowed or not, at the
nearest budgets above that do not borrow themselves, and at all roots together. Once an hour what it borrowed leaves
its charge (``grant.bookings``), so that it does not lessen its own headroom later; in its load it stays, so that it
gives way first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyslurm_budget.domain.books import Book, Books

Room = tuple[str, list[int]]
"""The budget that limits, and what is left there until each horizon."""
ALL = "(all budgets)"


class Borrowing:
    """What is left in the books for contracts of one budget, with what is borrowed told apart."""

    def __init__(self, books: Books) -> None:
        """The books may be filled afterwards; every question is answered from what they hold then."""
        self._books = books
        budgets = books.tree.budgets
        self._holding = {name for account, b in budgets.items() if b.borrow for name in books.tree.path(account)}

    def may(self, budget: str) -> bool:
        """Whether the budget may borrow."""
        return self._books.tree.budgets[budget].borrow

    def excess(self, account: str, pool: str) -> list[int]:
        """What the budget and those below it use and promise by borrowing, at each horizon and now (the last)."""
        if account not in self._holding:
            return [0] * (len(self._books.grid) + 1)
        below = self._below(account, pool)
        if not self.may(account):
            return below
        book = self._books.books[account, pool]
        used = (*map(sum, zip(book.charged, book.committed, strict=True)), book.charged_now)
        return [b + max(0, u - b - book.line) for u, b in zip(used, below, strict=True)]

    def _below(self, account: str, pool: str) -> list[int]:
        children = [c for c in self._books.tree.children.get(account, ()) if c in self._holding]
        found = [self.excess(child, pool) for child in children]
        return [sum(amounts) for amounts in zip(*found, strict=True)] or [0] * (len(self._books.grid) + 1)

    def own(self, budget: str, pool: str) -> list[Room]:
        """What is left for it without borrowing, at the budget and each above."""
        return [(name, self.left(name, book, pool)) for name, book in self._books.limits(budget, pool)]

    def left(self, name: str, book: Book, pool: str) -> list[int]:
        """What is left in the book of a budget when what those below it borrow is not counted."""
        if name not in self._holding or book is not self._books.books[name, pool]:
            return book.left()
        return [left + more for left, more in zip(book.left(), self._below(name, pool), strict=False)]

    def borrowed(self, budget: str, pool: str) -> list[Room]:
        """What is left for it by borrowing, at the budgets above that do not borrow, and at all roots together."""
        books = self._books
        found = [(n, books.books[n, pool]) for n in books.path(budget) if not self.may(n)]
        rooms = [(name, _all_left(book)) for name, book in found]
        roots = [_all_left(books.books[n, pool]) for n in books.tree.children.get(None, ())]
        return [*rooms, (ALL, [sum(amounts) for amounts in zip(*roots, strict=True)])]

    def best(self, budget: str, pool: str) -> list[Room]:
        """Of the two ways the one that has more left at the cap."""
        ways = [self.own(budget, pool)]
        if self.may(budget):
            ways.append(self.borrowed(budget, pool))
        return max(ways, key=lambda rooms: min(left[-1] for _, left in rooms))

    def over(self, budget: str, pool: str) -> str | None:
        """The budget or ancestor that has used more than its line, borrowed or not as the budget may."""
        found = next((n for n, b in self._books.limits(budget, pool) if self._is_over(n, b, pool)), None)
        if found is None or not self.may(budget):
            return found
        above = [(n, self._books.books[n, pool]) for n in self._books.path(budget) if not self.may(n)]
        return next((n for n, b in above if b.charged_now + b.borrowed_now > b.line), None)

    def _is_over(self, name: str, book: Book, pool: str) -> bool:
        counted = name in self._holding and book is self._books.books[name, pool]
        return book.charged_now - (self._below(name, pool)[-1] if counted else 0) > book.line


def _all_left(book: Book) -> list[int]:
    """What is left in the book when everything counts."""
    borrowed = book.borrowed or [0] * len(book.charged)
    return [left - amount for left, amount in zip(book.left(), borrowed, strict=True)]
