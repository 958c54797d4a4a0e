"""Carrying out a plan: intents first, then each action only if the job still is as expected, then reading back.

If the controller dies between any two lines of this module, the ledger shows what was begun, Slurm goes on with the
QOS that jobs have, and the next cycle settles the intent. Nothing here holds a job or waits for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.settle import settle
from pyslurm_budget.errors import SlurmRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyslurm_budget.domain.model import Job, RunKey
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.ports import Commands, Intent, Ledger, LiveCluster


def by_ref(jobs: Iterable[Job]) -> dict[str, Job]:
    """Records by ref; each pending task of an unsplit array also by its own."""
    found: dict[str, Job] = {}
    for job in jobs:
        found[job.ref] = job
        for task in job.tasks:
            found.setdefault(f"{job.array_job_id}_{task}", job)
    return found


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
        self, cycle: int, actions: Sequence[Action], ended: Callable[[RunKey], str | None], now: int
    ) -> tuple[Intent, ...]:
        """Carry out the actions; returns the intents that are closed by now (a requeue usually is not)."""
        if not actions:
            return ()
        self._step("write-intents")
        intents = self._ledger.write_intents(cycle, now, actions)
        self._step("look")
        jobs = by_ref(self._live.jobs())
        closed: list[Intent] = []
        sent: list[Intent] = []
        for intent in intents:
            outcome = self._carry_out(intent, jobs, now)
            (sent if outcome is None else closed).append(intent)
        self._step("read-back")
        closed.extend(self._settle(self._ledger.open_intents(), by_ref(self._live.jobs()), ended, now))
        return tuple(closed)

    def _carry_out(self, intent: Intent, jobs: Mapping[str, Job], now: int) -> str | None:
        """Do one action; ``None`` if it was sent, else why it was not."""
        action = intent.action
        job = jobs.get(action.ref)
        if action.kind.is_requeue and job is not None:
            job = self._live.job(action.ref)
        why = _unexpected(action, job)
        if why is not None:
            self._ledger.move_intent(intent.id, "skipped", why, now)
            return why
        self._step(f"{action.kind} {action.ref}")
        try:
            self._send(action)
        except SlurmRefusedError as error:
            self._ledger.move_intent(intent.id, "failed", str(error), now)
            return str(error)
        self._step(f"sent {action.kind} {action.ref}")
        self._ledger.move_intent(intent.id, "sent", "", now)
        return None

    def _send(self, action: Action) -> None:
        if action.kind.is_requeue:
            self._commands.requeue(action.ref)
            return
        self._commands.update_job(
            action.ref,
            qos=action.qos,
            site_factor=action.site_factor,
            time_limit=action.time_limit if action.qos is not None else None,
            unlimited=action.qos is not None and action.time_limit is None,
        )

    def _settle(
        self,
        intents: Iterable[Intent],
        jobs: Mapping[str, Job],
        ended: Callable[[RunKey], str | None],
        now: int,
    ) -> tuple[Intent, ...]:
        closed: list[Intent] = []
        for intent in intents:
            verdict = settle(
                intent.action,
                intent.state,
                intent.at,
                jobs.get(intent.action.ref),
                ended_as=ended(intent.action.key),
                now=now,
                policy=self._policy,
            )
            if verdict is not None:
                self._step(f"close {intent.action.kind} {intent.action.ref}")
                self._ledger.move_intent(intent.id, verdict[0], verdict[1], now)
                closed.append(intent)
        return tuple(closed)


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
