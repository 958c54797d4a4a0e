"""Reading accounting and the live runs into the ledger: from the watermark, with an overlap, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import Price
from pyslurm_budget.domain.candidate import contract_of
from pyslurm_budget.domain.model import Mode, WorkClass
from pyslurm_budget.service.facts import LIVE
from pyslurm_budget.service.ports import SyncState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyslurm_budget.domain.books import Books
    from pyslurm_budget.domain.model import Job, RunKey
    from pyslurm_budget.domain.plan import Admission
    from pyslurm_budget.service.facts import FactMaker
    from pyslurm_budget.service.ports import Accounting, Ledger, RunFacts

# Rows reach slurmdbd late (its agent queue), so each read begins a little before the end of the last one...
OVERLAP = 600
# ...and the whole window is read again once a day, because history in slurmdbd is not immutable.
DAY = 24 * 3600
WHOLE_READ = "whole-read"
INSTALLED = "installed"


@dataclass(frozen=True)
class Sync:
    """One read: everything that it needs to know. ``installed`` is when the ledger saw its first cycle."""

    accounting: Accounting
    ledger: Ledger
    maker: FactMaker
    mode: Mode
    admissions: Mapping[str, Admission]
    now: int

    def run(self, open_books: Callable[[Iterable[RunFacts]], Books]) -> tuple[int, dict[RunKey, RunFacts]]:
        """Read, judge the shadow class of runs that nobody saw waiting, and save; returns how many rows changed and
        every run that overlaps the window. ``open_books`` makes the books of this moment from the given runs."""
        window = self.maker.policy.window
        live = {job.key: job for job in self.maker.snapshot.jobs if job.state in LIVE and job.start is not None}
        known = {run.key: run for run in self.ledger.runs_between(self.now - window - DAY, self.now + 1)}
        begin, whole = self._since(frozenset(live))
        fresh, unseen = self._read(begin, live, known)
        if unseen:
            books = open_books({**known, **fresh}.values())
            fresh.update(self._judged(unseen, live, books))
        changed = self.ledger.save_runs(fresh.values(), SyncState(watermark=self.now, as_of=self.now, complete=True))
        if whole:
            self.ledger.put(WHOLE_READ, str(self.now))
        return changed, {run.key: run for run in self.ledger.runs_between(self.now - window, self.now + 1)}

    def without_accounting(self) -> dict[RunKey, RunFacts]:
        """Every run that overlaps the window as far as it is known, where accounting cannot be read: what the ledger
        has, and the live runs. Nothing is written, so the watermark stays where it was."""
        known = {run.key: run for run in self.ledger.runs_between(self.now - self.maker.policy.window, self.now + 1)}
        for job in self.maker.snapshot.jobs:
            if job.state in LIVE and job.key not in known:
                fact = self.maker.from_job(job, WorkClass.BACKED)
                if fact is not None:
                    known[job.key] = fact
        return known

    def _since(self, live: frozenset[RunKey]) -> tuple[int, bool]:
        """Where to read from, and whether that is the whole window. Runs that the ledger has open and slurmctld no
        longer has ended some time ago: the read begins at their start."""
        oldest = self.now - self.maker.policy.window - DAY
        state, whole_at = self.ledger.sync_state(), self.ledger.get(WHOLE_READ)
        if state is None or whole_at is None or self.now - int(whole_at) >= DAY:
            return oldest, True
        dangling = [run.start for run in self.ledger.open_runs() if run.key not in live and run.start is not None]
        return max(min([state.watermark - OVERLAP, *dangling]), oldest), False

    def _read(
        self, begin: int, live: Mapping[RunKey, Job], known: Mapping[RunKey, RunFacts]
    ) -> tuple[dict[RunKey, RunFacts], dict[RunKey, RunFacts]]:
        """Facts of accounting and of the live runs that it does not show yet: those with a class, and the unseen."""
        fresh: dict[RunKey, RunFacts] = {}
        unseen: dict[RunKey, RunFacts] = {}
        installed = int(self.ledger.get(INSTALLED) or self.now)
        for record in self.accounting.runs(begin, self.now + DAY):
            fact = self.maker.from_record(record, WorkClass.BACKED)
            if fact is not None:
                self._sort(fact, known, installed, fresh, unseen)
        for key, job in live.items():
            if key not in fresh and key not in unseen:
                fact = self.maker.from_job(job, WorkClass.BACKED)
                if fact is not None and (key not in known or known[key].end is None):
                    self._sort(fact, known, installed, fresh, unseen)
        return fresh, unseen

    def _sort(
        self,
        fact: RunFacts,
        known: Mapping[RunKey, RunFacts],
        installed: int,
        fresh: dict[RunKey, RunFacts],
        unseen: dict[RunKey, RunFacts],
    ) -> None:
        shadow = self._shadow(fact, known, installed)
        if shadow is None:
            unseen[fact.key] = fact
        else:
            fresh[fact.key] = replace(fact, shadow=shadow)

    def _shadow(self, fact: RunFacts, known: Mapping[RunKey, RunFacts], installed: int) -> WorkClass | None:
        """The class that the run would have had: as first written, else as we had decided while it waited."""
        if fact.key in known:
            return known[fact.key].shadow
        if self.mode is Mode.ENFORCE:
            return fact.work_class
        admission = self.admissions.get(fact.job_ref)
        if admission is not None and admission.key.submit == fact.key.submit:
            return admission.work_class
        return WorkClass.BACKED if (fact.start or 0) < installed else None

    def _judged(
        self, unseen: Mapping[RunKey, RunFacts], live: Mapping[RunKey, Job], books: Books
    ) -> dict[RunKey, RunFacts]:
        """Runs that started between two cycles: backed if their contract would have fitted, in the order of start."""
        judged: dict[RunKey, RunFacts] = {}
        for key, fact in sorted(unseen.items(), key=lambda item: (item[1].start or 0, item[0])):
            backed = self._would_be_backed(fact, live.get(key), books)
            judged[key] = replace(fact, shadow=WorkClass.BACKED if backed else WorkClass.SPARE)
        return judged

    def _would_be_backed(self, fact: RunFacts, job: Job | None, books: Books) -> bool:
        policy = self.maker.policy
        if fact.budget is None or fact.pool is None or (fact.budget, fact.pool) not in books.books:
            return False
        if not policy.classes.is_managed(fact.qos) or policy.classes.is_spare(fact.qos):
            return False
        contract, obstacle = (policy.default_contract, None) if job is None else contract_of(policy, job)
        if obstacle is not None:
            return False
        length = max(contract, policy.floor)
        price = Price(fact.rate, length if fact.time_limit is None else min(length, fact.time_limit))
        if books.refusal(fact.budget, fact.pool, price) is not None:
            return False
        books.run_contract(fact.budget, fact.user, fact.pool, price)
        return True
