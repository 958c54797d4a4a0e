"""Moving (design 4.6): small runs that stand in the way go to idle GPUs elsewhere, so that a larger job can start.

Without it GPUs stand idle: jobs that need several GPUs on one node wait while the idle ones are scattered. Nobody's
turn is at stake, so loads are not compared. A moved run comes back as after a drain, its class kept, first in its
budget; if it does not start again soon, the move was wasted, and moving waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from pyslurm_budget.domain.candidate import WAITS_FOR_ROOM
from pyslurm_budget.domain.kept import kept_from, without
from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.place import candidates, copy_rooms, fit, free, part_of, place, rooms_of, take
from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.domain.pool import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.model import NodeShare, Request
    from pyslurm_budget.domain.place import Room, Rooms
    from pyslurm_budget.domain.situation import LiveRun, Requeued, Situation

# More waiting jobs of different shapes than this are not looked at in one cycle.
LOOKS = 50

Runs = tuple["LiveRun", ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Room for one job: the runs that go elsewhere, each with its reason, and the nodes where the job will run."""

    candidate: Candidate
    runs: tuple[tuple[LiveRun, Reason], ...]
    nodes: tuple[str, ...]


@dataclass(slots=True)
class Moves:
    """What to do, and what people should know."""

    moves: list[Move] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to make room on one node: the work that is lost, and the runs that go."""

    lost: int
    node: str
    runs: Runs

    @property
    def key(self) -> tuple[int, int, str, tuple[str, ...]]:
        """Least work lost first, then fewest runs."""
        return self.lost, len(self.runs), self.node, tuple(run.job.ref for run in self.runs)


class Mover:
    """Looks for moves; what is given to one job is not given to the next."""

    def __init__(self, situation: Situation, gone: Iterable[str] = (), served: Iterable[str] = ()) -> None:
        """``gone`` are runs that this cycle stops already, ``served`` jobs that it makes room for."""
        self._situation = situation
        self._gone = set(gone)
        self._served = frozenset(served)
        self._idle = rooms_of(situation.snapshot.nodes)
        self._left = situation.policy.moves_per_cycle

    def search(self, orders: Iterable[Sequence[Candidate]]) -> Moves:
        """Look at the waiting jobs of these orders, best first."""
        found = Moves()
        if not self._left:
            return found
        wait = self._waits()
        if wait is not None:
            found.notes.append(wait)
            return found
        failed: set[tuple[object, ...]] = set()
        for c in (c for order in orders for c in order):
            shape = (c.job.request, c.job.partitions, c.job.time_limit, c.job.qos)
            if not self._left or len(failed) >= LOOKS:
                break
            if shape in failed or not self._may_profit(c):
                continue
            move = self._move(c)
            if move is None:
                failed.add(shape)
            else:
                found.moves.append(move)
        return found

    def _waits(self) -> Reason | None:
        """Whether moving backs off: lately a moved run did not start again in time."""
        policy, now = self._situation.policy, self._situation.now
        wasted = [r for r in wasted_moves(self._situation) if r.at > now - policy.move_again]
        if not wasted:
            return None
        until = max(r.at for r in wasted) + policy.move_back_in + policy.back_off * len(wasted)
        numbers: dict[str, int | str] = {"wasted": len(wasted), "within": policy.move_again, "until": until}
        return Reason("moves-wasted", numbers) if now < until else None

    def _may_profit(self, c: Candidate) -> bool:
        """Whether moving is for such a job: several GPUs on few nodes, and it has waited for them."""
        policy, job = self._situation.policy, c.job
        request = job.request
        if c.ref in self._served or job.reservation is not None or request.special is not None or job.het:
            return False
        if request.nodes_min > policy.move_nodes or _gpus_a_node(request) < policy.move_gpus:
            return False
        if job.eligible is None or self._situation.now - job.eligible < policy.move_wait:
            return False
        return job.reason.startswith(WAITS_FOR_ROOM) and not self._lately_served(c)

    def _lately_served(self, c: Candidate) -> bool:
        """Whether room was made for it not long ago: it must start first, or it waits longer."""
        made = self._situation.room_made(c.ref, c.job.key.submit)
        if made is None:
            return False
        last, rounds = made
        until = last + self._situation.start_within + self._situation.policy.back_off * rounds
        return self._situation.now < until

    def _move(self, c: Candidate) -> Move | None:
        """The cheapest set of runs that makes room for the job and fits into idle GPUs elsewhere."""
        partitions = self._situation.pools.partition_nodes
        rooms = without(self._idle, kept_from(self._situation, c.job))
        usable = candidates(c.job, rooms, partitions)
        if sum(room.gpus for room in usable) < c.job.request.gpus or place(c.job, rooms, partitions) is not None:
            return None
        if not self._situation.policy.classes.is_spare(c.job.qos) and self._spare_holds(c):
            return None
        movable = self._movable(c)
        for runs in _sets(c.job.request, usable, movable, self._left):
            after = copy_rooms(rooms)
            for run in runs:
                free(after, run.job.allocation)
            shares = place(c.job, after, partitions)
            if shares is not None and (homes := self._homes(runs, shares)) is not None:
                return self._taken(c, runs, shares, homes)
        return None

    def _spare_holds(self, c: Candidate) -> bool:
        """Whether Slurm itself makes room for a backed job by stopping spare work."""
        rooms = copy_rooms(without(self._idle, kept_from(self._situation, c.job)))
        for run in self._situation.runs:
            if run.work_class is WorkClass.SPARE and run.job.state is JobState.RUNNING:
                free(rooms, run.job.allocation)
        return place(c.job, rooms, self._situation.pools.partition_nodes) is not None

    def _homes(self, runs: Runs, shares: Iterable[NodeShare]) -> tuple[tuple[NodeShare, ...], ...] | None:
        """Where the runs would go: idle GPUs of nodes that the job does not take; the largest first."""
        taken = {share.node for share in shares}
        found: list[tuple[NodeShare, ...]] = []
        rooms = copy_rooms({name: room for name, room in self._idle.items() if name not in taken})
        for run in sorted(runs, key=lambda r: (-(r.job.held_tres.gpus or 0), r.job.ref)):
            open_to_it = without(rooms, kept_from(self._situation, run.job))
            home = place(run.job, open_to_it, self._situation.pools.partition_nodes)
            if home is None:
                return None
            take(rooms, home)
            found.append(home)
        return tuple(found)

    def _taken(
        self, c: Candidate, runs: Runs, shares: tuple[NodeShare, ...], homes: Iterable[Iterable[NodeShare]]
    ) -> Move:
        """Book the move: no other job of this cycle gets the same room."""
        for run in runs:
            free(self._idle, run.job.allocation)
            self._gone.add(run.job.ref)
        take(self._idle, shares)
        for home in homes:
            take(self._idle, home)
        self._left -= len(runs)
        told = tuple((run, self._reason(c, run)) for run in runs)
        return Move(c, told, tuple(share.node for share in shares))

    def _reason(self, c: Candidate, run: LiveRun) -> Reason:
        numbers: dict[str, int | str] = {
            "for": c.ref,
            "needs": c.job.request.gpus,
            "nodes": c.job.request.nodes_min,
            "lost": run.loss(self._situation.now, self._situation.policy.loss_cap),
            "contract": run.minimum,
        }
        return Reason("moved-for", numbers)

    def _movable(self, c: Candidate) -> Mapping[str, list[tuple[int, LiveRun]]]:
        """Runs that may be moved for this job, with the work that each would lose, by node; cheapest first."""
        policy, now = self._situation.policy, self._situation.now
        moved = {
            r.ref for r in self._situation.requeued if r.kind is ActionKind.MOVE and r.at > now - policy.move_again
        }
        found: dict[str, list[tuple[int, LiveRun]]] = {}
        for run in self._situation.runs:
            gpus = run.job.held_tres.gpus or 0
            if run.job.ref in moved or run.job.ref in self._gone or not may_move(run, now):
                continue
            if gpus >= c.job.request.gpus or run.loss(now, policy.loss_cap) > policy.move_loss:
                continue
            for share in run.job.allocation:
                found.setdefault(share.node, []).append((gpus * run.loss(now, policy.loss_cap), run))
        for runs in found.values():
            runs.sort(key=lambda r: (r[0], r[1].job.ref))
        return found


def may_move(run: LiveRun, now: int) -> bool:
    """Whether a run may be stopped to run on elsewhere: spare, or past its contract; never one that would be lost."""
    job = run.job
    if job.state is not JobState.RUNNING or job.completing or not job.can_requeue or job.het:
        return False
    if run.withheld or job.request.special is not None or job.reservation is not None:
        return False
    return run.work_class is WorkClass.SPARE or (run.stoppable and now >= run.protected_until)


def wasted_moves(situation: Situation) -> Iterator[Requeued]:
    """Moved runs that did not start again in time, of those that still wait or run."""
    jobs = {job.ref: job for job in situation.snapshot.jobs}
    for r in situation.requeued:
        job = jobs.get(r.ref) if r.kind is ActionKind.MOVE else None
        if job is None or job.key.submit == r.key.submit:
            continue
        again = situation.now if job.state is JobState.PENDING else job.start
        if again is not None and again - r.at > situation.policy.move_back_in:
            yield r


def _gpus_a_node(request: Request) -> int:
    """GPUs on each node, at least."""
    return request.gpus_per_node if request.gpus_per_node is not None else ceil_div(request.gpus, request.nodes_min)


def _sets(
    request: Request, usable: Sequence[Room], movable: Mapping[str, Sequence[tuple[int, LiveRun]]], most: int
) -> list[Runs]:
    """Sets of at most ``most`` runs that make room on as many nodes as are missing, least work lost first."""
    part = part_of(request)
    missing = request.nodes_min
    ways: dict[str, list[_Way]] = {}
    for room in usable:
        if fit(part, [room]) is not None:
            missing -= 1
        elif room.gpus + _most_gpus(room.node, movable.get(room.node, ()), most) >= part.gpus:
            ways[room.node] = list(_ways(part, room, movable.get(room.node, ()), most))
    if missing < 1:
        return []
    found: list[_Way] = [way for options in ways.values() for way in options]
    sets: list[tuple[int, int, tuple[str, ...], Runs]] = []
    if missing == 1:
        sets = [(w.lost, len(w.runs), (w.node,), w.runs) for w in found]
    elif missing <= most:
        # The cheapest way of each node is enough here: there are many nodes, and few moves.
        best = sorted(
            (min(options, key=lambda w: w.key) for options in ways.values() if options), key=lambda w: w.key
        )
        for group in combinations(best[: 2 * missing + 2], missing):
            runs = tuple({run.job.ref: run for way in group for run in way.runs}.values())
            if len(runs) <= most:
                sets.append((sum(w.lost for w in group), len(runs), tuple(w.node for w in group), runs))
    return [runs for *_, runs in sorted(sets, key=lambda s: s[:3])]


def _most_gpus(node: str, runs: Sequence[tuple[int, LiveRun]], most: int) -> int:
    """GPUs of the node that so many of these runs can give back at best."""
    held = sorted((s.gpus for _, run in runs for s in run.job.allocation if s.node == node), reverse=True)
    return sum(held[:most])


def _ways(part: Request, room: Room, runs: Sequence[tuple[int, LiveRun]], most: int) -> Iterator[_Way]:
    """Smallest sets of runs of one node whose places make room for the part; none holds another."""
    enough: list[frozenset[str]] = []
    for count in range(1, most + 1):
        for group in combinations(runs, count):
            refs = frozenset(run.job.ref for _, run in group)
            if any(known <= refs for known in enough):
                continue
            after: Rooms = copy_rooms({room.node: room})
            for _, run in group:
                free(after, run.job.allocation)
            if fit(part, list(after.values())) is not None:
                enough.append(refs)
                yield _Way(sum(lost for lost, _ in group), room.node, tuple(run for _, run in group))
