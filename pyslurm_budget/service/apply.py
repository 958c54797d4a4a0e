"""Carrying out a plan: intents first, then each action only if the job still is as expected, then reading back.

If the controller dies between any two lines of this module, the ledger shows what was begun, Slurm goes on with the
QOS that jobs have, and the next cycle settles the intent. Nothing here holds a job or waits for one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import by_ref
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.settle import settle
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.service.places import carry_out
from pyslurm_budget.service.ports import JobUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyslurm_budget.domain.model import Job, RunKey
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.ports import Commands, Intent, Ledger, LiveCluster


class Applier:
    """Applies one cycle's actions and settles open intents. ``on_step`` is told each step before it is made."""

    def __init__(
        self, live: LiveCluster, commands: Commands, ledger: Ledger, policy: Policy, on_step: Callable[[str], None]
    ) -> None:
        """All ports of the same cluster."""
        self._live = live
        self._commands = commands
        self._ledger = ledger
        self._policy = policy
        self._step = on_step

    def settle_open(self, jobs: Iterable[Job], ended: Callable[[RunKey], str | None], now: int) -> tuple[Intent, ...]:
        """Finish or undo what earlier cycles began; returns the intents that were closed."""
        return self._settle(self._ledger.open_intents(), by_ref(jobs), ended, now)

    def apply(
        self, cycle: int, actions: Sequence[Action], ended: Callable[[RunKey], str | None] | None, now: int
    ) -> tuple[Intent, ...]:
        """Carry out the actions; returns the intents that are closed by now (a requeue usually is not).

        ``ended`` tells the accounting state of a run that has ended. Without it (accounting cannot be read) nothing
        is read back: whether a job that is gone was lost cannot be told then, and waits for a cycle that can.
        """
        if not actions:
            return ()
        self._step("write-intents")
        intents = self._ledger.write_intents(cycle, now, actions)
        self._step("look")
        jobs = by_ref(self._live.jobs())
        ready = [intent for intent in intents if self._as_expected(intent, jobs, now)]
        for intent in ready:
            if intent.action.kind.is_about_place:
                self._send(
                    intent, now, partial(carry_out, self._commands, intent.action, jobs, self._policy.keep_idle)
                )
        self._update([i for i in ready if not i.action.kind.is_requeue and not i.action.kind.is_about_place], now)
        for intent in ready:
            if intent.action.kind.is_requeue:
                self._send(intent, now, partial(self._commands.requeue, intent.action.ref))
        if ended is None:
            return ()
        self._step("read-back")
        waiting = self._ledger.open_intents()
        closed = self._settle(waiting, by_ref(self._live.jobs()), ended, now)
        still = {intent.id for intent in waiting} - {intent.id for intent in closed}
        return tuple(intent for intent in intents if intent.id not in still)

    def _as_expected(self, intent: Intent, jobs: Mapping[str, Job], now: int) -> bool:
        """Whether the job still is as the action expects it; the intent is closed if it is not."""
        action = intent.action
        job = jobs.get(action.ref)
        if action.kind.is_requeue and job is not None:
            job = self._live.job(action.ref)
        # Nobody needs a place that is given back, whatever became of its job.
        why = None if action.kind is ActionKind.RELEASE else _unexpected(action, job)
        if why is not None:
            self._ledger.move_intent(intent.id, "skipped", why, now)
        return why is None

    def _update(self, intents: Sequence[Intent], now: int) -> None:
        """All updates together: one process for many records is ten times quicker."""
        if not intents:
            return
        self._step(f"update {len(intents)}")
        refused = self._commands.update_many([_job_update(intent.action) for intent in intents])
        self._step(f"sent update {len(intents)}")
        moves = [(i.id, *_sent_or_failed(refused.get(i.action.ref))) for i in intents]
        self._ledger.move_intents(moves, now)

    def _send(self, intent: Intent, now: int, command: Callable[[], None]) -> None:
        """Give one command; Slurm's refusal is the outcome of this intent alone."""
        action = intent.action
        self._step(f"{action.kind} {action.ref}")
        try:
            command()
        except SlurmRefusedError as error:
            self._ledger.move_intent(intent.id, "failed", str(error), now)
            return
        self._step(f"sent {action.kind} {action.ref}")
        self._ledger.move_intent(intent.id, "sent", "", now)

    def _settle(
        self,
        intents: Sequence[Intent],
        jobs: Mapping[str, Job],
        ended: Callable[[RunKey], str | None],
        now: int,
    ) -> tuple[Intent, ...]:
        verdicts = {
            intent.id: settle(
                intent.action,
                intent.state,
                intent.at,
                jobs.get(intent.action.ref),
                ended_as=ended(intent.action.key),
                now=now,
                policy=self._policy,
            )
            for intent in intents
        }
        moves = [(i, *verdict) for i, verdict in verdicts.items() if verdict is not None]
        if moves:
            self._step(f"close {len(moves)}")
            self._ledger.move_intents(moves, now)
        return tuple(intent for intent in intents if verdicts[intent.id] is not None)


def _sent_or_failed(refusal: str | None) -> tuple[str, str]:
    return ("sent", "") if refusal is None else ("failed", refusal)


def _job_update(action: Action) -> JobUpdate:
    return JobUpdate.of_job(action.ref, action.qos, action.site_factor, action.time_limit)


def _unexpected(action: Action, job: Job | None) -> str | None:
    """Why the job is not as the action expects it, or ``None`` if it is."""
    if job is None:
        return "the job is gone"
    if job.key.submit != action.key.submit:
        return "the job was requeued meanwhile"
    if job.completing:
        return "the job is completing"
    if job.state is not action.expect_state:
        return f"the job is {job.state} meanwhile"
    if job.qos != action.expect_qos:
        return f"the job's QOS is {job.qos} meanwhile"
    return None
