"""Who may take whose place (design 4.6), by the requeue engine: our own placement is the judge of rule 4.

Beneficiaries are taken in our order of backed work, which is Slurm's own. Work that idle or spare GPUs can hold is
left to Slurm. The first job of a pool that can be neither judged nor served ends the search there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI, JobState, WorkClass
from pyslurm_budget.domain.place import Rooms, candidates, fit, free, rooms_of, take
from pyslurm_budget.domain.plan import Reason
from pyslurm_budget.domain.victims import choose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.books import Book, Books
    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.situation import LiveRun, Situation

WAITS_FOR_ROOM = ("Resources", "Priority", "None", "BeginTime")
HUNDRED = 100


@dataclass(frozen=True, slots=True)
class Displacement:
    """One beneficiary and the runs that give way to it, with the sentence's numbers for each."""

    candidate: Candidate
    victims: tuple[tuple[LiveRun, Reason], ...]


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
        self._search = Search()

    def search(self, backed: dict[str, list[Candidate]]) -> Search:
        """Look at the backed candidates of every pool, best first."""
        for pool, order in backed.items():
            self._pool(pool, [c for c in order if c.job.reservation is None])
        return self._search

    def _pool(self, pool: str, order: list[Candidate]) -> None:
        spare = rooms_of(self._situation.pools.members.get(pool, ()))
        for run in self._situation.runs:
            if run.work_class is WorkClass.SPARE and run.job.state is JobState.RUNNING:
                free(spare, run.job.allocation)
        for rank, candidate in enumerate(order):
            if candidate.job.reason and not candidate.job.reason.startswith(WAITS_FOR_ROOM):
                self._search.notes[candidate.ref] = Reason("waits-for-slurm", {"reason": candidate.job.reason})
                continue
            if not self._serve(pool, candidate, spare, first=rank == 0):
                return

    def _serve(self, pool: str, c: Candidate, spare: Rooms, *, first: bool) -> bool:
        """Serve one job; false ends the search of the pool."""
        if c.job.request.special is not None:
            self._search.notes[c.ref] = Reason("cannot-judge", {"what": c.job.request.special})
            return False
        partitions = self._situation.pools.partition_nodes
        if (shares := fit(c.job.request, candidates(c.job, spare, partitions))) is not None:
            take(spare, shares)
            return True
        if not c.job.reason:
            return False  # Slurm has not looked at it yet, so nobody knows what it waits for
        wait = self._backing_off(c)
        if wait is not None:
            self._search.notes[c.ref] = wait
            return False
        allowed = [r for r in self._allowed(pool, c, first=first) if r[0].job.ref not in self._taken]
        over = frozenset(run.job.ref for run, reason in allowed if reason.numbers.get("over"))
        chosen = choose(
            c.job,
            spare,
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
            free(spare, run.job.allocation)
            self._taken.add(run.job.ref)
        shares = fit(c.job.request, candidates(c.job, spare, partitions))
        if shares is not None:
            take(spare, shares)
        self._search.displacements.append(Displacement(c, tuple((run, reasons[run.job.ref]) for run in chosen)))
        return True

    def _backing_off(self, c: Candidate) -> Reason | None:
        """Whether runs were stopped for this job already: it must start first, or it was wasted and waits longer."""
        mine = [r for r in self._situation.requeued if r.for_ref == c.ref and r.at >= c.job.key.submit]
        if not mine:
            return None
        policy = self._situation.policy
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
        if run.work_class is not WorkClass.BACKED or not run.stoppable or run.job.completing or run.job.het:
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
        if mine.after > mine.line:
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
        if run.budget is None or run.budget == budget:
            book = self._books.books[budget, pool]
            users = max(1, len(set(book.user_use) | {c.job.user, run.job.user}))
            part, line = book.allowance // users, book.line // users
            use = book.user_use.get
            return (
                _side(part, line, use(c.job.user, 0), price),
                _side(part, line, use(run.job.user, 0), price if run.job.user == c.job.user else 0),
            )
        ours, others = self._books.path(budget), self._books.path(run.budget)
        mine = self._branch(ours, others, pool)
        other = self._branch(others, ours, pool)
        return (
            _side(mine.allowance, mine.line, mine.charged_now + mine.outstanding, price),
            _side(other.allowance, other.line, other.charged_now + other.outstanding, 0),
        )

    def _branch(self, path: tuple[str, ...], other: tuple[str, ...], pool: str) -> Book:
        """The book of the side of ``path`` just below the place where both part."""
        own = [name for name in path if name not in other]
        return self._books.books[own[-1], pool] if own else self._books.direct(path[0], pool)

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


def _side(allowance: int, line: int, with_contract: int, price: int) -> _Side:
    """The books count the beneficiary's contract as outstanding already: without it is what was before."""
    return _Side(allowance, line, with_contract - price, with_contract)
