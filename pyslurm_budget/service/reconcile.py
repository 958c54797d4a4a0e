"""One cycle: lease, snapshot, ledger, evaluate, publish, apply, record (design section 5).

A crash at any point leaves the ledger as before or after, and the next cycle gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic_ns, perf_counter_ns, sleep
from typing import TYPE_CHECKING

from pyslurm_budget.domain import guard, journal
from pyslurm_budget.domain.evaluate import Evaluation, drains, evaluate
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.plan import ActionKind, Plan, Reason
from pyslurm_budget.domain.situation import Situation
from pyslurm_budget.errors import SbudgetError, SlurmdbdError
from pyslurm_budget.service.apply import Applier
from pyslurm_budget.service.checkpoints import NoCheckpoints
from pyslurm_budget.service.claims import ClaimEngine
from pyslurm_budget.service.engines import RequeueEngine
from pyslurm_budget.service.gather import ENFORCED_SINCE, RESUMED, Gatherer
from pyslurm_budget.service.ports import CycleRecord, Intent
from pyslurm_budget.service.tabledata import published

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyslurm_budget.domain.journal import Decision
    from pyslurm_budget.domain.model import Snapshot
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.checkpoints import Checkpoints
    from pyslurm_budget.service.counts import SiteHistory
    from pyslurm_budget.service.engines import Engine, Pace
    from pyslurm_budget.service.ports import Accounting, Commands, Ledger, LiveCluster, Publisher

GENERATION = "generation"
BREAKER = "breaker"


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle did. ``closed`` are the intents that were settled in it, its own and those left from before."""

    cycle: int
    mode: Mode
    applied: bool
    plan: Plan
    closed: tuple[Intent, ...]
    stages: Mapping[str, int]
    counts: Mapping[str, int]
    generation: int | None
    notes: tuple[Reason, ...]


class HostPace:
    """This host's own steady clock."""

    def milliseconds(self) -> int:
        """See :class:`pyslurm_budget.service.engines.Pace`."""
        return monotonic_ns() // 1_000_000

    def wait(self, milliseconds: int) -> None:
        """See :class:`pyslurm_budget.service.engines.Pace`."""
        sleep(milliseconds / 1000)


@dataclass(frozen=True)
class Ports:
    """Everything outside: the cluster, the ledger, where to publish (``None``: nowhere), the host's clock, and what
    slurmdbd knows of nodes (``None``: only what is sampled counts)."""

    live: LiveCluster
    accounting: Accounting
    commands: Commands
    ledger: Ledger
    publisher: Publisher | None
    host_clock: Callable[[], int]
    kill_switch: Callable[[], bool] = lambda: False
    history: SiteHistory | None = None
    pace: Pace = field(default_factory=HostPace)
    checkpoints: Checkpoints = field(default_factory=NoCheckpoints)


@dataclass(frozen=True)
class Settings:
    """What the site says besides the policy. ``operators`` are (name, uid) pairs that the modify hook lets pass."""

    policy: Policy
    mode: Mode
    holder: str
    lease_seconds: int = 120
    operators: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class _Timer:
    """Microseconds of each stage; tells ``on_step`` the stage's name before it begins."""

    on_step: Callable[[str], None]
    stages: dict[str, int] = field(default_factory=dict)
    _name: str = ""
    _since: int = 0

    def begin(self, name: str) -> None:
        """End the stage before, and begin this one."""
        self.end()
        self.on_step(name)
        self._name, self._since = name, perf_counter_ns()

    def end(self) -> None:
        """End the present stage, if any."""
        if self._name:
            self.stages[self._name] = self.stages.get(self._name, 0) + (perf_counter_ns() - self._since) // 1000
        self._name = ""


class Reconciler:
    """Runs cycles over ports. The same code drives a real Slurm and the simulated one."""

    def __init__(self, settings: Settings, ports: Ports, on_step: Callable[[str], None] = lambda _: None) -> None:
        """``on_step`` is told the name of every step before it is made: progress, and tests that kill us there."""
        self._settings = settings
        self._ports = ports
        self._step = on_step

    def close(self) -> None:
        """Give the lease back, so that the next controller need not wait until it expires."""
        self._ports.ledger.drop_lease(self._settings.holder)

    def retire(self) -> None:
        """Before a service that applied plans ends: take back what only a next cycle would have looked after."""
        if self._settings.mode is Mode.ENFORCE:
            self._claims().withdraw(self._ports.host_clock())

    def sync(self) -> int:
        """Read accounting into the ledger and no more; returns how many rows changed."""
        ports = self._ports
        now = ports.host_clock()
        ports.ledger.take_lease(self._settings.holder, now, now + self._settings.lease_seconds)
        try:
            snapshot = ports.live.snapshot()
            return self._gatherer(snapshot, self._effective_mode(apply=False)).sync()
        finally:
            self.close()

    def cycle(self, *, apply: bool) -> CycleResult:
        """One cycle. Without ``apply`` nothing outside the ledger is changed (and the plan is only shown)."""
        ledger, clock = self._ports.ledger, self._ports.host_clock
        mode = self._effective_mode(apply=apply)
        timer = _Timer(self._step)
        timer.begin("lease")
        started = clock()
        ledger.take_lease(self._settings.holder, started, started + self._settings.lease_seconds)
        cycle = ledger.begin_cycle(started, mode, apply)
        try:
            result = self._cycle(cycle, mode, timer, apply=apply)
        except SbudgetError as error:
            timer.end()
            ledger.end_cycle(CycleRecord(cycle, started, clock(), mode, apply, timer.stages, {}, str(error)))
            raise
        ledger.end_cycle(CycleRecord(cycle, started, clock(), mode, apply, result.stages, result.counts))
        return result

    def _effective_mode(self, *, apply: bool) -> Mode:
        """The mode in which the cycle decides. A dry run on a site that is switched on decides as the real cycle does
        (jobs are in the classes that their QOS say) and carries nothing out; on any other site it observes."""
        switched_on = self._ports.ledger.get(ENFORCED_SINCE) is not None
        if apply or (self._settings.mode is Mode.ENFORCE and switched_on):
            return self._settings.mode
        return Mode.OBSERVE

    def _cycle(self, cycle: int, mode: Mode, timer: _Timer, *, apply: bool) -> CycleResult:
        ports = self._ports
        timer.begin("read")
        snapshot = ports.live.snapshot()
        claims = self._claims()
        if apply and mode is Mode.ENFORCE:
            timer.begin("sweep")
            snapshot = self._swept(claims, snapshot)
        timer.begin("accounting")
        gatherer = self._gatherer(snapshot, mode)
        if mode is Mode.ENFORCE and ports.ledger.get(ENFORCED_SINCE) is None:
            ports.ledger.put(ENFORCED_SINCE, str(snapshot.now))
        try:
            changed = gatherer.sync()
        except SlurmdbdError:
            if apply and mode is Mode.ENFORCE:
                timer.begin("drain")
                self._drain_only(cycle, gatherer, snapshot)
            raise
        ports.ledger.save_class_map(self._settings.policy.classes.twins, snapshot.now)
        timer.begin("settle")
        applier = Applier(ports.live, ports.commands, ports.ledger, self._settings.policy, self._step)
        closed = applier.settle_open(snapshot.jobs, gatherer.ended, snapshot.now) if apply else ()
        timer.begin("budgets")
        situation = gatherer.situation()
        timer.begin("plan")
        evaluation = evaluate(situation, halted=self._halted(situation, mode, apply=apply))
        plan = evaluation.plan
        timer.begin("record")
        if apply or mode is Mode.OBSERVE:
            ports.ledger.add_decisions(_decisions(ports.ledger, situation, plan), snapshot.now)
            ports.ledger.save_admissions(plan.admissions)
        gatherer.sample(situation)
        generation = self._publish(timer, situation, evaluation, cycle, apply=apply)
        if apply and mode is Mode.ENFORCE:
            timer.begin("apply")
            others = [action for action in plan.actions if action.kind is not ActionKind.DISPLACE]
            closed += applier.apply(cycle, others, gatherer.ended, snapshot.now)
            engine: Engine = claims if situation.claims else RequeueEngine(applier, gatherer.ended)
            closed += engine.displace(cycle, plan.takings, snapshot.now)
        else:
            ports.ledger.record_plan(cycle, plan)
        timer.end()
        counts = {"jobs": len(snapshot.jobs), "nodes": len(snapshot.nodes), "rows": changed}
        counts |= {"budgets": len(plan.budgets), "actions": len(plan.actions)}
        return CycleResult(cycle, mode, apply, plan, closed, timer.stages, counts, generation, plan.notes)

    def _claims(self) -> ClaimEngine:
        ports = self._ports
        return ClaimEngine(
            ports.live,
            ports.commands,
            ports.ledger,
            self._settings.policy,
            self._step,
            pace=ports.pace,
            stopped=ports.kill_switch,
        )

    def _swept(self, claims: ClaimEngine, snapshot: Snapshot) -> Snapshot:
        """The snapshot once everything is back that a dead controller left: also while the kill switch is set, as
        this only takes back what was begun."""
        if self._settings.policy.classes.claim not in snapshot.qos:
            return snapshot
        changed = claims.sweep(snapshot.jobs, snapshot.now)
        return self._ports.live.snapshot() if changed else snapshot

    def _drain_only(self, cycle: int, gatherer: Gatherer, snapshot: Snapshot) -> None:
        """While slurmdbd does not answer nobody is demoted or displaced and the last table stays; but nodes are
        emptied: that needs only the live runs, and contracts that are known (a run without one is left alone)."""
        ports = self._ports
        gatherer.without_accounting()
        applier = Applier(ports.live, ports.commands, ports.ledger, self._settings.policy, self._step)
        situation = gatherer.situation()
        if self._halted(situation, Mode.ENFORCE, apply=True) is None:
            applier.apply(cycle, drains(situation), None, snapshot.now)

    def _gatherer(self, snapshot: Snapshot, mode: Mode) -> Gatherer:
        ports = self._ports
        return Gatherer(
            ports.accounting,
            ports.ledger,
            self._settings.policy,
            mode,
            snapshot,
            history=ports.history,
            checkpoints=ports.checkpoints,
        )

    def _halted(self, situation: Situation, mode: Mode, *, apply: bool) -> Reason | None:
        """Why nothing may be done in this cycle, if so: classes are still computed, recorded and published."""
        ledger = self._ports.ledger
        skew = self._ports.host_clock() - situation.now
        if abs(skew) > self._settings.policy.clock_skew:
            return Reason("clock-skew", {"seconds": skew})
        if self._ports.kill_switch():
            return Reason("kill-switch")
        tripped = ledger.get(BREAKER)
        if tripped is None and apply and mode is Mode.ENFORCE:
            reason = guard.breaker(situation, int(ledger.get(RESUMED) or 0))
            if reason is not None:
                tripped = reason.code
                ledger.put(BREAKER, reason.code)
        return Reason("breaker", {"why": tripped}) if tripped else None

    def _publish(
        self, timer: _Timer, situation: Situation, evaluation: Evaluation, cycle: int, *, apply: bool
    ) -> int | None:
        """Publish the table and the state; a dry run on a site that is in advise or enforce publishes nothing."""
        preview = not apply and self._settings.mode is not Mode.OBSERVE
        if self._ports.publisher is None or preview:
            return None
        timer.begin("publish")
        generation = int(self._ports.ledger.get(GENERATION) or 0) + 1
        self._ports.ledger.put(GENERATION, str(generation))
        table, state = published(situation, evaluation, cycle, generation, self._settings.operators)
        self._ports.publisher.publish(table, state)
        return generation


def _decisions(ledger: Ledger, situation: Situation, plan: Plan) -> list[Decision]:
    """What was decided in this cycle and not in the last one."""
    submits = {a.ref: a.key.submit for a in plan.admissions}
    about = [note for note in plan.notes if note.numbers.get("job") in submits]
    last = ledger.last_decisions(journal.ROOM, (str(note.numbers["job"]) for note in about))
    classes = journal.new_classes(situation.admissions.values(), plan.admissions, plan.now)
    return [*classes, *journal.new_rooms(last, about, submits, plan.now)]
