"""Collecting windows (design 4.6): how a job over many nodes gets them although contracts end at different times.

The nodes are those whose last contract ends first. From that moment on a reservation of ours keeps them for the job,
so that nothing starts there that would run into it; what still runs there then is past its contract and is requeued.
What is kept, and how the job goes in and out, is in :mod:`pyslurm_budget.domain.kept`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.domain.candidate import WAITS_FOR_ROOM, could_start
from pyslurm_budget.domain.holding import WINDOW
from pyslurm_budget.domain.kept import emptied, give_back, keep
from pyslurm_budget.domain.model import LIVE, JobState, WorkClass
from pyslurm_budget.domain.place import candidates, copy_rooms, fit, free, part_of, rooms_of
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.domain.victims import choose

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyslurm_budget.domain.books import Books
    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.kept import Kept, Tended
    from pyslurm_budget.domain.model import Job, NodeShare, Request
    from pyslurm_budget.domain.place import Room
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.situation import LiveRun, Situation


@dataclass(slots=True)
class Windows:
    """Reservations to make and to give back, runs to stop at the start of a window, each with the job that it is for
    and its reason, what people should know, and why no window is opened for a job (``refused``)."""

    actions: list[Action] = field(default_factory=list)
    stops: list[tuple[LiveRun, Reason, str]] = field(default_factory=list)
    notes: dict[str, Reason] = field(default_factory=dict)
    refused: dict[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ready:
    """When a node can give its part of a wide job, and the runs that are stopped for it, with their GPUs there."""

    at: int
    node: str
    stopped: tuple[tuple[LiveRun, int], ...]

    def lost(self, at: int, cap: int) -> int:
        """The work that is lost if they are stopped at that time."""
        return sum(gpus * run.loss(at, cap) for run, gpus in self.stopped)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a node that is given back; by stopping a run, if one is named."""

    at: int
    share: NodeShare
    stopped: LiveRun | None


class Collector:
    """Opens, keeps and gives up windows, and empties them when they begin."""

    def __init__(
        self, situation: Situation, books: Books, backed: Mapping[str, Sequence[Candidate]], served: Collection[str]
    ) -> None:
        """``backed`` are the orders of all pools; ``served`` are jobs that fit now, or get room in this cycle."""
        self._situation = situation
        self._books = books
        self._backed = backed
        self._served = served
        self._runs = {run.job.ref: run for run in situation.runs}
        self._found = Windows()

    def collect(self, tended: Tended) -> Windows:
        """Go on with the windows that there are, then see whether one is to be opened."""
        places = {c.ref: (pool, place) for pool, order in self._backed.items() for place, c in enumerate(order)}
        for kept in tended.waiting:
            self._wait(kept, places.get(kept.ref))
        for kept in tended.entering:
            self._begin(kept)
        if self._situation.policy.window_part and self._situation.policy.cap > self._situation.policy.window_above:
            held = {kept.ref for kept in (*tended.waiting, *tended.entering)} | set(tended.notes)
            for pool, order in self._backed.items():
                self._open(pool, order, held)
        return self._found

    # --- windows that there are

    def _wait(self, kept: Kept, place: tuple[str, int] | None) -> None:
        """A window that has not begun: given up if it is not needed, if its turn has passed or if a node is lost."""
        if kept.ref in self._served:
            self._give(kept, Reason("place-not-needed"))
            return
        names = {n.name for n in self._situation.snapshot.nodes if n.up and not n.draining}
        missing = sorted(set(kept.reservation.nodes) - names)
        if missing:
            self._give(kept, Reason("window-broken", {"nodes": ",".join(missing)}))
        elif (why := self._turn_passed(place)) is not None:
            self._give(kept, Reason("window-given-up", {"why": why}))
        else:
            nodes, at = ",".join(kept.reservation.nodes), kept.reservation.start
            self._found.notes[kept.ref] = Reason("window-waits", {"nodes": nodes, "at": at})

    def _give(self, kept: Kept, reason: Reason) -> None:
        self._found.actions.append(give_back(self._situation, kept, reason))

    def _turn_passed(self, place: tuple[str, int] | None) -> str | None:
        """Why the job is not the most deserving any more. Jobs that have only just come before it do not count: most
        of them start elsewhere, and a window that each of them could close would never come to its start."""
        if place is None:
            return "it is not backed any more"
        pool, at = place
        order = self._backed[pool]
        if not self._within_line(pool, order[at]):
            return "its contract does not fit its budget any more"
        since = self._situation.now - self._situation.policy.wide_wait
        for c in order[:at]:
            wide = c.job.request.nodes_min > 1 and c.job.request.special is None
            if wide and c.ref not in self._served and _waits(c.job) and (c.job.eligible or since) <= since:
                return f"{c.ref} is more deserving"
        return None

    def _begin(self, kept: Kept) -> None:
        """The window has begun, and there is no room yet: stop what is past its contract there."""
        job = kept.job
        if job is None or not kept.is_window:
            return
        allowed = [run for run in self._situation.runs if self._stoppable(job, run)]
        now, policy = self._situation.now, self._situation.policy
        rooms = emptied(self._situation, kept)
        chosen = choose(
            job, rooms, self._situation.pools.partition_nodes, allowed, now=now, policy=policy, over=frozenset()
        )
        if chosen is None:
            self._found.notes[kept.ref] = Reason("window-not-free", {"nodes": ",".join(kept.reservation.nodes)})
            return
        for run in chosen[: policy.requeues_per_cycle]:
            numbers: dict[str, int | str] = {
                "for": kept.ref,
                "contract": run.minimum,
                "since": run.protected_until,
                "nodes": job.request.nodes_min,
            }
            self._found.stops.append((run, Reason("collected-for", numbers), kept.ref))

    def _stoppable(self, job: Job, run: LiveRun) -> bool:
        """Whether a run gives way at the start of the window (rule 2 of 4.6; the window is rule 3)."""
        at = self._ends(job, run)
        return run.work_class is WorkClass.BACKED and at is not None and at <= self._situation.now

    # --- a new one

    def _open(self, pool: str, order: Sequence[Candidate], held: Collection[str]) -> None:
        """The first job that waits for room and finds none: if it is wide, a window is opened for it."""
        first = next((c for c in order if c.ref not in self._served and _waits(c.job)), None)
        situation = self._situation
        if first is None or first.ref in held or not _is_wide(first.job) or not could_start(first.job, situation.now):
            return
        if first.budget is None or first.budget in situation.given_up or self._has_one(first.budget):
            return
        if not self._within_line(pool, first):
            return
        found = self._nodes(first.job)
        if found is None:
            self._found.refused[first.ref] = Reason("window-nowhere", {"nodes": first.job.request.nodes_min})
            return
        start, nodes = found
        if self._too_large(pool, nodes):
            numbers = {"nodes": len(nodes), "part": int(situation.policy.window_part * 100)}
            self._found.refused[first.ref] = Reason("window-too-large", numbers)
        elif start > situation.now:  # else its time has come without: rule 3 lets it displace what is there
            self._keep(first, start, nodes)

    def _keep(self, c: Candidate, start: int, nodes: tuple[str, ...]) -> None:
        reason = Reason("window-opened", {"nodes": ",".join(nodes), "at": start, "budget": c.budget or "-"})
        self._found.actions.append(keep(self._situation, WINDOW + c.ref, c, nodes, start=start, reason=reason))

    def _has_one(self, budget: str) -> bool:
        """Whether a window is open for the budget."""
        return any(
            r.name.startswith(WINDOW) and budget in {self._situation.budget_of(a) for a in r.accounts}
            for r in self._situation.snapshot.reservations
        )

    def _too_large(self, pool: str, nodes: Sequence[str]) -> bool:
        """Whether all windows together would take more of the pool than they may."""
        pools = self._situation.pools
        kept = {n for r in self._situation.snapshot.reservations if r.name.startswith(WINDOW) for n in r.nodes}
        gpus = sum(pools.worth.get(name, 0) for name in kept | set(nodes) if pools.of_nodes((name,)) == pool)
        return gpus > self._situation.policy.window_part * pools.size(pool)

    def _within_line(self, pool: str, c: Candidate) -> bool:
        """Whether the budget and those above it are within their lines with this contract, beside what runs."""
        if c.budget is None:
            return False
        waiting: dict[str, int] = defaultdict(int)
        for other in self._backed[pool]:
            if other.budget is not None and other.ref != c.ref:
                for name in self._books.path(other.budget):
                    waiting[name] += other.price.amount
        return all(
            book.charged_now + book.outstanding - waiting[name] <= book.line
            for name in self._books.path(c.budget)
            for book in (self._books.books[name, pool],)
        )

    def _nodes(self, job: Job) -> tuple[int, tuple[str, ...]] | None:
        """The nodes whose last contract ends first, then with least work lost, and when that is."""
        situation = self._situation
        reserved = {n for r in situation.snapshot.reservations if r.end > situation.now for n in r.nodes}
        rooms = {name: room for name, room in rooms_of(situation.snapshot.nodes).items() if name not in reserved}
        part, count = part_of(job.request), job.request.nodes_min
        there: dict[str, list[_Part]] = defaultdict(list)
        for given in self._given_back(job):
            there[given.share.node].append(given)
        cap = situation.policy.loss_cap
        best: tuple[int, int, tuple[str, ...]] | None = None
        for name in job.partitions:
            inside = situation.pools.partition_nodes.get(name, frozenset())
            usable = [room for room in candidates(job, rooms, situation.pools.partition_nodes) if room.node in inside]
            ready = sorted(
                (r for room in usable if (r := self._ready(part, room, there[room.node])) is not None),
                key=lambda r: (r.at, r.node),
            )
            if len(ready) < count:
                continue
            last = ready[count - 1].at
            cheap = sorted((r.lost(last, cap), r.at, r.node) for r in ready if r.at <= last)[:count]
            found = (
                max(at for _, at, _ in cheap),
                sum(lost for lost, _, _ in cheap),
                tuple(sorted(n for *_, n in cheap)),
            )
            best = found if best is None else min(best, found)
        return (best[0], best[2]) if best else None

    def _ready(self, part: Request, room: Room, there: Sequence[_Part]) -> _Ready | None:
        """When enough of the node can be free; ``None``: never."""
        after = copy_rooms({room.node: room})
        at, left = self._situation.now, sorted(there, key=lambda given: given.at)
        stopped: list[tuple[LiveRun, int]] = []
        while fit(part, list(after.values())) is None:
            if not left:
                return None
            given = left.pop(0)
            free(after, (given.share,))
            at = max(at, given.at)
            if given.stopped is not None:
                stopped.append((given.stopped, given.share.gpus))
        return _Ready(at, room.node, tuple(stopped))

    def _given_back(self, job: Job) -> Iterator[_Part]:
        """When each running job gives back its part of each node at the latest."""
        for other in self._situation.snapshot.jobs:
            if other.state not in LIVE or not other.allocation:
                continue
            run = self._runs.get(other.ref)
            at = _own_end(other) if run is None else self._ends(job, run)
            if at is None:
                continue
            goes = run if run is not None and run.work_class is WorkClass.BACKED and run.job.can_requeue else None
            for share in other.allocation:
                yield _Part(at, share, goes)

    def _ends(self, job: Job, run: LiveRun) -> int | None:
        """From when on a run may be stopped for this job, or is over by itself; ``None``: never."""
        policy, now = self._situation.policy, self._situation.now
        if run.job.completing:
            return now
        if run.job.state is not JobState.RUNNING or not run.job.can_requeue or run.job.het:
            return _own_end(run.job)
        if run.work_class is WorkClass.SPARE:
            return now
        if not run.stoppable:
            return _own_end(run.job)
        waited = (job.eligible or now) + max(policy.early_wait, policy.grown_wait, policy.wide_wait)
        again = [r.at for r in self._situation.requeued if r.ref == job.ref and r.for_budget == run.budget]
        turn = max(again, default=0) + policy.cap if again else 0  # it may not displace the same budget back at once
        return max(run.protected_until, waited, turn)


def _own_end(job: Job) -> int | None:
    """The end of a job by its time limit; ``None`` without one."""
    return None if job.time_limit is None or job.start is None else job.start + job.time_limit


def _is_wide(job: Job) -> bool:
    """Whether a window could be for such a job."""
    request = job.request
    return (
        request.nodes_min > 1
        and request.special is None
        and not request.required
        and not job.het
        and job.reservation is None
    )


def _waits(job: Job) -> bool:
    """Whether Slurm has looked at the job, and found no room."""
    return job.state is JobState.PENDING and job.reason.startswith(WAITS_FOR_ROOM)
