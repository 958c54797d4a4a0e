"""What both engines of displacement promise, on every cluster that can have them.

The takings are made by hand from what the cluster shows: whose place may be taken is not the engines' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain import engine as engines
from pyslurm_budget.domain.claim import SHIELD, TOP
from pyslurm_budget.domain.model import Job, JobState, Mode
from pyslurm_budget.domain.plan import Action, ActionKind, Reason, Taking
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.sweep import exposed
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.apply import Applier
from pyslurm_budget.service.claims import ClaimEngine
from pyslurm_budget.service.engines import RequeueEngine
from tests.contract.backends import Ask, Backend
from tests.contract.test_ports import eventually, is_in, job, states

if TYPE_CHECKING:
    from pyslurm_budget.service.engines import Engine
    from pyslurm_budget.service.ports import Intent

POLICY = Policy(claim_step=3, lost_after=120)
RUN = Ask("bob", gpus=2)


@dataclass
class Served:
    """An engine over a cluster, with a ledger of its own."""

    backend: Backend
    name: str
    ledger: SqlLedger
    engine: Engine
    applier: Applier

    def now(self) -> int:
        return self.backend.live.snapshot().now

    def displace(self, *takings: Taking) -> None:
        """One cycle, in the order of a real one."""
        cycle = self.ledger.begin_cycle(self.now(), Mode.ENFORCE, applied=True)
        self.sweep()
        self.engine.displace(cycle, takings, self.now())

    def sweep(self) -> None:
        jobs = self.backend.live.jobs()
        self.engine.sweep(jobs, self.now())
        self.applier.settle_open(jobs, lambda _: None, self.now())

    def taking(self, ref: str, *runs: str, others: tuple[str, ...] = ()) -> Taking:
        """The job, and the runs whose place it may take."""
        waits = job(self.backend, ref)
        claim = action(waits, ActionKind.CLAIM, ref, qos="claim", site_factor=TOP, until=self.now() + 90)
        first, more = (
            tuple(action(job(self.backend, r), ActionKind.DISPLACE, r, for_ref=ref, site_factor=SHIELD) for r in rs)
            for rs in (runs, others)
        )
        return Taking(claim, first, more)

    def intent(self, ref: str) -> Intent:
        """The last word on a job."""
        return self.ledger.intents(ref=ref)[-1]


def action(of: Job, kind: ActionKind, ref: str, **more: object) -> Action:
    gpus = of.held_tres.gpus if of.state is JobState.RUNNING else of.request.gpus
    reason = Reason("displaced-for", {"gpus": gpus or 0})
    return Action(kind, ref, of.key, reason, of.state, of.qos, time_limit=of.time_limit, **more)  # type: ignore[arg-type]


@pytest.fixture(params=["requeue", "claim"])
def served(request: pytest.FixtureRequest, backend: Backend) -> Iterator[Served]:
    snapshot = backend.live.snapshot()
    if request.param == engines.CLAIM:
        lacking = engines.obstacle(snapshot.controller, snapshot.qos, POLICY.classes)
        if lacking is not None:
            pytest.skip(f"no claims: {lacking}")
    ledger = SqlLedger("sqlite://", "any")
    applier = Applier(backend.live, backend.commands, ledger, POLICY, lambda _: None)
    engine: Engine = RequeueEngine(applier, lambda _: None)
    if request.param == engines.CLAIM:
        engine = ClaimEngine(backend.live, backend.commands, ledger, POLICY, lambda _: None, pace=backend.pace)
    yield Served(backend, request.param, ledger, engine, applier)
    ledger.close()


def run(b: Backend, ask: Ask = RUN) -> str:
    """A backed run as the controller keeps it: shielded."""
    ref = b.submit(ask)
    eventually(b, is_in(b, ref, JobState.RUNNING))
    b.commands.update_job(ref, site_factor=SHIELD)
    return ref


def full(b: Backend) -> list[str]:
    """Eight runs of two GPUs: the cluster is full."""
    return [run(b) for _ in range(8)]


def waiting(b: Backend, ask: Ask) -> str:
    ref = b.submit(ask)
    eventually(b, lambda: job(b, ref).reason in ("Resources", "Priority"))
    return ref


def on_node(b: Backend, refs: list[str], node: str) -> list[str]:
    return [ref for ref in refs if [s.node for s in job(b, ref).allocation] == [node]]


def untouched(b: Backend, refs: list[str]) -> bool:
    return all(job(b, ref).state is JobState.RUNNING and job(b, ref).restarts == 0 for ref in refs)


def nothing_open(b: Backend) -> bool:
    return not [j.ref for j in b.live.jobs() if exposed(j, POLICY.classes)]


def test_the_job_runs_and_only_what_it_may_take_is_stopped(served: Served) -> None:
    b = served.backend
    runs = full(b)
    node = job(b, runs[0]).allocation[0].node
    victims = on_node(b, runs, node)
    others = [ref for ref in runs if ref not in victims]
    ref = waiting(b, Ask(gpus=4))
    served.displace(served.taking(ref, *victims))
    eventually(b, is_in(b, ref, JobState.RUNNING))
    assert untouched(b, others)
    assert {s.node for s in job(b, ref).allocation} == {node}
    for victim in victims:
        eventually(b, is_in(b, victim, JobState.PENDING))
        assert job(b, victim).restarts == 1
        eventually(b, lambda v=victim: states(b, v)[:1] in (["PREEMPTED"], ["REQUEUED"]))  # type: ignore[misc]
    served.sweep()
    assert served.ledger.open_intents() == ()
    assert {served.intent(v).state for v in victims} == {"done"}
    assert nothing_open(b) or served.name != engines.CLAIM
    assert not [j.ref for j in b.live.jobs() if j.qos == "claim" and j.state is JobState.PENDING]


def test_a_run_that_was_requeued_meanwhile_is_not_stopped_again(served: Served) -> None:
    b = served.backend
    runs = [run(b, Ask("bob", gpus=4)) for _ in range(4)]
    ref = waiting(b, Ask(gpus=4))
    taking = served.taking(ref, runs[0])
    b.commands.requeue(runs[0])
    eventually(b, is_in(b, ref, JobState.RUNNING))
    b.cancel(runs[1])
    eventually(b, is_in(b, runs[0], JobState.RUNNING), more=b.requeue_delay)
    served.displace(taking)
    assert job(b, runs[0]).restarts == 1
    assert untouched(b, runs[2:])
    served.sweep()
    assert served.ledger.open_intents() == ()


def only_claims(served: Served) -> None:
    if served.name != engines.CLAIM:
        pytest.skip("the requeue engine is told what fits")


def test_where_it_does_not_fit_nobody_is_stopped(served: Served) -> None:
    """Two nodes are wanted, and the runs of one are open; half a node more is open on another."""
    only_claims(served)
    b = served.backend
    runs = full(b)
    first = on_node(b, runs, job(b, runs[0]).allocation[0].node)
    half = next(ref for ref in runs if ref not in first)
    ref = waiting(b, Ask(gpus=4, nodes=2))
    served.displace(served.taking(ref, *first, others=(half,)))
    assert untouched(b, runs)
    assert nothing_open(b)
    assert (job(b, ref).state, job(b, ref).qos) == (JobState.PENDING, "backed")
    assert served.intent(ref).outcome == "Slurm found no place for it with these runs open"
    assert served.ledger.open_intents() == ()


def test_more_are_opened_only_if_the_first_do_not_make_room(served: Served) -> None:
    only_claims(served)
    b = served.backend
    runs = full(b)
    first = on_node(b, runs, job(b, runs[0]).allocation[0].node)
    second = [ref for ref in runs if ref not in first]
    ref = waiting(b, Ask(gpus=4))
    served.displace(served.taking(ref, first[0], others=(first[1], *second)))
    eventually(b, is_in(b, ref, JobState.RUNNING))
    assert untouched(b, second)
    assert served.intent(second[-1]).state == "skipped"


def test_only_the_job_that_claims_takes_the_place(served: Served) -> None:
    """Others of its kind that rank above it, and its victim's own group, come away empty-handed."""
    only_claims(served)
    b = served.backend
    runs = [run(b, Ask("bob", gpus=4)) for _ in range(4)]
    above = [waiting(b, Ask(user, gpus=4)) for user in ("alice", "bob")]
    for ref in above:
        b.commands.update_job(ref, site_factor=SHIELD + 500_000)
    ref = waiting(b, Ask(gpus=4))
    served.displace(served.taking(ref, runs[2]))
    eventually(b, is_in(b, ref, JobState.RUNNING))
    assert untouched(b, [r for r in runs if r != runs[2]])
    assert {job(b, r).state for r in above} == {JobState.PENDING}


def test_a_run_that_started_by_a_claim_can_be_claimed_in_its_turn(served: Served) -> None:
    only_claims(served)
    b = served.backend
    runs = [run(b, Ask("bob", gpus=4)) for _ in range(4)]
    last = runs[1]
    for user in ("alice", "bob", "alice"):
        ref = waiting(b, Ask(user, gpus=4))
        served.displace(served.taking(ref, last))
        eventually(b, is_in(b, ref, JobState.RUNNING))
        served.sweep()
        assert job(b, ref).qos == "claim"
        assert nothing_open(b)
        last = ref
    assert untouched(b, [r for r in runs if r != runs[1]])


def test_a_cancelled_job_takes_nobodys_place(served: Served) -> None:
    only_claims(served)
    b = served.backend
    runs = [run(b, Ask("bob", gpus=4)) for _ in range(4)]
    ref = waiting(b, Ask(gpus=4))
    taking = served.taking(ref, runs[0])
    b.cancel(ref)
    served.displace(taking)
    assert untouched(b, runs)
    assert served.intent(ref).outcome == "the job had moved on"


def test_an_array_task_is_served_alone(served: Served) -> None:
    b = served.backend
    runs = [run(b, Ask("bob", gpus=4)) for _ in range(4)]
    array = b.submit(Ask(gpus=4, array=3))
    eventually(b, lambda: job(b, array).reason in ("Resources", "Priority"))
    taking = served.taking(array, runs[0])
    taking = replace(taking, job=replace(taking.job, ref=f"{array}_0"))
    served.displace(replace(taking, first=(replace(taking.first[0], for_ref=f"{array}_0"),)))
    eventually(b, is_in(b, f"{array}_0", JobState.RUNNING))
    assert untouched(b, runs[1:])
    rest = [j for j in b.live.jobs() if j.array_job_id == int(array) and j.state is JobState.PENDING]
    assert {j.qos for j in rest} == {"backed"}


@pytest.mark.parametrize("way", ["hold", "nice"])
def test_the_sweep_closes_what_an_owner_opened(served: Served, way: str) -> None:
    only_claims(served)
    b = served.backend
    ref = run(b)
    b.lower(ref, way)
    assert not nothing_open(b)
    served.sweep()
    assert nothing_open(b)


def test_the_sweep_takes_back_a_claim_that_no_round_stands_behind(served: Served) -> None:
    only_claims(served)
    b = served.backend
    runs = [run(b, Ask("bob", gpus=4)) for _ in range(4)]
    ref = waiting(b, Ask(gpus=4))
    b.commands.update_job(ref, qos="claim", site_factor=TOP)
    served.sweep()
    assert (job(b, ref).qos, job(b, ref).priority < TOP) == ("backed", True)
    assert untouched(b, runs)


def test_rounds_follow_one_another_quickly(served: Served) -> None:
    only_claims(served)
    b = served.backend
    runs = [run(b, Ask("bob", gpus=1)) for _ in range(16)]
    waits = [b.submit(Ask(gpus=1)) for _ in range(16)]
    eventually(b, lambda: all(job(b, ref).reason in ("Resources", "Priority") for ref in waits))
    began = b.pace.milliseconds()
    for _ in range(16):
        left = [ref for ref in waits if job(b, ref).state is JobState.PENDING]
        if not left:
            break
        free = [ref for ref in runs if job(b, ref).state is JobState.RUNNING]
        served.displace(*(served.taking(ref, victim) for ref, victim in zip(left, free, strict=False)))
    took = b.pace.milliseconds() - began
    assert [ref for ref in waits if job(b, ref).state is not JobState.RUNNING] == []
    served.sweep()
    assert nothing_open(b)
    assert 16 * 60_000 / took >= b.rounds_a_minute, f"16 rounds took {took} ms"
