"""Grants, loans, what is booked of them, and loans of shares, on every database."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.domain.budget import Budget, ShareLoan, ShareSince
from pyslurm_budget.domain.grant import Booking, Grant
from pyslurm_budget.service.counts import GRANT, LOAN, RECALL, Entry

if TYPE_CHECKING:
    from pyslurm_budget.ledger.store import SqlLedger

GIFT = Entry(100, GRANT, "bio", "a100", 7 * 10**12, 100, None, "carol", "a deadline")
LENT = Entry(110, LOAN, "bio", "a100", 500, 110, 900, "bob", "agreed", lender="nlp")


def test_grants_come_back_with_what_is_booked(ledger: SqlLedger) -> None:
    assert ledger.grants(0) == ()
    ledger.add_entries([GIFT, LENT])
    gift, lent = ledger.grants(0)
    assert gift == Grant(gift.id, "bio", "a100", 7 * 10**12, 100)
    assert lent == Grant(lent.id, "bio", "a100", 500, 110, 900, "nlp")
    first = Booking(lent.id, "bio", "a100", 3600, 7200, 200, "nlp")
    ledger.add_bookings([first, replace(first, begin=7200, end=10800, amount=50)])
    ledger.add_bookings([replace(first, amount=30), replace(first, grant=gift.id, amount=1)])
    assert [g.booked for g in ledger.grants(0)] == [1, 280]
    assert [(b.grant, b.begin, b.amount) for b in ledger.bookings(3600)] == [
        (gift.id, 3600, 1),
        (lent.id, 3600, 230),
        (lent.id, 7200, 50),
    ]
    assert [b.begin for b in ledger.bookings(7200)] == [7200]
    assert ledger.credits(0) == ()


def test_what_ended_is_left_out_and_a_recall_is_an_end(ledger: SqlLedger) -> None:
    ledger.add_entries([GIFT, LENT])
    gift, lent = ledger.grants(0)
    assert [g.id for g in ledger.grants(900)] == [gift.id]
    recall = Entry(400, RECALL, "bio", "a100", 500, 400, None, "bob", "needed", reverses=lent.id)
    ledger.add_entries([recall])
    assert [g.end for g in ledger.grants(0)] == [None, 400]
    assert [e.kind for e in ledger.entries((GRANT, LOAN, RECALL))] == [GRANT, LOAN, RECALL]
    assert ledger.entries((LOAN,))[0].lender == "nlp"


def test_loans_of_shares_and_borrowing_come_back_and_are_told(ledger: SqlLedger) -> None:
    loan = ShareLoan("nlp", "bio", Fraction(1, 3), 100, 200, "h100")
    ledger.add_share_loan(loan, 100, "carol", "a week")
    assert ledger.share_loans(199) == (loan,)
    assert ledger.share_loans(200) == ()
    assert ledger.budget_changes()[-1][:3] == (100, "carol", "a week")
    bio = Budget("bio", None, (ShareSince(0, Fraction(1)),))
    ledger.save_budgets([bio], 100, "carol", "first")
    ledger.save_budgets([replace(bio, borrow=True)], 110, "carol", "nights")
    assert ledger.budgets() == (replace(bio, borrow=True),)
    assert ledger.budget_changes()[-1] == (110, "carol", "nights", "bio may borrow")
