"""One point of the check of `sbudget setup`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a point of the check says: fine, must change, or advised."""

    OK = "ok"
    MUST = "must change"
    ADVISED = "advised"


@dataclass(frozen=True, slots=True)
class Point:
    """One point: ``says`` is a sentence, ``line`` what to write (empty if nothing is to do). ``blocks``: nothing that
    `apply` does would work as long as this must change."""

    name: str
    verdict: Verdict
    says: str
    line: str = ""
    blocks: bool = True

    @property
    def wrong(self) -> bool:
        """Whether it must change."""
        return self.verdict is Verdict.MUST
