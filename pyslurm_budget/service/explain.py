"""The story of one job: what happened to it, why, and what comes next, from the ledger's facts and actions.

Everything is told as :class:`~pyslurm_budget.domain.plan.Reason` values with exact numbers, so that a page, a table
and JSON say the same. Times are seconds since the epoch, amounts mGPU-s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.errors import NotFoundError
from pyslurm_budget.service.ports import NEVER_OPENED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.exempt import Protection
    from pyslurm_budget.domain.journal import Decision
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.plan import Admission
    from pyslurm_budget.service.counts import Entry
    from pyslurm_budget.service.ports import ContractFacts, Intent, Ledger, RunFacts

_SHOWN_KINDS = frozenset(ActionKind) - {ActionKind.SET_RANK, ActionKind.RESET_RANK}
_PUT_BACK = ("PREEMPTED", "REQUEUED", "NODE_FAIL")
_CARRIED_OUT = ("done", "sent", "lost")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened ``at`` a time; ``kind``, ``state`` and ``outcome`` are set for actions of ours."""

    at: int
    reason: Reason
    kind: ActionKind | None = None
    state: str = ""
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class RunStory:
    """One run. ``gpu_seconds`` is raw GPUs x wall clock up to the end or now, ``None`` where the GPUs are unknown."""

    run: RunFacts
    contract: ContractFacts | None
    gpu_seconds: int | None


@dataclass(frozen=True, slots=True)
class Story:
    """``name`` is only known while slurmctld knows the job. ``state`` is in Slurm's words, lower case."""

    ref: str
    name: str | None
    user: str
    account: str
    budget: str | None
    pool: str | None
    gpus: int | None
    requeues: int
    state: str
    runs: tuple[RunStory, ...]
    events: tuple[Event, ...]
    next: tuple[Reason, ...]


def story(ledger: Ledger, job: Job | None, ref: str, now: int) -> Story:
    """Tell the story of job ``ref``; ``job`` is its live record, ``None`` if slurmctld knows no such job (any more).

    Raises NotFoundError where neither the ledger nor slurmctld knows it.
    """
    facts = ledger.runs_of_job(ref)
    if not facts and job is None:
        raise NotFoundError(
            f"job {ref} is not known: neither slurmctld nor the ledger has it; "
            "an array task is written 100_7, and the ledger begins with the window before its first sync"
        )
    contracts = {contract.key: contract for contract in ledger.contracts([run.key for run in facts])}
    runs = tuple(RunStory(run, contracts.get(run.key), _gpu_seconds(run, now)) for run in facts)
    refs = sorted({ref, *(run.job_ref for run in facts), *([job.ref] if job else [])})
    intents = [
        i
        for name in refs
        for i in ledger.intents(ref=name)
        if i.action.kind in _SHOWN_KINDS and i.outcome != NEVER_OPENED
    ]
    admission = _admission(ledger.admissions(), refs, job)
    entries = ledger.entries_of(run.key for run in facts)
    protections = ledger.protections(refs=refs)
    told = [*_decided(ledger.decisions_of(refs), intents), *_protected(protections)]
    exempt = [p.reason("is-exempt") for p in protections if p.in_force(now)] if job is not None else []
    last = facts[-1] if facts else None
    gpus = _gpus(job, last)
    return Story(
        ref=job.ref if job else facts[-1].job_ref,
        name=job.name if job else None,
        user=job.user if job else facts[-1].user,
        account=job.account if job else facts[-1].account,
        budget=admission.budget if admission else last.budget if last else None,
        pool=admission.pool if admission else last.pool if last else None,
        gpus=gpus,
        requeues=max(job.restarts if job else 0, sum(1 for run in facts if _put_back(run))),
        state=_state(job, last),
        runs=runs,
        events=tuple(_events(runs, intents, [*told, *map(_booked, entries)], job, now)),
        next=(*exempt, *_next(job, runs, admission, gpus, now)),
    )


def _gpu_seconds(run: RunFacts, now: int) -> int | None:
    if run.gpus is None:
        return None
    if run.start is None:
        return 0
    return run.gpus * max(0, (now if run.end is None else run.end) - run.start)


def _gpus(job: Job | None, last: RunFacts | None) -> int | None:
    if job is not None:
        return job.held_tres.gpus if job.state is JobState.RUNNING else job.request.gpus
    return last.gpus if last else None


def _state(job: Job | None, last: RunFacts | None) -> str:
    if job is not None and job.state is not JobState.OTHER:
        return "waiting" if job.state is JobState.PENDING else job.state.lower()
    return last.state.lower() if last else "ended"


def _put_back(run: RunFacts) -> bool:
    return run.start is not None and run.end is not None and run.state.startswith(_PUT_BACK)


def _admission(admissions: Iterable[Admission], refs: Iterable[str], job: Job | None) -> Admission | None:
    """The present admission of a waiting job; the first task's for the remainder of an array."""
    if job is None or job.state is not JobState.PENDING:
        return None
    wanted = set(refs)
    if job.tasks and job.array_job_id is not None:
        wanted |= {f"{job.array_job_id}_{task}" for task in job.tasks}
    found = [a for a in admissions if a.ref in wanted]
    return min(found, key=lambda a: a.sequence) if found else None


def _events(
    runs: tuple[RunStory, ...], intents: Iterable[Intent], told_of: Iterable[Event], job: Job | None, now: int
) -> list[Event]:
    intents = tuple(intents)
    ours = _actions(intents)
    events = list(ours)
    first = runs[0].run if runs else None
    if first is not None:
        events.append(Event(first.key.submit, Reason("submitted", {"qos": _own_qos(first.qos, intents)})))
    elif job is not None:
        events.append(Event(job.key.submit, Reason("submitted", {"qos": _own_qos(job.qos, intents)})))
    stopped = [e.at for e in ours if e.state in _CARRIED_OUT and e.kind is not None and e.kind.is_requeue]
    for told in runs:
        events.extend(_of_run(told, stopped, now))
    events.extend(told_of)
    return sorted(events, key=lambda event: event.at)


def _own_qos(qos: str, intents: Iterable[Intent]) -> str:
    """The QOS that the job itself asked for, where the present one was given to it for a claim."""
    claims = (i.action for i in intents if i.action.kind is ActionKind.CLAIM and i.action.qos == qos)
    return next((action.expect_qos for action in claims), qos)


def _decided(decisions: Iterable[Decision], intents: Iterable[Intent]) -> list[Event]:
    """Decisions that no action tells of: a class that the job had already, or why no room is made for it."""
    acted = {(intent.at, intent.action.reason.code) for intent in intents}
    return [Event(d.at, d.reason) for d in decisions if (d.at, d.reason.code) not in acted]


def _protected(protections: Iterable[Protection]) -> list[Event]:
    events = []
    for p in protections:
        events.append(Event(p.at, p.reason("is-exempt")))
        if p.ended is not None:
            events.append(Event(p.ended, Reason("protection-ended", {"by": p.ended_by or "-"})))
    return events


def _booked(entry: Entry) -> Event:
    """An entry, at the end of the time that it is about."""
    upto = entry.at if entry.end is None else entry.end
    numbers: dict[str, int | str] = {"amount": entry.amount, "length": upto - entry.begin, "pool": entry.pool}
    code = "credited" if entry.reverses is None else "reversed"
    return Event(upto, Reason(code, {**numbers, "budget": entry.account, "why": entry.why, "by": entry.who}))


def _actions(intents: Iterable[Intent]) -> list[Event]:
    """Our actions, whatever became of them."""
    found = sorted(intents, key=lambda intent: (intent.at, intent.id))
    return [Event(i.at, i.action.reason, i.action.kind, i.state, i.outcome) for i in found]


def _of_run(told: RunStory, stopped: Iterable[int], now: int) -> list[Event]:
    run = told.run
    if run.start is None:
        return [] if run.end is None else [Event(run.end, Reason("never-started", {"state": run.state}))]
    events = [Event(run.start, _started(told))]
    contract = told.contract
    if contract is not None and contract.minimum > 0:
        events.extend(_contract_events(contract, run, now))
    if run.end is None:
        return events
    if _put_back(run):
        if not any(run.start <= at <= run.end for at in stopped):
            events.append(Event(run.end, Reason("not-by-us", {"state": run.state})))
    else:
        events.append(Event(run.end, _ended(told)))
    return events


def _started(told: RunStory) -> Reason:
    run, contract = told.run, told.contract
    numbers: dict[str, int | str] = {"nodes": ",".join(run.nodes) or "its nodes"}
    if run.work_class is WorkClass.SPARE:
        return Reason("started-spare", numbers)
    if contract is not None and contract.minimum > 0:
        until, minimum = contract.protected_until, contract.minimum
        return Reason(
            "started-backed", {**numbers, "until": until, "contract": minimum, "source": _source(contract.source)}
        )
    return Reason("started", numbers)


def _source(source: str) -> str:
    words: Mapping[str, str] = {
        "comment": "from the comment",
        "default": "the site's default",
        "time-limit": "its time limit: it cannot be requeued",
    }
    return words.get(source, source)


def _contract_events(contract: ContractFacts, run: RunFacts, now: int) -> list[Event]:
    until = contract.protected_until
    outcome = contract.outcome or ""
    if outcome.startswith("broken"):
        by = outcome.partition(":")[2]
        return [Event(run.end or now, Reason("contract-broken", {"by": by} if by else {}))]
    past = until < (now if run.end is None else run.end)
    return [Event(until, Reason("contract-kept"))] if past else []


def _ended(told: RunStory) -> Reason:
    run = told.run
    numbers: dict[str, int | str] = {"state": run.state}
    if told.gpu_seconds is not None and run.gpus is not None and run.start is not None and run.end is not None:
        numbers |= {"gpus": run.gpus, "length": run.end - run.start, "amount": told.gpu_seconds * 1000}
    return Reason("ended", numbers)


def _next(
    job: Job | None, runs: tuple[RunStory, ...], admission: Admission | None, gpus: int | None, now: int
) -> list[Reason]:
    if job is None or job.state is JobState.OTHER:
        return []
    if job.state is JobState.PENDING:
        return _next_waiting(admission, gpus)
    told = next((r for r in reversed(runs) if r.run.key == job.key), None)
    if told is None:
        return [Reason("not-judged")]
    return [_next_running(told, now)]


def _next_waiting(admission: Admission | None, gpus: int | None) -> list[Reason]:
    if admission is None:
        return [Reason("not-judged")]
    numbers: dict[str, int | str] = {"gpus": gpus if gpus is not None else "its", "contract": admission.contract}
    backed = admission.work_class is WorkClass.BACKED
    return [admission.reason, Reason("waits-backed" if backed else "waits-spare", numbers)]


def _next_running(told: RunStory, now: int) -> Reason:
    contract = told.contract
    if told.run.work_class is WorkClass.SPARE:
        return Reason("spare-run")
    if contract is None:
        return Reason("not-judged")
    if contract.source == "before-switch-on" and not contract.stoppable:
        return Reason("before-switch-on")
    if now < contract.protected_until:
        return Reason("protected", {"until": contract.protected_until})
    return Reason("past-contract", {"until": contract.protected_until})
