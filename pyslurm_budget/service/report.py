"""Reports of usage: who used what in a period, and the runs of which nobody knows.

What was held is cut to [start, end). A run without an end counts until now; in a ledger that knows the cluster from
saved accounting alone until that was loaded, and to its time limit at most, because nobody can say that it is alive.
Its class is the one that the books charge it by: that of its QOS, or, for a run that ended while the site only
observed, the one that it would have had (design 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyslurm_budget import values
from pyslurm_budget.errors import StaleDataError, UsageError
from pyslurm_budget.service.archive import ARCHIVED, ARCHIVED_RUNS, deleted_since
from pyslurm_budget.service.usage import GROUPS, UsageQuery, UsageSum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.service.ports import Ledger, RunFacts
    from pyslurm_budget.service.zones import Zone

PERIODS = ("day", "month")
RUNAWAY = "accounting has it as running, but slurmctld has no such job (see `sacctmgr show runawayjobs`)"
BY = (*GROUPS, *PERIODS)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted: the period, seconds since the epoch; groups (of BY, in their order); the zone of days and
    months. ``accounts`` are lower case; empty ones leave all in."""

    start: int
    end: int
    now: int
    zone: Zone
    by: tuple[str, ...] = ("account",)
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows: from its first start to ``last`` (``None`` while runs are open). ``as_of`` is when
    accounting was read last, ``None`` where nobody said so; ``saved``: only saved accounting was ever read.
    ``archived``: runs that ended before this moment were archived and deleted, and ``deleted`` says of each month how
    many (see :func:`pyslurm_budget.service.archive.deleted_since`)."""

    first: int
    last: int | None
    as_of: int | None
    saved: bool
    archived: int | None = None
    deleted: str | None = None

    @property
    def empty(self) -> bool:
        """Accounting was read, and no run in it held GPUs."""
        return self.last == 0

    def left_out(self, start: int) -> int:
        """How many runs may be missing in a period from ``start`` on, as their month was archived and deleted."""
        return deleted_since(self.deleted, start)

    def until(self, now: int) -> int:
        """How long runs without an end count."""
        return min(now, self.as_of) if self.saved and self.as_of is not None else now


def known(ledger: Ledger) -> Known:
    """What the ledger knows; raises StaleDataError if that is nothing, which is not the same as no usage."""
    state, span = ledger.sync_state(), ledger.usage_span()
    saved = state is None or not state.complete
    if span is None and state is None:
        raise StaleDataError("the ledger has no accounting yet; run `sbudget sync`, or `sbudget sync --dump FILE`")
    first, last = span or (0, 0)
    archived = ledger.get(ARCHIVED)
    return Known(
        first,
        last,
        state.as_of if state else None,
        saved,
        int(archived) if archived else None,
        ledger.get(ARCHIVED_RUNS),
    )


def usual_period(known: Known, now: int, window: int) -> tuple[int, int]:
    """The window up to now; all that there is, if that is saved accounting older than the window."""
    last = known.until(now) if known.last is None else known.last
    if known.saved and not known.empty and last <= now - window:
        return known.first, last
    return now - window, now


def groups(text: str) -> tuple[str, ...]:
    """The groups of ``--by``; raises UsageError for one that there is not, or that comes twice."""
    found = tuple(word.strip().lower() for word in text.split(","))
    for name in found:
        if name not in BY:
            raise UsageError(f"--by: no group {name!r}{values.nearest(name, BY)}; write some of {', '.join(BY)}")
        if found.count(name) > 1:
            raise UsageError(f"--by: {name} comes twice; write it once")
    return found


def query(ask: Ask, known: Known) -> UsageQuery:
    """The question to the ledger for the whole period, without groups."""
    return UsageQuery(
        start=ask.start,
        end=ask.end,
        until=known.until(ask.now),
        to_limit=known.saved,
        accounts=ask.accounts,
        users=ask.users,
    )


class UsageReport:
    """Who used what; :meth:`rows` may be read once, ``total`` is there when they have been read."""

    def __init__(self, ledger: Ledger, ask: Ask, known: Known) -> None:
        self._ledger = ledger
        self._ask = ask
        self._known = known
        self.query = query(ask, known)
        self.total = UsageSum((), 0, 0, 0, 0, 0)

    def rows(self) -> Iterator[UsageSum]:
        """One row for each combination of the groups asked for that held something, ordered by them."""
        by = self._ask.by
        whole = sorted(by, key=lambda name: name not in PERIODS) == list(by)  # the ledger answers a period at a time
        return self._answers() if whole else iter(sorted(self._answers(), key=lambda row: row.keys))

    def _answers(self) -> Iterator[UsageSum]:
        by = self._ask.by
        inner = tuple(name for name in by if name not in PERIODS)
        names, queries = [], []
        for name, begin, end in self._slices():
            names.append(name)
            queries.append(replace(self.query, start=begin, end=end, by=inner))
        for number, found in self._ledger.usage([*queries, self.query]):
            if number == len(queries):
                self.total = found
                continue
            held = dict(zip(inner, found.keys, strict=True))
            held |= {"day": names[number], "month": names[number][:7]}
            yield replace(found, keys=tuple(held[name] for name in by))

    def _slices(self) -> Iterator[tuple[str, int, int]]:
        """The periods to ask for; none outside of what the ledger knows, which saves thousands of empty days."""
        ask, last = self._ask, self._known.last
        start = max(ask.start, self._known.first)
        end = min(ask.end, self.query.until if last is None else last)
        if not set(PERIODS) & set(ask.by):
            yield "", ask.start, ask.end
        elif start < end:
            yield from ask.zone.days(start, end) if "day" in ask.by else ask.zone.months(start, end)


def unknown_runs(ledger: Ledger, ask: Ask, known: Known) -> Iterator[RunFacts]:
    """The runs of the period of which nobody knows how many GPUs they held, or until when."""
    return ledger.unknown_runs(query(ask, known))
