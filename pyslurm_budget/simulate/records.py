"""Questions about one record: what it stands for, what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyslurm_budget.simulate.state import Record, State


def waits_for(state: State, record: Record) -> bool:
    """Whether its dependency (afterok) is not met."""
    return any(end != "COMPLETED" for end in _dependency(state, record))


def never_met(state: State, record: Record) -> bool:
    """Whether its dependency can no longer be met."""
    return any(end not in ("", "COMPLETED") for end in _dependency(state, record))


def _dependency(state: State, record: Record) -> list[str]:
    """Final states of the job, or of all tasks of the array, that it waits for; empty for what is not over."""
    target = record.spec.after_ok
    if target is None:
        return []
    if target in state.array_tasks:
        return [state.finished.get(f"{target}_{task}", "") for task in state.array_tasks[target]]
    return [state.finished.get(target, "")]


def refs_of(record: Record) -> tuple[str, ...]:
    """One reference for every job or task that the record stands for."""
    return tuple(f"{record.array_id}_{task}" for task in record.tasks) or (record.ref,)
