"""Grants and loans (design 4.1): amounts of GPU time that are used once.

While one is in force, what is left of it stands in the allowance of its budget and of the budgets above; a loan takes
the same out of the lender's. Once an hour what a budget used beyond its allowance is *booked* against them, first to
expire first, newest seconds first: the booked seconds leave its charge, and those of a loan enter the lender's. So a
loan moves time and makes none, and nothing is used twice. Amounts are mGPU-s.

What was begun in time is booked although it is used later: for one longest contract (the cap) after its end an
amount stays in force as far as it is needed for what was used or is promised by then. The rest is gone, or the
lender's again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import History
from pyslurm_budget.domain.model import WorkClass

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from pyslurm_budget.domain.books import Books

NOBODY = ""
"""The user of what is booked: it belongs to the budget as a whole."""


@dataclass(frozen=True, slots=True)
class Grant:
    """An amount for one budget in one pool, in force in [begin, end); ``end`` is ``None`` where only its use ends it.

    ``lender`` is the budget that it comes from, ``None`` for a grant. ``booked`` is what was used of it so far.
    """

    id: int
    budget: str
    pool: str
    amount: int
    begin: int
    end: int | None = None
    lender: str | None = None
    booked: int = 0

    @property
    def left(self) -> int:
        """What was not used yet."""
        return max(0, self.amount - self.booked)

    def in_force(self, now: int) -> bool:
        """Whether new contracts may use it."""
        return self.begin <= now and (self.end is None or now < self.end)

    def in_grace(self, now: int, cap: int) -> bool:
        """Whether only what was begun before its end may use it."""
        return self.end is not None and max(self.begin, self.end) <= now < self.end + cap


@dataclass(frozen=True, slots=True)
class Booking:
    """``amount`` of the grant ``grant`` for seconds of [begin, end), an hour of the window or a part of it."""

    grant: int
    budget: str
    pool: str
    begin: int
    end: int
    amount: int
    lender: str | None = None


def first_to_expire(grants: Iterable[Grant]) -> list[Grant]:
    """In the order in which they are used."""
    return sorted(grants, key=lambda g: (g.end is None, g.end or 0, g.begin, g.id))


def enter(books: Books, grants: Iterable[Grant]) -> None:
    """Enter what is left of each in the books, which hold the window's use and the running contracts already."""
    for grant in first_to_expire(grants):
        if (grant.budget, grant.pool) not in books.books:
            continue
        amount = 0
        if grant.in_force(books.now):
            amount = grant.left
        elif grant.in_grace(books.now, books.policy.cap):
            payer = books.payer(grant.budget, grant.pool)
            amount = min(grant.left, max(0, payer.charged_now + payer.outstanding - payer.allowance))
        books.grant(grant.budget, grant.pool, amount)
        if grant.lender is not None and (grant.lender, grant.pool) in books.books:
            books.grant(grant.lender, grant.pool, -amount)


BORROWED = 0
"""The number of the grant under which what a budget borrowed is booked."""


def bookings(
    grants: Iterable[Grant],
    hours: Sequence[tuple[int, int]],
    used: Mapping[tuple[str, str], Sequence[int]],
    allowances: Mapping[tuple[str, str], int],
    cap: int,
    *,
    borrowers: Container[str] = (),
) -> list[Booking]:
    """What is to be booked at the end of the last of ``hours`` (all of the window, oldest first).

    ``used`` is the charge of the jobs of each (budget, pool) itself in each of the hours, less what is booked and
    credited already; ``allowances`` is their allowance without grants. Of one grant and hour there is one booking.
    What is left of the excess of ``borrowers`` then is booked as borrowed.
    """
    found: list[Booking] = []
    now = hours[-1][1]
    open_ = [g for g in first_to_expire(grants) if g.left and g.begin < now and (g.end is None or now <= g.end + cap)]
    lent: dict[tuple[str, str], int] = {}
    for grant in open_:
        if grant.lender is not None:
            lent[grant.lender, grant.pool] = lent.get((grant.lender, grant.pool), 0) + grant.left
    rest = {key: list(amounts) for key, amounts in used.items()}
    for grant in open_:
        key = (grant.budget, grant.pool)
        free = rest.get(key, [])
        excess = sum(free) - max(0, allowances.get(key, 0) - lent.get(key, 0))
        found.extend(_of_one(grant, hours, free, min(excess, grant.left)))
    for budget, pool in sorted(rest):
        if budget in borrowers:
            free = rest[budget, pool]
            excess = sum(free) - max(0, allowances.get((budget, pool), 0) - lent.get((budget, pool), 0))
            found.extend(_of_one(Grant(BORROWED, budget, pool, excess, 0), hours, free, excess))
    return found


def _of_one(grant: Grant, hours: Sequence[tuple[int, int]], free: list[int], wanted: int) -> Iterator[Booking]:
    """Book so much on the newest hours that have it, and take it out of ``free``."""
    for i in range(len(free) - 1, -1, -1):
        amount = min(wanted, free[i])
        if amount > 0:
            begin, end = hours[i]
            yield Booking(grant.id, grant.budget, grant.pool, begin, end, amount, grant.lender)
            free[i] -= amount
            wanted -= amount


def booking_history(booking: Booking, marks: Sequence[int]) -> list[History]:
    """What a booking changes in the charges since each of the marks: less for the budget, more for the lender."""
    length = max(1, booking.end - booking.begin)
    amounts = [booking.amount * max(0, booking.end - max(booking.begin, mark)) // length for mark in marks]
    less, more = tuple(-amount for amount in amounts), tuple(amounts)
    found = [History(booking.budget, NOBODY, booking.pool, WorkClass.BACKED, run_on=False, amounts=less)]
    if booking.lender is not None:
        found.append(History(booking.lender, NOBODY, booking.pool, WorkClass.BACKED, run_on=False, amounts=more))
    return found


def borrowed_history(booking: Booking, marks: Sequence[int]) -> list[History]:
    """What was borrowed since each of the marks, if the booking is about that."""
    if booking.grant != BORROWED:
        return []
    less = booking_history(booking, marks)[0]
    return [replace(less, amounts=tuple(-amount for amount in less.amounts))]
