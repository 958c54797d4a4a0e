"""Facts for tests of the story and of the health: one job's life in a real SQLite ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.model import Job, JobState, Mode, Request, RunKey, Tres, WorkClass
from pyslurm_budget.domain.plan import Action, ActionKind, Admission, Reason
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.ports import ContractFacts, CycleRecord, RunFacts, SyncState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MONDAY = 1796022720  # Monday 2026-11-30 08:12 in Berlin
HOUR = 3600
GPUS = 64


def open_ledger(folder: Path) -> Iterator[SqlLedger]:
    """A new ledger of cluster alpha."""
    ledger = SqlLedger(f"sqlite:///{folder}/ledger.sqlite", "alpha")
    yield ledger
    ledger.close()


def run(submit: int, start: int | None, end: int | None, state: str, **changes: Any) -> RunFacts:
    """A run of job 48107."""
    given: dict[str, Any] = {
        "key": RunKey(48107, submit),
        "job_ref": "48107",
        "account": "olmo",
        "user": "alice",
        "qos": "backed",
        "budget": "olmo",
        "pool": "a100",
        "state": state,
        "start": start,
        "end": end,
        "suspended": 0,
        "gpus": GPUS,
        "rate": GPUS * 1000,
        "work_class": WorkClass.BACKED,
        "shadow": WorkClass.BACKED,
        "nodes": ("n[01-08]",),
    }
    return RunFacts(**{**given, **changes})


def contract(of: RunFacts, minimum: int, outcome: str | None = None, **changes: Any) -> ContractFacts:
    """The contract of a run."""
    start = of.start or 0
    given: dict[str, Any] = {
        "key": of.key,
        "ref": of.job_ref,
        "pool": "a100",
        "budget": of.budget,
        "user": of.user,
        "work_class": of.work_class,
        "shadow": of.shadow,
        "rate": of.rate,
        "start": start,
        "minimum": minimum,
        "protected_until": start + minimum,
        "stoppable": True,
        "mode": Mode.ENFORCE,
        "source": "comment",
        "outcome": outcome,
    }
    return ContractFacts(**{**given, **changes})


def job(submit: int, state: JobState, **changes: Any) -> Job:
    """The live record of job 48107."""
    given: dict[str, Any] = {
        "key": RunKey(48107, submit),
        "ref": "48107",
        "name": "pretrain-7b",
        "user": "alice",
        "account": "olmo",
        "qos": "spare",
        "partitions": ("gpu",),
        "state": state,
        "reason": "Resources",
        "priority": 1,
        "time_limit": 48 * HOUR,
        "request": Request(gpus=GPUS),
        "held_tres": Tres(gpus=GPUS if state is JobState.RUNNING else 0),
        "restarts": 1,
    }
    return Job(**{**given, **changes})


def action(kind: ActionKind, submit: int, reason: Reason, **changes: Any) -> Action:
    """An action on job 48107."""
    given: dict[str, Any] = {
        "kind": kind,
        "ref": "48107",
        "key": RunKey(48107, submit),
        "reason": reason,
        "expect_state": JobState.RUNNING,
        "expect_qos": "backed",
    }
    return Action(**{**given, **changes})


def admission(submit: int, work_class: WorkClass, reason: Reason) -> Admission:
    """The present admission of job 48107."""
    return Admission(
        ref="48107",
        key=RunKey(48107, submit),
        budget="olmo",
        pool="a100",
        work_class=work_class,
        rate=GPUS * 1000,
        contract=6 * HOUR,
        price_length=6 * HOUR,
        signature="",
        since=submit,
        sequence=1,
        reason=reason,
    )


def cycle(ledger: SqlLedger, at: int, error: str | None = None) -> None:
    """A finished cycle, accounting read in it."""
    number = ledger.begin_cycle(at - 1, Mode.ENFORCE, True)
    ledger.end_cycle(CycleRecord(number, at - 1, at, Mode.ENFORCE, True, {"read": 1000}, {"jobs": 1}, error))
    ledger.save_runs([], SyncState(watermark=at, as_of=at, complete=True))


GAVE_WAY = Reason(
    "displaced-for",
    {
        "for": "48190",
        "for_budget": "bio",
        "budget": "olmo",
        "for_load": 7,
        "load": 105,
        "contract": 6 * HOUR,
        "since": MONDAY + 6 * HOUR,
    },
)
NOT_ADMITTED = Reason(
    "not-admitted-headroom",
    {"budget": "olmo", "limit": "olmo", "pool": "a100", "price": 384 * 3_600_000, "left": -489 * 3_600_000},
)


def told_life(ledger: SqlLedger) -> int:
    """The life of job 48107: backed, contract kept, requeued by us, now waiting as spare. Returns its last submit."""
    stopped = MONDAY + 9 * HOUR + 29 * 60
    first = run(MONDAY, MONDAY, stopped, "REQUEUED")
    again = run(stopped, None, None, "PENDING", qos="spare", nodes=(), work_class=WorkClass.SPARE)
    ledger.save_runs([first, again], SyncState(watermark=stopped, as_of=stopped, complete=True))
    ledger.save_contracts([contract(first, 6 * HOUR, "kept")])
    (requeue,) = ledger.write_intents(1, stopped - 5, [action(ActionKind.DISPLACE, MONDAY, GAVE_WAY)])
    ledger.move_intent(requeue.id, "sent", "", stopped - 5)
    ledger.move_intent(requeue.id, "done", "", stopped + 20)
    (spare,) = ledger.write_intents(
        2,
        stopped + 30,
        [action(ActionKind.SET_CLASS, stopped, NOT_ADMITTED, expect_state=JobState.PENDING, qos="spare")],
    )
    ledger.move_intent(spare.id, "done", "", stopped + 31)
    (rank,) = ledger.write_intents(
        2, stopped + 30, [action(ActionKind.SET_RANK, stopped, Reason("order"), expect_state=JobState.PENDING)]
    )
    ledger.move_intent(rank.id, "done", "", stopped + 31)
    ledger.save_admissions([admission(stopped, WorkClass.SPARE, NOT_ADMITTED)])
    return stopped
