"""Loading accounting that somebody saved into the ledger, with no Slurm at hand.

Nodes and the tree of accounts are not known here: the pool of a run is that of its typed GPUs (``gpu`` if it has no
type), its rate is its GPUs, and the budget is the one bound to its own account. What the ledger knows better, because
it was read from the cluster itself, is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.model import Controller, Snapshot, WorkClass
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.service.archive import ARCHIVED
from pyslurm_budget.service.facts import FactMaker
from pyslurm_budget.service.ports import SyncState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyslurm_budget.domain.model import RunKey, RunRecord
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.ports import Accounting, Ledger, RunFacts

BATCH = 5000
_EVER = 1 << 40
_RUNNING = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"})


@dataclass
class DumpCounts:
    """What became of the rows: every one is in exactly one of the first six.

    ``loaded`` are runs that are in the ledger now; ``twice`` are rows whose run came already in this dump;
    ``archived`` are runs whose month was archived and deleted. Of
    the loaded ones ``unknown_gpus`` asked for GPUs that nobody accounted, and ``without_budget`` are of an account
    that has no budget of its own. ``changed`` counts rows of the ledger that are new or different.
    """

    loaded: int = 0
    kept: int = 0
    twice: int = 0
    never_started: int = 0
    without_gpus: int = 0
    archived: int = 0
    changed: int = 0
    unknown_gpus: int = 0
    without_budget: int = 0


def load_dump(accounting: Accounting, ledger: Ledger, policy: Policy, now: int) -> DumpCounts:
    """Save every run of a dump, charged as backed unless its QOS is a spare one in ``policy``; returns counts.

    In batches, each one transaction: a dump that fails in the middle may be loaded again. A sync may go on meanwhile:
    what the ledger knows better is decided where it is saved. The watermark of the sync with the cluster stays where
    it is; without one the ledger is as of ``now``, the time of the load, seconds since the epoch.
    """
    tree = BudgetTree({budget.account: budget for budget in ledger.budgets()})
    maker = FactMaker(policy, tree, _nothing(now), PoolMap(policy.pools, (), (), policy.fractions))
    state = SyncState(watermark=0, as_of=now, complete=False)
    counts = DumpCounts()
    records = accounting.runs(0, _EVER)
    while batch := list(islice(records, BATCH)):
        facts = _facts(batch, maker, counts)
        gone = int(ledger.get(ARCHIVED) or 0)
        counts.changed += ledger.save_runs(facts.values(), state, partial(_news, counts, gone))
    return counts


def _nothing(now: int) -> Snapshot:
    """A cluster of which nothing is known."""
    return Snapshot(Controller(cluster="", now=now, release=(0, 0, 0), started=0), (), (), ())


def _facts(batch: Iterable[RunRecord], maker: FactMaker, counts: DumpCounts) -> dict[RunKey, RunFacts]:
    """Facts of the runs that hold GPUs, or may."""
    found: dict[RunKey, RunFacts] = {}
    for record in batch:
        fact = maker.from_record(record, WorkClass.BACKED)
        if record.start is None:
            counts.never_started += 1
        elif fact is None:
            counts.without_gpus += 1
        elif fact.key in found:
            counts.twice += 1
            found[fact.key] = max(found[fact.key], fact, key=_knows)
        else:
            found[fact.key] = fact
    return found


def _knows(fact: RunFacts) -> tuple[bool, int]:
    """Which of two rows of one run is believed: the one that says how it ended, else the one that saw it longer."""
    return fact.state not in _RUNNING, (_EVER if fact.end is None else fact.end) - (fact.start or 0)


def _news(counts: DumpCounts, gone: int, before: RunFacts | None, fact: RunFacts) -> RunFacts | None:
    """What is new in the fact, ``None`` for nothing. Runs that are not known and ended before ``gone`` were archived
    and deleted."""
    if before is None and fact.end is not None and fact.end < gone:
        counts.archived += 1
        return None
    if before is not None and _is_older(fact, before):
        counts.kept += 1
        return None
    counts.loaded += 1
    counts.unknown_gpus += fact.unknown is not None
    counts.without_budget += fact.budget is None
    return fact if before is None or before.unknown else _brought_up(before, fact)


def _is_older(fact: RunFacts, before: RunFacts) -> bool:
    """Whether the ledger knows more: the dump saw the run still running, the ledger how it ended, or later, or it is
    still open."""
    if fact.state not in _RUNNING:
        return False
    ended = before.state not in _RUNNING or before.end is None
    return ended or (fact.end is not None and before.end is not None and before.end >= fact.end)


def _brought_up(before: RunFacts, fact: RunFacts) -> RunFacts:
    """The run as the ledger has it, with what the dump says of how it ended, and of its GPUs, if that is something
    else. Its pool stays, and a rate that was more than that of its GPUs: that came from its nodes."""
    if fact.gpus and before.gpus is not None and fact.gpus != before.gpus:
        by_nodes = before.rate * fact.gpus > fact.rate * before.gpus
        rate = max(before.rate, fact.rate) if by_nodes else fact.rate
        kind = fact.gpu_type or before.gpu_type
        before = replace(before, gpus=fact.gpus, rate=rate, gpu_type=kind, parts=fact.parts)
    return replace(
        before,
        state=fact.state,
        start=fact.start,
        end=fact.end,
        suspended=fact.suspended,
        time_limit=fact.time_limit,
    )
