"""A long time is asked for in parts: together they are what one answer would be, and none may be silently empty."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.errors import SlurmdbdError
from pyslurm_budget.slurm.run import Runner
from pyslurm_budget.slurm.sacct import FIELDS, SacctAccounting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.model import RunRecord

BEGIN = 1_790_000_000
LENGTH = 1000


@dataclass(frozen=True)
class Row:
    """A run of accounting: when it became eligible, and its end (``None``: it runs)."""

    job: int
    eligible: int
    end: int | None

    def line(self, mark: str) -> str:
        """As sacct prints it."""
        given = {
            "JobIDRaw": self.job, "JobID": self.job, "Submit": self.eligible, "Eligible": self.eligible,
            "Start": self.eligible, "End": self.end or "Unknown", "NodeList": "n1", "UID": 7, "State": "COMPLETED",
        }  # fmt: skip
        return mark.join(str(given.get(name, "")) for name in FIELDS)


@dataclass
class Slurm(Runner):
    """A sacct that chooses rows as slurmdbd does (``time_eligible < E and (time_end >= S or time_end = 0)``)."""

    rows: list[Row]
    silent: set[int] = field(default_factory=set)
    said: list[str] = field(default_factory=list)

    @contextmanager
    def started(self, *command: str) -> Iterator[Iterator[str]]:
        """Rows of one call; those that are ``silent``, by their number, have the header alone."""
        begin, end = (int(command[command.index(option) + 1].removeprefix("uts")) for option in ("-S", "-E"))
        mark = next(word.partition("=")[2] for word in command if word.startswith("--delimiter="))
        number = sum(word.startswith("start") for word in self.said)
        self.said.append(f"start {number}")
        try:
            yield self._lines(number, begin, end, mark)
        finally:
            self.said.append(f"end {number}")

    def _lines(self, number: int, begin: int, end: int, mark: str) -> Iterator[str]:
        self.said.append(f"read {number}")
        yield mark.join(FIELDS)
        for row in self.rows:
            if number not in self.silent and row.eligible < end and (row.end is None or row.end >= begin):
                yield row.line(mark)


def read(slurm: Slurm, part: int, since: int = BEGIN, until: int = BEGIN + LENGTH) -> list[RunRecord]:
    return list(SacctAccounting(slurm, clock=lambda: until, part=part).runs(since, until))


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    times = st.integers(BEGIN - LENGTH // 2, BEGIN + LENGTH + 50)
    found = []
    for job in range(1, draw(st.integers(0, 12)) + 1):
        eligible = draw(times)
        length = draw(st.none() | st.integers(0, LENGTH))
        found.append(Row(job, eligible, None if length is None else eligible + length))
    return found


@given(rows(), st.integers(1, 2 * LENGTH).filter(lambda n: n > 40))
def test_parts_are_together_what_one_answer_is(history: list[Row], part: int) -> None:
    whole = read(Slurm(history), 100 * LENGTH)
    parts = read(Slurm(history), part)
    assert sorted(parts, key=lambda run: run.key) == sorted(whole, key=lambda run: run.key)


def test_the_next_part_is_worked_on_while_one_is_read_and_all_end() -> None:
    slurm = Slurm([])
    read(slurm, LENGTH // 3 + 1)
    assert slurm.said[:6] == ["start 0", "start 1", "read 0", "start 2", "read 1", "read 2"]
    assert sorted(slurm.said[6:]) == ["end 0", "end 1", "end 2"]


def test_who_stops_early_ends_all() -> None:
    slurm = Slurm([Row(1, BEGIN, None)])
    found = SacctAccounting(slurm, clock=lambda: BEGIN + LENGTH, part=LENGTH // 3).runs(BEGIN, BEGIN + LENGTH)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert sorted(word for word in slurm.said if word.startswith("end")) == ["end 0", "end 1"]


def test_a_run_that_ended_meanwhile_comes_as_it_is() -> None:
    class Changing(Slurm):
        def _lines(self, number: int, begin: int, end: int, mark: str) -> Iterator[str]:
            row = Row(1, BEGIN, None if number == 0 else BEGIN + LENGTH)
            return Slurm([row])._lines(number, begin, end, mark)

    assert [run.end for run in read(Changing([]), LENGTH // 2)] == [None, BEGIN + LENGTH]


@pytest.mark.parametrize("silent", [0, 1])
def test_a_part_without_a_row_next_to_one_with_a_run_that_was_there_is_a_failure(silent: int) -> None:
    history = [Row(1, BEGIN + 1, BEGIN + LENGTH - 1)]
    assert len(read(Slurm(history), LENGTH // 2)) == 1
    with pytest.raises(SlurmdbdError, match="job 1 was there"):
        read(Slurm(history, silent={silent}), LENGTH // 2)
    assert read(Slurm([]), LENGTH // 2) == []
