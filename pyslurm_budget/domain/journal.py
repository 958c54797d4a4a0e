"""What was decided about a job, kept beside what was done: each new class, and each reason why no room is made.

A decision is written when it differs from the last one: another class or another reason. Numbers alone (what a budget
has left changes with every second) are no news.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.plan import Admission, Reason

CLASS = "class"
ROOM = "room"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision about the job record ``ref`` that was submitted (or requeued) at ``submit``. ``kind`` is what it
    is about: ``class`` or ``room``."""

    at: int
    kind: str
    ref: str
    submit: int
    reason: Reason


def new_classes(before: Iterable[Admission], after: Iterable[Admission], now: int) -> list[Decision]:
    """Admissions that are not as they were; what is left of an array is told by its raw id."""
    known = {_fact(admission) for admission in before}
    return [Decision(now, CLASS, a.ref, a.key.submit, a.reason) for a in after if _fact(a) not in known]


def _fact(a: Admission) -> tuple[object, ...]:
    name = a.key.job_id if "[" in a.ref else a.ref
    return (name, a.key.submit, a.work_class, a.reason.code, a.budget)


def new_rooms(
    last: Mapping[str, Decision], notes: Iterable[Reason], submits: Mapping[str, int], now: int
) -> list[Decision]:
    """Notes about single jobs that are not the last ones: why no room is made for them. ``submits`` are the submit
    times of the waiting jobs."""
    found = []
    for note in notes:
        ref = str(note.numbers.get("job", ""))
        before = last.get(ref)
        if ref not in submits:
            continue
        if before is None or (before.submit, before.reason.code) != (submits[ref], note.code):
            found.append(Decision(now, ROOM, ref, submits[ref], note))
    return found
