"""The claim engine: rounds of :mod:`pyslurm_budget.domain.claim` over the ports, with written intents.

A round's claim and the runs that it may open are intents of the ledger before anything is sent. The claim's intent is
``intent`` while runs may be open, and ``sent`` once all of them are closed and the job is only waited for. If we die
anywhere, the sweep of the next cycle knows from that, and from the jobs themselves, what to bring back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.claim import Outcome, Phase, Round, Target, advance, steps_of, taken
from pyslurm_budget.domain.model import by_ref
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.sweep import Left, still_exposed, sweep
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.service.ports import NEVER_OPENED, JobUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyslurm_budget.domain.claim import Change
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Action, Taking
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.engines import Pace
    from pyslurm_budget.service.ports import Commands, Intent, Ledger, LiveCluster

LOOK = 500
"""Milliseconds between two looks."""
PATIENCE = 5_000
"""Milliseconds that a cycle waits for a job whose room is being made; the next one goes on."""
AT_MOST = 20_000
"""Milliseconds after which a cycle begins no further round."""
SECOND = 1_000
BEING_MADE = "its room is being made"
ENDS = {
    Outcome.RUNS: ("done", "runs in their place"),
    Outcome.NO_PLACE: ("undone", "Slurm found no place for it with these runs open"),
    Outcome.WASTED: ("failed", "it did not start in time in the room that was made"),
    Outcome.MOVED_ON: ("skipped", "the job had moved on"),
    Outcome.REFUSED: ("failed", "Slurm did not let it claim"),
}


class ClaimEngine:
    """Serves jobs by Slurm's own preemption. ``on_step`` is told each step before it is made."""

    def __init__(
        self,
        live: LiveCluster,
        commands: Commands,
        ledger: Ledger,
        policy: Policy,
        on_step: Callable[[str], None],
        *,
        pace: Pace,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """All ports of the same cluster; ``stopped``: the kill switch, looked at before each round."""
        self._live = live
        self._commands = commands
        self._ledger = ledger
        self._policy = policy
        self._pace = pace
        self._step = on_step
        self._stopped = stopped
        self._waits = False

    # --- the sweep

    def withdraw(self, now: int) -> None:
        """Take back every claim, that of a job whose room is being made too: nobody will look after it."""
        jobs = self._live.jobs()
        late = [i.action.until or now for i in self._ledger.open_intents() if i.action.kind is ActionKind.CLAIM]
        if late or any(job.qos == self._policy.classes.claim for job in jobs):
            self.sweep(jobs, max([now, *late]))

    def sweep(self, jobs: Sequence[Job], now: int) -> bool:
        """See the port. Raises what concerns all of Slurm; what it refuses for one job is left to the next cycle."""
        open_intents = self._ledger.open_intents()
        claims = {(i.cycle, i.action.ref): i for i in open_intents if i.action.kind is ActionKind.CLAIM}
        left = {(self._left(i, open_intents)): i for i in claims.values()}
        found = by_ref(jobs)
        claiming = [j.ref for j in found.values() if j.qos == self._policy.classes.claim]
        swept = sweep(found, left, self._homes(claiming), self._policy.classes, now)
        self._waits = bool(swept.kept)
        self._step(f"sweep {len(swept.changes)}")
        self._send(swept.changes)
        for one, outcome in swept.ended:
            self._step("close")
            self._ledger.move_intent(left[one].id, *ENDS[outcome], now)
        for one in swept.kept:
            if not one.waits:  # we died between the first that was taken and the end of closing, which is done now
                self._ledger.move_intent(left[one].id, "sent", BEING_MADE, now)
        if not swept.changes:
            return False
        again = still_exposed(self._live.jobs(), self._policy.classes)
        if again:
            self._step(f"mend {len(again)}")
            self._send(again)
        return True

    def _left(self, claim: Intent, intents: Iterable[Intent]) -> Left:
        """A claim with the runs that were written down with it."""
        action = claim.action
        runs = [
            i.action
            for i in intents
            if i.cycle == claim.cycle and i.action.kind is ActionKind.DISPLACE and i.action.for_ref == action.ref
        ]
        return Left(
            _target(action), action.expect_qos, tuple(map(_target, runs)), action.until or 0, claim.state == "sent"
        )

    def _homes(self, refs: Iterable[str]) -> dict[str, str]:
        """The QOS that each of these jobs had before its last claim."""
        homes = {}
        for ref in refs:
            for intent in self._ledger.intents(ref=ref, kinds=[ActionKind.CLAIM]):
                homes[ref] = intent.action.expect_qos
        return homes

    # --- rounds

    def displace(self, cycle: int, takings: Sequence[Taking], now: int) -> tuple[Intent, ...]:
        """See the port. While a job waits for the room that is being made for it, nobody else is served: it would
        take what is opened for others."""
        began = self._pace.milliseconds()
        for taking in takings:
            spent = self._pace.milliseconds() - began
            if self._waits or spent >= AT_MOST or self._stopped():
                break
            self._serve(cycle, taking, now + spent // SECOND)
        return ()

    def _serve(self, cycle: int, taking: Taking, now: int) -> None:
        runs = [*taking.first, *taking.others]
        began = self._pace.milliseconds()
        self._step("write-claim")
        intents = self._ledger.write_intents(cycle, now, [taking.job, *runs])
        claim, written = intents[0], {_target(i.action): i for i in intents[1:]}
        until = ((taking.job.until or now) - now) * SECOND + began
        steps = steps_of(list(map(_sized, taking.first)), list(map(_sized, taking.others)), _gpus(taking.job))
        job = taking.job
        r = Round(_target(job), job.expect_qos, job.time_limit, steps, until)
        r, jobs = self._play(r, claim, now, began)
        after = now + (self._pace.milliseconds() - began) // SECOND
        moves = [(i.id, *_fate(target, r, jobs)) for target, i in written.items()]
        if r.outcome is not None:
            moves.append((claim.id, *ENDS[r.outcome]))
        self._step("close-round")
        self._ledger.move_intents(moves, after)
        self._waits = r.outcome is None

    def _play(self, r: Round, claim: Intent, now: int, began: int) -> tuple[Round, Mapping[str, Job]]:
        """Play the round, to its end or until it only waits for longer than a cycle should."""
        waiting_since: int | None = None
        while True:
            self._step(f"look {r.phase}")
            jobs = by_ref(self._live.jobs())
            at = self._pace.milliseconds()
            step = self._policy.claim_step * SECOND
            r, changes = advance(r, jobs, at, step=step, claim=self._policy.classes.claim)
            self._send(changes)
            if r.over:
                return r, jobs
            if r.phase is Phase.WAIT and waiting_since is None:
                waiting_since = at
                self._step("closed")
                self._ledger.move_intent(claim.id, "sent", BEING_MADE, now + (at - began) // SECOND)
            if waiting_since is not None and at - waiting_since >= PATIENCE:
                return r, jobs
            if not changes or r.phase in (Phase.OPEN, Phase.WAIT):
                self._pace.wait(LOOK)

    def _send(self, changes: Sequence[Change]) -> None:
        """Send the changes in one go. A refusal is one job's; whether it has it anyway, the next look tells."""
        if not changes:
            return
        self._step(f"send {len(changes)}")
        self._commands.update_many([_job_update(change) for change in changes])
        for change in changes:
            if change.release:
                try:
                    self._commands.let_go(change.ref)
                except SlurmRefusedError:
                    continue  # it has ended meanwhile
        self._step(f"sent {len(changes)}")


def _job_update(change: Change) -> JobUpdate:
    nice = 0 if change.nice else None
    return JobUpdate.of_job(change.ref, change.qos, change.site_factor, change.time_limit, nice=nice)


def _target(action: Action) -> Target:
    return Target(action.ref, action.key.submit)


def _gpus(action: Action) -> int:
    gpus = action.reason.numbers.get("gpus", 0)
    return gpus if isinstance(gpus, int) else 0


def _sized(action: Action) -> tuple[Target, int]:
    return _target(action), _gpus(action)


def _fate(target: Target, r: Round, jobs: Mapping[str, Job]) -> tuple[str, str]:
    """What became of a run of the round."""
    if target not in r.opened:
        return "skipped", NEVER_OPENED
    if taken(target, jobs):
        return "sent", "taken by Slurm's preemption"
    return "undone", "opened, and not taken"
