"""Answers of Slurm's commands, kept in a folder and given again: ``Recorder`` writes them, ``Replay`` reads them.

A folder has ``index.json`` and a file for each answer. An answer is found by the command as the product gives it, so
a command that the product gives otherwise is missed until the answers are recorded again (scripts/record-golden).
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyslurm_budget.slurm.run import Answer, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INDEX = "index.json"
LONGEST = 60


def same_marks() -> Any:
    """Marks that are random so that no user can write them are the same each time: commands are found by them."""
    return patch("secrets.token_hex", lambda size: "5b" * size)


class _Whole(Runner):
    """A runner that knows whole answers only."""

    @contextmanager
    def started(self, *command: str) -> Iterator[Iterator[str]]:
        """See :class:`pyslurm_budget.slurm.run.Runner`."""
        yield iter(self.read(*command, strict=True).removesuffix("\n").split("\n"))


class Recorder(_Whole):
    """Runs commands, and keeps the first answer of each in every phase. ``hidden`` are texts of the machine by what
    is written instead."""

    def __init__(self, slurm_conf: Path, folder: Path, hidden: Mapping[str, str]) -> None:
        super().__init__(slurm_conf)
        self.phase = "all-up"
        self.answers: list[dict[str, object]] = []
        self._folder = folder
        self._hidden = hidden
        self._known: set[tuple[str, ...]] = set()

    def run(self, *command: str, stdin: str | None = None) -> Answer:
        """See :class:`pyslurm_budget.slurm.run.Runner`."""
        found = super().run(*command, stdin=stdin)
        answer = Answer(self._clean(found.out), self._clean(found.err), found.status)
        if (self.phase, stdin or "", *command) not in self._known:
            self._known.add((self.phase, stdin or "", *command))
            self._keep(command, stdin, answer)
        return answer

    def index(self, **facts: object) -> None:
        """Write what is known of all of them."""
        text = json.dumps({**facts, "answers": self.answers}, indent=1, ensure_ascii=False)
        (self._folder / INDEX).write_text(text + "\n", encoding="utf-8")

    def _keep(self, command: tuple[str, ...], stdin: str | None, answer: Answer) -> None:
        words = "-".join(re.findall(r"[A-Za-z0-9]+", " ".join(command)))[:LONGEST].rstrip("-")
        name = f"{len(self.answers):02}-{words}.txt"
        with (self._folder / name).open("w", encoding="utf-8", newline="") as file:
            file.write(answer.out)
        entry: dict[str, object] = {"phase": self.phase, "command": command, "status": answer.status, "file": name}
        self.answers.append(entry | ({"stdin": stdin} if stdin else {}) | ({"err": answer.err} if answer.err else {}))

    def _clean(self, text: str) -> str:
        for machine, instead in self._hidden.items():
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(machine)}(?![A-Za-z0-9])", instead, text)
        return text


class Replay(_Whole):
    """Gives the recorded answers of a folder; AssertionError for a command that has none."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.phase = "all-up"
        self.facts: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        self._folder = folder
        self._answers = {(a["phase"], a.get("stdin"), *a["command"]): a for a in self.facts["answers"]}

    def run(self, *command: str, stdin: str | None = None) -> Answer:
        """See :class:`pyslurm_budget.slurm.run.Runner`."""
        found = self._answers.get((self.phase, stdin, *command))
        assert found is not None, f"no recorded answer to {' '.join(command)}: run scripts/record-golden"
        with (self._folder / found["file"]).open(encoding="utf-8", newline="") as file:
            return Answer(file.read(), found.get("err", ""), found["status"])


def of_this_machine(cluster: Path) -> dict[str, str]:
    """Texts that differ from machine to machine and mean nothing, by what is written instead."""
    kernel = os.uname()
    return {str(cluster): "/var/tmp/cluster", kernel.nodename: "localhost", kernel.release: "6.1.0",
            kernel.version: "#1 SMP"}  # fmt: skip
