"""From a run's facts to the pieces that usage is counted by: by flavor, and by contract and run-on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.usage import Group, Piece
from pyslurm_budget.service.ports import RunPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.model import WorkClass
    from pyslurm_budget.service.ports import RunFacts


def parts_of(run: RunFacts) -> tuple[RunPart, ...]:
    """What the run held, by pool and flavor; unknown GPUs add none (they are reported apart)."""
    return run.parts or (RunPart(run.pool, run.gpu_type, run.gpus or 0, run.rate),)


def pieces(run: RunFacts, end: int, charged_as: WorkClass) -> Iterator[Piece]:
    """The pieces of a run that held until ``end``, in the class that counts. Without a contract all of it counts as
    contract: it was not stoppable by us."""
    if run.start is None or run.start >= end:
        return
    split = end if run.protected_until is None else min(max(run.protected_until, run.start), end)
    for part in parts_of(run):
        for begin, until, run_on in ((run.start, split, False), (split, end, True)):
            if begin < until:
                group = Group(
                    run.budget, run.account, run.user, run.qos, part.pool, part.flavor, charged_as, run_on
                )  # fmt: skip
                yield Piece(group, part.gpus, part.rate, begin, until)
