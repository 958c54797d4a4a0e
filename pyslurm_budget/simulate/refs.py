"""Job references as Slurm's commands take them: ``123``, ``100_7``, ``100_[3-9,12]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_REF = re.compile(r"(\d+)(?:_(?:(\d+)|\[([\d,-]+)\]))?", re.ASCII)


def parse(ref: str) -> tuple[int, tuple[int, ...] | None] | None:
    """Job or array id, and the tasks if the reference names some; ``None`` for what is no reference."""
    found = _REF.fullmatch(ref)
    if found is None:
        return None
    if found[2] is not None:
        return int(found[1]), (int(found[2]),)
    return int(found[1]), None if found[3] is None else _tasks(found[3])


def ref_of(job_id: int, array_id: int | None, tasks: tuple[int, ...]) -> str:
    """The reference that addresses exactly this record."""
    if array_id is None:
        return str(job_id)
    return f"{array_id}_{tasks[0]}" if len(tasks) == 1 else f"{array_id}_[{expression(tasks)}]"


def expression(tasks: Iterable[int]) -> str:
    """Task ids as Slurm prints them: ``0-3,7``."""
    spans: list[list[int]] = []
    for task in tasks:
        if spans and task == spans[-1][1] + 1:
            spans[-1][1] = task
        else:
            spans.append([task, task])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _tasks(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(found))
