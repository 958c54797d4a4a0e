"""What happens when: a queue of things to do, with an order that is fully determined."""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Turn(IntEnum):
    """Who goes first in one second: what ends, what begins to be possible, then the schedulers."""

    END = 0
    TIMER = 1
    MAIN = 2
    BACKFILL = 3


class EventQueue:
    """Actions by time, then turn, then in the order in which they were added."""

    def __init__(self, now: int) -> None:
        """The clock starts at ``now``."""
        self.now = now
        self._heap: list[tuple[int, Turn, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: int, turn: Turn, action: Callable[[], None]) -> None:
        """Do this at a time that has not passed."""
        if time < self.now:
            raise ValueError(f"cannot do anything at {time}: it is {self.now} already")
        self._count += 1
        heapq.heappush(self._heap, (time, turn, self._count, action))

    def run_until(self, time: int) -> None:
        """Do everything that is due up to and including ``time``; the clock then stands there."""
        if time < self.now:
            raise ValueError(f"time does not go back from {self.now} to {time}")
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.now, _, _, action = heapq.heappop(heap)
            action()
        self.now = time
