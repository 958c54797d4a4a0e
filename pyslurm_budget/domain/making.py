"""What makes room for waiting jobs besides displacement (design 4.6): collecting windows, and moving."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.domain.kept import PLACE, keep, places
from pyslurm_budget.domain.moving import Mover
from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.domain.wide import Collector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from pyslurm_budget.domain.books import Books
    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.displace import Search
    from pyslurm_budget.domain.kept import Tended
    from pyslurm_budget.domain.plan import Action
    from pyslurm_budget.domain.situation import LiveRun, Situation

    Order = Mapping[str, Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class Stop:
    """A run to requeue, as what and why, for the job ``for_ref``."""

    run: LiveRun
    kind: ActionKind
    reason: Reason
    for_ref: str


@dataclass(slots=True)
class Made:
    """Runs to stop, what to do about places (those of ``with_stops`` only if the runs are stopped for the job), and
    what people should know: of single jobs, by ref, and in general."""

    stops: list[Stop] = field(default_factory=list)
    places: list[Action] = field(default_factory=list)
    with_stops: list[Action] = field(default_factory=list)
    about: dict[str, Reason] = field(default_factory=dict)
    notes: list[Reason] = field(default_factory=list)


def make_room(
    situation: Situation, books: Books, orders: tuple[Order, Order], search: Search, *, tended: Tended, gone: Set[str]
) -> Made:
    """Windows first, then moving. ``orders`` are backed and spare jobs, by pool; ``search`` is what displacement
    found; ``gone`` are runs that are stopped already."""
    backed, spare = orders
    windows = Collector(situation, books, backed, search.served).collect(tended)
    made = Made(
        [Stop(run, ActionKind.COLLECT, reason, ref) for run, reason, ref in windows.stops if run.job.ref not in gone],
        [*tended.actions, *windows.actions],
        about=dict(search.notes),
    )
    for ref, why in windows.refused.items():
        if ref not in made.about or made.about[ref].code == "no-room":
            made.about[ref] = why
    made.about |= {**windows.notes, **tended.notes}
    stopped = {*gone, *(stop.run.job.ref for stop in made.stops)}
    served = {*search.served, *(kept.ref for kept in places(situation.snapshot))}
    moves = Mover(situation, stopped, served).search([*backed.values(), *spare.values()])
    made.notes.extend(moves.notes)
    for move in moves.moves:
        c = move.candidate
        made.stops += [Stop(run, ActionKind.MOVE, reason, c.ref) for run, reason in move.runs]
        if situation.policy.classes.is_spare(c.job.qos):
            reason = Reason("place-for-moved", {"nodes": ",".join(move.nodes), "for": c.ref})
            made.with_stops.append(keep(situation, PLACE + c.ref, c, move.nodes, start=situation.now, reason=reason))
    return made
