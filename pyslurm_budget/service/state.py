"""The public state: what ``show`` and ``health`` read on hosts that have no way to the ledger.

One JSON document, replaced atomically at the end of every cycle. Amounts are mGPU-s, GPUs thousandths, times seconds
since the epoch by slurmctld's clock. A reader refuses a document of another version instead of guessing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.plan import BudgetState, Reason
from pyslurm_budget.errors import StaleDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = 1


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool: ``gpus`` in all, and those of them ``in_service``, both whole GPUs."""

    name: str
    gpus: int
    in_service: int


@dataclass(frozen=True, slots=True)
class PublicState:
    """Everything that is published of one cycle. ``parents`` maps each budget to its parent budget.

    ``stale_after`` is the time from which the document must not be trusted any more. ``generation`` is that of the
    decision table published with it.
    """

    cluster: str
    mode: Mode
    as_of: int
    cycle: int
    generation: int
    window: int
    stale_after: int
    budgets: tuple[BudgetState, ...] = ()
    parents: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    pools: tuple[PoolState, ...] = ()
    notes: tuple[Reason, ...] = ()

    def to_json(self) -> str:
        """The document, one line, keys in a fixed order."""
        document: dict[str, Any] = {
            "version": VERSION,
            "cluster": self.cluster,
            "mode": self.mode.value,
            "as_of": self.as_of,
            "cycle": self.cycle,
            "generation": self.generation,
            "window": self.window,
            "stale_after": self.stale_after,
            "pools": [asdict(pool) for pool in self.pools],
            "budgets": [{**asdict(state), "parent": self.parents.get(state.budget)} for state in self.budgets],
            "notes": [{"code": note.code, "numbers": dict(note.numbers)} for note in self.notes],
        }
        return json.dumps(document, ensure_ascii=False) + "\n"


def state_json(state: PublicState) -> str:
    """The text to publish."""
    return state.to_json()


def from_json(text: str, source: str) -> PublicState:
    """Read a document; ``source`` names it in the StaleDataError that anything unreadable raises."""
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise StaleDataError(
                f"{source}: state of version {document['version']}, this release reads version {VERSION}; "
                "use the release that the controller runs"
            )
        return _state(document)
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise StaleDataError(f"{source}: is no state that the controller published ({wrong!r})") from wrong


def _state(document: dict[str, Any]) -> PublicState:
    budgets = []
    parents: dict[str, str | None] = {}
    for entry in document["budgets"]:
        values = dict(entry)
        parents[values["budget"]] = values.pop("parent")
        budgets.append(BudgetState(**values))
    return PublicState(
        cluster=str(document["cluster"]),
        mode=Mode(document["mode"]),
        budgets=tuple(budgets),
        parents=MappingProxyType(parents),
        pools=tuple(PoolState(**pool) for pool in document["pools"]),
        notes=tuple(_notes(document["notes"])),
        **{name: int(document[name]) for name in ("as_of", "cycle", "generation", "window", "stale_after")},
    )


def _notes(entries: Iterable[dict[str, Any]]) -> Iterable[Reason]:
    return (Reason(entry["code"], MappingProxyType(dict(entry["numbers"]))) for entry in entries)
