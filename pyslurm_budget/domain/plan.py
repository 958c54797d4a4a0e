"""What a cycle decided: actions with the state that they expect and the reason with its numbers.

An action is data. It is written down before it is carried out, carried out only if the job still is as expected, and
read back (design 4.8).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyslurm_budget.domain.model import JobState, RunKey, WorkClass


class ActionKind(StrEnum):
    """What is done to a job record, or to a place that is kept for it (the last four: see :mod:`domain.kept`)."""

    SET_CLASS = "set-class"
    SET_RANK = "set-rank"
    RESET_RANK = "reset-rank"
    DISPLACE = "displace"
    DRAIN = "drain"
    MOVE = "move"
    COLLECT = "collect"
    RESERVE = "reserve"
    ENTER = "enter"
    LEAVE = "leave"
    RELEASE = "release"
    CLAIM = "claim"

    @property
    def is_requeue(self) -> bool:
        """Whether the action stops a run."""
        return self in (ActionKind.DISPLACE, ActionKind.DRAIN, ActionKind.MOVE, ActionKind.COLLECT)

    @property
    def is_about_place(self) -> bool:
        """Whether the action is about a reservation of ours."""
        return self in (ActionKind.RESERVE, ActionKind.ENTER, ActionKind.LEAVE, ActionKind.RELEASE)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a code of :mod:`pyslurm_budget.domain.reasons`, and the numbers that its sentence needs."""

    code: str
    numbers: Mapping[str, int | str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one job record.

    ``expect_state`` and ``expect_qos`` must still hold, and the record's key must still be ``key``, or the action is
    skipped. ``qos`` and ``site_factor`` are the values to set (for a requeue: once the job is pending again);
    ``time_limit`` (seconds, ``None`` = unlimited) is the job's present one and is sent along with every QOS, because
    some releases reset it otherwise. ``for_ref`` names the job that profits from a requeue. ``reservation`` is the
    name of the place that the action is about; one that is made lasts from ``start`` to ``until``.
    """

    kind: ActionKind
    ref: str
    key: RunKey
    reason: Reason
    expect_state: JobState
    expect_qos: str
    qos: str | None = None
    site_factor: int | None = None
    time_limit: int | None = None
    for_ref: str | None = None
    nodes: tuple[str, ...] = ()
    until: int | None = None
    reservation: str | None = None
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Taking:
    """A waiting job that may take the place of others: ``job`` is its claim, ``first`` the runs that our placement
    found to make room (none where it cannot judge the request), ``others`` what else it may take, in that order."""

    job: Action
    first: tuple[Action, ...]
    others: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """The class that a pending job record has by our decision, with what it was priced at.

    ``signature`` is the text of everything that re-opens the admission when it changes (size, time, partition...).
    ``rate`` is in thousandths of a GPU, ``contract`` and ``price_length`` in seconds. ``sequence`` grows with each
    admission: the last admitted loses it first.
    """

    ref: str
    key: RunKey
    budget: str | None
    pool: str
    work_class: WorkClass
    rate: int
    contract: int
    price_length: int
    signature: str
    since: int
    sequence: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One budget in one pool at the end of a cycle; amounts in mGPU-s, GPUs in thousandths.

    ``headroom`` is what a new contract of the cap's length could still use here (own budget only). ``granted`` is the
    part of the allowance that comes from grants and loans (below 0 where more is lent). ``lendable`` is what it could
    lend: what is left at every horizon, here and above.
    """

    budget: str
    pool: str
    share: str
    allowance: int
    overdraft: int
    charged: int
    outstanding: int
    headroom: int
    backed_now: int
    spare_now: int
    waiting: int
    granted: int = 0
    lendable: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one cycle decided. ``admissions`` covers every managed pending record, in our order.

    ``notes`` are reasons that concern no single job (acting stopped, drain limit reached, budget without account...).
    """

    now: int
    actions: tuple[Action, ...]
    admissions: tuple[Admission, ...]
    budgets: tuple[BudgetState, ...]
    notes: tuple[Reason, ...] = ()
    takings: tuple[Taking, ...] = ()
