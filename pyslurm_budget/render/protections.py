"""``sbudget protect`` without a job: the protections in force, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyslurm_budget.render.table import Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.exempt import Protection
    from pyslurm_budget.render.clock import Clock


@dataclass(frozen=True, slots=True)
class Line:
    """One protection; ``clock`` shows its times, ``None`` as seconds since the epoch."""

    of: Protection
    clock: Clock | None

    def time(self, when: int) -> str:
        """A time for people, or as it is."""
        return str(when) if self.clock is None else self.clock.near(when)


COLUMNS: tuple[Column[Line], ...] = (
    Column("Job", lambda line: line.of.ref, lambda line: line.of.ref, left=True),
    Column("Until", lambda line: line.time(line.of.until), lambda line: str(line.of.until), left=True),
    Column("By", lambda line: line.of.who, lambda line: line.of.who, left=True),
    Column("Since", lambda line: line.time(line.of.at), lambda line: str(line.of.at), left=True),
    Column("Why", lambda line: line.of.why, lambda line: line.of.why, left=True),
)


def lines(found: Iterable[Protection], clock: Clock | None) -> list[Line]:
    """The rows, those that end first on top."""
    return [Line(p, clock) for p in sorted(found, key=lambda p: (p.until, p.ref))]


def document(found: Iterable[Protection]) -> dict[str, Any]:
    """The same for programs; times are seconds since the epoch."""
    return {"protections": [asdict(line.of) for line in lines(found, None)]}
