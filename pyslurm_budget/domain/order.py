"""The order of waiting work: as in Slurm's Fair Tree, made job by job (design 4.5).

At each level the least loaded sibling goes first, down to the users of a budget, who have equal shares; then the
user's own jobs in their order. The job that was taken is added to the loads before the next one is chosen: ranking by
past use alone makes equal groups take turns at nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyslurm_budget.domain.books import Books

LAST = (1, Fraction(0))


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
class _Queues:
    """Waiting jobs of one pool by budget: those in front, and one queue per user."""

    front: dict[str, deque[Waiting]] = field(default_factory=lambda: defaultdict(deque))
    users: dict[str, dict[str, deque[Waiting]]] = field(default_factory=lambda: defaultdict(dict))
    count: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class FairOrder:
    """Yields one pool's waiting jobs, best first. The caller adds each taken job to the books before the next."""

    def __init__(self, books: Books, pool: str, waiting: Iterable[Waiting], *, spare: bool = False) -> None:
        """Orders by backed load, or with ``spare`` by all use: else who only sends spare work is always first."""
        self._books = books
        self._pool = pool
        self._spare = spare
        self._queues = _Queues()
        for job in sorted(waiting, key=lambda w: (w.place, w.ref)):
            self._add(job)

    def _add(self, job: Waiting) -> None:
        if job.front:
            self._queues.front[job.budget].append(job)
        else:
            self._queues.users[job.budget].setdefault(job.user, deque()).append(job)
        for name in self._books.path(job.budget):
            self._queues.count[name] += 1

    def __iter__(self) -> Iterator[Waiting]:
        """Best first, until nobody waits."""
        while (job := self._next()) is not None:
            yield job

    def _next(self) -> Waiting | None:
        roots = [name for name in self._books.tree.children.get(None, ()) if self._queues.count[name]]
        if not roots:
            return None
        at = min(roots, key=self._key)
        while True:
            own = bool(self._queues.front[at]) or bool(self._queues.users[at])
            children = [n for n in self._books.tree.children.get(at, ()) if self._queues.count[n]]
            if own and (not children or self._direct_key(at) <= min(self._key(n) for n in children)):
                return self._take(at)
            at = min(children, key=self._key)

    def _key(self, account: str) -> tuple[tuple[int, Fraction], str]:
        """Sort key of a budget among its siblings: its load, then its id; an allowance of 0 ranks last."""
        load = (self._books.spare_load if self._spare else self._books.load)(account, self._pool)
        return (LAST if load is None else (0, load)), account

    def _direct_key(self, account: str) -> tuple[tuple[int, Fraction], str]:
        """Sort key of the implicit child for jobs charged to the account itself."""
        book = self._books.direct(account, self._pool)
        if book.allowance <= 0:
            return LAST, account
        used = book.charged_now + book.outstanding + (book.spare_used if self._spare else 0)
        return (0, Fraction(used, book.allowance)), account

    def _take(self, account: str) -> Waiting:
        front = self._queues.front[account]
        if front:
            job = front.popleft()
        else:
            users = self._queues.users[account]
            book = self._books.payer(account, self._pool)
            use = book.user_all if self._spare else book.user_use
            user = min(users, key=lambda u: (use.get(u, 0), users[u][0].place, u))
            job = users[user].popleft()
            if not users[user]:
                del users[user]
        for name in self._books.path(account):
            self._queues.count[name] -= 1
        return job


STEPS = 160
OWN_STEPS = 96
BACKED_BASE = 2_000_000
SPARE_BASE = 0
CEILING = 1_000_000


def step_size(weights: int) -> int:
    """SiteFactor of one step: above all that Slurm's own weights can add, so that our order is the order.

    The steps of a class stay below 1,000,000 together, or backed and spare would mix; where the site's weights are
    too large for that, the step is as large as fits and `setup check` says so.
    """
    return min(weights + 1, (CEILING - 1) // (STEPS + 1))


def step_of(place: int) -> int:
    """Step of the job at this place of the order: an own one for the first, coarse ones behind them. 0 is lowest."""
    if place < OWN_STEPS:
        return STEPS - place
    coarse = OWN_STEPS + ((place - OWN_STEPS) // OWN_STEPS).bit_length()
    return max(STEPS - coarse, 1)


def current_step(priority: int, base: int, size: int) -> int | None:
    """Step that a job has now, read back from its priority; ``None`` if it is none of ours (held, other class)."""
    step = (priority - base) // size
    return step if priority > 0 and 0 <= step <= STEPS else None


def wanted_steps(current: Iterable[int | None]) -> list[int]:
    """Steps for jobs in our order, best first.

    While the steps that the jobs have are in order already (falling, equal ones only where Slurm's own order of
    submission serves), nothing changes; else all get the step of their place: most of those behind the first have it.
    """
    found = list(current)
    if _in_order(found):
        return [step for step in found if step is not None]
    return [step_of(i) for i in range(len(found))]


def _in_order(steps: list[int | None]) -> bool:
    """Whether all are known and fall strictly among those that have steps of their own."""
    last: int | None = None
    for place, step in enumerate(steps):
        if step is None:
            return False
        if last is not None and (step > last or (step == last and place < OWN_STEPS)):
            return False
        last = step
    return True
