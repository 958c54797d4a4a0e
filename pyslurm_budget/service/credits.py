"""Automatic credits: the entry that a run gets which a node failure ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.credit import lost_time
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.service.counts import CREDIT, Entry
from pyslurm_budget.service.pieces import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.service.ports import ContractFacts, RunFacts

NODE_FAILURE = "NODE_FAIL"
AUTOMATIC = "automatic"


def credits_of(run: RunFacts, contract: ContractFacts, now: int) -> Iterator[Entry]:
    """One entry for each pool that the run held something of; none for a run that nobody was charged for.

    The amount is exact: charged rate x time since the last full contract. What the site charges for run-on applies
    to it as it did to the run.
    """
    if run.start is None or run.end is None or run.budget is None or run.charged_as is not WorkClass.BACKED:
        return
    lost = lost_time(run.start, run.end, contract.minimum) if run.state.startswith(NODE_FAILURE) else None
    if lost is None:
        return
    begin, end = lost
    rates: dict[str, int] = {}
    for part in parts_of(run):
        if part.pool is not None:
            rates[part.pool] = rates.get(part.pool, 0) + part.rate
    for i, (pool, rate) in enumerate(rates.items()):
        yield Entry(
            at=now,
            kind=CREDIT if i == 0 else f"{CREDIT}-{i + 1}",
            account=run.budget,
            pool=pool,
            amount=rate * (end - begin),
            begin=begin,
            end=end,
            key=run.key,
            who=AUTOMATIC,
            why="a node failure ended the run: the time since its last full contract",
        )
