"""What became of the rows of saved accounting: nothing is dropped without being counted and, at first, shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_SHOWN = 160
_KEPT = 20


class RowError(ValueError):
    """One row cannot be read; ``kind`` says why in words that are the same for all rows of that kind."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(detail or kind)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Rejected:
    """One rejected row: the line where it begins (in JSON: its place among the jobs, from 1) and why."""

    line: int
    kind: str
    detail: str
    text: str


@dataclass
class Summary:
    """Counts of one reading; ``rejected`` counts by reason, ``examples`` are the first of them, at most 20.

    ``open`` are runs without an end of which nobody said how long they ran; ``ambiguous`` are rows with a local time
    that came twice in the night of a change of clocks; ``elapsed_differs`` are rows whose elapsed time is not their
    end minus their start: a wrong time zone shows here. ``capped`` are running rows past their time limit.
    """

    records: int = 0
    steps: int = 0
    running: int = 0
    open: int = 0
    capped: int = 0
    ambiguous: int = 0
    elapsed_differs: int = 0
    unknown_gpus: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    examples: list[Rejected] = field(default_factory=list)

    def reject(self, line: int, error: RowError, text: str) -> None:
        """Count a row that cannot be read."""
        self.rejected[error.kind] += 1
        if len(self.examples) < _KEPT:
            shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
            self.examples.append(Rejected(line, error.kind, str(error), shown))

    @property
    def lost(self) -> int:
        """How many rows were rejected."""
        return self.rejected.total()
