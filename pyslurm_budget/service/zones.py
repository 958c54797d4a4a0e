"""Clocks of a zone: moments that a calendar time means, Slurm's time forms, and the days and months of a period.

Nights in which clocks change are exact: a day is what lies between two midnights of the zone, 23, 24 or 25 hours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_WORDS = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
_NOW = re.compile(rf"now\s*(?:([+-])\s*([0-9]{{1,10}})\s*(?:({'|'.join(_UNITS)})s?)?)?", re.ASCII)
_DATE = (
    "today|tomorrow|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}/[0-9]{1,2}(?:/[0-9]{2})?"
    r"|[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{2})?|[0-9]{4}(?:[0-9]{2})?"
)
_CLOCK = rf"[0-9]{{1,2}}:[0-9]{{2}}(?::[0-9]{{2}})?\s*(?:am|pm)?|{'|'.join(_WORDS)}"
_FORM = re.compile(rf"(?P<date>{_DATE})(?:(?:t|-|\s+)(?P<then>{_CLOCK}))?|(?P<clock>{_CLOCK})", re.ASCII)
_EPOCH = re.compile(r"(?:uts)?([0-9]{7,11})", re.ASCII)
ACCEPTED = "write 2026-12-01, 2026-12-01T08:00, 12/01, now-7days, today, or seconds since the epoch"


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone by its name; ``None`` is that of this host."""

    name: str | None = None

    def local(self, when: int) -> datetime:
        """What the clocks show at a moment, without a zone."""
        return datetime.fromtimestamp(when, UTC).astimezone(_info(self.name)).replace(tzinfo=None, fold=0)

    def moments(self, shown: datetime) -> tuple[int, ...]:
        """Every moment at which the clocks show this (``shown`` has no zone): one, two in the hour that comes twice,
        none in the one that is left out."""
        found = (int(shown.replace(tzinfo=_info(self.name), fold=fold).timestamp()) for fold in (0, 1))
        return tuple(dict.fromkeys(when for when in found if self.local(when) == shown))

    def begin(self, day: date) -> int:
        """The first moment of a day, also where clocks are put forward at midnight."""
        return int(datetime.combine(day, time(), _info(self.name)).timestamp())

    def days(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """(``2026-11-30``, begin, end) of each day that [start, end) touches, cut to it."""
        day = self.local(start).date()
        while (begin := self.begin(day)) < end:
            after = day + timedelta(days=1)
            yield from _cut(day.isoformat(), (begin, self.begin(after)), start, end)
            day = after

    def months(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """(``2026-11``, begin, end) of each month, in the same way."""
        day = self.local(start).date().replace(day=1)
        while (begin := self.begin(day)) < end:
            after = (day + timedelta(days=31)).replace(day=1)
            yield from _cut(day.isoformat()[:7], (begin, self.begin(after)), start, end)
            day = after


def _cut(name: str, span: tuple[int, int], start: int, end: int) -> Iterator[tuple[str, int, int]]:
    begin, until = max(span[0], start), min(span[1], end)
    if begin < until:
        yield name, begin, until


@lru_cache
def _info(name: str | None) -> ZoneInfo | None:
    return None if name is None else ZoneInfo(name)


def known_zone(name: str) -> Zone:
    """The zone of this name; raises ``ValueError`` for one that is not known here."""
    try:
        _info(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f'no time zone {name!r} is known here; write one such as "Europe/Berlin" or "UTC"') from None
    return Zone(name)


def read_moments(text: str, now: int, zone: Zone) -> tuple[int, ...]:
    """The moments that a time in one of Slurm's forms (sacct(1), ``--starttime``) may mean, never none.

    A time without a date is today's, a date without a year the last such month's, as sacct reads them. Also seconds
    since the epoch (with or without Slurm's ``uts``), and ISO 8601 with an offset. Raises ``ValueError``.
    """
    bare = text.strip().lower()
    if found := _EPOCH.fullmatch(bare):
        return (int(found[1]),)
    if found := _NOW.fullmatch(bare):
        return (now + int(f"{found[1] or '+'}{found[2] or 0}") * _UNITS[found[3] or "second"],)
    found = _FORM.fullmatch(bare)
    if found is None:
        return (_with_offset(text),)
    day = _date(found["date"], zone.local(now).date(), text)
    clock = found["then"] or found["clock"]
    if clock is None:
        return (zone.begin(day),)
    moments = zone.moments(datetime.combine(day, _time(clock, text)))
    if not moments:
        raise ValueError(f"{text} is no time in {zone.name or 'the zone of this host'}: clocks were put forward then")
    return moments


def _with_offset(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is no time; {ACCEPTED}")
    return int(moment.timestamp())


def _date(text: str | None, today: date, whole: str) -> date:
    if text in (None, "today"):
        return today
    if text == "tomorrow":
        return today + timedelta(days=1)
    parts = re.findall("[0-9]+", text)
    if len(parts) == 1:
        parts = re.findall("..", parts[0])
    numbers = [int(part) for part in parts]
    if "-" in text:
        year, month, day = numbers
    elif len(numbers) == 3:
        month, day, year = numbers[0], numbers[1], 2000 + numbers[2]
    else:
        month, day = numbers
        year = today.year - (month > today.month)
    try:
        return date(year, month, day)
    except ValueError as wrong:
        raise ValueError(f"{whole!r} is no time ({wrong}); {ACCEPTED}") from None


def _time(text: str, whole: str) -> time:
    if text in _WORDS:
        return time(_WORDS[text])
    numbers = [int(part) for part in re.findall("[0-9]+", text)]
    if text.endswith(("am", "pm")):
        if not 1 <= numbers[0] <= 12:
            raise ValueError(f"{whole!r} is no time (there is no {numbers[0]} o'clock {text[-2:]}); {ACCEPTED}")
        numbers[0] = numbers[0] % 12 + (12 if text.endswith("pm") else 0)
    try:
        return time(numbers[0], numbers[1], numbers[2] if numbers[2:] else 0)
    except ValueError as wrong:
        raise ValueError(f"{whole!r} is no time ({wrong}); {ACCEPTED}") from None
