"""Tables with sacct's habits: aligned text, ``-P`` for programs, ``--format=COL%WIDTH``, ``--helpformat``, JSON.

A column shows a row twice: ``text`` for people (separators, units, a tree's indentation) and ``plain`` for programs
(full precision, nothing cut).
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyslurm_budget import values
from pyslurm_budget.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Row = TypeVar("Row")
_ITEM = re.compile(r"([A-Za-z_]+)(?:%([+-]?)([0-9]+))?")
_GAP = "  "
_CUT = "+"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column; numbers stand right (``left`` false). ``heading`` is what people see in place of the name."""

    name: str
    text: Callable[[Row], str]
    plain: Callable[[Row], str]
    left: bool = False
    heading: str | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """How the user wants it. ``chosen`` is the text of ``--format``; ``fancy``: a terminal with line drawing."""

    parsable: bool = False
    header: bool = True
    delimiter: str = "|"
    chosen: str | None = None
    fancy: bool = False


@dataclass(frozen=True, slots=True)
class _Chosen(Generic[Row]):
    column: Column[Row]
    width: int | None = None
    left: bool = False


def draw(columns: Sequence[Column[Row]], rows: Sequence[Row], style: Style) -> str:
    """The table as text, each line ended; raises UsageError for a ``--format`` that cannot be understood."""
    if style.parsable:
        return "".join(parsable_lines(columns, rows, style))
    return "".join(f"{line}\n" for line in _aligned(choose(columns, style.chosen), rows, header=style.header))


def parsable_lines(columns: Sequence[Column[Row]], rows: Iterable[Row], style: Style) -> Iterator[str]:
    """The lines of ``-P``, made as the rows come; the ``--format`` is checked before the first row is asked for."""
    for cells in _plain(choose(columns, style.chosen), rows, header=style.header):
        yield style.delimiter.join(cells) + "\n"


def csv_lines(columns: Sequence[Column[Row]], rows: Iterable[Row], style: Style) -> Iterator[str]:
    """The same as comma-separated values, quoted as RFC 4180 says."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    for cells in _plain(choose(columns, style.chosen), rows, header=style.header):
        writer.writerow(cells)
        yield sheet.getvalue()
        sheet.seek(0)
        sheet.truncate()


def _plain(picked: Sequence[_Chosen[Row]], rows: Iterable[Row], *, header: bool) -> Iterator[list[str]]:
    if header:
        yield [p.column.name for p in picked]
    for row in rows:
        yield [p.column.plain(row) for p in picked]


def _aligned(picked: Sequence[_Chosen[Row]], rows: Sequence[Row], *, header: bool) -> list[str]:
    grid = [[p.column.text(row) for p in picked] for row in rows]
    if header:
        grid.insert(0, [p.column.heading or p.column.name for p in picked])
    widths = [
        p.width if p.width is not None else max((len(line[i]) for line in grid), default=0)
        for i, p in enumerate(picked)
    ]
    return [_line(line, picked, widths) for line in grid]


def _line(cells: Sequence[str], picked: Sequence[_Chosen[Row]], widths: Sequence[int]) -> str:
    shown = []
    for cell, chosen, width in zip(cells, picked, widths, strict=True):
        fitting = cell if len(cell) <= width else cell[: max(width - 1, 0)] + _CUT
        shown.append(fitting.ljust(width) if chosen.left else fitting.rjust(width))
    return _GAP.join(shown).rstrip()


def choose(columns: Sequence[Column[Row]], wanted: str | None) -> list[_Chosen[Row]]:
    """The columns of ``--format=NAME[%[-]WIDTH],...``, any case; all of them without a ``--format``.

    ``%10`` is ten wide, ``%-10`` ten wide with the text on the left; what is too long ends in ``+``.
    """
    if wanted is None:
        return [_Chosen(column, None, column.left) for column in columns]
    known = {column.name.lower(): column for column in columns}
    picked = []
    for item in wanted.split(","):
        found = _ITEM.fullmatch(item.strip())
        column = known.get(found.group(1).lower()) if found else None
        if found is None or column is None:
            hint = values.nearest(item.strip(), [c.name for c in columns])
            raise UsageError(f"--format: no column {item.strip()!r}{hint}; --helpformat lists them")
        sign, width = found.group(2), found.group(3)
        left = sign == "-" or (column.left and width is None)
        picked.append(_Chosen(column, int(width) if width else None, left))
    return picked


def help_format(columns: Sequence[Column[Row]]) -> str:
    """The names for ``--format``, four a line as sacct lists them."""
    names = [column.name for column in columns]
    lines = ["".join(name.ljust(20) for name in names[i : i + 4]).rstrip() for i in range(0, len(names), 4)]
    return "".join(f"{line}\n" for line in lines)


def as_json(document: Mapping[str, Any]) -> str:
    """One JSON document, readable, keys in the order given."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
