"""What the contract of the ports needs of a cluster, and the simulated one; :mod:`tests.contract.real` is the other.

Each has four nodes of four GPUs, the accounts nlp (alice) and vision (bob), and the QOS backed and spare of design
section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyslurm_budget.domain.claim import EXEMPT
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.shapes import Settings, SubmitSpec, small

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.service.engines import Pace
    from pyslurm_budget.service.ports import Accounting, Commands, LiveCluster

ACCOUNTS = {"alice": "nlp", "bob": "vision"}


@dataclass(frozen=True)
class Ask:
    """What a user submits: a batch job that sleeps ``seconds``; ``array`` is a number of tasks."""

    user: str = "alice"
    gpus: int = 4
    nodes: int = 1
    seconds: int = 600
    qos: str = "backed"
    limit: int = 1200
    comment: str = ""
    array: int = 0
    requeue: bool = True
    hold: bool = False


class Backend(Protocol):
    """The three ports of one cluster, and what users, operators and time do to it.

    ``patience`` is how many seconds anything may take that should happen soon: a pass, KillWait, an epilog, a row on
    its way to slurmdbd; ``requeue_delay`` comes on top where a job is to start again. ``rounds_a_minute`` is how many
    claims are served one after the other, KillWait and epilog included where its jobs need them.
    """

    live: LiveCluster
    commands: Commands
    accounting: Accounting
    patience: int
    requeue_delay: int
    pace: Pace
    rounds_a_minute: int

    def submit(self, ask: Ask) -> str:
        """``sbatch``; returns the id."""

    def cancel(self, ref: str) -> None:
        """``scancel`` by root."""

    def lower(self, ref: str, way: str) -> None:
        """What the owner may do to his running job's priority: ``hold`` or ``nice``."""

    def drain(self, node: str, reason: str) -> None:
        """Set the node to drain."""

    def resume(self, node: str) -> None:
        """Take it back into service."""

    def until(self, what: Callable[[], bool], within: int) -> bool:
        """Let time pass until it is so; false if it is not within so many seconds."""

    def clean(self) -> None:
        """Cancel everything, and wait until all nodes are empty and take work."""


class Simulated:
    """The simulated cluster: time passes by itself, second by second."""

    patience = 60
    requeue_delay = 121
    rounds_a_minute = 10

    def __init__(self) -> None:
        """A new one for every test."""
        settings = Settings(kill_wait=2, epilog=1, accounting_lag=2, min_exempt_priority=EXEMPT)
        self.cluster = SimulatedCluster(small(4, 4, settings=settings, claim=True))
        self.pace: Pace = self.cluster
        self.live: LiveCluster = self.cluster
        self.commands: Commands = self.cluster
        self.accounting: Accounting = self.cluster

    def submit(self, ask: Ask) -> str:
        """See :class:`Backend`."""
        return self.cluster.submit(
            SubmitSpec(
                ask.user,
                ACCOUNTS[ask.user],
                ask.seconds,
                qos=ask.qos,
                nodes=ask.nodes,
                gpus_per_node=ask.gpus,
                time_limit=ask.limit,
                comment=ask.comment,
                array=tuple(range(ask.array)),
                requeue=ask.requeue,
                hold=ask.hold,
            )
        )

    def cancel(self, ref: str) -> None:
        """See :class:`Backend`."""
        self.cluster.cancel(ref)

    def lower(self, ref: str, way: str) -> None:
        """See :class:`Backend`."""
        if way == "hold":
            self.cluster.hold(ref)
        else:
            self.cluster.set_nice(ref, 100_000_000)

    def drain(self, node: str, reason: str) -> None:
        """See :class:`Backend`."""
        self.cluster.drain(node, reason)

    def resume(self, node: str) -> None:
        """See :class:`Backend`."""
        self.cluster.resume(node)

    def until(self, what: Callable[[], bool], within: int) -> bool:
        """See :class:`Backend`."""
        for _ in range(within):
            if what():
                return True
            self.cluster.run_for(1)
        return what()

    def clean(self) -> None:
        """A new cluster is made for each test; this one must be sound."""
        assert self.cluster.check() == ()
