"""Whom a waiting job would stop: native preemption (preempt/qos with REQUEUE), as slurm.md 3.1 describes it.

Candidates in Slurm's order (lowest QOS priority, fewest nodes, oldest) are added until the job fits, and only if it
then fits at all. Slurm would then stop every one of them on the chosen nodes; here those that prove needless are left
alone, so that a test never depends on its generosity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.simulate.place import find, give, take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyslurm_budget.simulate.place import Need
    from pyslurm_budget.simulate.state import NodeState, Record, State


def victims(
    state: State, record: Record, need: Need, nodes: Sequence[NodeState]
) -> tuple[list[Record], set[NodeState]] | None:
    """The runs to stop so that the record fits on these nodes, and where it then goes; ``None`` if no set will do.

    Nodes that are completing must be left out by the caller unless a candidate runs there (Slurm lets those in).
    """
    allowed = {n.name for n in nodes}
    ordered = sorted(_candidates(state, record, allowed), key=_order(state))
    if not ordered:
        return None
    lent: list[Record] = []
    try:
        for victim in ordered:
            give(state.nodes, victim.shares)
            lent.append(victim)
        if find(need, nodes) is None:
            return None
        while lent:
            take(state.nodes, lent.pop().shares)
        chosen = _first_set(state, need, nodes, ordered, lent)
        return _needed(state, need, chosen, lent), chosen
    finally:
        for victim in lent:
            take(state.nodes, victim.shares)


def _first_set(
    state: State, need: Need, nodes: Sequence[NodeState], ordered: list[Record], lent: list[Record]
) -> set[NodeState]:
    """Add candidates until the need fits; returns the nodes where. What was added stays in ``lent``."""
    for victim in ordered:
        give(state.nodes, victim.shares)
        lent.append(victim)
        placed = find(need, nodes)
        if placed is not None:
            return {state.nodes[share.node] for share in placed}
    raise AssertionError("fitted with all candidates, and does not fit with all candidates")


def _needed(state: State, need: Need, chosen: set[NodeState], lent: list[Record]) -> list[Record]:
    """Those of the added candidates without which the need does not fit on the chosen nodes."""
    needed: list[Record] = []
    nodes = sorted(chosen, key=lambda n: n.index)
    for victim in list(lent):
        take(state.nodes, victim.shares)
        lent.remove(victim)
        if find(need, nodes) is None:
            give(state.nodes, victim.shares)
            lent.append(victim)
            needed.append(victim)
    return needed


def may_preempt(state: State, record: Record, victim: Record) -> bool:
    """Whether the waiting record's QOS may stop this run now: lists, WITHIN, PreemptExemptTime, the shield."""
    own, other = state.qos[record.qos], state.qos[victim.qos]
    if other.name not in own.preempts and not (own.within and own is other):
        return False
    priority = state.priority(victim)
    if own.within and state.priority(record) <= priority:
        return False
    shield = state.settings.min_exempt_priority
    if shield is not None and priority > shield:
        return False
    return state.now >= (victim.start or 0) + other.exempt_time


def candidate_nodes(state: State, record: Record) -> set[str]:
    """Nodes on which something runs that the record's QOS could ever stop."""
    own = state.qos[record.qos]
    names = (*own.preempts, own.name) if own.within else own.preempts
    return {share.node for name in names for run in state.running[name].values() for share in run.holds}


def _candidates(state: State, record: Record, allowed: set[str]) -> list[Record]:
    own = state.qos[record.qos]
    names = (*own.preempts, own.name) if own.within else own.preempts
    return [
        run
        for name in names
        for run in state.running[name].values()
        if any(share.node in allowed for share in run.shares) and may_preempt(state, record, run)
    ]


def _order(state: State) -> Callable[[Record], tuple[int, int, int, int]]:
    return lambda r: (state.qos[r.qos].priority, len(r.shares), r.start or 0, r.job_id)
