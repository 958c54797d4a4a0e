"""Which pending jobs are backed (design 4.3), and in which order all of them wait (4.5).

Promises first: jobs that come back from a drain or a node failure, then those that were admitted before, unless their
budget has used more than its line. Then those that the submit plugin let in since the last cycle, in the order of
their submission, then everybody else in the fair order. Each is entered in the books before the next is tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.order import FairOrder, Waiting
from pyslurm_budget.domain.plan import Admission, Reason

if TYPE_CHECKING:
    from pyslurm_budget.domain.books import Books, Refusal
    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.situation import Situation


@dataclass(slots=True)
class Classes:
    """The outcome: admissions by ref, and each pool's order of backed and of spare candidates, best first."""

    admissions: dict[str, Admission] = field(default_factory=dict)
    backed: dict[str, list[Candidate]] = field(default_factory=dict)
    spare: dict[str, list[Candidate]] = field(default_factory=dict)


class Admitter:
    """Decides the classes of one moment's candidates over one set of books."""

    def __init__(self, situation: Situation, books: Books) -> None:
        """The books hold the window's use and the contracts of running runs already."""
        self._situation = situation
        self._books = books
        self._sequence = situation.next_sequence
        self._admitted: dict[str, Reason] = {}
        self._refused: dict[str, Reason] = {}
        self._ahead: dict[int, int] = {}

    def decide(self, candidates: tuple[Candidate, ...]) -> Classes:
        """Classes of all candidates; the books then hold every admission."""
        wanting = [c for c in candidates if self._may_be_backed(c)]
        self._keep_promises(wanting)
        for candidate in sorted((c for c in wanting if self._let_in_at_submit(c)), key=lambda c: c.place):
            self._try(candidate)
        classes = Classes()
        pools = sorted({c.pools[0] for c in candidates})
        for pool in pools:
            classes.backed[pool] = self._backed_order(pool, wanting)
        for pool in pools:
            rest = [c for c in candidates if c.pools[0] == pool and c.ref not in self._admitted]
            classes.spare[pool] = self._spare_order(pool, rest)
        for candidate in candidates:
            classes.admissions[candidate.ref] = self._admission(candidate)
        return classes

    def _may_be_backed(self, c: Candidate) -> bool:
        if c.obstacle is not None:
            self._refused[c.ref] = c.obstacle
            return False
        if not c.eligible:
            self._refused[c.ref] = Reason("not-eligible", {"state": c.job.reason})
            return False
        return c.budget is not None

    def _keep_promises(self, wanting: list[Candidate]) -> None:
        for c in wanting:
            if c.exempt is not None:
                self._admit(c, c.exempt.reason("exempt"))
            elif c.returning:
                self._admit(c, Reason("returning"))
        kept = [c for c in wanting if c.known is not None and c.known.work_class is WorkClass.BACKED]
        for c in sorted(kept, key=lambda c: c.known.sequence if c.known else 0):
            if c.ref in self._admitted or c.budget is None or c.known is None:
                continue
            over = next((n for p in c.pools if (n := self._books.over(c.budget, p)) is not None), None)
            if over is None:
                self._admit(c, c.known.reason)
            else:
                self._refused[c.ref] = Reason("demoted-over-budget", {"budget": over, "pool": c.pools[0]})

    def _let_in_at_submit(self, c: Candidate) -> bool:
        """Whether the submit plugin put it into a backed QOS since the last cycle."""
        known_at_all = c.ref in self._situation.admissions
        spare = self._situation.policy.classes.is_spare(c.job.qos)
        enforced = self._situation.enforces(c.job.partitions, c.budget)
        return enforced and not known_at_all and not spare and c.ref not in self._admitted

    def _backed_order(self, pool: str, wanting: list[Candidate]) -> list[Candidate]:
        by_ref = {c.ref: c for c in wanting if c.pools[0] == pool}
        order: list[Candidate] = []
        waiting = [
            Waiting(c.ref, c.budget, c.job.user, pool, c.place, c.returning) for c in by_ref.values() if c.budget
        ]
        for job in FairOrder(self._books, pool, waiting):
            candidate = by_ref[job.ref]
            if candidate.ref not in self._admitted and candidate.ref not in self._refused:
                self._try(candidate)
            if candidate.ref in self._admitted:
                order.append(candidate)
                self._books.add_load(job.budget, job.user, pool, candidate.price.amount)
        return order

    def _spare_order(self, pool: str, candidates: list[Candidate]) -> list[Candidate]:
        """Spare work by all use; what has no budget, or cannot start yet, stands last."""
        by_ref = {c.ref: c for c in candidates if c.budget is not None and c.eligible}
        order: list[Candidate] = []
        waiting = [Waiting(c.ref, c.budget, c.job.user, pool, c.place) for c in by_ref.values() if c.budget]
        for job in FairOrder(self._books, pool, waiting, spare=True):
            candidate = by_ref[job.ref]
            order.append(candidate)
            self._books.add_spare_load(job.budget, job.user, pool, candidate.price.amount)
        last = [c for c in candidates if c.ref not in by_ref]
        return order + sorted(last, key=lambda c: c.place)

    def _try(self, c: Candidate) -> None:
        """Admit it if its contract fits in every pool that it may land on; an array within its limit of tasks."""
        if c.budget is None:
            return
        array = c.job.array_job_id
        if array is not None and self._ahead.get(array, 0) >= self._situation.policy.array_ahead:
            self._refused[c.ref] = Reason("array-ahead", {"ahead": self._situation.policy.array_ahead})
            return
        for pool in c.pools:
            refusal = self._books.refusal(c.budget, pool, c.price)
            if refusal is not None:
                self._refused[c.ref] = _refused(c, pool, refusal)
                return
        self._admit(c, Reason("admitted", {"price": c.price.amount, "budget": c.budget, "pool": c.pools[0]}))

    def _admit(self, c: Candidate, reason: Reason) -> None:
        if c.budget is None:
            return
        self._refused.pop(c.ref, None)
        self._admitted[c.ref] = reason
        if c.job.array_job_id is not None:
            self._ahead[c.job.array_job_id] = self._ahead.get(c.job.array_job_id, 0) + 1
        for pool in c.pools:
            self._books.commit(c.budget, pool, c.price)

    def _admission(self, c: Candidate) -> Admission:
        """The record of the decision; an admission that goes on keeps its time and its sequence."""
        backed = c.ref in self._admitted
        work_class = WorkClass.BACKED if backed else WorkClass.SPARE
        same = c.known if c.known is not None and c.known.work_class is work_class else None
        sequence = same.sequence if same else self._sequence
        if same is None:
            self._sequence += 1
        reason = self._admitted[c.ref] if backed else self._refused.get(c.ref, Reason("not-eligible", {"state": "-"}))
        was = WorkClass.SPARE if self._situation.policy.classes.is_spare(c.job.qos) else WorkClass.BACKED
        return Admission(
            ref=c.ref,
            key=c.job.key,
            budget=c.budget,
            pool=c.pools[0],
            work_class=work_class,
            rate=c.price.rate,
            contract=c.contract,
            price_length=c.price.length,
            signature=c.signature,
            since=same.since if same else self._situation.now,
            sequence=sequence,
            reason=Reason(reason.code, {**reason.numbers, "was": str(was)}),
        )


def _refused(c: Candidate, pool: str, refusal: Refusal) -> Reason:
    """The reason of a refusal, with its numbers."""
    return Reason(
        f"not-admitted-{refusal.code}",
        {
            "budget": c.budget or "-",
            "limit": refusal.limit,
            "pool": pool,
            "left": refusal.left,
            "price": refusal.needed,
        },
    )
