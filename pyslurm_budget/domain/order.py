"""The order of waiting work: as in Slurm's Fair Tree, made job by job (design 4.5).

At each level the least loaded sibling goes first, down to the users of a budget, who have equal shares; then the
user's own jobs in their order. The job that was taken is added to the loads before the next one is chosen: ranking by
past use alone makes equal groups take turns at nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyslurm_budget.domain.books import Books

Key = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job record in the order: who it belongs to, and its place among its owner's own jobs.

    ``front`` puts it before all others of its budget (it came back from a drain or a node failure).
    """

    ref: str
    budget: str
    user: str
    pool: str
    place: tuple[int, ...]
    front: bool = False


@dataclass(slots=True)
class _Leaf:
    """Waiting jobs of one budget's own account: those in front, one queue per user, and the users by their use."""

    front: deque[Waiting] = field(default_factory=deque)
    queues: dict[str, deque[Waiting]] = field(default_factory=dict)
    users: list[tuple[int, tuple[int, ...], str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self.front or self.queues)


class FairOrder:
    """Yields one pool's waiting jobs, best first.

    The caller adds each job to the books before the next is taken, or leaves it out; nothing else may change the
    loads meanwhile: only the loads on the last job's path are looked at again.
    """

    def __init__(self, books: Books, pool: str, waiting: Iterable[Waiting], *, spare: bool = False) -> None:
        """Orders by backed load, or with ``spare`` by all use: else who only sends spare work is always first."""
        self._books = books
        self._pool = pool
        self._spare = spare
        self._leaves: dict[str, _Leaf] = {}
        self._heaps: dict[str | None, list[Key]] = {}
        # Loads as whole numbers that order as the exact fractions do: two different ones with denominators below
        # 2^n are at least 2^-2n apart.
        allowances = (book.allowance for (_, name), book in books.books.items() if name == pool)
        self._shift = 1 + 2 * max(allowances, default=0).bit_length()
        for job in sorted(waiting, key=lambda w: (w.place, w.ref)):
            self._add(job)
        self._begin()

    def _add(self, job: Waiting) -> None:
        leaf = self._leaves.setdefault(job.budget, _Leaf())
        if job.front:
            leaf.front.append(job)
        else:
            leaf.queues.setdefault(job.user, deque()).append(job)

    def _begin(self) -> None:
        """A heap of the users of each budget, and one of the children of each budget that have anybody waiting."""
        below: dict[str | None, set[str]] = {}
        for account, leaf in self._leaves.items():
            self._order_users(account, leaf)
            path = self._books.path(account)
            if self._books.tree.children.get(account):
                below.setdefault(account, set()).add(account)
            for child, parent in zip(path, (*path[1:], None), strict=True):
                below.setdefault(parent, set()).add(child)
        for parent, names in below.items():
            self._heaps[parent] = [self._key(name, direct=name == parent) for name in names]
            heapify(self._heaps[parent])

    def _order_users(self, account: str, leaf: _Leaf) -> None:
        use = self._use(account)
        leaf.users = [(use.get(user, 0), queue[0].place, user) for user, queue in leaf.queues.items()]
        heapify(leaf.users)

    def _use(self, account: str) -> Mapping[str, int]:
        book = self._books.payer(account, self._pool)
        return book.user_all if self._spare else book.user_use

    def _key(self, account: str, *, direct: bool) -> Key:
        """Sort key of a budget among its siblings (or of its implicit child among its children): its load, then its
        id; an allowance of 0 ranks last."""
        used, allowance = self._books.standing(account, self._pool, spare=self._spare, direct=direct)
        return (0, (used << self._shift) // allowance, account) if allowance > 0 else (1, 0, account)

    def __iter__(self) -> Iterator[Waiting]:
        """Best first, until nobody waits."""
        while self._heaps.get(None):
            account = self._least_loaded()
            leaf = self._leaves[account]
            if leaf.front:
                yield leaf.front.popleft()
                self._order_users(account, leaf)
            else:
                user = leaf.users[0][2]
                yield leaf.queues[user].popleft()
                self._settle_user(account, leaf, user)
            self._settle_path(account)

    def _least_loaded(self) -> str:
        """Down the tree, at each level to the child with the least load, to an account with jobs of its own."""
        at: str | None = None
        while True:
            name = self._heaps[at][0][2]
            if name == at or name not in self._heaps:
                return name
            at = name

    def _settle_user(self, account: str, leaf: _Leaf, user: str) -> None:
        """The user, who is first in the heap, gets his new place there, or leaves it."""
        queue = leaf.queues[user]
        if queue:
            heapreplace(leaf.users, (self._use(account).get(user, 0), queue[0].place, user))
        else:
            del leaf.queues[user]
            heappop(leaf.users)

    def _settle_path(self, account: str) -> None:
        """So do the account and those above it: each is first in its parent's heap."""
        path = self._books.path(account)
        waits = bool(self._leaves[account])
        if account in self._heaps:
            self._settle(account, account, waits=waits)
            waits = bool(self._heaps[account])
        for child, parent in zip(path, (*path[1:], None), strict=True):
            self._settle(parent, child, waits=waits)
            waits = bool(self._heaps[parent])

    def _settle(self, parent: str | None, name: str, *, waits: bool) -> None:
        heap = self._heaps[parent]
        if waits:
            heapreplace(heap, self._key(name, direct=name == parent))
        else:
            heappop(heap)
