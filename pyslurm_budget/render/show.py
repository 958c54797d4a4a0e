"""``sbudget show``: the budgets of a published state as a tree, one block a pool, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain import wording
from pyslurm_budget.domain.plan import BudgetState
from pyslurm_budget.render.table import Column, Style, draw
from pyslurm_budget.service.budgets import share_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.state import PublicState

_BAR_GPUS = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Line:
    """One row. ``share`` is of the parent, ``None`` where the parent has none. ``real`` is false for the remainder
    of a budget that no child was given."""

    label: str
    state: BudgetState
    share: Fraction | None
    real: bool = True
    fancy: bool = False

    @property
    def load_percent(self) -> int | None:
        """(charged + outstanding) / allowance in whole percent; ``None`` without an allowance."""
        if self.state.allowance <= 0:
            return None
        return wording.rounded(100 * (self.state.charged + self.state.outstanding), self.state.allowance)


def _of_real(line: Line, text: str) -> str:
    return text if line.real else ""


def _load(line: Line) -> str:
    load = line.load_percent
    if load is None or not line.real:
        return _of_real(line, "-")
    return f"{load:>3} % {_bar(load)}".rstrip() if line.fancy else f"{load} %"


def _bar(load: int) -> str:
    """Ten characters for 100 %, in eighths, cut at 200 %."""
    eighths = wording.rounded(min(load, _BAR_LIMIT) * 8, 10)
    full, part = divmod(eighths, 8)
    return (_EIGHTHS[8] * full + (_EIGHTHS[part] if part else ""))[: _BAR_GPUS + 2]


def _plain_share(line: Line) -> str:
    """Percent of the parent with up to four decimals."""
    if line.share is None:
        return ""
    scaled = wording.rounded(line.share.numerator * 1_000_000, line.share.denominator)
    whole, rest = divmod(scaled, 10_000)
    return f"{whole}.{rest:04d}".rstrip("0").rstrip(".")


COLUMNS: tuple[Column[Line], ...] = (
    Column("Budget", lambda r: r.label, lambda r: r.state.budget, left=True),
    Column("Pool", lambda r: r.state.pool, lambda r: r.state.pool, left=True),
    Column("Share", lambda r: "-" if r.share is None else share_words(_short(r.share)), _plain_share),
    Column(
        "Allowance",
        lambda r: wording.gpu_hours(r.state.allowance),
        lambda r: wording.plain_gpu_hours(r.state.allowance),
    ),
    Column(
        "Charged",
        lambda r: _of_real(r, wording.gpu_hours(r.state.charged)),
        lambda r: wording.plain_gpu_hours(r.state.charged),
    ),
    Column(
        "Promised",
        lambda r: _of_real(r, wording.gpu_hours(r.state.outstanding)),
        lambda r: wording.plain_gpu_hours(r.state.outstanding),
    ),
    Column(
        "Headroom",
        lambda r: _of_real(r, wording.gpu_hours(r.state.headroom)),
        lambda r: wording.plain_gpu_hours(r.state.headroom),
    ),
    Column("Load", _load, lambda r: "" if r.load_percent is None else str(r.load_percent)),
    Column("Backed", lambda r: _of_real(r, _gpus(r.state.backed_now)), lambda r: wording.gpus(r.state.backed_now)),
    Column("Spare", lambda r: _of_real(r, _gpus(r.state.spare_now)), lambda r: wording.gpus(r.state.spare_now)),
    Column("Waiting", lambda r: _of_real(r, _gpus(r.state.waiting)), lambda r: wording.gpus(r.state.waiting)),
)


def _short(share: Fraction) -> Fraction:
    """A share for the eye: one decimal of a percentage is enough."""
    return Fraction(wording.rounded(share.numerator * 1000, share.denominator), 1000)


def _gpus(rate: int) -> str:
    """GPUs for the eye: thousandths only where they are small."""
    return wording.gpus(rate if abs(rate) < 10_000 else 1000 * wording.rounded(rate, 1000))


def lines(state: PublicState, pool: str, accounts: Sequence[str], *, fancy: bool, remainder: bool) -> list[Line]:
    """Rows of one pool in the order of the tree; of ``accounts`` and what is below them, where any are named."""
    own = {entry.budget: entry for entry in state.budgets if entry.pool == pool}
    children: dict[str | None, list[str]] = {}
    for name in sorted(own):
        parent = state.parents.get(name)
        children.setdefault(parent if parent in own else None, []).append(name)
    tops = children.get(None, [])
    if accounts:
        wanted = [name for name in own if name in accounts]
        tops = sorted(name for name in wanted if not _below_any(name, wanted, state.parents))
    found: list[Line] = []
    for name in tops:
        found.extend(_subtree(name, own, children, state.parents, ("", ""), fancy=fancy, remainder=remainder))
    return found


def _below_any(name: str, others: Iterable[str], parents: Mapping[str, str | None]) -> bool:
    at = parents.get(name)
    while at is not None:
        if at in others:
            return True
        at = parents.get(at)
    return False


def _subtree(
    name: str,
    own: Mapping[str, BudgetState],
    children: Mapping[str | None, list[str]],
    parents: Mapping[str, str | None],
    lead: tuple[str, str],
    *,
    fancy: bool,
    remainder: bool,
) -> list[Line]:
    parent = parents.get(name)
    above = Fraction(own[parent].share) if parent in own and parent is not None else Fraction(1)
    share = Fraction(own[name].share) / above if above else None
    found = [Line(lead[0] + name, own[name], share, fancy=fancy)]
    below = children.get(name, [])
    rest = _not_given(own[name], [own[child] for child in below]) if below and remainder else None
    for i, child in enumerate(below):
        inner = _branch(lead[1], last=i == len(below) - 1 and rest is None, fancy=fancy)
        found += _subtree(child, own, children, parents, inner, fancy=fancy, remainder=remainder)
    if rest is not None:
        label = f"{_branch(lead[1], last=True, fancy=fancy)[0]}not given"
        found.append(Line(label, rest, Fraction(rest.share) / Fraction(own[name].share), real=False))
    return found


def _branch(lead: str, *, last: bool, fancy: bool) -> tuple[str, str]:
    """What stands before a child's name, and before those of its own children."""
    own, below = (("└ ", "  ") if last else ("├ ", "│ ")) if fancy else ("  ", "  ")
    return lead + own, lead + below


def _not_given(budget: BudgetState, children: Sequence[BudgetState]) -> BudgetState | None:
    """The part of a budget that no child has, if there is any."""
    rest = Fraction(budget.share) - sum((Fraction(child.share) for child in children), Fraction(0))
    if rest <= 0:
        return None
    amount = budget.allowance - sum(child.allowance for child in children)
    return BudgetState(budget.budget, budget.pool, str(rest), amount, 0, 0, 0, 0, 0, 0, 0)


def remarks(state: PublicState, pool: str, shown: Iterable[Line]) -> list[str]:
    """What the numbers mean for the next job, a sentence each."""
    own = {entry.budget: entry for entry in state.budgets if entry.pool == pool}
    found = []
    for line in shown:
        if not line.real:
            continue
        entry = line.state
        limit = _least(entry, own, state.parents)
        if entry.allowance <= 0:
            found.append(f"{entry.budget} has no allowance in {pool}: its work is spare.")
        elif entry.headroom <= 0:
            over = wording.gpu_hours(-entry.headroom)
            told = f"is {over} GPU-h over its budget" if entry.headroom < 0 else "has nothing left"
            kept = f"; {_gpus(entry.backed_now)} GPUs run on as backed" if entry.backed_now else ""
            found.append(f"{entry.budget} {told}: new work is spare{kept}.")
        elif limit.budget != entry.budget:
            found.append(_limited(entry, limit))
    return found


def _limited(entry: BudgetState, limit: BudgetState) -> str:
    if limit.headroom <= 0:
        return f"{limit.budget} has nothing left, so new work of {entry.budget} is spare."
    left = wording.gpu_hours(limit.headroom)
    return (
        f"{limit.budget} has {left} GPU-h left in all, so {entry.budget} can use {left} of its "
        f"{wording.gpu_hours(entry.headroom)}."
    )


def _least(entry: BudgetState, own: Mapping[str, BudgetState], parents: Mapping[str, str | None]) -> BudgetState:
    """The budget or ancestor with the least headroom: the one that a new contract meets first."""
    least = entry
    at = parents.get(entry.budget)
    while at is not None and at in own:
        if own[at].headroom < least.headroom:
            least = own[at]
        at = parents.get(at)
    return least


def heading(state: PublicState, pool: str, clock: Clock) -> str:
    """The line above a block: which cluster, pool and window, and how old the numbers are."""
    sizes = {p.name: p for p in state.pools}
    size = ""
    if pool in sizes:
        out = sizes[pool].gpus - sizes[pool].in_service
        size = f" ({sizes[pool].gpus:,} GPUs{f', {out:,} of them out of service' if out > 0 else ''})"
    window = wording.span(state.window)
    age = wording.span(max(0, clock.now - state.as_of))
    return f"Cluster {state.cluster}, pool {pool}{size}, {window} to {clock.full(state.as_of)} (data {age} old)"


def block(state: PublicState, pool: str, accounts: Sequence[str], style: Style, clock: Clock) -> str:
    """One pool for people: heading, tree, remarks."""
    shown = lines(state, pool, accounts, fancy=style.fancy, remainder=True)
    columns = [column for column in COLUMNS if style.chosen or column.name != "Pool"]
    if style.fancy:  # the bars begin in one place
        columns = [replace(column, left=column.left or column.name == "Load") for column in columns]
    table = draw(columns, shown, style)
    if not style.header:
        return table
    return "\n".join([heading(state, pool, clock), table + "".join(f"{r}\n" for r in remarks(state, pool, shown))])


def document(state: PublicState, pools: Sequence[str], accounts: Sequence[str], now: int) -> dict[str, Any]:
    """The same for programs: raw integers (mGPU-s, thousandths of a GPU, seconds)."""
    entries = []
    for pool in pools:
        for line in lines(state, pool, accounts, fancy=False, remainder=False):
            s = line.state
            entries.append({name: getattr(s, name) for name in s.__dataclass_fields__})
            entries[-1] |= {"parent": state.parents.get(s.budget)}
    return {
        "cluster": state.cluster,
        "mode": state.mode.value,
        "as_of": state.as_of,
        "age": max(0, now - state.as_of),
        "stale_after": state.stale_after,
        "window": state.window,
        "pools": [
            {"name": p.name, "gpus": p.gpus, "in_service": p.in_service} for p in state.pools if p.name in pools
        ],
        "budgets": entries,
    }
