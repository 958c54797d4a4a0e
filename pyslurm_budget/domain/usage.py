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
    from collections.abc import Iterator, Mapping, Sequence

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


def whole_cells(begin: int, end: int) -> Sequence[tuple[int, int, int, int]]:
    """The whole hours [begin, end), both multiples of an hour, as ranges (sign, span, first, last). A part of a
    day is its hours, or the day without its other hours, where these are fewer."""
    if begin - begin % DAY == end - end % DAY:
        return [(1, HOUR, begin, end)] if begin < end else []
    first, last = begin - begin % DAY, end - end % DAY
    ranges = []
    if begin - first > DAY // 2:
        ranges.append((1, HOUR, begin, first + DAY))
        first += DAY
    else:
        ranges.append((-1, HOUR, first, begin))
    if end - last > DAY // 2:
        ranges.append((-1, HOUR, end, last + DAY))
        last += DAY
    else:
        ranges.append((1, HOUR, last, end))
    return [found for found in (*ranges, (1, DAY, first, last)) if found[2] < found[3]]


def edge(level: int, begin: int, marks: Sequence[int], changes: Mapping[int, Sequence[int]]) -> list[int]:
    """Usage of [begin, mark) for each of the ascending marks, all in the unit of ``level`` x seconds.

    ``changes[i]`` are the starts (less the ends) in [previous mark, mark i): the sum of their rates, and the sum of
    rate x (time - begin).
    """
    found: list[int] = []
    moments = 0
    for i, mark in enumerate(marks):
        if i in changes:
            rate, moment = changes[i]
            level += rate
            moments += moment
        found.append(level * (mark - begin) - moments)
    return found
