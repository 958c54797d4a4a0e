"""Who may take whose place (design 4.6), by the requeue engine: our own placement is the judge of rule 4.

Beneficiaries are taken in our order of backed work, which is Slurm's own. Work that idle or spare GPUs can hold, or
those of jobs that are completing, is left to Slurm. The first job that can be neither judged nor served closes its
partitions to all behind it but those that end before Slurm expects it to start. The loads compared are those of what
runs and of what was served before: when the jobs behind will start, nobody knows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.candidate import WAITS_FOR_ROOM
from pyslurm_budget.domain.kept import kept_from, without
from pyslurm_budget.domain.model import MILLI, JobState, WorkClass
from pyslurm_budget.domain.place import Rooms, free, place, rooms_of, take
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.domain.victims import choose

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyslurm_budget.domain.books import Books
    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.situation import LiveRun, Situation

# Before Slurm's first look there is no reason.
NOT_LOOKED_AT = ("", "None")
HUNDRED = 100
Sides = tuple[str, "_Side", "_Side"]
"""Code of the reason, and the two sides."""
Told = tuple["LiveRun", Reason]


@dataclass(frozen=True, slots=True)
class Displacement:
    """One beneficiary and the runs that give way to it, with the sentence's numbers for each. Where Slurm judges
    (claims), there may be none, and ``others`` are further runs that it may be let take, in that order."""

    candidate: Candidate
    victims: tuple[Told, ...]
    others: tuple[Told, ...] = ()


@dataclass(slots=True)
class Search:
    """Outcome of the search: what to do, who fits or is made to fit (``served``), and what people should know about
    jobs that were not served."""

    displacements: list[Displacement] = field(default_factory=list)
    notes: dict[str, Reason] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)


class Displacer:
    """Searches all partitions in one order; rooms are used up as jobs are served, so nobody is served twice."""

    def __init__(self, situation: Situation, books: Books) -> None:
        """The books hold every admission already."""
        self._situation = situation
        self._books = books
        self._taken: set[str] = set()
        self._planned = 0
        self._search = Search()
        self._spare: Rooms = {}
        self._closed: dict[str, int | None] = {}
        self._had_one: set[str] = set()
        self._stoppable = [run for run in situation.runs if self._may_ever_stop(run)]
        self._waiting: dict[tuple[str, str], int] = defaultdict(int)
        self._waiting_user: dict[tuple[str, str, str], int] = defaultdict(int)

    def search(self, backed: Mapping[str, list[Candidate]], placed: Collection[str] = ()) -> Search:
        """Look at the backed candidates of every pool, best first; not at those that have a place kept for them."""
        situation = self._situation
        self._spare = rooms_of(situation.snapshot.nodes)
        for run in situation.runs:
            if run.work_class is WorkClass.SPARE and run.job.state is JobState.RUNNING:
                free(self._spare, run.job.allocation)
        for job in situation.snapshot.jobs:
            if job.leaving and situation.now - (job.ended or 0) < situation.policy.stuck_wait:
                free(self._spare, job.leaving)
        for pool, order in backed.items():
            for candidate in order:
                self._count(pool, candidate, 1)
        # A job's step tells its place in its pool's order; jobs of several pools meet in a partition by their steps.
        places = ((place_, pool, c) for pool, order in backed.items() for place_, c in enumerate(order))
        for _, pool, candidate in sorted(places, key=lambda p: p[:2]):
            if self._planned >= situation.policy.requeues_per_cycle:
                break  # no more would be carried out: the rest has its turn in the next cycle
            if candidate.job.reservation is None and candidate.ref not in placed:
                self._look_at(pool, candidate)
        return self._search

    def _count(self, pool: str, c: Candidate, sign: int) -> None:
        """Count a candidate's contract, which the books hold as outstanding, as one that only waits; or no more."""
        if c.budget is not None:
            for name in self._books.path(c.budget):
                self._waiting[name, pool] += sign * c.price.amount
            self._waiting_user[c.budget, pool, c.job.user] += sign * c.price.amount

    def _look_at(self, pool: str, c: Candidate) -> None:
        job = c.job
        partitions = tuple(name for name in job.partitions if self._open_to(name, job))
        if not partitions:
            return
        if job.reason not in NOT_LOOKED_AT and not job.reason.startswith(WAITS_FOR_ROOM):
            self._search.notes[c.ref] = Reason("waits-for-slurm", {"reason": job.reason})
        elif job.eligible is not None and job.eligible <= self._situation.now:
            here = job if partitions == job.partitions else replace(job, partitions=partitions)
            served = self._serve(pool, c, here, first=self._had_one.isdisjoint(partitions))
            if served:
                self._count(pool, c, -1)
            elif served is not None:
                self._closed.update(dict.fromkeys(partitions, job.expected))
            self._had_one.update(partitions)

    def _open_to(self, partition: str, job: Job) -> bool:
        """Whether no better job waits for the partition, or this one is over before Slurm expects that to start."""
        if partition not in self._closed:
            return True
        expected = self._closed[partition]
        limit = job.time_limit
        return expected is not None and limit is not None and self._situation.now + limit <= expected

    def _serve(self, pool: str, c: Candidate, job: Job, *, first: bool) -> bool | None:
        """Serve one job in the partitions that are open to it; false ends the search there, ``None`` passes it by."""
        if job.request.special is not None:
            return self._let_slurm_judge(pool, c, job.request.special, first=first)
        partitions = self._situation.pools.partition_nodes
        rooms = without(self._spare, kept_from(self._situation, job, c.ref))
        if (shares := place(job, rooms, partitions)) is not None:
            take(self._spare, shares)
            self._search.served.add(c.ref)
            return True
        if job.reason in NOT_LOOKED_AT:
            return False  # nobody knows yet what it waits for
        wait = self._backing_off(c)
        if wait is not None:
            self._search.notes[c.ref] = wait
            return False
        return self._make_room(pool, c, job, rooms, first=first)

    def _make_room(self, pool: str, c: Candidate, job: Job, rooms: Rooms, *, first: bool) -> bool | None:
        """Stop runs for the job, if any that may be stopped make room for it."""
        partitions = self._situation.pools.partition_nodes
        allowed = self._allowed(c, first=first)
        over = frozenset(ref for ref, (run, (_, _, theirs)) in allowed.items() if theirs.before > theirs.allowance)
        chosen = choose(
            job,
            rooms,
            partitions,
            [run for run, _ in allowed.values()],
            now=self._situation.now,
            policy=self._situation.policy,
            over=over,
        )
        if chosen is None:
            self._search.notes.setdefault(c.ref, Reason("no-room", {"pool": pool}))
            return False
        most = self._situation.policy.requeues_per_hour
        if len(chosen) > most:
            self._search.notes[c.ref] = Reason("too-many-runs", {"runs": len(chosen), "most": most})
            return None
        if self._planned and self._planned + len(chosen) > self._situation.policy.requeues_per_cycle:
            return False  # it is first in its turn in the next cycle: then it may have more than a cycle's requeues
        victims = [(run, _reason(c, run, *allowed.pop(run.job.ref)[1])) for run in chosen]
        self._displace(c, job, victims, self._in_turn(c, allowed))
        return True

    def _displace(self, c: Candidate, job: Job, victims: list[Told], others: tuple[Told, ...]) -> None:
        for run, _ in victims:
            free(self._spare, run.job.allocation)
            self._taken.add(run.job.ref)
        self._search.served.add(c.ref)
        rooms = without(self._spare, kept_from(self._situation, job, c.ref))
        shares = place(job, rooms, self._situation.pools.partition_nodes)
        if shares is not None:
            take(self._spare, shares)
        self._planned += len(victims)
        self._search.displacements.append(Displacement(c, tuple(victims), others))

    def _let_slurm_judge(self, pool: str, c: Candidate, special: str, *, first: bool) -> bool:
        """Where our own placement cannot judge the request, Slurm does, if it can be claimed from; not for het jobs,
        of which it would serve one part after the other."""
        if not self._situation.claims or c.job.het or not c.job.reason.startswith("Resources"):
            self._search.notes[c.ref] = Reason("cannot-judge", {"what": special})
            return False
        wait = self._backing_off(c)
        if wait is not None:
            self._search.notes[c.ref] = wait
            return False
        allowed = self._allowed(c, first=first)
        if not allowed:
            self._search.notes.setdefault(c.ref, Reason("no-room", {"pool": pool}))
            return False
        self._search.displacements.append(Displacement(c, (), self._in_turn(c, allowed)))
        return True

    def _in_turn(self, c: Candidate, allowed: dict[str, tuple[LiveRun, Sides]]) -> tuple[Told, ...]:
        """Runs in the order in which they are opened: the most loaded side first, then the least work lost."""
        if not self._situation.claims:
            return ()
        now, cap = self._situation.now, self._situation.policy.loss_cap

        def key(entry: tuple[LiveRun, Sides]) -> tuple[int, int, str]:
            run, (_, _, theirs) = entry
            return -theirs.percent, max(run.job.held_tres.gpus or 0, 1) * run.loss(now, cap), run.job.ref

        return tuple((run, _reason(c, run, *sides)) for run, sides in sorted(allowed.values(), key=key))

    def _backing_off(self, c: Candidate) -> Reason | None:
        """Whether runs were stopped for this job already: it must start first, or it was wasted and waits longer."""
        policy = self._situation.policy
        tried = [at for ref, at in self._situation.tried if ref == c.ref and at >= c.job.key.submit]
        if tried and self._situation.now < tried[-1] + policy.back_off * len(tried):
            return Reason("backing-off", {"since": tried[-1], "until": tried[-1] + policy.back_off * len(tried)})
        made = self._situation.room_made(c.ref, c.job.key.submit)
        if made is None:
            return None
        last, rounds = made
        deadline = last + self._situation.start_within
        until = deadline if rounds == 1 and self._situation.now < deadline else deadline + policy.back_off * rounds
        if self._situation.now >= until:
            return None
        code = "room-is-being-made" if self._situation.now < deadline else "backing-off"
        return Reason(code, {"since": last, "until": until})

    def _allowed(self, c: Candidate, *, first: bool) -> dict[str, tuple[LiveRun, Sides]]:
        """Runs that rules 2 and 3 allow to be stopped for this job, by ref, each with its two sides."""
        known: dict[tuple[str, str | None, str], Sides | None] = {}
        found: dict[str, tuple[LiveRun, Sides]] = {}
        for run in self._stoppable:
            if run.pool not in c.pools or run.job.ref in self._taken or not self._may_stop_now(c, run):
                continue
            key = (run.pool, run.budget, run.job.user if run.budget == c.budget else "")
            if key not in known:
                known[key] = self._entitled(run.pool, c, run, first=first)
            sides = known[key]
            if sides is not None:
                found[run.job.ref] = run, sides
        return found

    def _may_ever_stop(self, run: LiveRun) -> bool:
        """Rule 2, as far as no beneficiary matters."""
        if run.work_class is not WorkClass.BACKED or not run.stoppable or not run.job.can_requeue:
            return False
        if run.job.completing or run.job.het:
            return False
        return run.job.state is JobState.RUNNING and self._situation.now >= run.protected_until

    def _may_stop_now(self, c: Candidate, run: LiveRun) -> bool:
        """The rest of rule 2: a larger run, or much work, is safe from a job that has not waited long."""
        policy, now = self._situation.policy, self._situation.now
        waited = now - (c.job.eligible if c.job.eligible is not None else now)
        wide = (run.job.held_tres.gpus or 0) > c.job.request.gpus and run.rate > c.price.rate
        if waited < policy.grown_wait and wide:
            return False
        return waited >= policy.early_wait or run.loss(now, policy.loss_cap) <= policy.early_loss

    def _entitled(self, pool: str, c: Candidate, run: LiveRun, *, first: bool) -> Sides | None:
        """Rule 3: where the paths of the two part, the beneficiary's side must be the more deserving one."""
        if c.budget is None or self._would_displace_back(c, run):
            return None
        waited = self._situation.now - (c.job.eligible or self._situation.now)
        wide = c.job.request.nodes_min > 1 and first and waited >= self._situation.policy.wide_wait
        mine, theirs = self._sides(pool, c, run)
        # The paths of one user's own jobs do not part.
        same = (run.budget, run.job.user) == (c.budget, c.job.user)
        if mine.after > mine.line or (same and not wide):
            return None
        if wide:
            return "displaced-for-wide", mine, theirs
        if theirs.before > theirs.allowance:
            return "displaced-for", mine, theirs
        if not mine.allowance or not theirs.allowance:
            return None
        margin = self._situation.policy.margin
        more = (theirs.before - margin * theirs.allowance) * mine.allowance > mine.before * theirs.allowance
        still = mine.after * theirs.allowance <= theirs.before * mine.allowance
        return ("displaced-for", mine, theirs) if more and still else None

    def _sides(self, pool: str, c: Candidate, run: LiveRun) -> tuple[_Side, _Side]:
        """The two sides at the place where the paths part; users of one budget are leaves with equal shares."""
        budget = c.budget or ""
        price = c.price.amount
        if run.budget == budget:
            return self._user(pool, budget, c, c.job.user, price), self._user(pool, budget, c, run.job.user, 0)
        ours = self._books.path(budget)
        if run.budget is None:  # nobody's share pays for it: over whatever it holds
            return self._branch(ours, (), pool, price), _Side(0, 0, run.rate, run.rate)
        others = self._books.path(run.budget)
        return self._branch(ours, others, pool, price), self._branch(others, ours, pool, 0)

    def _user(self, pool: str, budget: str, c: Candidate, user: str, price: int) -> _Side:
        """A user's equal part of the budget, beside all its users."""
        book = self._books.payer(budget, pool)
        users = len({*book.user_use, c.job.user, user})
        used = book.user_use.get(user, 0) - self._waiting_user[budget, pool, user]
        return _Side(book.allowance // users, book.line // users, used, used + price)

    def _branch(self, path: tuple[str, ...], other: tuple[str, ...], pool: str, price: int) -> _Side:
        """The side of ``path`` just below the place where both part."""
        own = [name for name in path if name not in other]
        if own:
            book, waiting = self._books.books[own[-1], pool], self._waiting[own[-1], pool]
        else:
            children = self._books.tree.children.get(path[0], ())
            book = self._books.direct(path[0], pool)
            waiting = self._waiting[path[0], pool] - sum(self._waiting[name, pool] for name in children)
        used = book.charged_now + book.borrowed_now + book.outstanding - waiting
        return _Side(book.allowance, book.line, used, used + price)

    def _would_displace_back(self, c: Candidate, run: LiveRun) -> bool:
        """A displaced job may not displace the same budget back within one contract."""
        return run.budget != c.budget and any(
            r.ref == c.ref and r.for_budget == run.budget and self._situation.now < r.at + max(c.contract, 1)
            for r in self._situation.requeued
            if r.for_budget is not None
        )


@dataclass(frozen=True, slots=True)
class _Side:
    """Allowance, line, and charged + outstanding without and with the beneficiary's contract, in mGPU-s."""

    allowance: int
    line: int
    before: int
    after: int

    @property
    def percent(self) -> int:
        """Load in percent, for people."""
        return self.before * HUNDRED // self.allowance if self.allowance > 0 else HUNDRED * MILLI


def _reason(c: Candidate, run: LiveRun, code: str, mine: _Side, theirs: _Side) -> Reason:
    """Why the run gives way, with the numbers of both sides."""
    numbers: dict[str, int | str] = {
        "for": c.ref,
        "for_budget": c.budget or "-",
        "budget": run.budget or "-",
        "contract": run.minimum,
        "since": run.protected_until,
        "for_load": mine.percent,
        "load": theirs.percent,
    }
    over = code == "displaced-for" and theirs.before > theirs.allowance
    return Reason(code, {**numbers, "over": 1} if over else numbers)
