"""Booking what budgets used beyond their allowance against their grants and loans: once an hour, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import charged_amounts
from pyslurm_budget.domain.capacity import allowances, hours_of
from pyslurm_budget.domain.credit import credit_history
from pyslurm_budget.domain.grant import Booking, booking_history, bookings, borrowed_history
from pyslurm_budget.domain.model import WorkClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyslurm_budget.domain.books import History
    from pyslurm_budget.domain.situation import Situation
    from pyslurm_budget.service.ports import Ledger

BOOKED = "booked-to"
Key = tuple[str, str]


def net_history(ledger: Ledger, begins: Sequence[int], now: int, booked: Iterable[Booking]) -> tuple[History, ...]:
    """What ended runs held since each of the begins, less what was credited and ``booked``."""
    credited = (credit_history(credit, begins) for credit in ledger.credits(begins[0]))
    less = (history for b in booked for history in booking_history(b, begins))
    return (*ledger.history(begins, now), *credited, *less)


def borrowed(booked: Iterable[Booking], begins: Sequence[int]) -> tuple[History, ...]:
    """What of the ``booked`` was borrowed since each of the begins."""
    return tuple(history for b in booked for history in borrowed_history(b, begins))


def book(ledger: Ledger, situation: Situation) -> list[Booking]:
    """Book up to the last full hour, if that was not done yet; returns what was booked.

    The hours of the window are whole ones here, so that a booking lies in it or not: a second reading books nothing.
    """
    hour, now = situation.policy.hour, situation.now
    upto = now - now % hour
    borrowers = {b.account for b in situation.tree.budgets.values() if b.borrow}
    if not (situation.grants or borrowers) or int(ledger.get(BOOKED) or 0) >= upto:
        return []
    hours = [(at, at + hour) for at, _ in hours_of(upto - situation.policy.window, upto, hour)]
    used, allowed = _used(ledger, situation, hours), _payers(situation)
    found = bookings(situation.grants, hours, used, allowed, situation.policy.cap, borrowers=borrowers)
    ledger.add_bookings(found)
    ledger.put(BOOKED, str(upto))
    return found


def _used(ledger: Ledger, situation: Situation, hours: Sequence[tuple[int, int]]) -> dict[Key, list[int]]:
    """The charge of each budget's own jobs in each pool and hour, less what was credited and booked."""
    begins, upto = [begin for begin, _ in hours], hours[-1][1]
    since: dict[Key, list[int]] = {}
    for past in net_history(ledger, begins, upto, ledger.bookings(begins[0])):
        if past.work_class is WorkClass.BACKED:
            _add(since, (past.budget, past.pool), charged_amounts(past, situation.policy))
    for use in situation.uses:
        if use.work_class is WorkClass.BACKED and use.budget is not None:
            end = upto if use.end is None else min(use.end, upto)
            held = [use.rate * max(0, end - max(use.start, begin)) for begin in begins]
            _add(since, (use.budget, use.pool), held)
    return {key: [a - b for a, b in zip(found, (*found[1:], 0), strict=True)] for key, found in since.items()}


def _add(sums: dict[Key, list[int]], key: Key, amounts: Sequence[int]) -> None:
    old = sums.get(key)
    sums[key] = list(amounts) if old is None else [a + b for a, b in zip(old, amounts, strict=True)]


def _payers(situation: Situation) -> dict[Key, int]:
    """Allowance of the jobs of each budget itself, without grants: what its children do not have."""
    tree = situation.tree
    whole = allowances(tree, situation.capacities)
    return {
        (budget, pool): max(0, amount - sum(whole[child, pool] for child in tree.children.get(budget, ())))
        for (budget, pool), amount in whole.items()
    }
