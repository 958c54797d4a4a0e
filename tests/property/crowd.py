"""Worlds for moving and collecting windows: short backed work keeps coming, and somebody needs whole nodes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from pyslurm_budget.cli.simulated import SimulatedSite
from pyslurm_budget.domain.budget import BEGINNING, Budget, ShareSince
from pyslurm_budget.domain.model import JobState
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.shapes import SubmitSpec, small
from tests.property.world import POLICY, World

CAP = POLICY.cap
SHARES = {"nlp": 40, "vision": 30, "bio": 30}
OTHERS = (("bob", "vision"), ("carol", "bio"))
# Windows longer than the play: nobody runs out of budget.
CROWDED = replace(
    POLICY,
    window=4000,
    early_wait=20,
    window_part=Fraction(1),
    window_above=0,
    keep_room=40,
    keep_idle=60,
    moves_per_cycle=0,
)


class Crowd(World):
    """Nodes full of others' runs past their contracts, and short jobs with new contracts that slip in all the time.

    At ``asked`` alice, who has used nothing, submits a job over ``wide`` whole nodes.
    """

    def __init__(self, seed: int, wide: int, nodes: int, policy: Policy = CROWDED, *, seconds: int = 400) -> None:
        super().__init__(seed, policy=policy, jobs=0, seconds=seconds)
        self.about = (seed, wide, nodes)  # type: ignore[assignment]
        self.wide, self.nodes = wide, nodes
        self.asked = self.random.randint(60, 90)

    def begin(self) -> SimulatedSite:
        """Make the site, with all that is to come."""
        budgets = [Budget(n, None, (ShareSince(BEGINNING, Fraction(s, 100)),)) for n, s in SHARES.items()]
        spec = small(self.nodes, 4, settings=self.slurm)
        self.site = SimulatedSite(spec, self.policy, budgets, every=self.every)
        self.cluster = self.site.cluster
        self.start = self.cluster.now
        self.site.start()
        for at in [1] * self.nodes + list(range(3, self.seconds, 5)):
            self.cluster.at(self.start + at, lambda at=at: self._short(long=at == 1))  # type: ignore[misc]
        self.job = ""
        self.cluster.at(self.start + self.asked, self._wide)
        return self.site

    def _short(self, *, long: bool) -> None:
        """A job whose limit is hardly longer than its contract, so that backfill finds room for it; or a long one."""
        user, account = self.random.choice(OTHERS)
        gpus = 2 if long else self.random.choice((1, 2))
        spec = SubmitSpec(
            user,
            account,
            900 if long else self.random.randint(50, 66),
            gpus_per_node=gpus,
            cpus=gpus,
            time_limit=1000 if long else 70,
            comment=f"min-runtime={self.random.choice((30, 60, 60))}s",
            stops_in=1,
            requeue=long or self.random.random() > 0.1,
        )
        with suppress(SlurmRefusedError):
            self.cluster.submit(spec)

    def _wide(self) -> None:
        n = self.wide
        self.job = self.cluster.submit(
            SubmitSpec("alice", "nlp", 100, nodes=n, gpus_per_node=4, cpus=4 * n, time_limit=150, stops_in=1)
        )

    def play(self) -> None:
        """To the end, or until alice's job is over or nobody controls any more."""
        while self.cluster.now < self.start + self.seconds and not self.ended:
            if self.site.controller is None:
                return
            self.one_cycle()
            self.cluster.run_for(self.every)

    @property
    def waited(self) -> int | None:
        """Seconds from alice's submission to the first start of her job."""
        starts = [e.time for e in self.cluster.events if e.kind == "start" and e.ref == self.job]
        return starts[0] - self.start - self.asked if starts else None

    @property
    def in_time(self) -> int:
        """Cap, and requeue time: until it is seen waiting, and from the window's start until its nodes are free."""
        return CAP + 2 * self.every + 4 * self.every + self.slurm.kill_wait + self.slurm.epilog + 5

    @property
    def ended(self) -> list[str]:
        """How the runs of alice's job ended."""
        return [str(e.detail["state"]) for e in self.cluster.events if e.kind == "stop" and e.ref == self.job]

    def is_over(self) -> bool:
        """Whether all jobs are."""
        return all(j.state is JobState.OTHER for j in self.cluster.jobs())
