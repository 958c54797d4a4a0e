"""What a set of changed runs changes in the usage by hour, collected before it is written."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pyslurm_budget.domain.usage import cells
from pyslurm_budget.service.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.usage import Cell, Group
    from pyslurm_budget.service.ports import RunFacts

    Sheet = dict[tuple[int, int], Cell]


class Amounts:
    """Sums by group, span and begin of the cell. By group first: a run has one or two, and each is a long key."""

    def __init__(self) -> None:
        """Nothing."""
        self._sheets: dict[Group, Sheet] = defaultdict(dict)

    def add(self, run: RunFacts, sign: int) -> None:
        """Add (or with -1 take away) what an ended run adds to each cell; a run without an end adds nothing."""
        if run.end is None:
            return
        for piece in pieces(run, run.end, run.charged_as):
            sheet = self._sheets[piece.group]
            for span, at, cell in cells(piece):
                _add(sheet, (span, at), cell, sign)

    def add_cell(self, group: Group, span: int, at: int, cell: Cell, sign: int) -> None:
        """Add (or with -1 take away) one cell."""
        _add(self._sheets[group], (span, at), cell, sign)

    def changes(self) -> Iterator[tuple[Group, list[tuple[int, int, Cell]]]]:
        """Each group with its cells that are not zero: (span, begin, amounts)."""
        for group, sheet in self._sheets.items():
            found = [(span, at, cell) for (span, at), cell in sheet.items() if any(cell)]
            if found:
                yield group, found


def _add(sheet: Sheet, address: tuple[int, int], cell: Cell, sign: int) -> None:
    if sign < 0:
        cell = (-cell[0], -cell[1], -cell[2], -cell[3])
    before = sheet.get(address)
    if before is not None:
        cell = (before[0] + cell[0], before[1] + cell[1], before[2] + cell[2], before[3] + cell[3])
    sheet[address] = cell
