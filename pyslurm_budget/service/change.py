"""Single changes of the budgets: a share, a grant, a loan. Each is checked first, and told in words."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget import values
from pyslurm_budget.domain.budget import ANY_POOL, Budget, BudgetTree, ShareSince
from pyslurm_budget.domain.capacity import allowance, fixed_capacity
from pyslurm_budget.domain.wording import MGPU_S_PER_GPU_H, gpu_hours
from pyslurm_budget.errors import NotFoundError, StaleDataError, UsageError
from pyslurm_budget.service.budgets import share_words
from pyslurm_budget.service.counts import RECALL, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyslurm_budget.domain.grant import Grant
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.state import PublicState

_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?:h|gpu-?h|gpuh)?", re.ASCII | re.IGNORECASE)


def read_amount(text: str) -> int:
    """GPU-hours as people write them (``500h``, ``500``, ``0.5h``) in mGPU-s, above 0. Raises UsageError."""
    found = _AMOUNT.fullmatch(text.strip())
    amount = int(Fraction(found[1]) * MGPU_S_PER_GPU_H) if found else 0
    if amount <= 0 or amount >= 2**53:
        raise UsageError(f"{text!r} is no amount of GPU-hours; write 500h")
    return amount


def known_budget(name: str, budgets: Iterable[Budget]) -> Budget:
    """The budget of this account, in any case. Raises NotFoundError."""
    by_name = {b.account: b for b in budgets}
    found = by_name.get(name.lower())
    if found is None:
        raise NotFoundError(f"no budget {name}{values.nearest(name, by_name)}; `sbudget budget tree` lists them")
    return found


def known_pool(pool: str | None, state: PublicState | None) -> str:
    """The pool that was named, or the only one. Raises UsageError, NotFoundError."""
    names = sorted(p.name for p in state.pools) if state is not None else []
    if pool is not None:
        if names and pool not in names:
            raise NotFoundError(f"no pool {pool}{values.nearest(pool, names)}; known: {', '.join(names)}")
        return pool
    if len(names) != 1:
        told = f"there are {', '.join(names)}" if names else "nothing has been published that tells the pools"
        raise UsageError(f"name the pool with --pool: {told}")
    return names[0]


def with_share(
    budgets: Sequence[Budget], account: str, pool: str, share: Fraction, since: int, *, retroactive: bool
) -> list[Budget]:
    """The budgets with the account's share from ``since`` on; with ``retroactive`` also instead of what was set
    after that."""
    found = []
    for budget in budgets:
        if budget.account == account:
            kept = [s for s in budget.shares if s.pool != pool or s.since < since or not retroactive]
            kept = [s for s in kept if (s.pool, s.since) != (pool, since)]
            found.append(replace(budget, shares=(*kept, ShareSince(since, share, pool))))
        else:
            found.append(budget)
    return found


def retroactively(old: BudgetTree, new: BudgetTree, state: PublicState, policy: Policy, now: int) -> Iterator[str]:
    """What a retroactive change does to the allowances that were published, a line for each that changes."""
    for entry in state.budgets:
        if entry.budget not in new.budgets or entry.budget not in old.budgets:
            continue
        flat = fixed_capacity(1, now=now, window=policy.window, hour=policy.hour)
        before, after = (allowance(tree, entry.budget, entry.pool, flat) for tree in (old, new))
        if before != after:
            had = entry.allowance - entry.granted
            told = f"{gpu_hours(had)} -> {gpu_hours(had * after // before)} GPU-h" if before else "from nothing"
            yield f"~ {entry.budget}: allowance of the window in {entry.pool}: {told}"


def check_lendable(loan: Entry, state: PublicState, loans: Iterable[Entry]) -> None:
    """Refuse a loan above what the lender has left: as published, less what it lent since then. Raises UsageError,
    and StaleDataError where the state is too old to say."""
    if loan.at >= state.stale_after:
        raise StaleDataError("the published state is stale, so what the lender has left is not known; sbudget health")
    lender, pool = loan.lender, loan.pool
    left = sum(e.lendable for e in state.budgets if (e.budget, e.pool) == (lender, pool))
    left -= sum(e.amount for e in loans if (e.lender, e.pool) == (lender, pool) and e.at >= state.as_of)
    if loan.amount > left:
        raise UsageError(
            f"{lender} cannot lend {gpu_hours(loan.amount)} GPU-h in {pool}: it has {gpu_hours(max(0, left))} left"
        )


def recall_of(grant: Grant, now: int, who: str, why: str) -> Entry:
    """The entry that ends a grant or a loan now. Raises UsageError for one that is over."""
    if grant.end is not None and grant.end <= now:
        raise UsageError(f"number {grant.id} is over; what was booked of it stays booked")
    return Entry(now, RECALL, grant.budget, grant.pool, grant.left, now, None, who, why, reverses=grant.id)


def toml(budgets: Iterable[Budget]) -> str:
    """The tree in force as a budget file: ``budget apply`` of it changes nothing."""
    return "\n".join(map(_table, sorted(budgets, key=lambda b: (b.parent is not None, b.account))))


def _table(budget: Budget) -> str:
    lines = [f"[budgets.{_quoted(budget.account)}]"]
    if budget.parent is not None:
        lines.append(f"parent = {_quoted(budget.parent)}")
    last = max((s.since for s in budget.shares), default=0)
    pools = sorted({s.pool for s in budget.shares}, key=lambda pool: (pool != ANY_POOL, pool))
    shares = {pool: _quoted(share_words(budget.share_at(pool, last))) for pool in pools}
    if pools == [ANY_POOL]:
        lines.append(f"share = {shares[ANY_POOL]}")
    else:
        lines.append(f"share = {{ {', '.join(f'{_quoted(pool)} = {share}' for pool, share in shares.items())} }}")
    if budget.borrow:
        lines.append("borrow = true")
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    """A TOML string, quotes and all."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
