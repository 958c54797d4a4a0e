"""Who may take whose place (design 4.6), by the requeue engine: our own placement is the judge of rule 4.

Beneficiaries are taken in our order of backed work, which is Slurm's own. Work that idle or spare GPUs can hold is
left to Slurm. The first job of a pool that can be neither judged nor served ends the search there. The loads compared
are those of what runs and of what was served before: when the jobs behind will start, nobody knows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI, JobState, WorkClass
from pyslurm_budget.domain.place import Rooms, free, place, rooms_of, take
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.domain.victims import choose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.books import Books
    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.situation import LiveRun, Situation

# A begin time that has passed is the reason until Slurm looks again; before its first look there is none.
WAITS_FOR_ROOM = ("Resources", "Priority", "BeginTime")
NOT_LOOKED_AT = ("", "None")
HUNDRED = 100


@dataclass(frozen=True, slots=True)
class Displacement:
    """One beneficiary and the runs that give way to it, with the sentence's numbers for each. Where Slurm judges
    (claims), there may be none, and ``others`` are further runs that it may be let take, in that order."""

    candidate: Candidate
    victims: tuple[tuple[LiveRun, Reason], ...]
    others: tuple[tuple[LiveRun, Reason], ...] = ()


@dataclass(slots=True)
class Search:
    """Outcome of the search: what to do, and what people should know about jobs that were not served."""

    displacements: list[Displacement] = field(default_factory=list)
    notes: dict[str, Reason] = field(default_factory=dict)


class Displacer:
    """Searches one pool after the other; rooms are used up as jobs are served, so nobody is served twice."""

    def __init__(self, situation: Situation, books: Books) -> None:
        """The books hold every admission already."""
        self._situation = situation
        self._books = books
        self._taken: set[str] = set()
        self._planned = 0
        self._search = Search()
        self._spare: Rooms = {}
        self._waiting: dict[tuple[str, str], int] = defaultdict(int)
        self._waiting_user: dict[tuple[str, str, str], int] = defaultdict(int)

    def search(self, backed: dict[str, list[Candidate]]) -> Search:
        """Look at the backed candidates of every pool, best first."""
        self._spare = rooms_of(self._situation.snapshot.nodes)
        for run in self._situation.runs:
            if run.work_class is WorkClass.SPARE and run.job.state is JobState.RUNNING:
                free(self._spare, run.job.allocation)
        for pool, order in backed.items():
            for candidate in order:
                self._count(pool, candidate, 1)
        for pool, order in backed.items():
            self._pool(pool, [c for c in order if c.job.reservation is None])
        return self._search

    def _count(self, pool: str, c: Candidate, sign: int) -> None:
        """Count a candidate's contract, which the books hold as outstanding, as one that only waits; or no more."""
        if c.budget is not None:
            for name in self._books.path(c.budget):
                self._waiting[name, pool] += sign * c.price.amount
            self._waiting_user[c.budget, pool, c.job.user] += sign * c.price.amount

    def _pool(self, pool: str, order: list[Candidate]) -> None:
        first = True
        most = self._situation.policy.requeues_per_cycle
        for candidate in order:
            if self._planned >= most:
                return  # no more would be carried out: the rest has its turn in the next cycle
            job = candidate.job
            if job.reason not in NOT_LOOKED_AT and not job.reason.startswith(WAITS_FOR_ROOM):
                self._search.notes[candidate.ref] = Reason("waits-for-slurm", {"reason": job.reason})
            elif job.eligible is not None and job.eligible <= self._situation.now:
                if not self._serve(pool, candidate, first=first):
                    return
                self._count(pool, candidate, -1)
                first = False

    def _serve(self, pool: str, c: Candidate, *, first: bool) -> bool:
        """Serve one job; false ends the search of the pool."""
        if c.job.request.special is not None:
            return self._let_slurm_judge(pool, c, c.job.request.special, first=first)
        partitions = self._situation.pools.partition_nodes
        if (shares := place(c.job, self._spare, partitions)) is not None:
            take(self._spare, shares)
            return True
        if c.job.reason in NOT_LOOKED_AT:
            return False  # nobody knows yet what it waits for
        wait = self._backing_off(c)
        if wait is not None:
            self._search.notes[c.ref] = wait
            return False
        allowed = [r for r in self._allowed(pool, c, first=first) if r[0].job.ref not in self._taken]
        over = frozenset(run.job.ref for run, reason in allowed if reason.numbers.get("over"))
        chosen = choose(
            c.job,
            self._spare,
            partitions,
            [run for run, _ in allowed],
            now=self._situation.now,
            policy=self._situation.policy,
            over=over,
        )
        if chosen is None:
            self._search.notes.setdefault(c.ref, Reason("no-room", {"pool": pool}))
            return False
        reasons = {run.job.ref: reason for run, reason in allowed}
        for run in chosen:
            free(self._spare, run.job.allocation)
            self._taken.add(run.job.ref)
        shares = place(c.job, self._spare, partitions)
        if shares is not None:
            take(self._spare, shares)
        if len(chosen) <= self._situation.policy.requeues_per_cycle:
            self._planned += len(chosen)
        others = [(run, reason) for run, reason in allowed if run not in chosen]
        victims = tuple((run, reasons[run.job.ref]) for run in chosen)
        self._search.displacements.append(Displacement(c, victims, self._in_turn(others)))
        return True

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
        allowed = [r for r in self._allowed(pool, c, first=first) if r[0].job.ref not in self._taken]
        if not allowed:
            self._search.notes.setdefault(c.ref, Reason("no-room", {"pool": pool}))
            return False
        self._search.displacements.append(Displacement(c, (), self._in_turn(allowed)))
        return True

    def _in_turn(self, allowed: list[tuple[LiveRun, Reason]]) -> tuple[tuple[LiveRun, Reason], ...]:
        """Runs in the order in which they are opened: the most loaded side first, then the least work lost."""
        if not self._situation.claims:
            return ()
        now, cap = self._situation.now, self._situation.policy.loss_cap

        def key(entry: tuple[LiveRun, Reason]) -> tuple[int, int, str]:
            run, reason = entry
            load = reason.numbers["load"]
            return -int(load), max(run.job.held_tres.gpus or 0, 1) * run.loss(now, cap), run.job.ref

        return tuple(sorted(allowed, key=key))

    def _backing_off(self, c: Candidate) -> Reason | None:
        """Whether runs were stopped for this job already: it must start first, or it was wasted and waits longer."""
        policy = self._situation.policy
        tried = [at for ref, at in self._situation.tried if ref == c.ref and at >= c.job.key.submit]
        if tried and self._situation.now < tried[-1] + policy.back_off * len(tried):
            return Reason("backing-off", {"since": tried[-1], "until": tried[-1] + policy.back_off * len(tried)})
        mine = [r for r in self._situation.requeued if r.for_ref == c.ref and r.at >= c.job.key.submit]
        if not mine:
            return None
        rounds = len({r.at for r in mine})
        deadline = mine[-1].at + self._situation.snapshot.controller.kill_wait + policy.start_deadline
        until = deadline if rounds == 1 and self._situation.now < deadline else deadline + policy.back_off * rounds
        if self._situation.now >= until:
            return None
        code = "room-is-being-made" if self._situation.now < deadline else "backing-off"
        return Reason(code, {"since": mine[-1].at, "until": until})

    def _allowed(self, pool: str, c: Candidate, *, first: bool) -> Iterable[tuple[LiveRun, Reason]]:
        """Runs that rules 2 and 3 allow to be stopped for this job, each with its reason."""
        for run in self._situation.runs:
            if run.pool == pool and self._past_contract(c, run):
                reason = self._entitled(pool, c, run, first=first)
                if reason is not None:
                    yield run, reason

    def _past_contract(self, c: Candidate, run: LiveRun) -> bool:
        """Rule 2."""
        policy, now = self._situation.policy, self._situation.now
        if run.work_class is not WorkClass.BACKED or not run.stoppable or not run.job.can_requeue:
            return False
        if run.job.completing or run.job.het:
            return False
        if run.job.state is not JobState.RUNNING or now < run.protected_until:
            return False
        waited = now - (c.job.eligible if c.job.eligible is not None else now)
        wide = (run.job.held_tres.gpus or 0) > c.job.request.gpus and run.rate > c.price.rate
        if waited < policy.grown_wait and wide:
            return False
        return waited >= policy.early_wait or run.loss(now, policy.loss_cap) <= policy.early_loss

    def _entitled(self, pool: str, c: Candidate, run: LiveRun, *, first: bool) -> Reason | None:
        """Rule 3: where the paths of the two part, the beneficiary's side must be the more deserving one."""
        if c.budget is None or self._would_displace_back(c, run):
            return None
        waited = self._situation.now - (c.job.eligible or self._situation.now)
        wide = c.job.request.nodes_min > 1 and first and waited >= self._situation.policy.wide_wait
        mine, theirs = self._sides(pool, c, run)
        numbers: dict[str, int | str] = {
            "for": c.ref,
            "for_budget": c.budget,
            "budget": run.budget or "-",
            "contract": run.minimum,
            "since": run.protected_until,
            "for_load": mine.percent,
            "load": theirs.percent,
        }
        # The paths of one user's own jobs do not part.
        same = (run.budget, run.job.user) == (c.budget, c.job.user)
        if mine.after > mine.line or (same and not wide):
            return None
        if wide:
            return Reason("displaced-for-wide", numbers)
        if theirs.before > theirs.allowance:
            return Reason("displaced-for", {**numbers, "over": 1})
        if not mine.allowance or not theirs.allowance:
            return None
        margin = self._situation.policy.margin
        more = (theirs.before - margin * theirs.allowance) * mine.allowance > mine.before * theirs.allowance
        still = mine.after * theirs.allowance <= theirs.before * mine.allowance
        return Reason("displaced-for", numbers) if more and still else None

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
        used = book.charged_now + book.outstanding - waiting
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
