"""Rows and values: how the ledger's types stand in its tables, both ways and without loss."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, astuple, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.model import JobState, Mode, RunKey, WorkClass
from pyslurm_budget.domain.plan import Action, ActionKind, Admission, Reason
from pyslurm_budget.ledger import tables
from pyslurm_budget.service.ports import ContractFacts, CycleRecord, Intent, RunFacts, RunPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Row


def run_row(cluster: str, run: RunFacts) -> tuple[Any, ...]:
    """A run as the values of ``RUN_COLUMNS``."""
    parts = json.dumps([astuple(part) for part in run.parts]) if run.parts else None
    return (cluster, _names(run.nodes), parts, *_run_values(run))


@lru_cache(maxsize=10_000)
def _names(nodes: tuple[str, ...]) -> str:
    return json.dumps(nodes)


_RUN_PLAIN = (
    "job_ref", "account", "user", "qos", "budget", "pool", "state", "start", "end", "suspended", "gpus", "rate",
    "unknown", "time_limit", "gpu_type", "partition", "protected_until", "absent_since", "charged_to",
)  # fmt: skip
_CLASSES = ("work_class", "shadow", "charged_as")
RUN_COLUMNS = ("cluster", "nodes", "parts", "job_id", "submit", *_CLASSES, *_RUN_PLAIN)
# A class by ``_value_``, which is its text: ``value`` is a call, and there are three of them in a row.
_run_values = attrgetter("key.job_id", "key.submit", *(f"{name}._value_" for name in _CLASSES), *_RUN_PLAIN)


def run_of(row: Row[Any]) -> RunFacts:
    """A run from its columns."""
    m = row._mapping
    return RunFacts(
        key=RunKey(m["job_id"], m["submit"]),
        work_class=WorkClass(m["work_class"]),
        shadow=WorkClass(m["shadow"]),
        charged_as=WorkClass(m["charged_as"]),
        parts=tuple(RunPart(*part) for part in json.loads(m["parts"])) if m["parts"] else (),
        nodes=tuple(json.loads(m["nodes"])),
        **{name: m[name] for name in _RUN_PLAIN},
    )


def digest_of_runs(found: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 over rows of runs, in their order; a column that a row does not have counts as empty."""
    names = tables.run.c.keys()
    digest = hashlib.sha256()
    for row in found:
        digest.update(json.dumps([row.get(name) for name in names]).encode())
    return digest.hexdigest()


_CONTRACT_PLAIN = (
    "ref", "pool", "budget", "user", "rate", "start", "minimum", "protected_until", "stoppable", "source", "outcome",
)  # fmt: skip


def contract_row(cluster: str, contract: ContractFacts) -> dict[str, Any]:
    """Columns of a contract."""
    row = {name: getattr(contract, name) for name in _CONTRACT_PLAIN}
    row |= {"cluster": cluster, "job_id": contract.key.job_id, "submit": contract.key.submit}
    row |= {"work_class": str(contract.work_class), "shadow": str(contract.shadow), "mode": str(contract.mode)}
    return row


def contract_of(row: Row[Any]) -> ContractFacts:
    """A contract from its columns."""
    m = row._mapping
    return ContractFacts(
        key=RunKey(m["job_id"], m["submit"]),
        work_class=WorkClass(m["work_class"]),
        shadow=WorkClass(m["shadow"]),
        mode=Mode(m["mode"]),
        **{name: m[name] for name in _CONTRACT_PLAIN},
    )


def reason_text(reason: Reason) -> str:
    """A reason as JSON."""
    return json.dumps({"code": reason.code, "numbers": dict(reason.numbers)}, sort_keys=True)


def reason_of(text: str) -> Reason:
    """A reason from its JSON."""
    raw = json.loads(text)
    return Reason(raw["code"], raw["numbers"])


_ADMISSION_PLAIN = ("ref", "budget", "pool", "rate", "contract", "price_length", "signature", "since", "sequence")


def admission_row(cluster: str, admission: Admission) -> dict[str, Any]:
    """Columns of an admission."""
    row = {name: getattr(admission, name) for name in _ADMISSION_PLAIN}
    row |= {"cluster": cluster, "job_id": admission.key.job_id, "submit": admission.key.submit}
    return row | {"work_class": str(admission.work_class), "reason": reason_text(admission.reason)}


def admission_of(row: Row[Any]) -> Admission:
    """An admission from its columns."""
    m = row._mapping
    return Admission(
        key=RunKey(m["job_id"], m["submit"]),
        work_class=WorkClass(m["work_class"]),
        reason=reason_of(m["reason"]),
        **{name: m[name] for name in _ADMISSION_PLAIN},
    )


def action_row(cluster: str, cycle: int, now: int, action: Action, state: str) -> dict[str, Any]:
    """Columns of an action; ``detail`` holds all of it, the other columns are for looking it up."""
    numbers = dict(action.reason.numbers)  # asdict cannot copy the read-only mapping of a reason without numbers
    detail = asdict(replace(action, reason=Reason(action.reason.code, numbers)))
    return {
        "cluster": cluster,
        "cycle": cycle,
        "at": now,
        "kind": str(action.kind),
        "ref": action.ref,
        "job_id": action.key.job_id,
        "submit": action.key.submit,
        "code": action.reason.code,
        "for_ref": action.for_ref,
        "detail": json.dumps(detail, sort_keys=True),
        "state": state,
        "outcome": "",
        "closed": None,
    }


def action_of(text: str) -> Action:
    """An action from its JSON."""
    raw: dict[str, Any] = json.loads(text)
    raw["kind"] = ActionKind(raw["kind"])
    raw["key"] = RunKey(**raw["key"])
    raw["reason"] = Reason(raw["reason"]["code"], raw["reason"]["numbers"])
    raw["expect_state"] = JobState(raw["expect_state"])
    raw["nodes"] = tuple(raw["nodes"])
    return Action(**raw)


def intent_of(row: Row[Any]) -> Intent:
    """An intent from its columns."""
    m = row._mapping
    return Intent(m["id"], m["cycle"], m["at"], action_of(m["detail"]), m["state"], m["outcome"], m["closed"])


def cycle_of(row: Row[Any]) -> CycleRecord:
    """A cycle from its columns."""
    m = row._mapping
    stages: Mapping[str, int] = json.loads(m["stages"])
    counts: Mapping[str, int] = json.loads(m["counts"])
    return CycleRecord(
        m["id"], m["started"], m["finished"], Mode(m["mode"]), m["applied"], stages, counts, m["error"]
    )
