"""Credits (design 4.2): what a run lost by a node failure leaves the charge of its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import History
from pyslurm_budget.domain.model import WorkClass

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Credit:
    """``amount`` mGPU-s of the time [begin, end) of a run of the budget; ``run_on`` says that the time was after its
    contract."""

    budget: str
    user: str
    pool: str
    run_on: bool
    amount: int
    begin: int
    end: int


def lost_time(start: int, end: int, minimum: int) -> tuple[int, int] | None:
    """The time of a run that a failure at ``end`` made worthless: since its last full contract, so less than one;
    ``None`` for no time, or no contract to count by."""
    if minimum <= 0 or end <= start:
        return None
    since = (end - start) % minimum
    return (end - since, end) if since else None


def credit_history(credit: Credit, marks: Sequence[int]) -> History:
    """What the credit takes out of the charge since each of the marks: as long as its seconds are in the window."""
    rate = credit.amount // max(1, credit.end - credit.begin)
    amounts = tuple(-rate * max(0, credit.end - max(credit.begin, mark)) for mark in marks)
    return History(credit.budget, credit.user, credit.pool, WorkClass.BACKED, credit.run_on, amounts)
