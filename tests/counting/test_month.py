"""A bill that adds up to the cluster: charged + spare + reserved idle + idle + out of service is all that its nodes
had, over a real month, to the second, and each of them is what a count of its own says."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.evaluate import open_books
from pyslurm_budget.domain.holding import Holding, NodeEvent
from pyslurm_budget.domain.model import Mode, Reservation, RunKey, RunRecord, Snapshot, Tres
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.ledger.migrate import upgrade
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.gather import Gatherer
from pyslurm_budget.service.usage import UsageQuery
from tests.build import CPUS_PER_GPU, MEMORY_PER_GPU, POOL, held, node, running, snapshot
from tests.counting.month import ASKED, BEGIN, DAY, END, GPUS, HELD, KINDS, NODES, Month, Placed, month, spent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.domain.situation import Situation

WHOLE = len(NODES) * GPUS * (END - BEGIN)
DAYS = range(BEGIN, END, DAY)
POLICY = Policy(window=END - BEGIN)


class Slurmdbd:
    """What slurmdbd tells of the month at its end."""

    def __init__(self, of: Month) -> None:
        self._of = of

    def runs(self, since: int, until: int) -> Iterator[RunRecord]:
        """The runs; one that goes on has no end yet."""
        for run in self._of.runs:
            if run.end > since:
                yield record(run)

    def node_events(self, since: int, until: int) -> tuple[NodeEvent, ...]:
        """What was out."""
        return tuple(
            NodeEvent(o.node, o.begin, o.end if o.end <= END else None, o.state)
            for o in self._of.out
            if o.end > since
        )

    def reservations(self, since: int, until: int) -> tuple[Holding, ...]:
        """The pieces of all reservations."""
        return tuple(
            Holding(
                id=1 + [h.name for h in HELD].index(h.name),
                name=h.name,
                start=h.begin,
                end=h.end,
                accounts=h.accounts,
                flags=("MAINT",) if not h.accounts else ("IGNORE_JOBS",),
                nodes=h.nodes,
                cpus=CPUS_PER_GPU * GPUS * len(h.nodes),
            )
            for h in HELD
        )


def record(run: Placed) -> RunRecord:
    gpus, ended = run.gpus * len(run.nodes), run.end <= END
    state = ("NODE_FAIL" if run.failed else "COMPLETED") if ended else "RUNNING"
    return RunRecord(
        key=RunKey(run.job_id, run.start),
        job_ref=str(run.job_id),
        account=run.account,
        user="somebody",
        qos="spare" if run.spare else "backed",
        partition="gpu",
        state=state,
        eligible=run.start,
        start=run.start,
        end=run.end if ended else None,
        suspended=0,
        time_limit=None,
        tres=Tres(gpus * CPUS_PER_GPU, gpus * MEMORY_PER_GPU, len(run.nodes), gpus),
        requested_gpus=gpus,
        nodes=run.nodes,
    )


@dataclass(frozen=True)
class Counted:
    """The ledger at the end of the month, what it comes to, and what truly was."""

    month: Month
    ledger: SqlLedger
    situation: Situation
    truth: dict[tuple[str, int], int]

    def true(self, kind: str) -> dict[int, int]:
        """GPU-seconds of a kind by day, those that are not 0."""
        return {day: amount for (name, day), amount in self.truth.items() if name == kind and amount}

    def by_class(self) -> dict[str, dict[int, int]]:
        """GPU-seconds by class and day, as reports have them; charged ones are taken from the charge."""
        found: dict[str, dict[int, int]] = defaultdict(dict)
        queries = [UsageQuery(day, day + DAY, END, ("class",)) for day in DAYS]
        for number, row in self.ledger.usage(queries):
            amount = Fraction(row.charged, 1000) if row.keys == ("backed",) else row.gpu_seconds
            found[row.keys[0]][DAYS[number]] = int(amount)
            assert row.charged == (1000 * row.gpu_seconds if row.keys == ("backed",) else 0)
        return found

    def reserved_idle(self) -> dict[int, int]:
        """GPU-seconds by day that reservations charge."""
        found: Counter[int] = Counter()
        for use in self.situation.uses:
            if use.user.startswith("("):
                for day in DAYS:
                    end = END if use.end is None else use.end
                    found[day] += use.rate * max(0, min(end, day + DAY) - max(use.start, day))
        return {day: amount // 1000 for day, amount in found.items() if amount}

    def capacity(self) -> dict[int, int]:
        """GPU-seconds by day that the pool could deliver."""
        found: Counter[int] = Counter()
        for begin, _, amount in self.situation.capacities[POOL].hours:
            found[begin - (begin - BEGIN) % DAY] += amount
        return dict(found)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    of = month()
    url = f"sqlite:///{tmp_path_factory.mktemp('month')}/ledger.sqlite"
    upgrade(url)
    ledger = SqlLedger(url, "alpha")
    accounts = sorted({run.account for run in of.runs})
    budgets = [Budget(name, None, (ShareSince(BEGINNING, Fraction(1, len(accounts))),)) for name in accounts]
    ledger.save_budgets(budgets, 0, "root", "")
    gatherer = Gatherer(Slurmdbd(of), ledger, POLICY, Mode.ENFORCE, now(of), history=Slurmdbd(of))
    gatherer.sync()
    yield Counted(of, ledger, gatherer.situation(), spent(of))
    ledger.close()


def now(of: Month) -> Snapshot:
    """slurmctld as the month ends."""
    jobs = [
        running(
            run.job_id,
            *(held(name, run.gpus) for name in run.nodes),
            account=run.account,
            user="somebody",
            qos="spare" if run.spare else "backed",
            start=run.start,
        )
        for run in of.runs
        if run.end > END
    ]
    out = {o.node for o in of.out if o.end > END}
    there = [
        Reservation(
            h.name, h.nodes, h.begin, h.end, h.accounts, ("IGNORE_JOBS",), cpus=CPUS_PER_GPU * GPUS * len(h.nodes)
        )
        for h in HELD
        if h.begin <= END < h.end
    ]
    parents = {run.account: "root" for run in of.runs} | {"root": None}
    nodes = [node(name, GPUS, up=name not in out) for name in NODES]
    return snapshot(jobs, nodes, END, reservations=tuple(there), parents=parents)


def test_the_month_is_one_that_can_show_something(counted: Counted) -> None:
    assert all(sum(counted.true(kind).values()) > 1000 * 3600 for kind in KINDS)
    assert len(counted.month.runs) > 30_000
    assert len(counted.month.out) == len(ASKED)
    assert sum(run.failed for run in counted.month.runs) > 3
    assert sum(run.end > END for run in counted.month.runs) > 100
    assert sum(counted.truth.values()) == WHOLE


def test_each_day_is_told_as_it_was(counted: Counted) -> None:
    """All five kinds; what is idle is what nothing else took of the capacity."""
    by_class, reserved, capacity = counted.by_class(), counted.reserved_idle(), counted.capacity()
    whole = len(NODES) * GPUS * DAY
    told = {"charged": by_class["backed"], "spare": by_class["spare"], "reserved idle": reserved}
    told["out of service"] = {day: whole - amount for day, amount in capacity.items() if amount != whole}
    used = ("charged", "spare", "reserved idle")
    told["idle"] = {day: amount - sum(told[k].get(day, 0) for k in used) for day, amount in capacity.items()}
    for kind in KINDS:
        assert told[kind] == counted.true(kind), kind
    assert sum(sum(of.values()) for of in told.values()) == WHOLE


def test_what_budgets_pay_is_what_was_charged_and_reserved(counted: Counted) -> None:
    books = open_books(counted.situation)
    paid = sum(book.charged_now for book in books.books.values())
    assert paid == 1000 * sum(sum(counted.true(kind).values()) for kind in ("charged", "reserved idle"))
    allowed = sum(book.allowance for book in books.books.values())
    whole = 1000 * (WHOLE - sum(counted.true("out of service").values()))
    assert whole - len(books.books) <= allowed <= whole
