"""When nodes will be empty: what `drain` and `maintenance plan` foretell is what the cycle does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.drain import drained_runs
from pyslurm_budget.domain.evaluate import drains
from pyslurm_budget.domain.maintenance import maintained_runs
from pyslurm_budget.domain.model import JobState, Mode, Reservation
from pyslurm_budget.domain.outlook import outlook
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import NotFoundError
from pyslurm_budget.service.outlook import Outlooks
from tests.build import DAY, HOUR, MINUTE, NOW, POOL, held, live, node, nodes, running, situation, snapshot
from tests.unit import made
from tests.unit.made import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyslurm_budget.domain.situation import LiveRun
    from pyslurm_budget.ledger.store import SqlLedger

AFTER = Policy().drain_after


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from open_ledger(tmp_path)


@st.composite
def runs(draw: st.DrawFn) -> LiveRun:
    qos = draw(st.sampled_from(("backed", "spare")))
    start = NOW - draw(st.integers(0, 10)) * HOUR
    limit = draw(st.sampled_from((None, 11 * HOUR, DAY)))
    job = running(101, held("n1", 8), qos=qos, start=start, time_limit=limit)
    job = replace(job, requeueable=draw(st.booleans()), het=draw(st.sampled_from((False, False, True))))
    exempt = draw(st.sampled_from((None, None, NOW + HOUR)))
    minimum = draw(st.integers(0, 8)) * HOUR
    stoppable = job.can_requeue and exempt is None and draw(st.booleans())
    return live(job, minimum, stoppable=stoppable, exempt_until=exempt, withheld=draw(st.booleans()))


@given(runs(), st.integers(0, 20))
def test_a_run_is_requeued_at_the_moment_that_was_foretold(run: LiveRun, ago: int) -> None:
    since = NOW - ago * MINUTE
    on = [node("n1", draining=True, reason="xid", reason_since=since, gpus_used=8), *nodes(9)[1:]]
    (told,) = outlook(on[:1], [run.job], {run.job.key: run}, now=NOW, emptied_from={"n1": since + AFTER})
    last = told.leaving[0]

    def goes(now: int) -> bool:
        present = run
        if run.exempt_until is not None and now >= run.exempt_until:
            present = replace(run, exempt_until=None, stoppable=run.job.can_requeue)
        return bool(drained_runs(situation((), [present], on, now=now), POOL)[0])

    if last.waits in ("limit", "unlimited"):
        end = None if run.job.time_limit is None else max(NOW, run.start + run.job.time_limit)
        assert told.empty_at == last.at == end
        assert not any(goes(NOW + h * HOUR) for h in range(12) if end is None or NOW + h * HOUR < end)
    else:
        assert last.at is not None
        assert goes(last.at)
        assert last.at == NOW or not goes(last.at - 1)


def maintenance(**changes: Any) -> Reservation:
    given: dict[str, Any] = {"name": "maint", "nodes": ("n1",), "start": NOW + 15 * MINUTE, "end": NOW + 4 * HOUR}
    return Reservation(**{**given, "flags": ("MAINT", "IGNORE_JOBS"), **changes})


def maintained(run: LiveRun, **changes: Any) -> list[str]:
    of = situation((), [run], nodes(2))
    shot = replace(of.snapshot, reservations=(maintenance(**changes),))
    return [found.job.ref for found, _ in maintained_runs(replace(of, snapshot=shot))]


PAST = live(running(101, held("n1", 8)))


def test_nodes_are_emptied_shortly_before_a_maintenance_and_in_it() -> None:
    assert maintained(PAST) == ["101"]
    assert maintained(PAST, start=NOW + 15 * MINUTE + 1) == []
    assert maintained(PAST, start=NOW - HOUR) == ["101"]
    assert maintained(PAST, start=NOW - HOUR, end=NOW) == []
    assert maintained(PAST, nodes=("n2",)) == []
    assert maintained(PAST, flags=("IGNORE_JOBS",)) == []
    assert maintained(PAST, ours=True) == []


def test_a_contract_is_kept_and_what_ends_in_time_stays() -> None:
    assert maintained(replace(PAST, protected_until=NOW + 1)) == []
    assert maintained(replace(PAST, stoppable=False)) == []
    ends = running(101, held("n1", 8), time_limit=10 * HOUR + 15 * MINUTE)
    assert maintained(live(ends)) == []
    assert maintained(live(replace(ends, time_limit=10 * HOUR + 15 * MINUTE + 1))) == ["101"]
    inside = replace(PAST.job, reservation="maint")
    assert maintained(replace(PAST, job=inside)) == []


def test_it_is_requeued_once_also_if_its_node_drains() -> None:
    on = [node("n1", draining=True, reason="xid", reason_since=NOW - HOUR), *nodes(9)[1:]]
    of = situation((), [PAST], on)
    of = replace(of, snapshot=replace(of.snapshot, reservations=(maintenance(),)))
    assert [(a.kind, a.ref) for a in drains(of)] == [(ActionKind.DRAIN, "101")]


def test_what_is_told_to_people(ledger: SqlLedger) -> None:
    backed = running(101, held("n1", 8), start=NOW - HOUR)
    shell = running(102, held("n2", 4), start=NOW - HOUR, batch=False, time_limit=9 * HOUR)
    on = [node("n1", draining=True, reason="xid", reason_since=NOW - HOUR), *nodes(9)[1:]]
    shot = snapshot([backed, shell], on)
    facts = made.run(NOW - HOUR, NOW - HOUR, None, "RUNNING", key=backed.key, job_ref="101", budget="blue")
    ledger.save_runs([facts])
    ledger.save_contracts([made.contract(facts, 3 * HOUR)])
    view = Outlooks(ledger, shot, Policy(), Mode.ENFORCE)
    (first,) = view.drain()
    assert (first.node.name, first.empty_at, first.leaving[0].waits) == ("n1", NOW + 2 * HOUR, "contract")
    named = view.drain(["n2", "n3"])
    assert [(n.node.name, n.empty_at) for n in named] == [("n2", NOW + 8 * HOUR), ("n3", NOW)]
    assert named[0].leaving[0].waits == "limit"
    with pytest.raises(NotFoundError, match="no node n99"):
        view.drain(["n99"])
    plan = view.maintenance((), NOW + 6 * HOUR)
    assert [x.job.ref for x in plan.late] == ["102"]
    assert (plan.announce, plan.empty_at) == (NOW + 6 * HOUR - 8 * HOUR - 15 * MINUTE, NOW + 8 * HOUR)
    observing = Outlooks(ledger, shot, Policy(), Mode.OBSERVE)
    assert observing.drain()[0].leaving[0].waits == "limit"


def test_a_completing_job_is_as_good_as_gone() -> None:
    job = replace(running(101, held("n1", 8)), state=JobState.OTHER, completing=True)
    (told,) = outlook([node("n1")], [job], {}, now=NOW, emptied_from={})
    assert (told.empty_at, told.leaving[0].waits) == (NOW, "completing")
