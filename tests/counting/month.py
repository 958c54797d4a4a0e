"""A month of a real cluster's jobs, put on made nodes, and how each second of each node was spent.

The jobs are those of Microsoft's cluster with their true times and sizes; the nodes, what was out of service and what
was reserved are made. :func:`spent` walks over one node after the other and uses nothing of the product.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.counting.traces import philly, utc

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN, END = utc("2017-10-01"), utc("2017-11-01")
DAY = 86400
GPUS = 8
NODES = tuple(f"n{i}" for i in range(1, 61))
SPARE_EVERY = 3
HOLDERS = ("6c71a0", "b436b2")
KINDS = ("charged", "spare", "reserved idle", "idle", "out of service")


@dataclass(frozen=True)
class Placed:
    """A run: ``gpus`` of each of its nodes in [start, end)."""

    job_id: int
    account: str
    spare: bool
    start: int
    end: int
    nodes: tuple[str, ...]
    gpus: int
    failed: bool = False


@dataclass(frozen=True)
class Out:
    """A node was out in [begin, end). One that was to be drained is out from when it is empty."""

    node: str
    begin: int
    end: int
    state: str


@dataclass(frozen=True)
class Held:
    """Nodes that were reserved in [begin, end), for accounts, or for nobody: maintenance."""

    name: str
    begin: int
    end: int
    nodes: tuple[str, ...]
    accounts: tuple[str, ...] = ()


def _at(day: int, seconds: int = 0) -> int:
    return BEGIN + (day - 1) * DAY + seconds


# The second one grows by two nodes in its middle; the third is still there when the month ends. In both some of the
# nodes are out, or in maintenance, or both, for a while.
HELD = (
    Held("upgrade", _at(17, 8 * 3600 + 1), _at(17, 20 * 3600 + 59), NODES[20:30]),
    Held("course", _at(9, 33), _at(15, 71), NODES[26:34], HOLDERS[:1]),
    Held("course", _at(15, 71), _at(19, 3601), NODES[24:34], HOLDERS[:1]),
    Held("deadline", _at(28, 17), END + 3 * DAY, NODES[40:44], HOLDERS),
)
# From before the month, over its end, twice on one node, within and across reservations.
ASKED = (
    Out("n1", BEGIN - 5 * DAY, _at(2, 7777), "DOWN"),
    Out("n45", _at(13, 1), _at(16, 86399), "DRAIN"),
    Out("n45", _at(20, 5), _at(20, 6), "DOWN*"),
    Out("n30", _at(12, 11111), _at(13, 22222), "DOWN"),
    Out("n28", _at(12, 1), _at(15, 5), "DRAIN"),
    Out("n25", _at(17, 40000), _at(17, 80000), "DOWN"),
    Out("n41", _at(27, 100), _at(29, 200), "DOWN"),
    Out("n60", _at(30, 12345), END + DAY, "DOWN"),
)


@dataclass(frozen=True)
class Month:
    """What ran, what was out, what was reserved."""

    runs: tuple[Placed, ...]
    out: tuple[Out, ...]
    left_out: int


def month() -> Month:
    """First fit: each job at the time at which it truly began, if there is room then; else it is left out."""
    free = dict.fromkeys(NODES, GPUS)
    ends: list[tuple[int, int, tuple[str, ...], int]] = []
    placed: list[Placed] = []
    left_out = 0
    for row in sorted(philly(), key=lambda row: (row.submit, row.job_id)):
        if row.end is None or row.start is None or row.end == row.start or row.start >= END:
            continue
        while ends and ends[0][0] <= row.start:
            _, _, nodes, each = heappop(ends)
            free.update({name: free[name] + each for name in nodes})
        ((_, gpus),) = row.gpus or ()
        count = -(-gpus // GPUS)
        each, account = gpus // count, row.account or ""
        fits = [n for n in _wanted(account, row.start) if free[n] >= each and _open(n, account, row.start, row.end)]
        if len(fits) < count or each * count != gpus:
            left_out += 1
            continue
        spare = row.job_id % SPARE_EVERY == 0 and not any(_own(n, account, row.start, row.end) for n in fits[:count])
        run = Placed(row.job_id, account, spare, row.start, row.end, tuple(fits[:count]), each)
        hit = [o.begin for o in ASKED if o.state != "DRAIN" and o.node in run.nodes and run.start < o.begin < run.end]
        run = replace(run, end=min(hit), failed=True) if hit else run
        for name in run.nodes:
            free[name] -= each
        heappush(ends, (run.end, run.job_id, run.nodes, each))
        placed.append(run)
    return Month(tuple(placed), tuple(_drained(placed)), left_out)


def _own(node: str, account: str, start: int, end: int) -> bool:
    return any(node in h.nodes and account in h.accounts and h.begin < end and h.end > start for h in HELD)


def _wanted(account: str, start: int) -> list[str]:
    """Nodes in the order in which they are tried: those reserved for the account first."""
    own = {n for h in HELD if account in h.accounts and h.begin <= start < h.end for n in h.nodes}
    return sorted(NODES, key=lambda n: n not in own) if own else list(NODES)


def _open(node: str, account: str, start: int, end: int) -> bool:
    """Whether a job may begin on the node: not while it is out or drains, nor in somebody else's reservation (one
    that began before may stay), and it must be over before a maintenance."""
    if any(o.node == node and o.begin <= start < o.end for o in ASKED):
        return False
    for h in (h for h in HELD if node in h.nodes and h.begin < end and h.end > start):
        if not h.accounts or (account not in h.accounts and h.begin <= start):
            return False
    return True


def _drained(runs: list[Placed]) -> Iterator[Out]:
    """When nodes were truly out."""
    for o in ASKED:
        stay = [r.end for r in runs if o.node in r.nodes and r.start < o.begin < r.end]
        begin = max([o.begin, *stay]) if o.state == "DRAIN" else o.begin
        if begin < o.end:
            yield replace(o, begin=begin)


def spent(of: Month) -> dict[tuple[str, int], int]:
    """GPU-seconds by kind and day (its begin) of all nodes, from END's point of view.

    Node by node, between any two moments at which something changes there; days are such moments."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    runs: dict[str, list[Placed]] = defaultdict(list)
    for run in of.runs:
        for name in run.nodes:
            runs[name].append(run)
    for name in NODES:
        mine = [r for r in runs[name] if r.end > BEGIN]
        out = [(o.begin, o.end) for o in of.out if o.node == name]
        out += [(h.begin, h.end) for h in HELD if name in h.nodes and not h.accounts]
        bought = [h for h in HELD if name in h.nodes and h.accounts]
        times = {*range(BEGIN, END + 1, DAY), *(t for pair in out for t in pair)}
        times |= {t for h in bought for t in (h.begin, h.end)} | {t for r in mine for t in (r.start, r.end)}
        starts, stops = defaultdict(list), defaultdict(list)
        for r in mine:
            starts[max(r.start, BEGIN)].append(r)
            stops[r.end].append(r)
        there: list[Placed] = []
        for low, high in pairwise(sorted(t for t in times if BEGIN <= t <= END)):
            there = [r for r in there if r not in stops[low]] + starts[low]
            day, length = low - (low - BEGIN) % DAY, high - low
            taken = {spare: sum(r.gpus for r in there if r.spare is spare) for spare in (False, True)}
            rest = GPUS - sum(taken.values())
            assert rest >= 0
            found["charged", day] += taken[False] * length
            found["spare", day] += taken[True] * length
            if any(begin <= low < end for begin, end in out):
                assert rest == GPUS, "a run on a node that is out"
                found["out of service", day] += rest * length
            elif any(h.begin <= low < h.end for h in bought):
                found["reserved idle", day] += rest * length
            else:
                found["idle", day] += rest * length
    return found
