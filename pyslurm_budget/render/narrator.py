"""Tells a story step by step, and remembers whether each step held: on a real Slurm and on the simulated cluster."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class StepFailedError(Exception):
    """A check did not hold: the step ends here, the story goes on."""


class Narrator:
    """Prints steps, what is done in them, and each check as kept or failed."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """Colours only on a terminal. ``clock`` and ``pause`` are the time of the cluster that the story is about."""
        self._colour = sys.stdout.isatty()
        self._clock = clock
        self._pause = pause
        self.failed: list[str] = []
        self.held = 0
        self._began = time.monotonic()

    @contextmanager
    def step(self, letter: str, title: str) -> Iterator[None]:
        """One step of the story; a failed check, or any error in it, is told and ends the step."""
        print(f"\n{letter}. {title}")
        try:
            yield
        except StepFailedError:
            self.failed.append(letter)
            return
        except Exception as error:
            self._mark(False, f"{type(error).__name__}: {error}")
            self.failed.append(letter)
            return
        self.held += 1

    def tell(self, text: str) -> None:
        """What is done, or what was seen."""
        for line in text.rstrip().splitlines():
            print(f"     {line}")
        sys.stdout.flush()

    def check(self, held: bool, text: str, found: object = None) -> None:
        """State what must hold; if it does not, say what was found instead, and end the step."""
        self._mark(held, text if held or found is None else f"{text}; found: {found}")
        if not held:
            raise StepFailedError

    def wait(self, text: str, condition: Callable[[], object], seconds: float) -> None:
        """A check that may take a while: asked again after every pause."""
        began = self._clock()
        found = condition()
        while not found and self._clock() - began < seconds:
            self._pause(0.5)
            found = condition()
        self.check(bool(found), f"{text} (after {self._clock() - began:.0f} s)", f"not within {seconds:.0f} s")

    def _mark(self, held: bool, text: str) -> None:
        word = "kept  " if held else "FAILED"
        if self._colour:
            word = f"\033[{'32' if held else '31;1'}m{word}\033[0m"
        print(f"   {word} {text}")
        sys.stdout.flush()

    def end(self) -> int:
        """The last lines, and the exit status."""
        seconds = time.monotonic() - self._began
        print(f"\n{self.held} steps held, {len(self.failed)} failed, in {seconds:.0f} s.")
        if self.failed:
            print(f"Failed: {', '.join(self.failed)}.")
        return 1 if self.failed else 0
