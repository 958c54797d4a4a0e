"""Times for people, in the site's zone or the system's, always with their zone where a date is given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

WEEK = 6 * 86400
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Clock:
    """``zone`` is a name as ``"Europe/Berlin"``; ``None`` is the system's zone. ``now`` decides what is near."""

    now: int
    zone: str | None = None

    def _at(self, when: int) -> datetime:
        moment = datetime.fromtimestamp(when, UTC)
        return moment.astimezone(ZoneInfo(self.zone)) if self.zone else moment.astimezone()

    def full(self, when: int) -> str:
        """``2026-12-01 10:42 CET``."""
        moment = self._at(when)
        return f"{moment:%Y-%m-%d %H:%M} {moment.tzname()}"

    def near(self, when: int) -> str:
        """``15:12`` today, ``Mon 09:12`` within six days, else with the date; no zone: a heading carries it."""
        moment, today = self._at(when), self._at(self.now)
        if moment.date() == today.date():
            return f"{moment:%H:%M}"
        if abs(when - self.now) < WEEK:
            return f"{_DAYS[moment.weekday()]} {moment:%H:%M}"
        return f"{moment:%Y-%m-%d %H:%M}"

    def day(self, when: int) -> str:
        """``Mon 09:12`` within six days, else with the date: for columns."""
        moment = self._at(when)
        if abs(when - self.now) < WEEK:
            return f"{_DAYS[moment.weekday()]} {moment:%H:%M}"
        return f"{moment:%Y-%m-%d %H:%M}"
