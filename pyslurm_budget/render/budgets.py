"""What was granted and lent, and who changed the budgets when and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain import wording
from pyslurm_budget.render.table import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyslurm_budget.domain.grant import Grant
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.counts import Entry


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the history."""

    at: int
    who: str
    what: str
    why: str


def changes(tree: Iterable[tuple[int, str, str, str]], entries: Iterable[Entry], clock: Clock) -> list[Change]:
    """Changes of the tree and entries, oldest first."""
    found = [Change(at, who, what, why) for at, who, why, what in tree]
    found += [Change(e.at, e.who, _entry_words(e, clock), e.why) for e in entries]
    return sorted(found, key=lambda c: c.at)


def _entry_words(entry: Entry, clock: Clock) -> str:
    amount, until = wording.gpu_hours(entry.amount), "" if entry.end is None else f" until {clock.full(entry.end)}"
    if entry.kind == "recall":
        return f"number {entry.reverses} recalled: {amount} GPU-h of {entry.account} were not used"
    source = f"lent by {entry.lender}" if entry.lender else "granted"
    return f"number {entry.id}: {amount} GPU-h in {entry.pool} {source} to {entry.account}{until}"


def history_columns(clock: Clock) -> Sequence[Column[Change]]:
    """Columns of ``budget history``."""
    return (
        Column("When", lambda c: clock.full(c.at), lambda c: str(c.at), left=True),
        Column("Who", lambda c: c.who, lambda c: c.who, left=True),
        Column("What", lambda c: c.what, lambda c: c.what, left=True),
        Column("Why", lambda c: c.why, lambda c: c.why, left=True),
    )


def grant_columns(clock: Clock) -> Sequence[Column[Grant]]:
    """Columns of ``budget grants``."""
    return (
        Column("Number", lambda g: str(g.id), lambda g: str(g.id)),
        Column("Budget", lambda g: g.budget, lambda g: g.budget, left=True),
        Column("Pool", lambda g: g.pool, lambda g: g.pool, left=True),
        Column("Lender", lambda g: g.lender or "-", lambda g: g.lender or "", left=True),
        Column("Amount", lambda g: wording.gpu_hours(g.amount), lambda g: wording.plain_gpu_hours(g.amount)),
        Column("Left", lambda g: wording.gpu_hours(g.left), lambda g: wording.plain_gpu_hours(g.left)),
        Column(
            "Until",
            lambda g: "used up" if g.end is None else clock.full(g.end),
            lambda g: "" if g.end is None else str(g.end),
            left=True,
        ),
    )


def grants_document(grants: Iterable[Grant]) -> dict[str, Any]:
    """For ``--json``: amounts in mGPU-s, times in epoch seconds."""
    names = ("id", "budget", "pool", "lender", "amount", "booked", "begin", "end")
    return {"grants": [{name: getattr(g, name) for name in names} for g in grants]}


def history_document(found: Iterable[Change]) -> dict[str, Any]:
    """For ``--json``."""
    return {"changes": [{"at": c.at, "who": c.who, "what": c.what, "why": c.why} for c in found]}
