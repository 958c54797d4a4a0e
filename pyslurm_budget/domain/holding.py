"""What nodes were at other times than now: out of service, or reserved (design 4.1, 4.2)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from pyslurm_budget.domain.capacity import Outage, is_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from fractions import Fraction

    from pyslurm_budget.domain.model import Reservation

OURS = "sbudget_"
WINDOW = "sbudget_window_"
MAINTENANCE = "MAINT"
FLOATING = "TIME_FLOAT"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node was in ``state`` (Slurm's words) in [start, end); ``end`` is ``None`` while it still is."""

    node: str
    start: int
    end: int | None
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """A reservation as it was in [start, end): a change of it makes another holding of the same name.

    ``id`` is Slurm's, or a negative number for one that only slurmctld has told of. ``accounts`` are those that it
    was bought for. ``gpus`` and ``cpus`` are what it took of its nodes; without ``cpus`` it took all of them.
    """

    id: int
    name: str
    start: int
    end: int
    accounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    gpus: int | None = None
    cpus: int | None = None

    @property
    def apart(self) -> bool:
        """Whether nobody is charged for it whatever its accounts: maintenance, and what is ours. A collecting window
        is charged: what stands idle in it does so for its job."""
        ours = self.name.startswith(OURS) and not self.name.startswith(WINDOW)
        return ours or MAINTENANCE in self.flags

    def payers(self, budget_of: Callable[[str], str | None]) -> tuple[str | None, ...]:
        """The budget of each account that it was bought for; empty if none of them has one."""
        found = tuple(budget_of(account) for account in self.accounts)
        return found if not self.apart and any(found) else ()

    def idle(self, budget_of: Callable[[str], str | None]) -> bool:
        """Whether its nodes leave the capacity: nobody pays for them, and they are not ours."""
        return not self.name.startswith(OURS) and not self.payers(budget_of)


def seen(known: Iterable[Holding], live: Iterable[Reservation], now: int, looked: int) -> list[Holding]:
    """What slurmctld's reservations change in the holdings that it told of before (``known``).

    ``looked`` is when we looked last, if we look all the time, else it is now; what happened before is slurmdbd's to
    tell. A reservation that has begun is a holding, one that changed ends now and begins anew, one that is gone has
    ended. Floating ones never begin, and those without nodes hold nothing.
    """
    before = {h.name: h for h in known if h.id < 0 and h.end > now}
    changed: list[Holding] = []
    for r in live:
        if r.start > now or r.end <= now or not r.nodes or FLOATING in r.flags:
            continue
        accounts = tuple(account for account in r.accounts if not account.startswith("-"))
        key, start = -1 - crc32(r.name.encode()), max(r.start, looked)
        new = Holding(key, r.name, start, r.end, accounts, r.flags, r.nodes, r.gpus, r.cpus)
        old = before.pop(r.name, None)
        if old is not None and replace(old, end=r.end) != replace(new, start=old.start):
            changed.append(replace(old, end=now))
            new = replace(new, start=now)
        elif old is not None:
            new = replace(new, start=old.start)
        if new != old:
            changed.append(new)
    return changed + [replace(old, end=now) for old in before.values()]


def forgotten(known: Iterable[Holding], now: int, last: int) -> list[Holding]:
    """What slurmctld had told of, and nobody has looked at since ``last``: it is known up to then."""
    return [replace(h, end=max(h.start, last)) for h in known if h.id < 0 and h.end > now]


def told_once(holdings: Iterable[Holding]) -> list[Holding]:
    """The holdings without what is told twice: where slurmctld told of a reservation, it is believed, as it names the
    accounts; slurmdbd is for the rest of the time. Of one reservation no two pieces overlap."""
    found: list[Holding] = []
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for h in sorted(holdings, key=lambda h: (h.id >= 0, h.start, h.id)):
        for begin, end in without((h.start, h.end), taken[h.name]):
            found.append(replace(h, start=begin, end=end))
            taken[h.name].append((begin, end))
    return sorted(found, key=lambda h: (h.start, h.name))


def without(interval: tuple[int, int], taken: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What the taken intervals leave of an interval, in order."""
    begin, end = interval
    left: list[tuple[int, int]] = []
    for low, high in sorted(taken):
        if low < end and high > begin:
            left.append((begin, min(low, end)))
            begin = max(begin, high)
    left.append((begin, end))
    return [(low, high) for low, high in left if low < high]


def out_of_service(
    node_events: Iterable[NodeEvent], holdings: Iterable[Holding], worth: Mapping[str, int | Fraction], now: int
) -> dict[str, list[Outage]]:
    """When each node was out (design 4.1) or reserved for nobody who pays (``holdings``): no second of it twice."""
    times: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in node_events:
        if is_out(event.state):
            times[event.node].append((event.start, now if event.end is None else event.end))
    for h in holdings:
        for node in h.nodes:
            times[node].append((h.start, min(h.end, now)))
    found: dict[str, list[Outage]] = {}
    for node, intervals in times.items():
        if node in worth:
            taken: list[tuple[int, int]] = []
            for interval in intervals:
                taken += without(interval, taken)
            found[node] = [Outage(begin, end, worth[node]) for begin, end in sorted(taken)]
    return found
