"""Usage counted by hour, exactly: what a run adds to each hour, and what an hour holds up to any second of it.

A cell holds, beside its GPU-seconds, the *level* at its begin: what was held just then by runs that had begun
before and ended after. So the usage of [begin of the hour, t) is

    level x (t - begin) + sum of rate x (t - s) over starts s in [begin, t)
                        - sum of rate x (t - e) over ends e in (begin, t)

and the edges of a window need only the runs that start or end near them, not all that overlap it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.row import row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyslurm_budget.domain.model import WorkClass

HOUR = 3600
DAY = 86400
SPANS = (HOUR, DAY)


@row(frozen=True, slots=True)
class Group:
    """What usage is kept by. ``run_on`` is the part of runs after their contract. ``budget``, ``pool`` and ``flavor``
    are ``None`` where there is none, or it is not known."""

    budget: str | None
    account: str
    user: str
    qos: str
    pool: str | None
    flavor: str | None
    charged_as: WorkClass
    run_on: bool = False


@row(frozen=True, slots=True)
class Piece:
    """A part of a run in one group: ``gpus`` (raw) and ``rate`` (thousandths) held in [begin, end)."""

    group: Group
    gpus: int
    rate: int
    begin: int
    end: int


Cell = tuple[int, int, int, int]
"""GPU-seconds, charge (mGPU-s), and the raw GPUs and the rate at the begin of the cell."""


def cells(piece: Piece) -> Iterator[tuple[int, int, Cell]]:
    """(span, begin of the cell, what the piece adds to it) for each hour and each whole UTC day that it touches."""
    gpus, rate, begin, end = piece.gpus, piece.rate, piece.begin, piece.end
    if begin >= end or not (gpus or rate):
        return
    for span in SPANS:
        first, last = begin - begin % span, end - 1 - (end - 1) % span
        if first == last:
            yield span, first, (gpus * (end - begin), rate * (end - begin), 0, 0)
            continue
        seconds = first + span - begin
        yield span, first, (gpus * seconds, rate * seconds, 0, 0)
        whole = (gpus * span, rate * span, gpus, rate)
        for at in range(first + span, last, span):
            yield span, at, whole
        yield span, last, (gpus * (end - last), rate * (end - last), gpus, rate)


def whole_cells(begin: int, end: int) -> Sequence[tuple[int, int, int]]:
    """The whole hours [begin, end), both multiples of an hour, as ranges (span, first, last) with days inside."""
    first = begin + -begin % DAY
    last = end - end % DAY
    if first >= last:
        return [(HOUR, begin, end)] if begin < end else []
    ranges = [(HOUR, begin, first), (DAY, first, last), (HOUR, last, end)]
    return [found for found in ranges if found[1] < found[2]]


def edge(level: int, begin: int, marks: Sequence[int], changes: Sequence[tuple[int, int]]) -> list[int]:
    """Usage of [begin, mark) for each of the ascending marks, all in the unit of ``level`` x seconds.

    ``changes[i]`` are the starts (less the ends) in [previous mark, mark i): the sum of their rates, and the sum of
    rate x (time - begin).
    """
    found: list[int] = []
    rates, moments = 0, 0
    for mark, (rate, moment) in zip(marks, changes, strict=True):
        rates += rate
        moments += moment
        found.append((level + rates) * (mark - begin) - moments)
    return found
