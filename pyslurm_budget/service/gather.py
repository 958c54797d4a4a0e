"""Gathering a situation: the snapshot, and what the ledger knows, put together for the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import marks
from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.capacity import HourSample, PoolCapacity, fixed_capacity, hours_of, pool_capacity
from pyslurm_budget.domain.demand import demands
from pyslurm_budget.domain.evaluate import open_books
from pyslurm_budget.domain.model import LIVE, JobState, Mode, WorkClass
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.domain.situation import Requeued, Situation
from pyslurm_budget.service.booking import book, borrowed, net_history
from pyslurm_budget.service.checkpoints import NoCheckpoints
from pyslurm_budget.service.counts import CapacitySlice, DemandSlice
from pyslurm_budget.service.credits import credits_of
from pyslurm_budget.service.facts import FactMaker, freeze, in_force, live_runs, mode_of, outcome, uses_of
from pyslurm_budget.service.past import NodePast
from pyslurm_budget.service.ports import ContractFacts
from pyslurm_budget.service.sync import DAY, INSTALLED, Sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyslurm_budget.domain.books import Books, History, Use
    from pyslurm_budget.domain.grant import Grant
    from pyslurm_budget.domain.model import Job, RunKey, Snapshot
    from pyslurm_budget.domain.plan import Action, Admission
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.checkpoints import Checkpoints
    from pyslurm_budget.service.counts import Entry, SiteHistory
    from pyslurm_budget.service.ports import Accounting, Intent, Ledger, RunFacts

ENFORCED_SINCE = "enforced-since"
RESUMED = "resumed"
REQUEUES = tuple(str(kind) for kind in ActionKind if kind.is_requeue)
GIVEN_UP = "window-given-up"
STOPPED = ("sent", "done", "lost")


class Gatherer:
    """Reads the ledger once for one cycle, and writes what a snapshot adds to it: runs, contracts, capacity."""

    def __init__(
        self,
        accounting: Accounting,
        ledger: Ledger,
        policy: Policy,
        mode: Mode,
        snapshot: Snapshot,
        *,
        history: SiteHistory | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """``mode`` is the effective one of this cycle; ``history`` tells what nodes were while nobody looked."""
        self._accounting = accounting
        self._ledger = ledger
        self._policy = policy
        self._mode = mode
        self._snapshot = snapshot
        begin = snapshot.now - policy.window - policy.hour
        self._tree = BudgetTree({b.account: b for b in ledger.budgets()}, ledger.share_loans(begin))
        self._pools = PoolMap(policy.pools, snapshot.nodes, snapshot.partitions, policy.fractions)
        self._maker = FactMaker(policy, self._tree, snapshot, self._pools)
        self._past = NodePast(ledger, policy, snapshot, self._pools, self._tree)
        self._node_history = history
        self._checkpoints = checkpoints or NoCheckpoints()
        self._unsaved: dict[RunKey, RunFacts] = {}
        self._ended: dict[RunKey, str | None] = {}  # as of this cycle's read
        self._admissions: dict[str, Admission] = {a.ref: a for a in ledger.admissions()}
        if ledger.get(INSTALLED) is None:
            ledger.put(INSTALLED, str(snapshot.now))

    def sync(self) -> int:
        """Read accounting, and now and then what became of nodes; returns how many accounting rows changed."""
        if self._node_history is not None:
            self._past.read(self._node_history)
        self._past.note_live()
        return self._reader().run(self._books)

    def _reader(self) -> Sync:
        installed, now = int(self._ledger.get(INSTALLED) or self._snapshot.now), self._snapshot.now
        return Sync(self._accounting, self._ledger, self._maker, self._enforced, self._admissions, installed, now)

    def without_accounting(self) -> None:
        """Go on with the runs as far as they are known, while slurmdbd does not answer."""
        self._unsaved = self._reader().not_known()

    def ended(self, key: RunKey) -> str | None:
        """The state in which a run ended; ``None`` if it has not, or is not known."""
        if key not in self._ended:
            run = self._ledger.runs_of([key]).get(key)
            self._ended[key] = None if run is None or run.end is None else run.state
        return self._ended[key]

    def situation(self) -> Situation:
        """Freeze the contracts of new runs, note how those of ended ones ended, and put everything together."""
        requeues = self._ledger.intents(since=self._snapshot.now - DAY, kinds=REQUEUES)
        known = {c.key: c for c in self._ledger.contracts()}
        runs = self._runs([*known, *(intent.action.key for intent in requeues)])
        contracts = self._contracts(runs, known, requeues)
        situation = self._situation(runs, contracts, requeues)
        if book(self._ledger, situation):
            situation = self._with_grants(situation)
        return situation

    def _with_grants(self, situation: Situation) -> Situation:
        """The situation with what has just been booked."""
        history, lent = self._past_use()
        return replace(situation, history=history, grants=self._grants(), borrowed=lent)

    def _past_use(self) -> tuple[tuple[History, ...], tuple[History, ...]]:
        """What ended runs held, less what was credited and booked, and what was borrowed of it."""
        now = self._snapshot.now
        begins = marks(self._policy, now)
        booked = self._ledger.bookings(begins[0])
        return net_history(self._ledger, begins, now, booked), borrowed(booked, begins)

    def _grants(self) -> tuple[Grant, ...]:
        return self._ledger.grants(self._snapshot.now - self._policy.cap - self._policy.hour)

    def _runs(self, keys: Iterable[RunKey]) -> dict[RunKey, RunFacts]:
        """The runs that are open or live, and those of the given keys."""
        live = [job.key for job in self._snapshot.jobs if job.state in LIVE]
        known = {run.key: run for run in self._ledger.open_runs()}
        missing = {*keys, *live} - known.keys()
        return {**self._unsaved, **known, **self._ledger.runs_of(missing)}

    def _situation(
        self, runs: dict[RunKey, RunFacts], contracts: dict[RunKey, ContractFacts], requeues: Iterable[Intent]
    ) -> Situation:
        now = self._snapshot.now
        history, lent = self._past_use()
        protections = self._ledger.protections(since=now)
        live = {job.key for job in self._snapshot.jobs if job.state in LIVE}
        uses = [use for run in runs.values() if run.end is None for use in self._uses(run, contracts, live)]
        past = [self._requeued(intent, runs) for intent in requeues if intent.state in STOPPED]
        counts: dict[str, int] = {}
        for entry in past:
            counts[entry.ref] = counts.get(entry.ref, 0) + 1
        return Situation(
            snapshot=self._snapshot,
            policy=self._policy,
            mode=self._mode,
            tree=self._tree,
            uses=(*uses, *self._idle(runs.values(), contracts)),
            runs=live_runs(
                self._snapshot.jobs,
                runs,
                contracts,
                mode_of=self._mode_of,
                site=self._mode,
                requeues=counts,
                reported=self._checkpoints.reported(job for job in self._snapshot.jobs if job.state in LIVE),
                protections=protections,
                now=now,
            ),
            capacities=self._capacities(),
            admissions=self._admissions,
            history=history,
            returning=self._returning(past),
            requeued=tuple(past),
            tried=self._tried(),
            grants=self._grants(),
            given_up=self._given_up(),
            protections=protections,
            borrowed=lent,
            next_sequence=1 + max((a.sequence for a in self._admissions.values()), default=0),
        )

    def _tried(self) -> tuple[tuple[str, int], ...]:
        """The claims of the last day that came to nothing."""
        claims = self._ledger.intents(since=self._snapshot.now - DAY, kinds=[ActionKind.CLAIM])
        return tuple((i.action.ref, i.at) for i in claims if i.state in ("undone", "failed"))

    def _idle(self, runs: Iterable[RunFacts], contracts: dict[RunKey, ContractFacts]) -> tuple[Use, ...]:
        """What the idle part of reservations is charged."""
        live = (self._with_contract(run, contracts) for run in runs if run.end is None)
        return self._past.uses(live, self._enforced)

    def _with_contract(self, run: RunFacts, contracts: dict[RunKey, ContractFacts]) -> RunFacts:
        contract = contracts.get(run.key)
        return run if contract is None else replace(run, protected_until=contract.protected_until)

    def _uses(self, run: RunFacts, contracts: dict[RunKey, ContractFacts], live: set[RunKey]) -> tuple[Use, ...]:
        return uses_of(
            self._with_contract(run, contracts),
            enforcing=self._enforced(run),
            live=run.key in live,
            now=self._snapshot.now,
            run_on=self._policy.run_on_price,
        )

    def _books(self) -> Books:
        """Books of this moment from the runs that are known so far."""
        runs = self._runs(())
        contracts = {c.key: c for c in self._ledger.contracts([k for k, r in runs.items() if r.end is None])}
        return open_books(self._situation(runs, contracts, ()))

    def _contracts(
        self, runs: dict[RunKey, RunFacts], known: dict[RunKey, ContractFacts], requeues: Sequence[Intent]
    ) -> dict[RunKey, ContractFacts]:
        """Contracts of all live runs; new ones are frozen and saved, and outcomes of ended ones noted."""
        done = [intent.action for intent in requeues if intent.state in STOPPED]
        ours = {action.key for action in done}
        ended: list[ContractFacts] = []
        credited: list[Entry] = []
        for contract in known.values():
            run = runs.get(contract.key)
            result = outcome(contract, run, ours=contract.key in ours) if run is not None else None
            if run is not None and result is not None:
                ended.append(replace(contract, outcome=result))
                credited.extend(credits_of(run, contract, self._snapshot.now))
        new = [c for job in self._snapshot.jobs if (c := self._new_contract(job, runs, known, done)) is not None]
        if credited:
            self._ledger.add_entries(credited)  # first: a contract with an outcome is not looked at again
        if new or ended:
            self._ledger.save_contracts([*new, *ended])
        known.update({c.key: c for c in new})
        return {key: self._in_force(contract, runs.get(key)) for key, contract in known.items()}

    def _mode_of(self, run: RunFacts) -> Mode:
        return mode_of(run, self._mode, self._policy, self._tree)

    def _enforced(self, run: RunFacts) -> bool:
        return self._mode_of(run) is Mode.ENFORCE

    def _in_force(self, contract: ContractFacts, run: RunFacts | None) -> ContractFacts:
        enforced = self._mode is Mode.ENFORCE if run is None else self._enforced(run)
        return in_force(contract, self._policy, enforced=enforced)

    def _new_contract(
        self, job: Job, runs: dict[RunKey, RunFacts], known: dict[RunKey, ContractFacts], done: Sequence[Action]
    ) -> ContractFacts | None:
        """The contract of a run that has none; ``done`` are our requeues of the last day."""
        run = runs.get(job.key)
        if job.state not in LIVE or run is None or job.key in known:
            return None
        mode = self._mode_of(run)
        since = self._ledger.get(ENFORCED_SINCE) if mode is Mode.ENFORCE else None
        return freeze(
            self._maker,
            job,
            run,
            mode=mode,
            enforced_since=int(since) if since else None,
            own_requeue=job.restarts > 0 and self._own_requeue(job, run, {action.key for action in done}),
            resized=self._before_resize(job) if job.resized else None,
            requeues=sum(action.ref == job.ref for action in done),
        )

    def _before_resize(self, job: Job) -> ContractFacts | None:
        """The contract of the run of other size that a resized one was."""
        keys = [run.key for run in self._ledger.runs_of_job(job.ref) if run.key.submit < job.key.submit]
        last = self._ledger.contracts([max(keys)]) if keys else ()
        return last[0] if last else None

    def _own_requeue(self, job: Job, run: RunFacts, ours: set[RunKey]) -> bool:
        """Whether the run before was put back by its owner, less than one cap after that run's contract began."""
        before = [
            r for r in self._ledger.runs_of_job(job.ref) if r.key.submit < run.key.submit and r.start is not None
        ]
        if not before:
            return False
        last = max(before, key=lambda r: r.key.submit)
        recent = (run.start or 0) - (last.start or 0) < self._policy.cap
        return recent and last.state == "REQUEUED" and last.key not in ours

    def _requeued(self, intent: Intent, runs: dict[RunKey, RunFacts]) -> Requeued:
        action = intent.action
        run = runs.get(action.key)
        numbers = action.reason.numbers
        gpus = numbers.get("gpus", 0)
        for_budget = numbers.get("for_budget")
        return Requeued(
            at=intent.at,
            kind=action.kind,
            ref=action.ref,
            key=action.key,
            state=intent.state,
            budget=run.budget if run else None,
            for_ref=action.for_ref,
            for_budget=for_budget if isinstance(for_budget, str) else None,
            gpus=gpus if isinstance(gpus, int) else 0,
            nodes=action.nodes,
        )

    def _given_up(self) -> frozenset[str]:
        """Budgets whose collecting window was given up within a day."""
        kinds = (str(ActionKind.RELEASE), str(ActionKind.LEAVE))
        found = self._ledger.intents(since=self._snapshot.now - DAY, kinds=kinds)
        reasons = [i.action.reason for i in found if i.state in STOPPED]
        return frozenset(str(r.numbers["budget"]) for r in reasons if r.code == GIVEN_UP and "budget" in r.numbers)

    def _returning(self, past: Iterable[Requeued]) -> frozenset[str]:
        """Pending jobs whose last run was backed and ended by a node failure, or made way for a drain or a move."""
        drained = {entry.key for entry in past if entry.kind in (ActionKind.DRAIN, ActionKind.MOVE)}
        again = [job for job in self._snapshot.jobs if job.state is JobState.PENDING and job.restarts > 0]
        last = self._ledger.last_runs(job.key.job_id for job in again)
        found: set[str] = set()
        for job in again:
            run_before = last.get(job.key.job_id)
            if run_before is None or run_before.key.submit >= job.key.submit:
                continue
            backed = self._class(run_before) is WorkClass.BACKED
            if backed and (run_before.state == "NODE_FAIL" or run_before.key in drained):
                found.add(job.ref)
        return frozenset(found)

    def _class(self, run: RunFacts) -> WorkClass:
        return run.work_class if self._enforced(run) else run.shadow

    def _capacities(self) -> dict[str, PoolCapacity]:
        slices, sampled = self._ledger.capacity(self._snapshot.now - self._policy.window - self._policy.hour)
        outages = self._past.outages()
        samples: dict[str, list[HourSample]] = {}
        for s in slices:
            samples.setdefault(s.pool, []).append(HourSample(s.hour, s.gpu_seconds, s.covered, s.gpus))
        window = {"now": self._snapshot.now, "window": self._policy.window, "hour": self._policy.hour}
        return {
            pool: fixed_capacity(self._policy.fixed[pool], **window)
            if pool in self._policy.fixed
            else pool_capacity(
                samples.get(pool, ()),
                sampled=sampled,
                outages=outages.get(pool, ()),
                **window,
                size=self._pools.size(pool),
                in_service=self._past.in_service(pool),
            )
            for pool in self._pools.members
        }

    def sample(self, situation: Situation) -> None:
        """Add the time since the last sample to its hours, at what is in service and wanted now; long gaps stay
        unsampled."""
        now, hour = self._snapshot.now, self._policy.hour
        _, sampled = self._ledger.capacity(now)
        last = sampled[-1][1] if sampled else now
        if last > now:
            return  # slurmctld's clock went back: these seconds are counted already
        begin = now if now - last > hour else last
        wanted = demands(situation)
        capacity: list[CapacitySlice] = []
        demand: list[DemandSlice] = []
        for at, seconds in hours_of(begin, now, hour):
            for pool in self._pools.members:
                in_service = int(self._past.in_service(pool) * seconds)
                capacity.append(CapacitySlice(pool, at, in_service, seconds, int(self._pools.size(pool))))
            for (pool, budget), d in wanted.items():
                demand.append(DemandSlice(pool, budget, at, d.running * seconds, d.pending * seconds, seconds))
        self._ledger.add_samples(capacity, demand, begin, now)
