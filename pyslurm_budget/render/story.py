"""``sbudget why``: the story of a job in lines for people, and as exact numbers for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.domain.reasons import sentence

if TYPE_CHECKING:
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.explain import Event, RunStory, Story

_NOT_DONE = {"skipped": "not done", "failed": "failed", "undone": "undone"}
_OPEN = {"intent": "about to be done", "sent": "sent to Slurm"}


def text(story: Story, clock: Clock) -> str:
    """The story as lines, each ended."""
    lines = [_header(story, clock)]
    width = max([len(clock.day(event.at)) for event in story.events] + [len("next")])
    for event in story.events:
        lines.append(f"  {clock.day(event.at):<{width}}  {_event(event, clock)}")
    for i, reason in enumerate(story.next):
        lines.append(f"  {'next' if i == 0 else '':<{width}}  {sentence(reason, clock.near)}")
    return "".join(f"{line}\n" for line in lines)


def _header(story: Story, clock: Clock) -> str:
    name = f' "{story.name}"' if story.name else ""
    size = "GPUs unknown" if story.gpus is None else f"{story.gpus} GPUs"
    pool = f" ({story.pool})" if story.pool else ""
    times = {0: "", 1: ", requeued once"}.get(story.requeues, f", requeued {story.requeues} times")
    zone = clock.full(clock.now).rsplit(" ", 1)[1]
    return (
        f"{story.ref}{name} of {story.user}, account {story.account}, {size}{pool}{times}, {story.state} "
        f"(times in {zone})"
    )


def _event(event: Event, clock: Clock) -> str:
    told = sentence(event.reason, clock.near)
    if event.kind is ActionKind.SET_CLASS:
        told = f"now {told}"
    if event.state in _NOT_DONE:
        why = f" ({event.outcome})" if event.outcome else ""
        return f"{_NOT_DONE[event.state]}: {told}{why}"
    if event.state == "lost":
        return f"{told}. {sentence(Reason('lost'), clock.near)}"
    return f"{told} ({_OPEN[event.state]})" if event.state in _OPEN else told


def document(story: Story, now: int) -> dict[str, Any]:
    """The story as exact integers: seconds since the epoch, raw GPUs and GPU-seconds, rates in thousandths."""
    return {
        "job": story.ref,
        "name": story.name,
        "user": story.user,
        "account": story.account,
        "budget": story.budget,
        "pool": story.pool,
        "gpus": story.gpus,
        "requeues": story.requeues,
        "state": story.state,
        "as_of": now,
        "runs": [_run(entry) for entry in story.runs],
        "events": [
            {
                "at": event.at,
                "code": event.reason.code,
                "numbers": dict(event.reason.numbers),
                "action": event.kind.value if event.kind else None,
                "state": event.state or None,
                "outcome": event.outcome or None,
            }
            for event in story.events
        ],
        "next": [{"code": reason.code, "numbers": dict(reason.numbers)} for reason in story.next],
    }


def _run(entry: RunStory) -> dict[str, Any]:
    run, contract = entry.run, entry.contract
    return {
        "job_id": run.key.job_id,
        "submit": run.key.submit,
        "start": run.start,
        "end": run.end,
        "suspended": run.suspended,
        "state": run.state,
        "qos": run.qos,
        "class": run.work_class.value,
        "shadow_class": run.shadow.value,
        "gpus": run.gpus,
        "gpu_seconds": entry.gpu_seconds,
        "rate": run.rate,
        "nodes": list(run.nodes),
        "contract": contract.minimum if contract else None,
        "protected_until": contract.protected_until if contract else None,
        "outcome": contract.outcome if contract else None,
    }
