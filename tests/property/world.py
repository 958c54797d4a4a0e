"""A whole site in the simulator for property tests: random loads and accidents, and oracles of its own.

The oracles read the simulated Slurm's event log, records and accounting rows, and what users asked for; nothing that
the product computes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import strategies as st

from pyslurm_budget.cli.simulated import KilledError, SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.model import JobState, Mode, RunRecord
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import SlurmctldError, SlurmRefusedError
from pyslurm_budget.service.counts import GRANT, LOAN, RECALL, Entry
from pyslurm_budget.simulate.facts import jobs_of
from pyslurm_budget.simulate.shapes import ClusterSpec, Settings, SubmitSpec, small
from tests import checker

NODES = ("n1", "n2", "n3")
GPUS = 4
POOL = "a100"
USERS = {"alice": "nlp", "bob": "vision", "carol": "bio"}
DEFAULT = 20
BACKED = frozenset({"backed", "claim"})
POLICY = Policy(
    window=300,
    hour=20,
    cap=60,
    default_contract=DEFAULT,
    floor=DEFAULT,
    ceiling_part=Fraction(1),
    grown_wait=20,
    early_wait=40,
    early_loss=10,
    wide_wait=20,
    start_deadline=10,
    back_off=20,
    drain_after=3,
    drain_min_nodes=2,
    restart_quiet=6,
    breaker_least_gpus=1_000_000,
    requeues_per_hour=10_000,
)
TREES: tuple[dict[str, tuple[str | None, int]], ...] = (
    {"nlp": (None, 50), "vision": (None, 30), "bio": (None, 20)},
    {"nlp": (None, 70), "vision": ("nlp", 60), "bio": (None, 30)},
    {"nlp": (None, 90), "vision": (None, 10), "bio": (None, 0)},
)
Accident = tuple[Any, ...]
MOMENT = st.integers(0, 170)
ACCIDENTS = st.one_of(
    st.tuples(MOMENT, st.sampled_from(("drain", "resume", "fail_node", "recover_node")), st.sampled_from(NODES)),
    st.tuples(MOMENT, st.just("share"), st.sampled_from(tuple(USERS.values())), st.sampled_from((0, 1, 20, 80))),
    st.tuples(MOMENT, st.just("give"), st.sampled_from(tuple(USERS.values())), st.sampled_from((20, 200, 2000))),
    st.tuples(MOMENT, st.just("lend"), st.permutations(tuple(USERS.values())), st.sampled_from((20, 200, 1000))),
    st.tuples(MOMENT, st.just("recall"), st.none()),
    st.tuples(MOMENT, st.just("new-controller"), st.integers(0, 25)),
    st.tuples(MOMENT, st.just("die-at-step"), st.integers(1, 30)),
    st.tuples(MOMENT, st.just("slurmctld"), st.none()),
    st.tuples(MOMENT, st.just("reads"), st.sampled_from(("live", "accounting", "commands")), st.integers(1, 30)),
    st.tuples(MOMENT, st.sampled_from(("cancel", "requeue")), st.integers(1, 30)),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world with its load and its accidents, not begun."""
    seed = draw(st.integers(0, 2**32))
    tree = draw(st.sampled_from(TREES))
    drain = (draw(st.integers(5, 120)), "drain", draw(st.sampled_from(NODES)))
    what = sorted([drain, *draw(st.lists(ACCIDENTS, max_size=6))], key=lambda a: a[0])
    return World(seed, tree, tuple(what), every=draw(st.sampled_from((5, 8))))


class World:
    """One site with a load. ``after_cycle`` is called after every cycle with the events that happened in it."""

    def __init__(
        self,
        seed: int,
        tree: dict[str, tuple[str | None, int]] = TREES[0],
        accidents: tuple[Accident, ...] = (),
        *,
        every: int = 5,
        jobs: int = 25,
        seconds: int = 180,
        mode: Mode = Mode.ENFORCE,
        policy: Policy = POLICY,
    ) -> None:
        self.about = (seed, tree, accidents, every)
        self.accidents = accidents
        self.seconds = seconds
        self.every = every
        self.random = Random(seed)
        self.slurm = Settings(
            kill_wait=self.random.choice((0, 3)),
            requeue_delay=self.random.choice((0, 5)),
            backfill_interval=5,
            epilog=self.random.choice((0, 2)),
        )
        self.tree = tree
        self.policy = policy
        self.mode = mode
        self.load = [self._spec() for _ in range(jobs)]
        self.by_users: set[str] = set()
        self.after_cycle: Callable[[World, list[Any]], None] = lambda _, __: None

    def __repr__(self) -> str:
        return f"World{self.about}"

    def _spec(self) -> tuple[int, SubmitSpec]:
        r = self.random
        user = r.choice(sorted(USERS))
        gpus = r.choice((1, 1, 2, 4, 4))
        work = r.choice((15, 40, 90, 200, 400))
        minimum = r.choice((None, None, 0, 10, 30, 60))
        spec = SubmitSpec(
            user,
            USERS[user],
            work,
            gpus_per_node=gpus,
            cpus=gpus,
            nodes=1,
            time_limit=r.choice((60, 600, 600)),
            comment="" if minimum is None else f"min-runtime={minimum}s",
            stops_in=r.choice((None, 1)),
            on_sigterm=r.choice(("requeue", "requeue", "requeue", "exits")),
            requeue=r.random() > 0.1,
            array=tuple(range(r.choice((0, 0, 0, 0, 0, 6)))),
        )
        if r.random() < 0.15:
            spec = replace(spec, nodes=2, cpus=2 * gpus)
        return round(r.random() ** 2 * 140), spec

    def spec(self) -> ClusterSpec:
        """The cluster."""
        return small(len(NODES), GPUS, settings=self.slurm)

    # --- playing

    def begin(self) -> SimulatedSite:
        """Make the site; its load is played as time goes on."""
        budgets = [
            Budget(name, parent, (ShareSince(BEGINNING, Fraction(share, 100)),))
            for name, (parent, share) in self.tree.items()
        ]
        self.site = SimulatedSite(self.spec(), self.policy, budgets, mode=self.mode, every=self.every)
        self.cluster = self.site.cluster
        self.start = self.cluster.now
        for at, job in self.load:
            self.cluster.at(self.start + 1 + at, lambda job=job: self._submit(job))  # type: ignore[misc]
        for accident in self.accidents:
            self.cluster.at(self.start + 1 + accident[0], lambda a=accident: self._happens(a))  # type: ignore[misc]
        self.site.start()
        return self.site

    def play(self) -> None:
        """Play to the end, second by second in steps of a cycle."""
        due = self.cluster.now
        while self.cluster.now < self.start + self.seconds:
            if self.site.controller is not None and self.cluster.now >= due:
                due = self.cluster.now + self.every
                self.one_cycle()
            self.cluster.run_for(1)

    def one_cycle(self) -> None:
        """One cycle, and the oracle after it."""
        before = len(self.cluster.events)
        self.site.cycle()
        self.after_cycle(self, list(self.cluster.events[before:]))

    def _happens(self, accident: Accident) -> None:
        _, what, *rest = accident
        if what == "share":
            self._share(*rest)
        elif what in ("give", "lend"):
            self._give(what, *rest)
        elif what == "recall":
            self._recall()
        elif what == "new-controller":
            self.site.kill()
            self.cluster.at(self.cluster.now + rest[0], self.site.start)
        elif what == "die-at-step":
            self.die(rest[0])
        elif what == "slurmctld":
            self.cluster.restart_controller()
        elif what == "reads":
            self.cluster.fail_reads(rest[0], self.cluster.now + rest[1])
        elif what in ("cancel", "requeue"):
            self._by_user(what, str(rest[0]))
        else:
            getattr(self.cluster, what)(rest[0])

    def _submit(self, spec: SubmitSpec) -> None:
        with suppress(SlurmRefusedError, SlurmctldError):
            self.cluster.submit(spec)

    def _by_user(self, what: str, ref: str) -> None:
        refs = {j.ref for j in jobs_of(self.cluster._state) if ref in (j.ref.partition("_")[0], str(j.key.job_id))}
        with suppress(SlurmRefusedError):
            (self.cluster.cancel if what == "cancel" else self.cluster._control.requeue)(ref)
            if what == "requeue":
                self.by_users |= refs

    def _share(self, account: str, percent: int) -> None:
        now = self.cluster.now
        tree = [
            replace(b, shares=(*b.shares, ShareSince(now, Fraction(percent, 100)))) if b.account == account else b
            for b in self.site.ledger.budgets()
        ]
        self.site.ledger.save_budgets(tree, now, "operator", "a test")

    def _give(self, what: str, whom: str | list[str], gpu_seconds: int) -> None:
        """A grant, or a loan of the first to the second, for a minute."""
        now = self.cluster.now
        account, lender = (whom, None) if isinstance(whom, str) else (whom[1], whom[0])
        kind, amount = (GRANT if lender is None else LOAN), gpu_seconds * 1000
        entry = Entry(now, kind, account, POOL, amount, now, now + 60, "operator", "a test", lender=lender)
        self.site.ledger.add_entries([entry])

    def _recall(self) -> None:
        """Everything that is in force ends now."""
        now = self.cluster.now
        for grant in self.site.ledger.grants(now):
            entry = Entry(now, RECALL, grant.budget, POOL, 0, now, None, "operator", "a test", reverses=grant.id)
            self.site.ledger.add_entries([entry])

    def reads_fail(self) -> bool:
        """Whether live or accounting reads fail now."""
        faults = self.cluster._faults
        return any(self.cluster.now < faults.get(what, 0) for what in ("live", "accounting"))

    def drained(self, ref: str) -> bool:
        """Whether a node of the job's last run drains."""
        last = [e for e in self.cluster.events if e.kind == "start" and e.ref == ref][-1]
        return any(self.cluster._state.nodes[n].draining for n in str(last.detail["nodes"]).split(","))

    def die(self, steps: int, *, come_back: bool = True) -> None:
        """The controller dies at its so-many-th step from now on; another starts 7 s later, or none."""
        left = steps

        def at_step(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                if come_back:
                    self.cluster.at(self.cluster.now + 7, self.site.start)
                raise KilledError

        self.site.kill()
        self.site.start(at_step)

    # --- oracles

    def broken_contracts(self) -> list[str]:
        """One sentence for every backed run that was requeued before its declared minimum, from the event log."""
        return checker.broken(self.runs(), default=DEFAULT, backed=BACKED, by_others=frozenset(self.by_users))

    def runs(self) -> list[checker.Row]:
        """Every run of the event log; the class is that of its start (no release can change a running job's QOS)."""
        comments: dict[str, str] = {}
        found: list[checker.Row] = []
        open_runs: dict[str, checker.Row] = {}
        for event in self.cluster.events:
            if event.kind == "submit":
                comments[event.ref] = self._comment(event)
            elif event.kind == "start":
                comment = comments[event.ref.partition("_")[0]]
                open_runs[event.ref] = checker.Row(
                    event.ref, 0, event.time, None, "RUNNING", str(event.detail["qos"]), comment
                )
            elif event.kind == "stop":
                run = open_runs.pop(event.ref)
                found.append(replace(run, end=event.time, state=str(event.detail["state"])))
        return [*found, *open_runs.values()]

    def _comment(self, event: Any) -> str:
        submitted = self.cluster._state.submitted
        return submitted[event.ref if event.ref in submitted else f"{event.ref}_0"].comment

    def charged(self, budget: str, as_of: int) -> int:
        """mGPU-s of backed runs of the budget and those below it inside the window, from the accounting rows."""
        below = {budget} | {name for name, (parent, _) in self.tree.items() if parent == budget}
        begin, total = as_of - self.policy.window, 0
        for row in self.cluster._state.rows.read(self.cluster.now, 0, 1 << 40):
            if row.account in below and row.qos in BACKED and row.start is not None:
                end = as_of if row.end is None else min(row.end, as_of)
                total += (row.tres.gpus or 0) * 1000 * max(0, end - max(row.start, begin))
                total -= self._credited(row, begin)
        for b in self.site.ledger.bookings(begin):
            amount = b.amount * (b.end - max(b.begin, begin)) // (b.end - b.begin)
            total += amount * ((b.lender in below) - (b.budget in below))
        return total

    def _credited(self, row: RunRecord, begin: int) -> int:
        """mGPU-s inside the window that a run lost since its last full contract because its node died."""
        contract = self.site.ledger.contracts([row.key])
        if row.state != "NODE_FAIL" or row.end is None or row.start is None or not contract:
            return 0
        last = row.start
        while 0 < contract[0].minimum <= row.end - last:
            last += contract[0].minimum
        lost = row.end - max(last, begin) if contract[0].minimum else 0
        return (row.tres.gpus or 0) * 1000 * max(0, lost)

    def held(self) -> list[str]:
        """Jobs that wait with priority 0."""
        return [
            j.ref
            for j in jobs_of(self.cluster._state)
            if j.state is JobState.PENDING and j.reason.startswith("JobHeld")
        ]


class Rounds(World):
    """Every round's jobs wait for a begin time, are seen waiting, and then all start: the cluster is large enough."""

    def begin(self) -> SimulatedSite:
        """As ever, with rounds of jobs that ask for at most all GPUs together."""
        self.slurm = replace(self.slurm, kill_wait=0, epilog=0)
        site = super().begin()
        for at in range(10, 240, 60):
            room = dict.fromkeys(NODES, GPUS)
            for _ in range(self.random.randint(2, 8)):
                user, gpus = self.random.choice(sorted(USERS)), self.random.choice((1, 2, 4))
                node = next((n for n, free in room.items() if free >= gpus), None)
                if node is None:
                    break
                room[node] -= gpus
                minimum, work = self.random.choice((5, 20, 40, 60)), self.random.randint(1, 40)
                spec = SubmitSpec(
                    user,
                    USERS[user],
                    work,
                    gpus_per_node=gpus,
                    cpus=gpus,
                    time_limit=120,
                    comment=f"min-runtime={minimum}s",
                    begin=self.start + at + 12,
                )
                self.cluster.at(self.start + at, lambda spec=spec: self._submit(spec))  # type: ignore[misc]
        return site
