"""Places that are kept for one job by a reservation of ours: collecting windows, and room made by moving
(design 4.6).

What is kept is read from Slurm's own reservations, whose names carry the job: so it survives our death, and whoever
comes after us goes on from there. A place never hurts its own job. The job enters it only when there is room for it,
the reservation ends long after the job's latest end, the job is taken out in the action that sees it run, and Slurm
deletes a place that nobody has entered for ``Policy.keep_idle`` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyslurm_budget.domain.holding import WINDOW
from pyslurm_budget.domain.model import LIVE, JobState, RunKey, WorkClass, by_ref
from pyslurm_budget.domain.place import place, rooms_of, take
from pyslurm_budget.domain.plan import Action, ActionKind, Reason
from pyslurm_budget.domain.times import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.model import Job, Reservation, Snapshot
    from pyslurm_budget.domain.place import Rooms
    from pyslurm_budget.domain.situation import Situation

PLACE = "sbudget_place_"
# A job without a time limit: Slurm wants an end, and the reservation goes as soon as the job runs.
YEARS = 3650 * DAY


@dataclass(frozen=True, slots=True)
class Kept:
    """A reservation of ours and the job that it is for; ``job`` is ``None`` if slurmctld does not know it."""

    reservation: Reservation
    ref: str
    job: Job | None

    @property
    def is_window(self) -> bool:
        """Whether it collects nodes for a wide job; else it is a place that was made by moving."""
        return self.reservation.name.startswith(WINDOW)

    @property
    def inside(self) -> bool:
        """Whether the job is in the reservation."""
        return self.job is not None and self.job.reservation == self.reservation.name


@dataclass(slots=True)
class Tended:
    """What is to be done about the places. ``entering`` are those that only their room is missing from: the window
    chooses whom to stop there; ``waiting`` are windows that have not begun."""

    actions: list[Action] = field(default_factory=list)
    notes: dict[str, Reason] = field(default_factory=dict)
    entering: list[Kept] = field(default_factory=list)
    waiting: list[Kept] = field(default_factory=list)


def places(snapshot: Snapshot) -> tuple[Kept, ...]:
    """All places, by name."""
    ours = [r for r in snapshot.reservations if r.name.startswith((WINDOW, PLACE))]
    if not ours:
        return ()
    jobs = by_ref(snapshot.jobs)
    found = []
    for reservation in sorted(ours, key=lambda r: r.name):
        ref = reservation.name.removeprefix(WINDOW).removeprefix(PLACE)
        found.append(Kept(reservation, ref, jobs.get(ref)))
    return tuple(found)


def begun(snapshot: Snapshot) -> frozenset[str]:
    """Jobs whose place has begun: room is made for them there, and nowhere else."""
    return frozenset(kept.ref for kept in places(snapshot) if kept.reservation.start <= snapshot.now)


def tend(situation: Situation) -> Tended:
    """Go on with every place: who runs is taken out, what nobody needs is given back, who fits is let in."""
    tended = Tended()
    for kept in places(situation.snapshot):
        _tend(situation, kept, tended)
    return tended


def _tend(situation: Situation, kept: Kept, tended: Tended) -> None:
    job, now = kept.job, situation.now
    if job is None or job.state is JobState.OTHER:
        why = "place-gone" if kept.inside or not kept.is_window else "window-given-up"
        tended.actions.append(give_back(situation, kept, Reason(why, {"why": "it is not in the queue any more"})))
    elif job.state in LIVE:
        code = "place-taken" if kept.inside else "place-not-needed"
        tended.actions.append(give_back(situation, kept, Reason(code)))
    elif job.completing:
        return
    elif now < kept.reservation.start:
        tended.waiting.append(kept)
    elif now >= kept.reservation.start + situation.policy.keep_room:
        tended.actions.append(
            give_back(situation, kept, Reason("place-wasted", {"waited": situation.policy.keep_room}))
        )
    elif kept.inside:
        tended.notes[kept.ref] = Reason("place-entered", _where(kept))
    elif place(job, emptied(situation, kept), situation.pools.partition_nodes) is not None:
        tended.actions.append(_action(ActionKind.ENTER, kept, job, Reason("place-ready", _where(kept))))
    else:
        tended.entering.append(kept)


def _where(kept: Kept) -> Mapping[str, int | str]:
    return {"nodes": ",".join(kept.reservation.nodes), "for": kept.ref}


def emptied(situation: Situation, kept: Kept) -> Rooms:
    """The room of the place once all that completes and all spare work is gone: Slurm itself stops that for a backed
    job. For a spare job spare work stays."""
    names = frozenset(kept.reservation.nodes)
    backed = kept.job is not None and not situation.policy.classes.is_spare(kept.job.qos)
    spare = {r.job.ref for r in situation.runs if r.work_class is WorkClass.SPARE and r.job.can_requeue}
    nodes = (
        replace(n, reserved=False, gpus_used=0, cpus_used=0, memory_used_mb=0, used_by_type={})
        for n in situation.snapshot.nodes
    )
    rooms = rooms_of(n for n in nodes if n.name in names)
    for job in situation.snapshot.jobs:
        if job.allocation and not (backed and job.ref in spare):
            take(rooms, (share for share in job.allocation if share.node in rooms))
    return rooms


def give_back(situation: Situation, kept: Kept, reason: Reason) -> Action:
    """Delete the reservation, and before that take its job out of it if it is in."""
    budget = situation.budget_of(kept.job.account) if kept.job else _budget_by_accounts(situation, kept)
    numbers: dict[str, int | str] = {"for": kept.ref, **reason.numbers}
    if budget is not None:
        numbers["budget"] = budget
    kind = (
        ActionKind.LEAVE if kept.inside and kept.job and kept.job.state is not JobState.OTHER else ActionKind.RELEASE
    )
    return _action(kind, kept, kept.job, Reason(reason.code, numbers))


def _budget_by_accounts(situation: Situation, kept: Kept) -> str | None:
    return next((b for a in kept.reservation.accounts if (b := situation.budget_of(a)) is not None), None)


def _action(kind: ActionKind, kept: Kept, job: Job | None, reason: Reason) -> Action:
    return place_action(kind, kept.reservation.name, kept.ref, job, reason, nodes=kept.reservation.nodes)


def place_action(
    kind: ActionKind,
    name: str,
    ref: str,
    job: Job | None,
    reason: Reason,
    *,
    nodes: tuple[str, ...],
) -> Action:
    """An action about the reservation ``name``; what is left of a job that is gone is its ref."""
    return Action(
        kind=kind,
        ref=ref,
        key=job.key if job else RunKey(0, 0),
        reason=reason,
        expect_state=job.state if job else JobState.OTHER,
        expect_qos=job.qos if job else "",
        nodes=nodes,
        reservation=name,
    )


def keep(
    situation: Situation, name: str, c: Candidate, nodes: Iterable[str], *, start: int, reason: Reason
) -> Action:
    """Keep these nodes for a job from ``start`` on.

    The end is after the job's latest end, and a day more: should we die when it is inside, it must never reach it.
    """
    limit = YEARS if c.job.time_limit is None else c.job.time_limit
    until = start + situation.policy.keep_room + limit + DAY
    named = tuple(sorted(nodes))
    action = place_action(ActionKind.RESERVE, name, c.ref, c.job, reason, nodes=named)
    return replace(action, start=start, until=until)


def kept_from(situation: Situation, job: Job, ref: str | None = None) -> frozenset[str]:
    """Nodes where Slurm would not start this job now, since a reservation begins there before it would be over; its
    own window (``ref``) is given back if it is served before."""
    own = (job.reservation, f"{WINDOW}{ref}")
    end = None if job.time_limit is None else situation.now + job.time_limit
    return frozenset(
        node
        for r in situation.snapshot.reservations
        if r.name not in own and r.end > situation.now and (end is None or r.start < end)
        for node in r.nodes
    )


def without(rooms: Rooms, names: frozenset[str]) -> Rooms:
    """The rooms (the same ones) of the other nodes."""
    return {name: room for name, room in rooms.items() if name not in names} if names else rooms
