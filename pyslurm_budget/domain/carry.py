"""What the submit plugin let in since the table's snapshot, and what it leaves under each limit of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.submit import Decision, SubmitRequest
    from pyslurm_budget.domain.table import LimitLine


@dataclass(frozen=True, slots=True)
class _Promise:
    """What was let in at a moment, by one (account, user)."""

    at: int
    limit: str
    pool: str
    pair: tuple[str, str]
    rate: int
    length: int


class Carry:
    """What was let in since the snapshot: the table does not know of it yet."""

    # A job is written into Slurm's list a moment after the plugin let it in.
    SETTLE = 2

    def __init__(self) -> None:
        """Nothing was let in."""
        self._promises: list[_Promise] = []

    def renew(self, snapshot: int, now: int) -> None:
        """A new table came: what was let in before its snapshot stands in its numbers. Where the clock was set back,
        what was let in counts from now."""
        known = (replace(p, at=min(p.at, now)) for p in self._promises)
        self._promises = [p for p in known if p.at >= snapshot - self.SETTLE]

    def add(self, request: SubmitRequest, decision: Decision, at: int) -> None:
        """Remember what a decision promised (nothing for immediate ones, which are often only tests)."""
        if request.immediate:
            return
        rate, length = int(decision.numbers.get("rate", 0)), int(decision.numbers.get("length", 0))
        for limit, pool in decision.promised:
            self._promises.append(_Promise(at, limit, pool, (request.account, request.user), rate, length))

    def left_of(self, line: LimitLine, horizons: Sequence[int], pair: tuple[str, str]) -> tuple[int, ...]:
        """What is left under a limit for this (account, user): the ceiling first, then each horizon.

        Of each other (account, user) at most half of the table's number is subtracted, of its own all: so nobody
        empties a budget for the others by submissions alone, nor gets more than there is himself.
        """
        whole = (line.ceiling_left, *line.left)
        used: dict[tuple[str, str], list[int]] = {}
        for p in self._promises:
            if (p.limit, p.pool) == (line.limit, line.pool):
                sums = used.setdefault(p.pair, [0] * len(whole))
                for i, amount in enumerate((p.rate, *(p.rate * min(h, p.length) for h in horizons))):
                    sums[i] += amount
        rest = list(whole)
        for other, sums in used.items():
            for i, amount in enumerate(sums):
                rest[i] -= amount if other == pair else min(amount, max(whole[i], 0) // 2)
        return tuple(rest)
