"""Facts for the tests of the ledger."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pyslurm_budget.domain.model import JobState, Mode, RunKey, WorkClass
from pyslurm_budget.domain.plan import Action, ActionKind, Admission, Plan, Reason
from pyslurm_budget.service.ports import ContractFacts, RunFacts, SyncState

STATE = SyncState(watermark=1000, as_of=1000, complete=True)
# What a chunk of the ledger holds, and a bit: statements are cut there.
MANY = 520
ODD = Fraction(10**70 + 1, 3**90)  # in neither a BIGINT nor a float


def run(job_id: int = 7, submit: int = 100, **changes: Any) -> RunFacts:
    """A run that began at 200 and goes on."""
    given: dict[str, Any] = {
        "key": RunKey(job_id, submit),
        "job_ref": str(job_id),
        "account": "nlp",
        "user": "alice",
        "qos": "backed",
        "budget": "nlp",
        "pool": "a100",
        "state": "RUNNING",
        "start": 200,
        "end": None,
        "suspended": 0,
        "gpus": 4,
        "rate": 4000,
        "work_class": WorkClass.BACKED,
        "shadow": WorkClass.BACKED,
    }
    return RunFacts(**{**given, **changes})


def runs_of_version(version: int) -> list[RunFacts]:
    """More runs than one statement takes, each of which shows the version."""
    return [run(job_id, rate=version) for job_id in range(1, MANY + 1)]


def contract(job_id: int = 7, submit: int = 100, **changes: Any) -> ContractFacts:
    """A contract of an hour."""
    given: dict[str, Any] = {
        "key": RunKey(job_id, submit),
        "ref": str(job_id),
        "pool": "a100",
        "budget": "nlp",
        "user": "alice",
        "work_class": WorkClass.BACKED,
        "shadow": WorkClass.SPARE,
        "rate": 4000,
        "start": 200,
        "minimum": 3600,
        "protected_until": 3800,
        "stoppable": True,
        "mode": Mode.ENFORCE,
        "source": "comment",
    }
    return ContractFacts(**{**given, **changes})


def action(ref: str = "7", kind: ActionKind = ActionKind.SET_CLASS, **changes: Any) -> Action:
    """An action on a pending job."""
    given: dict[str, Any] = {
        "kind": kind,
        "ref": ref,
        "key": RunKey(7, 100),
        "reason": Reason("admitted", {"price": 5, "budget": "nlp"}),
        "expect_state": JobState.PENDING,
        "expect_qos": "spare",
    }
    return Action(**{**given, **changes})


def admission(ref: str = "7", **changes: Any) -> Admission:
    """An admission as backed."""
    given: dict[str, Any] = {
        "ref": ref,
        "key": RunKey(7, 100),
        "budget": "nlp",
        "pool": "a100",
        "work_class": WorkClass.BACKED,
        "rate": 4000,
        "contract": 3600,
        "price_length": 3600,
        "signature": "4 gpus",
        "since": 150,
        "sequence": 1,
        "reason": Reason("admitted"),
    }
    return Admission(**{**given, **changes})


def plan(now: int, *actions: Action) -> Plan:
    """A plan of these actions and nothing else."""
    return Plan(now, actions, (), ())
