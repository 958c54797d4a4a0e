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


class Amounts:
    """Sums by group, span and begin of the cell. By group first: a run has one or two, and each is a long key."""

    def __init__(self) -> None:
        """Nothing."""
        self._sheets: dict[Group, dict[tuple[int, int], list[int]]] = defaultdict(dict)

    def add(self, run: RunFacts, sign: int) -> None:
        """Add (or with -1 take away) what an ended run adds to each cell; a run without an end adds nothing."""
        if run.end is None:
            return
        for piece in pieces(run, run.end, run.charged_as):
            for span, at, cell in cells(piece):
                self.add_cell(piece.group, span, at, cell, sign)

    def add_cell(self, group: Group, span: int, at: int, cell: Cell, sign: int) -> None:
        """Add (or with -1 take away) one cell."""
        sheet = self._sheets[group]
        total = sheet.get((span, at))
        if total is None:
            sheet[span, at] = [sign * amount for amount in cell]
        else:
            for i, amount in enumerate(cell):
                total[i] += sign * amount

    def changes(self) -> Iterator[tuple[Group, list[tuple[int, int, Cell]]]]:
        """Each group with its cells that are not zero: (span, begin, amounts)."""
        for group, sheet in self._sheets.items():
            found = [(span, at, (c[0], c[1], c[2], c[3])) for (span, at), c in sheet.items() if any(c)]
            if found:
                yield group, found
