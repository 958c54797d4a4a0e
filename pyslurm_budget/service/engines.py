"""The port of the two engines of displacement (design 4.6), and the requeue engine behind it.

Both are given the same takings: jobs, each with the runs whose place it may take. Whatever an engine does, only runs
of a taking are ever stopped, each is in the queue again afterwards, and what it began is written down first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyslurm_budget.domain.model import Job, RunKey
    from pyslurm_budget.domain.plan import Taking
    from pyslurm_budget.service.apply import Applier
    from pyslurm_budget.service.ports import Intent


class Pace(Protocol):
    """The steady clock by which a round of claims goes."""

    def milliseconds(self) -> int:
        """Milliseconds since any fixed moment."""

    def wait(self, milliseconds: int) -> None:
        """Let so much time pass."""


class Engine(Protocol):
    """How the places of runs are taken."""

    def sweep(self, jobs: Sequence[Job], now: int) -> bool:
        """Bring back what earlier cycles left; true if anything was changed, so that jobs must be read again."""

    def displace(self, cycle: int, takings: Sequence[Taking], now: int) -> tuple[Intent, ...]:
        """Serve the jobs, one after the other; returns the intents that are closed by now."""


class RequeueEngine:
    """Our own placement judged that the first runs of each taking make room: they are requeued."""

    def __init__(self, applier: Applier, ended: Callable[[RunKey], str | None]) -> None:
        """``ended`` tells the accounting state of a run that has ended."""
        self._applier = applier
        self._ended = ended

    def sweep(self, jobs: Sequence[Job], now: int) -> bool:  # noqa: ARG002 (the port's)
        """See the port; a requeue leaves nothing that could stand open."""
        return False

    def displace(self, cycle: int, takings: Sequence[Taking], now: int) -> tuple[Intent, ...]:
        """See the port."""
        return self._applier.apply(cycle, [run for taking in takings for run in taking.first], self._ended, now)
