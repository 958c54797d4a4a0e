"""The order as Slurm is told of it: steps of SiteFactor, few changes for few changes of the order (design 4.5).

A class has a ladder of steps. The first jobs have steps of their own, with gaps between them, so that a job that
comes in among them needs no other job to move; those behind share a few coarse steps, which double in width. One step
is more than all that Slurm's own weights can add: so our order is the order, and the step that a job has can be read
back from its priority. The larger the site's weights, the shorter the ladder, for the classes must not meet.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKED_BASE = 2_000_000
SPARE_BASE = 0
CEILING = 1_000_000
STEPS = 160


@dataclass(frozen=True, slots=True)
class Ladder:
    """``size`` of a step, the number of ``steps`` above the lowest (0: of runs), the ``coarse`` ones at the bottom,
    and how many jobs have their ``own``. Without any step, jobs stand in Slurm's own order."""

    size: int
    steps: int
    coarse: int
    own: int

    def factor(self, base: int, step: int) -> int:
        """SiteFactor of a step of the class with this base."""
        return base + step * self.size

    def step_of(self, place: int) -> int:
        """Step of the job at this place of an order that nobody has changed."""
        if place < self.own:
            return self.steps - place * (self.steps - self.coarse) // self.own
        if not self.steps:
            return 0
        depth = ((place - self.own) // max(self.own, 1)).bit_length()
        return max(self.coarse - depth, 1)

    def read(self, priority: int, base: int) -> int | None:
        """Step that a job has now, by its priority; ``None`` if it is none of ours (held, other class)."""
        if priority <= 0:
            return None
        if not self.steps:
            return 0 if (priority >= BACKED_BASE) == (base == BACKED_BASE) else None
        step = (priority - base) // self.size
        return step if 0 <= step <= self.steps else None

    def wanted(self, current: Sequence[int | None]) -> list[int]:
        """Steps for jobs in our order, best first, by those that they have.

        A short queue in order stays as it is. Else, of the first, as many as can keep their steps do so, and the
        others find theirs between them; a job behind keeps a coarse step that is right or next to it.
        """
        known = [step for step in current if step is not None]
        falling = all(a > b for a, b in pairwise(known))
        if falling and len(known) == len(current) <= self.own * 2 // 3:
            return known
        first = self._with_own(current)
        return self._first(current[:first]) + [self._behind(first + i, c) for i, c in enumerate(current[first:])]

    def _with_own(self, current: Sequence[int | None]) -> int:
        """How many jobs have steps of their own: two thirds of what there is room for, and behind them as many as
        have one. So those who come up get theirs many at a time."""
        first = min(self.own * 2 // 3, len(current))
        while first < min(self.own, len(current)) and (current[first] or 0) > self.coarse:
            first += 1
        return first

    def _behind(self, place: int, has: int | None) -> int:
        step = min(self.step_of(place), self.coarse)
        return has if has is not None and 1 <= has <= self.coarse and abs(has - step) <= 1 else step

    def _first(self, current: Sequence[int | None]) -> list[int]:
        kept = [*self._kept(current), len(current)]
        if 2 * len(kept) < len(current):
            kept = [len(current)]  # the ladder has no gaps left where they are needed: all are spread anew
        found: list[int] = []
        above = self.steps + 1
        for stays in kept:
            below = self.coarse if stays == len(current) else current[stays]
            assert below is not None  # only known steps are kept
            for place in range(len(found), stays):
                # At its usual step, if that leaves room for those down to the next one that stays.
                above = min(above - 1, max(self.step_of(place), below + stays - place))
                found.append(above)
            if stays < len(current):
                above = below
                found.append(below)
        return found

    def _kept(self, current: Sequence[int | None]) -> list[int]:
        """The most places whose steps can stay: falling, with room for all between, above and below them.

        That is the longest falling or level run of step + place.
        """
        least = self.coarse + len(current)
        tails: list[int] = []
        ends: list[int] = []
        before: list[int] = [-1] * len(current)
        for place, step in enumerate(current):
            if step is None or not least <= step + place <= self.steps:
                continue
            level = -(step + place)
            at = bisect_right(tails, level)
            before[place] = ends[at - 1] if at else -1
            tails[at:] = [level, *tails[at + 1 :]]
            ends[at:] = [place, *ends[at + 1 :]]
        chain: list[int] = []
        at = ends[-1] if ends else -1
        while at >= 0:
            chain.append(at)
            at = before[at]
        return chain[::-1]


def ladder(weights: int) -> Ladder:
    """The ladder of a site whose PriorityWeight settings add up to ``weights``: all steps, and all that Slurm adds to
    the highest, stay below 1,000,000, or backed and spare would mix (and spare work could not be preempted)."""
    size = weights + 1
    steps = max(0, min(STEPS, (CEILING - 1) // size - 1))
    coarse = min(steps, max(1, steps // 10))
    return Ladder(size, steps, coarse, (steps - coarse) * 2 // 3)
