"""From the lines of saved sacct output to rows of cells: the delimiter, the columns, and where a record ends.

sacct escapes nothing, so a newline or the delimiter in a job's name, comment or command line breaks the record. What
users cannot write is the order of the columns around their text: ids, times and counts. Lines are glued, and cells
are joined, only where exactly one way gives every typed column its shape; what has none or several is rejected. One
thing cannot be told: where free text is the last column, a newline and a whole record in it. So a dump for accounting
is best saved without JobName, Comment, SubmitLine and the like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.dump_fields import KNOWN, SHAPE, USED, shape_of
from pyslurm_budget.slurm.dump_summary import RowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyslurm_budget.slurm.dump_summary import Summary

ADVICE = "save it with `sacct -a -X -D -P -o JobIDRaw,JobID,Account,User,QOS,State,Submit,Start,End,AllocTRES,...`"
NO_SHAPE = "not the shape of a record"
TWO_READINGS = "free text imitates columns"
_DECISIVE = ("jobidraw", "jobid", "state", "submit", "start", "end", "eligible", "alloctres")
_ALIGNED = re.compile(r"^ +\w|\w {2,}\w")
_LONGEST_DELIMITER = 64
_MOST_LINES = 200
_MOST_EXTRA = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """One record: the number of its first line, and its cells by the column's name in lower case."""

    line: int
    cells: Mapping[str, str]


class Columns:
    """The columns that a header names, and how to cut a text into them."""

    def __init__(self, header: str) -> None:
        if _ALIGNED.search(header):
            raise SlurmOutputError(f"the dump has columns set by blanks, which cut values off; {ADVICE}")
        self.delimiter = delimiter_of(header)
        cells = header.split(self.delimiter) if self.delimiter else [header]
        self.names = tuple(cell.lower() for cell in cells)
        if not {"jobid", "jobidraw"} & set(self.names):
            raise SlurmOutputError(f"the dump does not begin with a header of sacct that names JobID; {ADVICE}")
        self._width = len(self.names)
        self._shapes = tuple(shape_of(name) for name in self.names)
        self._decisive = tuple((self.names.index(n), SHAPE[n].fullmatch) for n in _DECISIVE if n in self.names)
        self._id = self.names.index("jobidraw" if "jobidraw" in self.names else "jobid")
        self._places = {name: at for at, name in reversed(tuple(enumerate(self.names)))}
        self.open_end = self._shapes[-1] is None

    def split(self, text: str) -> list[str]:
        """The text cut at every delimiter."""
        return text.split(self.delimiter) if self.delimiter else [text]

    def by_name(self, cells: list[str]) -> dict[str, str]:
        """Cells of a row by name; of a column that is named twice, the first."""
        return {name: cells[at] for name, at in self._places.items()}

    def used(self, cells: list[str]) -> list[str]:
        """The cells that make a run."""
        return [cells[at] for at, name in enumerate(self.names) if name in USED]

    def plain(self, cells: list[str]) -> bool:
        """Whether the cells of one line are a record without more ado."""
        return len(cells) == self._width and all(match(cells[at]) for at, match in self._decisive)

    def fitted(self, cells: list[str]) -> list[str] | None:
        """One cell a column, delimiters in free text undone; ``None`` if the cells are no record. Raises RowError if
        typed columns could take different values."""
        extra = len(cells) - self._width
        if not 0 <= extra <= _MOST_EXTRA:
            return None
        ways = self._ways(cells, extra)
        if ways is None:
            return None
        path = [0]
        for at, shape in enumerate(self._shapes):
            if self.names[at] in USED and len({cells[at + offset] for offset in ways[at]}) > 1:
                raise RowError(TWO_READINGS)
            path.append(path[-1] if shape is not None else min(o for o in ways[at + 1] if o >= path[-1]))
        return [self.delimiter.join(cells[i + path[i] : i + path[i + 1] + 1]) for i in range(self._width)]

    def _ways(self, cells: list[str], extra: int) -> list[set[int]] | None:
        """For each border between columns, by how many cells it may be shifted on a way from begin to end."""
        there = self._forward(cells, extra)
        reached = {extra} & there[-1]
        if not reached:
            return None
        ways = [reached]
        for at in reversed(range(self._width)):
            shape = self._shapes[at]
            if shape is None:
                most = max(reached)
                reached = {offset for offset in there[at] if offset <= most}
            else:
                reached = {o for o in there[at] & reached if shape.fullmatch(cells[at + o])}
            if not reached:
                return None
            ways.append(reached)
        return ways[::-1]

    def _forward(self, cells: list[str], extra: int) -> list[set[int]]:
        """For each border, the shifts that the columns before it allow; free text takes one cell or more."""
        reached = {0}
        there = [reached]
        for at, shape in enumerate(self._shapes):
            if shape is None:
                reached = set(range(min(reached), extra + 1)) if reached else set()
            else:
                reached = {o for o in reached if at + o < len(cells) and shape.fullmatch(cells[at + o])}
            there.append(reached)
        return there

    def begins(self, cells: list[str]) -> bool:
        """Whether the cells may be a record up to a newline in its free text: what is before fits, with the id."""
        last = len(cells) - 1
        there = self._forward(cells[:-1], max(last - self._id, 0))
        return any(
            shape is None and at > self._id and any(at + o <= last for o in there[at])
            for at, shape in enumerate(self._shapes[: last + 1])
        )


def delimiter_of(header: str) -> str:
    """What stands between the names of a header; empty for a single column. Raises SlurmOutputError."""
    folded = header.lower()
    ends = {found.start() for name in ("jobidraw", "jobid", "state", "start") for found in re.finditer(name, folded)}
    best, chosen = (0, 0), ""
    for end in sorted(ends):
        for length in range(1, min(end, _LONGEST_DELIMITER) + 1):
            delimiter = header[end - length : end]
            cells = folded.split(delimiter.lower())
            names = sum(cell in KNOWN for cell in cells) - sum(not cell for cell in cells[:-1])
            score = (names, -len(cells))
            if len(cells) > 1 and names > 0 and score > best:
                best, chosen = score, delimiter
    if not chosen and folded not in KNOWN:
        return _trailing(header)
    return chosen


def _trailing(header: str) -> str:
    """The delimiter of a header that has its id first and others after it, or one column and ``-p``."""
    folded = header.lower()
    first = max((name for name in KNOWN if folded.startswith(name)), key=len, default="")
    if not first:
        raise SlurmOutputError(f"the dump does not begin with a header of sacct but with {header[:80]!r}; {ADVICE}")
    rest = header[len(first) :]
    best, chosen = 1, rest
    for length in range(1, min(len(rest), _LONGEST_DELIMITER) + 1):
        score = sum(cell in KNOWN for cell in folded.split(rest[:length].lower()))
        if score > best:
            best, chosen = score, rest[:length]
    return chosen


def rows_of(lines: Iterable[str], summary: Summary) -> Iterator[Row]:
    """Every record of a dump, header first, steps included; what is none goes to the summary.

    Raises SlurmOutputError for a text that is not sacct's: empty, without a header, or with columns set by blanks.
    """
    numbered = enumerate((line.removesuffix("\n").removesuffix("\r") for line in lines), 1)
    header = next((line for _, line in numbered if line.strip()), None)
    if header is None:
        raise SlurmOutputError("the dump is empty, without even a header: the sacct that wrote it failed")
    return _Gluer(Columns(header.removeprefix("\ufeff")), summary).rows(numbered)


class _Gluer:
    """Puts the lines of broken records together again; ``_held`` are the lines of the record at hand."""

    def __init__(self, columns: Columns, summary: Summary) -> None:
        self._columns = columns
        self._summary = summary
        self._held: list[str] = []
        self._first = 0
        self._done: list[str] | None = None

    def rows(self, numbered: Iterator[tuple[int, str]]) -> Iterator[Row]:
        """See :func:`rows_of`."""
        for number, line in numbered:
            cells = self._columns.split(line)
            if self._columns.plain(cells):
                if self._held and self._done is None and self._swallows(line, cells):
                    continue
                yield from self._ended()
                self._begin(number, line, cells)
            else:
                yield from self._odd(number, line, cells)
        yield from self._ended()

    def _odd(self, number: int, line: str, cells: list[str]) -> Iterator[Row]:
        """A line that is not a record by itself: the rest of one, the begin of one, or one with too many cells."""
        if self._held and self._done is None and not self._columns.begins(cells):
            self._held.append(line)
            self._try()
        elif self._done is not None and len(cells) == 1 and self._columns.open_end:
            self._done[-1] += "\n" + line
        elif not line and not self._held:
            return
        else:
            yield from self._ended()
            self._begin(number, line, None)
            self._try()
        if len(self._held) > _MOST_LINES:
            yield from self._ended()

    def _begin(self, number: int, line: str, done: list[str] | None) -> None:
        self._first, self._held, self._done = number, [line], done

    def _try(self) -> None:
        """Whether the held lines are a record by now."""
        text = "\n".join(self._held)
        try:
            self._done = self._columns.fitted(self._columns.split(text))
        except RowError as error:
            self._summary.reject(self._first, error, text)
            self._held = []

    def _swallows(self, line: str, cells: list[str]) -> bool:
        """Whether a broken record and the whole one after it are also *one* record: then somebody may have written
        the second into the text of the first, and neither is believed. But for lines of nothing but text before a
        record that means the same with and without them: its first column is free text."""
        text = "\n".join([*self._held, line])
        try:
            one = self._columns.fitted(self._columns.split(text))
        except RowError:
            one = []
        if one is None:
            return False
        only_text = self._columns.delimiter not in text[: -len(line)]
        if one and only_text and self._columns.used(one) == self._columns.used(cells):
            self._held, self._done = [text], one
        else:
            self._summary.reject(self._first, RowError(TWO_READINGS), text)
            self._held = []
        return True

    def _ended(self) -> Iterator[Row]:
        """The record at hand, if it is one."""
        if self._done is not None:
            yield Row(self._first, self._columns.by_name(self._done))
        elif self._held and any(line.strip() for line in self._held):
            self._summary.reject(self._first, RowError(NO_SHAPE), "\n".join(self._held))
        self._held, self._done = [], None
