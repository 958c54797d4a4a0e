"""When nothing may be done, or not so much (design 4.8): caps, the breaker, and the quiet after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.plan import ActionKind, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.situation import Requeued, Situation

HOUR = 3600
KILL_TASK = "Kill task failed"


def quiet(situation: Situation) -> Reason | None:
    """After a restart of slurmctld the first cycles plan nothing: its state may still be settling."""
    since = situation.now - situation.snapshot.controller.started
    if since < situation.policy.restart_quiet:  # below 0: it restarted while the snapshot was read
        return Reason("controller-restarted", {"ago": since, "quiet": situation.policy.restart_quiet})
    return None


def breaker(situation: Situation, since: int = 0) -> Reason | None:
    """Why acting must stop until an operator resumes; ``since`` is when he last did."""
    policy, now = situation.policy, situation.now
    recent = [r for r in situation.requeued if r.at >= max(since, now - policy.breaker_window)]
    lost = [r for r in recent if r.state == "lost"]
    if len(lost) >= policy.breaker_lost:
        return Reason("breaker-lost", {"jobs": len(lost), "window": policy.breaker_window})
    drained = _drained_by_us(situation, recent)
    if len(drained) >= policy.breaker_drained:
        return Reason("breaker-drained", {"nodes": ",".join(drained), "window": policy.breaker_window})
    # A drain is asked for by people or a health check, and has a limit of its own: it is no sign of a runaway.
    displaced = [r for r in recent if r.kind is ActionKind.DISPLACE and r.state in ("sent", "done")]
    stopped = sum(r.gpus for r in displaced)
    running = sum(run.job.held_tres.gpus or 0 for run in situation.runs) + _on_their_way(situation, displaced)
    if stopped > policy.breaker_part * max(running, policy.breaker_least_gpus):
        return Reason("breaker-requeued", {"gpus": stopped, "running": running, "window": policy.breaker_window})
    return None


def _on_their_way(situation: Situation, displaced: Sequence[Requeued]) -> int:
    """GPUs stopped so lately that those who get them need not run yet: they are not counted as missing."""
    return sum(r.gpus for r in displaced if r.at > situation.now - situation.start_within)


def _drained_by_us(situation: Situation, recent: Sequence[Requeued]) -> list[str]:
    """Nodes that Slurm drained ("Kill task failed") after we had requeued a run on them."""
    touched: dict[str, int] = {}
    for r in recent:
        for name in r.nodes:
            touched.setdefault(name, r.at)  # the first: emptying the node afterwards does not hide it
    return sorted(
        node.name
        for node in situation.snapshot.nodes
        if node.name in touched
        and node.draining
        and node.reason.startswith(KILL_TASK)
        and (node.reason_since or 0) >= touched[node.name]
    )


def capped(situation: Situation, actions: Sequence[Action]) -> tuple[list[Action], Reason | None]:
    """Requeues up to the caps of a cycle and of an hour, in the order in which they were planned; all else unharmed.

    A beneficiary's runs are stopped all or not at all. One that needs more than a cycle's requeues has them, if it is
    the first of the cycle and the hour has room, or it would never be served.
    """
    policy = situation.policy
    hour = policy.requeues_per_hour - sum(1 for r in situation.requeued if r.at > situation.now - HOUR)
    room = min(policy.requeues_per_cycle, hour)
    kept: list[Action] = []
    refused = 0
    groups: dict[str, list[Action]] = {}
    for action in actions:
        if action.kind.is_requeue:
            groups.setdefault(action.for_ref or action.ref, []).append(action)
        else:
            kept.append(action)
    for i, group in enumerate(groups.values()):
        if len(group) <= room or (i == 0 and len(group) <= hour):
            room -= len(group)
            kept.extend(group)
        else:
            refused += len(group)
    note = Reason("requeue-cap", {"refused": refused, "cycle": policy.requeues_per_cycle}) if refused else None
    return kept, note
