"""From Slurm's rows and records to the ledger's facts: budget, pool, charged GPUs, class and contract of a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import Use
from pyslurm_budget.domain.candidate import contract_of, requeueable
from pyslurm_budget.domain.exempt import protection_of
from pyslurm_budget.domain.model import LIVE, Mode, WorkClass
from pyslurm_budget.domain.settle import PUT_BACK
from pyslurm_budget.domain.situation import LiveRun
from pyslurm_budget.domain.slices import SHARD, part
from pyslurm_budget.service.pieces import pieces
from pyslurm_budget.service.ports import ContractFacts, RunFacts, RunPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from fractions import Fraction

    from pyslurm_budget.domain.budget import BudgetTree
    from pyslurm_budget.domain.exempt import Protection
    from pyslurm_budget.domain.model import Job, RunKey, RunRecord, Snapshot, Tres
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.domain.pool import PoolMap

MANY = 20_000
NO_GPUS_ACCOUNTED = "GPUs were asked for, but AllocTRES has none (is gres/gpu in AccountingStorageTRES?)"
NO_FRACTION = "it held shards of GPUs, and nobody says how much one is (shard in [gpus.fractions])"


@dataclass(frozen=True, slots=True)
class Held:
    """What a run held: pool and flavor (of the first part), raw GPUs (``None``: unknown, and why), rate, parts."""

    pool: str | None
    flavor: str | None
    gpus: int | None
    rate: int
    unknown: str | None
    parts: tuple[RunPart, ...]


@dataclass(frozen=True)
class FactMaker:
    """Knows what is needed to turn a row into facts: the rules, the tree, the accounts and the nodes of today."""

    policy: Policy
    tree: BudgetTree
    snapshot: Snapshot
    pools: PoolMap
    _budgets: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _classes: dict[str, WorkClass] = field(default_factory=dict, init=False, repr=False, compare=False)
    _seen: dict[tuple[tuple[str, ...], int], tuple[Tres, Held]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def from_record(
        self, record: RunRecord, shadow: WorkClass | None = None, *, counts_as: WorkClass | None = None
    ) -> RunFacts | None:
        """Facts of an accounting row; ``None`` for one that never started or holds nothing of a pool. The
        ``shadow`` class and the one that it counts as are that of the row's QOS where they are not given; who gives
        ``counts_as`` means both."""
        if record.start is None:
            return None
        held = self._held(record.nodes, record.tres)
        if held.pool is None and held.unknown is None:
            return None
        work_class = self.class_of(record.qos)
        return RunFacts(
            key=record.key,
            job_ref=record.job_ref,
            account=record.account,
            user=record.user,
            qos=record.qos,
            budget=self._budget(record.account),
            pool=held.pool,
            state=record.state,
            start=record.begun,
            end=record.end,
            suspended=record.suspended,
            gpus=held.gpus,
            rate=held.rate,
            work_class=work_class,
            shadow=counts_as or shadow or work_class,
            unknown=held.unknown,
            time_limit=record.time_limit,
            nodes=record.nodes,
            gpu_type=held.flavor,
            partition=record.partition or None,
            charged_as=counts_as or work_class,
            parts=held.parts,
        )

    def from_job(self, job: Job, shadow: WorkClass) -> RunFacts | None:
        """Facts of a live run that accounting does not show yet."""
        nodes = tuple(share.node for share in job.allocation)
        held = self._held(nodes, job.held_tres)
        if job.start is None or held.pool is None:
            return None
        return RunFacts(
            key=job.key,
            job_ref=job.ref,
            account=job.account,
            user=job.user,
            qos=job.qos,
            budget=self._budget(job.account),
            pool=held.pool,
            state=str(job.state),
            start=max(job.start, job.key.submit),
            end=None,
            suspended=0,
            gpus=held.gpus,
            rate=held.rate,
            work_class=self.class_of(job.qos),
            shadow=shadow,
            unknown=held.unknown,
            time_limit=job.time_limit,
            nodes=nodes,
            gpu_type=held.flavor,
            partition=job.partitions[0] if job.partitions else None,
            charged_as=self.class_of(job.qos),
            parts=held.parts,
        )

    def class_of(self, qos: str) -> WorkClass:
        """Spare if its QOS is a spare one, else backed: what holds GPUs and cannot be preempted is charged."""
        found = self._classes.get(qos)
        if found is None:
            found = WorkClass.SPARE if self.policy.classes.is_spare(qos) else WorkClass.BACKED
            self._classes[qos] = found
        return found

    def _budget(self, account: str) -> str | None:
        if account not in self._budgets:
            self._budgets[account] = self.tree.budget_of(account, self.snapshot.parents)
        return self._budgets[account]

    def _held(self, nodes: tuple[str, ...], tres: Tres) -> Held:
        """What a run held; the same nodes and TRES (the same object: readers keep those that repeat) come often."""
        known = self._seen.get((nodes, id(tres)))
        if known is not None and known[0] is tres:
            return known[1]
        pool, flavor = self._pool(nodes, tres)
        unknown, rate = self._unknown(tres), self._rate(nodes, tres)
        found = Held(pool, flavor, None if unknown else tres.gpus, rate, unknown, self._parts(nodes, tres, rate))
        if len(self._seen) >= MANY:
            self._seen.clear()
        self._seen[nodes, id(tres)] = tres, found
        return found

    def _pool(self, nodes: tuple[str, ...], tres: Tres) -> tuple[str | None, str | None]:
        """Pool and flavor of a run: by the nodes that it ran on, else by the typed entry of its TRES."""
        typed = next(iter(sorted(tres.gpus_by_type)), None)
        on = next((n for name in nodes if (n := self.pools.by_name.get(name)) and n.gpus), None)
        pool = self.pools.of_nodes(nodes)
        if pool is None and (typed is not None or tres.gpus or tres.shards):
            pool = self.pools.pool_of_flavor(typed)
        return pool, typed if on is None or typed in on.types else on.gpu_type or typed

    def _unknown(self, tres: Tres) -> str | None:
        """Why nobody knows how many GPUs a run holds; ``None`` if it is known."""
        if tres.gpus is None:
            return NO_GPUS_ACCOUNTED
        shards = tres.shards and not tres.gpus and SHARD not in self.pools.fractions
        return NO_FRACTION if shards else None

    def _parts(self, nodes: tuple[str, ...], tres: Tres, rate: int) -> tuple[RunPart, ...]:
        """The parts of a run with GPUs of several types (those without one are of none); its charge is split by GPUs,
        the rest is the first's."""
        held: list[tuple[str | None, int]] = sorted((kind, n) for kind, n in tres.gpus_by_type.items() if n)
        rest = (tres.gpus or 0) - sum(count for _, count in held)
        if rest < 0 or len(held) < 2:
            return ()
        if rest:
            held.append((None, rest))
        gpus = [count * part(self.pools.fractions, kind) for kind, count in held]
        rates = [int(rate * some / sum(gpus)) for some in gpus]
        rates[0] += rate - sum(rates)
        return tuple(
            RunPart(self._pool_of(kind, nodes), kind, count, some)
            for (kind, count), some in zip(held, rates, strict=True)
        )

    def _pool_of(self, kind: str | None, nodes: tuple[str, ...]) -> str:
        by_nodes = self.pools.of_nodes(nodes) if kind is None else None
        return by_nodes or self.pools.pool_of_flavor(kind)

    def _rate(self, nodes: tuple[str, ...], tres: Tres) -> int:
        """Charged GPUs in thousandths: by the largest part of the nodes, where they are known."""
        shape, gpus = self.pools.shape_of(nodes), self.pools.held(tres, nodes)
        return shape.charge(gpus, tres.cpus, tres.memory_mb, largest=self.policy.charge_largest)


def freeze(
    maker: FactMaker,
    job: Job,
    facts: RunFacts,
    *,
    mode: Mode,
    enforced_since: int | None,
    own_requeue: bool,
    resized: ContractFacts | None = None,
    requeues: int = 0,
) -> ContractFacts:
    """The contract of a run, frozen when it is first seen: later edits of the comment change nothing.

    A run that its own owner requeued gets no new contract within a cap of its last; one that ran at the switch-on is
    backed with contract 0 and left alone (unless the site says otherwise). A run whose size was changed goes on with
    what is left of the contract that it had before (``resized``). ``requeues``: how often we requeued it in 24 h.
    """
    policy = maker.policy
    contract, obstacle = contract_of(policy, job, requeues)
    managed = policy.classes.is_managed(job.qos)
    start = facts.start or 0
    old = enforced_since is not None and min(start, job.start or start) < enforced_since
    effective = facts.shadow if enforced_since is None else facts.work_class
    source = "comment" if "min-runtime" in job.comment else "default"
    if old:
        contract, source = 0, "before-switch-on"
    elif resized is not None:
        contract, source = max(0, resized.protected_until - start), resized.source
    elif own_requeue:
        contract, source = 0, "own-requeue"
    elif not requeueable(policy, job):
        source = "time-limit"
    elif obstacle is not None or effective is WorkClass.SPARE or not managed:
        contract, source = 0, obstacle.code if obstacle else str(effective)
    stoppable = requeueable(policy, job) and managed and (not old or policy.displace_old_runs)
    return ContractFacts(
        key=facts.key,
        ref=job.ref,
        pool=facts.pool or "-",
        budget=facts.budget,
        user=facts.user,
        work_class=facts.work_class,
        shadow=facts.shadow,
        rate=facts.rate,
        start=start,
        minimum=contract,
        protected_until=start + contract,
        stoppable=stoppable,
        mode=mode,
        source=source,
    )


def mode_of(run: RunFacts, site: Mode, policy: Policy, tree: BudgetTree) -> Mode:
    """The mode that a run is under: its partition or its budget may stay behind the site's."""
    if not policy.modes:
        return site
    return policy.modes.of(site, [run.partition] if run.partition else (), tree.path_of(run.budget))


def in_force(contract: ContractFacts, policy: Policy, *, enforced: bool) -> ContractFacts:
    """The contract as it counts now. One frozen before the switch-on was a shadow: such a run has contract 0 and is
    left alone (unless the site says otherwise)."""
    if not enforced or contract.mode is Mode.ENFORCE:
        return contract
    stoppable = contract.stoppable and policy.displace_old_runs
    return replace(contract, minimum=0, protected_until=contract.start, stoppable=stoppable)


def outcome(contract: ContractFacts, run: RunFacts, *, ours: bool) -> str | None:
    """How a contract ended: ``kept``, ``ended`` (the job itself was done first) or ``broken:`` by what."""
    if run.end is None:
        return None
    if run.end >= contract.protected_until:
        return "kept"
    if not run.state.startswith(PUT_BACK):
        return "ended"
    if ours:
        return "broken:us"
    cause = {"NODE_FAIL": "node-failure", "PREEMPTED": "preempted-by-slurm"}.get(run.state, "requeued-by-others")
    return f"broken:{cause}"


def live_runs(
    jobs: Iterable[Job],
    facts: Mapping[RunKey, RunFacts],
    contracts: Mapping[RunKey, ContractFacts],
    *,
    mode_of: Callable[[RunFacts], Mode],
    site: Mode,
    requeues: Mapping[str, int],
    protections: Iterable[Protection] = (),
    now: int = 0,
    reported: Mapping[int, int] = MappingProxyType({}),
) -> tuple[LiveRun, ...]:
    """Every running or suspended job that holds something of a pool, with its contract. ``mode_of`` tells the mode
    that a run is under, ``site`` is the cluster's: a run that stays behind it is not ours to stop."""
    found: list[LiveRun] = []
    for job in jobs:
        run, contract = facts.get(job.key), contracts.get(job.key)
        if job.state not in LIVE or run is None or contract is None or run.pool is None:
            continue
        enforced = mode_of(run) is Mode.ENFORCE
        withheld = site is Mode.ENFORCE and not enforced
        exempt = protection_of(job, protections, now)
        found.append(
            LiveRun(
                job=job,
                budget=run.budget,
                pool=run.pool,
                rate=run.rate,
                work_class=run.work_class if enforced else run.shadow,
                start=run.start or 0,
                minimum=contract.minimum,
                protected_until=contract.protected_until,
                stoppable=contract.stoppable and not withheld and exempt is None,
                withheld=withheld,
                exempt_until=exempt.until if exempt else None,
                reported=reported.get(job.key.job_id),
                requeued=requeues.get(job.ref, 0),
            )
        )
    return tuple(found)


def uses_of(run: RunFacts, *, enforcing: bool, live: bool, now: int, run_on: Fraction) -> tuple[Use, ...]:
    """The use of a run that has not ended, uncut; in two parts where the site prices differently what runs on after
    the contract. A row that stays open while slurmctld has no such run counts to its time limit at most."""
    end = run.charged_to
    if end is None and not live and run.time_limit is not None and run.start is not None:
        limit = run.start + run.time_limit + run.suspended
        end = limit if limit < now else None
    found: list[Use] = []
    for piece in pieces(run, now if end is None else end, run.work_class if enforcing else run.shadow):
        group = piece.group
        backed_run_on = group.run_on and group.charged_as is WorkClass.BACKED
        rate = int(piece.rate * run_on) if backed_run_on else piece.rate
        if group.pool is not None:
            found.append(Use(group.budget, group.user, group.pool, rate, group.charged_as, piece.begin, piece.end))
    return tuple(found)
