"""Closed months leave for files: which months are closed, what is written, what may be deleted afterwards.

A month holds the runs that *ended* in it, so that every run is in exactly one. It is closed when accounting was read
a day after its end. Deleted is only what was read back from its file and lies, as a whole month, before the months
that reports must know, before the window of the budgets, and before anything that is not finished.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pyslurm_budget.domain.pseudonym import pseudonym
from pyslurm_budget.errors import ArchiveError, StaleDataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyslurm_budget.service.ports import SyncState
    from pyslurm_budget.service.zones import Zone

# A run as it stands in the ledger: values by the name of their column.
Row = dict[str, Any]
DAY = 24 * 3600
# Name of the ledger's value: runs that ended before this moment are in archived files alone.
ARCHIVED = "archived-until"
# The same: [begin, end, number of deleted runs] of each month that was deleted, as JSON.
ARCHIVED_RUNS = "archived-runs"


@dataclass(frozen=True, slots=True)
class Month:
    """A calendar month of a zone, [begin, end)."""

    name: str
    begin: int
    end: int


class ArchiveLedger(Protocol):
    """What archives need of the ledger."""

    def sync_state(self) -> SyncState | None:
        """State of the last complete read."""

    def archived_until(self) -> int | None:
        """The moment before which runs were archived and deleted."""

    def next_end(self, since: int | None) -> int | None:
        """The first end of a run, or the first from a moment on."""

    def runs_ended(self, begin: int, end: int) -> Iterator[Row]:
        """The runs that ended in [begin, end), always in the same order."""

    def oldest_open(self) -> tuple[int, str] | None:
        """When the oldest business that is not finished began, and what it is."""

    def delete_runs(self, begin: int, end: int, digest: str, written: Callable[[Row], Row]) -> int:
        """Delete the runs that ended in [begin, end) and have the digest once ``written`` was applied to each."""


class ArchiveFolder(Protocol):
    """Where the files of the months are."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep other archivers out."""

    def has(self, month: Month) -> bool:
        """Whether there is a file of the month."""

    def write(self, month: Month, runs: Iterable[Row]) -> None:
        """Put the runs in the place of the month's file."""

    def digest(self, month: Month) -> str:
        """The digest of what is in the month's file."""

    def digest_of(self, runs: Iterable[Row]) -> str:
        """The digest of these runs, to compare with."""

    def describe(self, month: Month) -> dict[str, Any]:
        """Write beside the file what is in it, unless that is there, and return it."""


@dataclass(frozen=True, slots=True)
class Names:
    """How users are called in files: by pseudonyms of this key where the whole month ended before ``before``."""

    key: str
    before: int


@dataclass(frozen=True, slots=True)
class Done:
    """A month after archiving: ``state`` is ``written``, ``replaced``, ``same`` (was there) or ``differs`` (there is
    a file with other runs, left alone); ``manifest`` says what is in the file, ``deleted`` how many rows left the
    ledger."""

    month: Month
    state: str
    manifest: dict[str, Any]
    deleted: int | None = None


class Archive:
    """One run of ``sbudget db archive``."""

    def __init__(self, ledger: ArchiveLedger, folder: ArchiveFolder, zone: Zone, names: Names | None = None) -> None:
        self._ledger = ledger
        self._folder = folder
        self._zone = zone
        self._names = names

    def months(self, now: int, before: int | None) -> list[Month]:
        """The closed months with runs, oldest first, that end at ``before`` at the latest. Raises StaleDataError
        where accounting was never read."""
        state = self._ledger.sync_state()
        if state is None:
            raise StaleDataError("the ledger has no accounting yet: no month is closed; run `sbudget sync`")
        last = min(now, state.as_of) - DAY
        last = last if before is None else min(last, before)
        found: list[Month] = []
        end = self._ledger.next_end(self._ledger.archived_until())
        while end is not None and (month := month_of(self._zone, end)).end <= last:
            found.append(month)
            end = self._ledger.next_end(month.end)
        return found

    def keep(self, month: Month, *, over: bool) -> Done:
        """Write the month's file, unless there is one; ``over``: also over one with other runs."""
        state = "written"
        if self._folder.has(month):
            state = "same" if self._is_same(month) else "replaced" if over else "differs"
        if state == "differs":
            return Done(month, state, {})
        if state != "same":
            self._folder.write(month, self._runs(month))
            if not self._is_same(month):
                raise ArchiveError(f"{month.name}: the runs changed while they were written; do it again")
        return Done(month, state, self._folder.describe(month))

    def delete(self, done: Done) -> Done:
        """Delete the month's runs from the ledger; raises ArchiveError, with nothing deleted, where they are not
        those of the file."""
        month, digest = done.month, self._folder.digest(done.month)
        return replace(done, deleted=self._ledger.delete_runs(month.begin, month.end, digest, self._written(month)))

    def limit(self, kept: int, window: int) -> tuple[int, str]:
        """What ended before this moment may be deleted, and what stands against more: ``kept`` is the begin of what
        reports must know, ``window`` that of the budgets' window."""
        # Accounting is read again for a day before the window.
        found = [(kept, "reports must know it"), (window - DAY, "budgets are counted from it")]
        oldest = self._ledger.oldest_open()
        if oldest is not None:
            found.append((oldest[0], f"{oldest[1]} is not finished"))
        return min(found)

    def _is_same(self, month: Month) -> bool:
        return self._folder.digest(month) == self._folder.digest_of(self._runs(month))

    def _runs(self, month: Month) -> Iterator[Row]:
        return map(self._written(month), self._ledger.runs_ended(month.begin, month.end))

    def _written(self, month: Month) -> Callable[[Row], Row]:
        names = self._names
        if names is None or month.end > names.before:
            return _as_it_is
        return lambda run: run | {"user": pseudonym(names.key, run["user"])}


def _as_it_is(run: Row) -> Row:
    return run


def deleted_since(text: str | None, start: int) -> int:
    """How many runs were deleted of the months that end after ``start``; ``text`` is what the ledger has of it."""
    return sum(count for _, end, count in json.loads(text or "[]") if end > start)


def month_of(zone: Zone, when: int) -> Month:
    """The month in which a moment lies."""
    first = zone.local(when).date().replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return Month(first.isoformat()[:7], zone.begin(first), zone.begin(after))


def read_month(zone: Zone, text: str) -> int:
    """The begin of the month ``2026-11``; raises UsageError."""
    try:
        day = date.fromisoformat(f"{text.strip()}-01")
    except ValueError:
        raise UsageError(f"--before: {text!r} is no month; write one such as 2026-11") from None
    return zone.begin(day)


def kept_since(zone: Zone, now: int, months: int) -> int:
    """The begin of the first of so many whole months before the present one."""
    first = zone.local(now).date()
    number = first.year * 12 + first.month - 1 - months
    return zone.begin(date(max(number // 12, 1), number % 12 + 1, 1))


def old_since(zone: Zone, now: int, after: int) -> int:
    """Runs that ended before this moment are old: whole months, all of which is longer ago than ``after`` seconds, so
    that a file does not change from day to day."""
    return month_of(zone, now - after).begin
