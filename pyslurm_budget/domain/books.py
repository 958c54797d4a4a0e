"""The books of one moment: what each budget has used, has promised, and may still promise.

Amounts are mGPU-s, per (budget, pool), and every amount of a budget stands in the books of its ancestors too.

Horizons (design 4.3) are tested on a grid: (0, cap] is cut into segments, and in each the *largest* charge (at its
begin, since history only leaves) and the *largest* commitment (at its end) are taken together. A contract that fits
the grid fits at every horizon; what the grid costs in sharpness is at most one segment of the budget's own GPUs
(``docs/adr/0001-horizon-grid.md``). The submit plugin tests the very same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from operator import add
from typing import TYPE_CHECKING

from pyslurm_budget.domain.borrow import Borrowing
from pyslurm_budget.domain.model import MILLI, WorkClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.budget import BudgetTree
    from pyslurm_budget.domain.policy import Policy

SEGMENTS = 32


def horizons(cap: int) -> tuple[int, ...]:
    """Ends of the segments of (0, cap], ascending; the last is the cap."""
    count = min(SEGMENTS, max(cap, 1))
    return tuple(cap * i // count for i in range(1, count + 1))


def marks(policy: Policy, now: int) -> tuple[int, ...]:
    """Where the window begins at the begin of each segment, ascending: the first is now - window."""
    return tuple(now + h - policy.window for h in (0, *horizons(policy.cap)[:-1]))


@dataclass(frozen=True, slots=True)
class Use:
    """Time that a run held GPUs: [start, end), or until now where ``end`` is ``None``; ``rate`` in thousandths."""

    budget: str | None
    user: str
    pool: str
    rate: int
    work_class: WorkClass
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class History:
    """What ended runs held, in mGPU-s: ``amounts[i]`` since the begin of segment i's window. ``run_on`` says that it
    was after their contracts."""

    budget: str
    user: str
    pool: str
    work_class: WorkClass
    run_on: bool
    amounts: tuple[int, ...]


@dataclass(slots=True)
class Book:
    """One budget in one pool. ``charged[i]`` and ``committed[i]`` belong to the segment that ends at horizon i.

    ``contract_rate`` is the rate of everything inside contracts, running or admitted: at most ``ceiling``. ``least``
    remembers the least of ``left()`` until something is entered. ``granted`` is the part of the allowance that is
    grants and loans in force, less what is lent. ``borrowed`` is what left the charge because it was borrowed.
    """

    allowance: int
    line: int
    granted: int = 0
    charged_now: int = 0
    outstanding: int = 0
    spare_used: int = 0
    contract_rate: int = 0
    ceiling: int = 0
    charged: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    borrowed: list[int] = field(default_factory=list)
    least: int | None = None
    user_use: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    user_all: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def left(self) -> list[int]:
        """What new contracts may use until each horizon."""
        return [self.line - c - p for c, p in zip(self.charged, self.committed, strict=True)]

    def least_left(self) -> int:
        """What new contracts may use at the horizon where that is least."""
        if self.least is None:
            self.least = min(self.left())
        return self.least

    @property
    def borrowed_now(self) -> int:
        """Borrowed use of the window of now."""
        return self.borrowed[0] if self.borrowed else 0

    @property
    def ceiling_left(self) -> int:
        """Rate that may still be put under contract at this time."""
        return self.ceiling - self.contract_rate

    @property
    def headroom(self) -> int:
        """What is left of the line after the charge of now and all that is promised."""
        return self.line - self.charged_now - self.committed[-1]


@dataclass(frozen=True, slots=True)
class Price:
    """What a contract commits: ``rate`` (thousandths) for at most ``length`` seconds."""

    rate: int
    length: int

    @property
    def amount(self) -> int:
        """The whole price in mGPU-s."""
        return self.rate * self.length


@dataclass(frozen=True, slots=True)
class Refusal:
    """Where and by how much a price does not fit: the budget or ancestor, what is left there, what it would need."""

    limit: str
    code: str
    left: int
    needed: int


class Books:
    """All books of one moment. Built from facts, then filled with admissions; nothing else changes them."""

    def __init__(
        self,
        tree: BudgetTree,
        policy: Policy,
        allowances: Mapping[tuple[str, str], int],
        pool_sizes: Mapping[str, int] | Mapping[str, Fraction],
        now: int,
    ) -> None:
        """Empty books for every budget of the tree in every pool of ``pool_sizes`` (GPUs in service)."""
        self.tree = tree
        self.policy = policy
        self.now = now
        self.grid = horizons(policy.cap)
        self.books: dict[tuple[str, str], Book] = {}
        self.directs: dict[tuple[str, str], Book] = {}
        self._touched: dict[tuple[str, str], list[Book]] = {}
        self.borrowing = Borrowing(self)
        self._refused: dict[tuple[str, str], list[tuple[Price, int, str]]] = defaultdict(list)
        for (account, pool), allowance in allowances.items():
            ceiling = self._ceiling(account, pool, pool_sizes.get(pool, 0))
            self.books[account, pool] = self._new(allowance, ceiling)
            if tree.children.get(account):
                given = sum(allowances[child, pool] for child in tree.children[account])
                self.directs[account, pool] = self._new(max(0, allowance - given), ceiling)

    def _new(self, allowance: int, ceiling: int) -> Book:
        """An empty book."""
        book = Book(allowance, allowance + int(self.policy.overdraft * allowance), ceiling=ceiling)
        book.charged, book.committed = [0] * len(self.grid), [0] * len(self.grid)
        return book

    def _ceiling(self, account: str, pool: str, size: int | Fraction) -> int:
        """GPUs (thousandths) inside contracts at one time: max(3 x share, 50 %) of the pool (design 4.3)."""
        share = self.tree.effective_share(account, pool, self.now)
        part = max(min(share * self.policy.ceiling_share, Fraction(1)), self.policy.ceiling_part)
        return int(part * size * MILLI)

    def path(self, budget: str) -> tuple[str, ...]:
        """The budget and its ancestors."""
        return self.tree.path(budget)

    def touched(self, budget: str, pool: str) -> list[Book]:
        """Every book that an entry for this budget stands in: its own, its implicit child's, and its ancestors'."""
        known = self._touched.get((budget, pool))
        if known is None:
            known = [book for name in self.tree.path(budget) if (book := self.books.get((name, pool))) is not None]
            if (budget, pool) in self.directs:
                known.append(self.directs[budget, pool])
            self._touched[budget, pool] = known
        return known

    def enter(self, history: Iterable[History]) -> None:
        """Enter what ended runs held; what ran on after its contract counts at the site's price."""
        for past in history:
            if past.budget in self.tree.budgets:
                amounts = charged_amounts(past, self.policy)
                self._enter(past.budget, past.user, past.pool, amounts, past.work_class)

    def grant(self, budget: str, pool: str, amount: int) -> None:
        """Let the budget and those above it have so much more (less, below 0) than their allowance; overdraft is
        given on the allowance alone."""
        for book in self.touched(budget, pool):
            book.allowance += amount
            book.line += amount
            book.granted += amount
            book.least = None

    def borrow(self, history: Iterable[History]) -> None:
        """Enter what was borrowed: it left the charge, and stays in the load."""
        for past in history:
            if past.budget in self.tree.budgets:
                for book in self.touched(past.budget, past.pool):
                    book.borrowed = list(map(add, book.borrowed or [0] * len(self.grid), past.amounts))

    def charge(self, uses: Iterable[Use]) -> None:
        """Enter the window's use: backed work is charged, spare work is only remembered for the order."""
        begins = marks(self.policy, self.now)
        for use in uses:
            if use.budget is None or use.budget not in self.tree.budgets:
                continue
            end = self.now if use.end is None else min(use.end, self.now)
            amounts = [use.rate * max(0, end - max(use.start, begin)) for begin in begins]
            self._enter(use.budget, use.user, use.pool, amounts, use.work_class)

    def _enter(self, budget: str, user: str, pool: str, amounts: list[int], work_class: WorkClass) -> None:
        if not amounts[0]:
            return
        for book in self.touched(budget, pool):
            _enter(book, user, amounts, backed=work_class is WorkClass.BACKED)

    def commit(self, budget: str, pool: str, price: Price) -> None:
        """Promise a contract, of a running run (the rest of it) or of an admitted pending job: it counts at every
        horizon and under the ceiling, at the budget and its ancestors."""
        promised = [price.rate * min(h, price.length) for h in self.grid]
        for book in self.touched(budget, pool):
            book.contract_rate += price.rate
            book.committed = list(map(add, book.committed, promised))
            book.least = None

    def run_contract(self, budget: str, user: str, pool: str, price: Price) -> None:
        """Enter a running run's contract: promised, and counted in the load."""
        if price.length <= 0:
            return
        self.commit(budget, pool, price)
        self.add_load(budget, user, pool, price.amount)

    def add_load(self, budget: str, user: str, pool: str, amount: int) -> None:
        """Count an outstanding contract in the load (design 4.5: the order is made job by job)."""
        for book in self.touched(budget, pool):
            book.outstanding += amount
            book.user_use[user] += amount
            book.user_all[user] += amount

    def add_spare_load(self, budget: str, user: str, pool: str, amount: int) -> None:
        """Count spare work to come in the order of spare work."""
        for book in self.touched(budget, pool):
            book.spare_used += amount
            book.user_all[user] += amount

    def limits(self, budget: str, pool: str) -> list[tuple[str, Book]]:
        """Every book that a contract must fit into, from the budget up to its root, by the budget's id.

        The implicit child of a budget with children comes first, under the budget's own id.
        """
        own = [(budget, self.payer(budget, pool))] if self.tree.children.get(budget) else []
        return own + [(name, self.books[name, pool]) for name in self.path(budget)]

    def payer(self, budget: str, pool: str) -> Book:
        """The book that jobs of the budget's own account pay from, and whose users are leaves of the tree: that of
        its implicit child, where it has handed out something to others (design 4.1)."""
        return self.direct(budget, pool)

    def refusal(self, budget: str, pool: str, price: Price) -> Refusal | None:
        """``None`` if the contract fits at every horizon and under every ceiling, at the budget and every ancestor;
        else where it does not."""
        known = self._refused[budget, pool]
        limits = self.limits(budget, pool)
        # Books only fill while they are used: what was refused once stays so, and with it all that is larger.
        for smaller, at, code in known:
            if smaller.rate <= price.rate and smaller.length <= price.length:
                return _refusal(*limits[at], code, price)
        full = (i for i, (name, book) in enumerate(limits) if not self._fits(name, book, pool, price))
        found = next(((i, "headroom") for i in full), None)
        if found is not None and self.borrowing.may(budget):
            rooms = self.borrowing.borrowed(budget, pool)
            found = None if all(self._in(left, price) for _, left in rooms) else found
        if found is None:
            found = next(((i, "ceiling") for i, (_, b) in enumerate(limits) if price.rate > b.ceiling_left), None)
        if found is None:
            return None
        known.append((price, *found))
        return _refusal(*limits[found[0]], found[1], price)

    def _fits(self, name: str, book: Book, pool: str, price: Price) -> bool:
        """Whether the price fits the book at every horizon."""
        return price.amount <= book.least_left() or self._in(self.borrowing.left(name, book, pool), price)

    def _in(self, left: Iterable[int], price: Price) -> bool:
        return all(price.rate * min(h, price.length) <= rest for h, rest in zip(self.grid, left, strict=True))

    def over(self, budget: str, pool: str) -> str | None:
        """The budget or ancestor that has already used more than its line: only then is a promise recalled."""
        return self.borrowing.over(budget, pool)

    def standing(self, account: str, pool: str, *, spare: bool = False, direct: bool = False) -> tuple[int, int]:
        """What the budget has used and promised, and its allowance: the two numbers of its load (design 4.5).

        With ``spare``, all use counts: what spare work is ranked by. With ``direct``, the implicit child's.
        """
        book = self.direct(account, pool) if direct else self.books[account, pool]
        used = book.charged_now + book.borrowed_now + book.outstanding
        return used + (book.spare_used if spare else 0), book.allowance

    def load(self, account: str, pool: str) -> Fraction | None:
        """(charged + outstanding) / allowance; ``None`` for an allowance of 0, which ranks last."""
        used, allowance = self.standing(account, pool)
        return Fraction(used, allowance) if allowance > 0 else None

    def spare_load(self, account: str, pool: str) -> Fraction | None:
        """Load with spare use included: what spare work is ranked by (design 4.5)."""
        used, allowance = self.standing(account, pool, spare=True)
        return Fraction(used, allowance) if allowance > 0 else None

    def direct(self, account: str, pool: str) -> Book:
        """The implicit child for jobs charged to the account itself: what its children do not have (design 4.1); the
        budget's own book, where it has handed out nothing."""
        return self.directs.get((account, pool)) or self.books[account, pool]


def _refusal(name: str, book: Book, code: str, price: Price) -> Refusal:
    """The refusal with the numbers of this moment."""
    if code == "headroom":
        return Refusal(name, code, book.least_left(), price.amount)
    return Refusal(name, code, max(0, book.ceiling_left), price.rate)


def charged_amounts(past: History, policy: Policy) -> list[int]:
    """The amounts at the site's price: what ran on after its contract may be cheaper."""
    if past.run_on and past.work_class is WorkClass.BACKED and policy.run_on_price != 1:
        return [int(amount * policy.run_on_price) for amount in past.amounts]
    return list(past.amounts)


def _enter(book: Book, user: str, amounts: list[int], *, backed: bool) -> None:
    """Enter one run's amounts, one per segment, into one book."""
    book.user_all[user] += amounts[0]
    if not backed:
        book.spare_used += amounts[0]
        return
    book.charged_now += amounts[0]
    book.user_use[user] += amounts[0]
    book.charged = list(map(add, book.charged, amounts))
    book.least = None
