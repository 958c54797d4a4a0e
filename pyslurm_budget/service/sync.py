"""Reading accounting and the live runs into the ledger: from the watermark, with an overlap, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import Price
from pyslurm_budget.domain.candidate import contract_of
from pyslurm_budget.domain.model import LIVE, JobState, WorkClass
from pyslurm_budget.errors import SlurmdbdError
from pyslurm_budget.service.ports import ChangedAccounting, SyncState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyslurm_budget.domain.books import Books
    from pyslurm_budget.domain.model import Job, RunKey, RunRecord
    from pyslurm_budget.domain.plan import Admission
    from pyslurm_budget.service.facts import FactMaker
    from pyslurm_budget.service.ports import Accounting, Ledger, RunFacts

# Rows reach slurmdbd late (its agent queue), so each read begins a little before the end of the last one...
OVERLAP = 600
BATCH = 5000
# ...and the whole window is read again once a day, because history in slurmdbd is not immutable.
DAY = 24 * 3600
WHOLE_READ = "whole-read"
# Where accounting knows when a row was written, it is asked for that once an hour: it must look at each row.
WRITTEN_READ = "written-read"
HOUR = 3600
INSTALLED = "installed"


@dataclass(frozen=True)
class Sync:
    """One read: everything that it needs to know. ``installed`` is when the ledger saw its first cycle."""

    accounting: Accounting
    ledger: Ledger
    maker: FactMaker
    enforced: Callable[[RunFacts], bool]
    admissions: Mapping[str, Admission]
    installed: int
    now: int

    @cached_property
    def _resized(self) -> frozenset[RunKey]:
        """Live runs whose size was changed: the class is that of the run before."""
        return frozenset(job.key for job in self.maker.snapshot.jobs if job.resized and job.state in LIVE)

    def run(self, open_books: Callable[[], Books]) -> int:
        """Read, judge the shadow class of runs that nobody saw waiting, and save; returns how many rows changed.

        Rows are saved in batches, and the watermark moves with the last: a read that is cut short is done again, and
        what it had saved is right already. ``open_books`` makes the books of this moment from the ledger.
        """
        live = {job.key: job for job in self.maker.snapshot.jobs if job.state in LIVE and job.start is not None}
        rows, begin, read_now = self._rows(frozenset(live))
        unseen: dict[RunKey, RunFacts] = {}
        read: set[RunKey] = set()
        changed = seen = 0
        while batch := list(islice(rows, BATCH)):
            seen += len(batch)
            believed = (_still_open(record) if record.key in live else record for record in batch)
            facts = [f for record in believed if (f := self._fact(record)) is not None]
            read.update(fact.key for fact in facts if fact.key in live)
            changed += self._save(facts, unseen)
        if not seen:
            self._refuse_nothing(begin)
        missing = self._not_accounted(live, read)
        if missing:
            changed += self._save(missing, unseen)
        last = self._judged(unseen, live, open_books()).values() if unseen else ()
        changed += self.ledger.save_runs(last, SyncState(watermark=self.now, as_of=self.now, complete=True))
        self._note_absent()
        for name in read_now:
            self.ledger.put(name, str(self.now))
        return changed

    def _refuse_nothing(self, begin: int) -> None:
        """An answer without a single run, although some that are known were alive then, is a failure that does not
        say so: slurmdbd 22.05 was seen to fail in its database while sacct printed its header and ended with 0."""
        state = self.ledger.sync_state()
        known = self.ledger.runs_between(begin, state.watermark) if state is not None and state.complete else ()
        if known:
            raise SlurmdbdError(
                f"accounting shows no run at all since {begin} (seconds since the epoch), but the ledger knows "
                f"{len(known):,} that were alive then; look into slurmdbd's log"
            )

    def not_known(self) -> dict[RunKey, RunFacts]:
        """Live runs that the ledger does not have, where accounting cannot be read. Nothing is written, so the
        watermark stays where it was."""
        live = [job for job in self.maker.snapshot.jobs if job.state in LIVE]
        known = self.ledger.runs_of(job.key for job in live)
        facts = [self.maker.from_job(job, WorkClass.BACKED) for job in live if job.key not in known]
        return {fact.key: fact for fact in facts if fact is not None}

    def _note_absent(self) -> None:
        """Note the runs that accounting has open although slurmctld has no such job, or has it as ended."""
        there = {job.key for job in self.maker.snapshot.jobs if job.state is not JobState.OTHER or job.completing}
        open_runs = self.ledger.open_runs()
        absent = [run.key for run in open_runs if run.key not in there]
        if absent or any(run.absent_since is not None for run in open_runs):
            self.ledger.mark_absent(absent, self.now)

    def _not_accounted(self, live: Mapping[RunKey, Job], read: Collection[RunKey]) -> list[RunFacts]:
        """Live runs that accounting does not show yet."""
        missing = [job for key, job in live.items() if key not in read]
        known = self.ledger.runs_of(job.key for job in missing)
        open_still = [job for job in missing if job.key not in known or known[job.key].end is None]
        facts = [self.maker.from_job(job, self.maker.class_of(job.qos)) for job in open_still]
        return [fact for fact in facts if fact is not None]

    def _rows(self, live: frozenset[RunKey]) -> tuple[Iterator[RunRecord], int, tuple[str, ...]]:
        """The rows to read, from when on they are, and what is to be noted as read now. Runs that the ledger has open
        and slurmctld no longer has ended some time ago: they are asked for, or the read begins there."""
        oldest = self.now - self.maker.policy.window - DAY
        state = self.ledger.sync_state()
        if state is None or self._is_due(WHOLE_READ, DAY):
            # The one that this depends on is noted last: a sync that is killed between the two reads it all again.
            return self.accounting.runs(oldest, self.now + DAY), oldest, (WRITTEN_READ, WHOLE_READ)
        begin, open_runs = max(state.watermark - OVERLAP, oldest), self.ledger.open_runs()
        if isinstance(self.accounting, ChangedAccounting):
            jobs = {run.key.job_id for run in open_runs}
            if not self._is_due(WRITTEN_READ, HOUR):
                return self.accounting.changed(begin, jobs, None, oldest), begin, ()
            written = int(self.ledger.get(WRITTEN_READ) or oldest) - OVERLAP
            return self.accounting.changed(begin, jobs, written, oldest), begin, (WRITTEN_READ,)
        dangling = [run.start for run in open_runs if run.key not in live and run.start is not None]
        begin = max(min([begin, *dangling]), oldest)
        return self.accounting.runs(begin, self.now + DAY), begin, ()

    def _is_due(self, name: str, every: int) -> bool:
        last = self.ledger.get(name)
        return last is None or self.now - int(last) >= every

    def _fact(self, record: RunRecord) -> RunFacts | None:
        """The facts of a row, with the class that counts for nearly all of a long history: it costs less to make them
        with it than to put it in afterwards."""
        old = record.start is not None and record.start < self.installed
        return self.maker.from_record(record, counts_as=WorkClass.BACKED if old else None)

    def _save(self, facts: list[RunFacts], unseen: dict[RunKey, RunFacts]) -> int:
        resized = {f.key: found for f in facts if f.key in self._resized and (found := self._before_resize(f))}
        return self.ledger.save_runs(facts, news=partial(self._with_class, unseen, resized))

    def _before_resize(self, fact: RunFacts) -> WorkClass | None:
        """The class that the run would have had before it was resized, if that is known."""
        before = [run for run in self.ledger.runs_of_job(fact.job_ref) if run.key < fact.key]
        return max(before, key=lambda run: run.key).shadow if before else None

    def _with_class(
        self,
        unseen: dict[RunKey, RunFacts],
        resized: Mapping[RunKey, WorkClass],
        before: RunFacts | None,
        fact: RunFacts,
    ) -> RunFacts | None:
        """The run with the class that counts, as the ledger saves it; one whose shadow class is not known yet goes to
        the unseen."""
        if self.enforced(fact):
            counts_as: WorkClass | None = fact.work_class
        else:
            counts_as = self._shadow(fact, before, resized)
        if counts_as is None:
            unseen[fact.key] = fact
            return None
        if fact.shadow is counts_as and fact.charged_as is counts_as:
            return fact
        return replace(fact, shadow=counts_as, charged_as=counts_as)

    def _shadow(
        self, fact: RunFacts, before: RunFacts | None, resized: Mapping[RunKey, WorkClass]
    ) -> WorkClass | None:
        """The class that the run would have had: as first written, else as before a resize, else as we had decided
        while it waited."""
        if before is not None:
            return before.shadow
        if fact.key in resized:
            return resized[fact.key]
        admission = self.admissions.get(fact.job_ref)
        if admission is not None and admission.key.submit == fact.key.submit:
            return admission.work_class
        return WorkClass.BACKED if (fact.start or 0) < self.installed else None

    def _judged(
        self, unseen: Mapping[RunKey, RunFacts], live: Mapping[RunKey, Job], books: Books
    ) -> dict[RunKey, RunFacts]:
        """Runs that started between two cycles: backed if their contract would have fitted, in the order of start."""
        judged: dict[RunKey, RunFacts] = {}
        for key, fact in sorted(unseen.items(), key=lambda item: (item[1].start or 0, item[0])):
            backed = self._would_be_backed(fact, live.get(key), books)
            shadow = WorkClass.BACKED if backed else WorkClass.SPARE
            judged[key] = replace(fact, shadow=shadow, charged_as=shadow)
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


def _still_open(record: RunRecord) -> RunRecord:
    """The row of a run that slurmctld has running. Of two resizes in one second slurmdbd makes one row, which has
    ended in that second, and keeps it so until the job is over."""
    ended_at_once = record.end is not None and record.end <= record.key.submit
    return replace(record, end=None) if ended_at_once else record
