"""The whole product over the simulated cluster: submit plugin, ledger, and a controller that can be killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Mode
from pyslurm_budget.errors import SbudgetError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.reconcile import Ports, Reconciler, Settings
from pyslurm_budget.simulate.cluster import SimulatedCluster
from pyslurm_budget.simulate.plugin import Published, SubmitPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyslurm_budget.domain.budget import Budget
    from pyslurm_budget.domain.policy import Policy
    from pyslurm_budget.service.reconcile import CycleResult
    from pyslurm_budget.simulate.shapes import ClusterSpec

IN_MEMORY = "sqlite://"


class KilledError(BaseException):
    """Kills a controller at a step (``at_step``): nothing of it may catch this, as nothing catches SIGKILL."""


class SimulatedSite:
    """A simulated cluster with everything that we put beside it. Time moves by :meth:`run_for` alone.

    While a controller is there (``start``) it runs a cycle every ``every`` seconds. ``kill`` takes it away without a
    word: its lease stays in force for ``lease`` seconds, as that of a dead process does.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        policy: Policy,
        budgets: Iterable[Budget],
        *,
        mode: Mode = Mode.ENFORCE,
        every: int = 2,
        lease: int = 5,
        ledger_url: str = IN_MEMORY,
    ) -> None:
        """Budgets are in force at once; no controller runs yet."""
        self.policy = policy
        self.mode = mode
        self.published = Published()
        self.plugin = SubmitPlugin(spec, self.published)
        self.cluster = SimulatedCluster(spec, self.plugin)
        self.ledger = SqlLedger(ledger_url, spec.settings.cluster)
        self.ledger.save_budgets(budgets, self.cluster.now, "operator", "the first tree")
        self._every = every
        self._lease = lease
        self._started = 0
        self._due = self.cluster.now
        self.controller: Reconciler | None = None
        self.last: CycleResult | None = None
        self.failure: SbudgetError | None = None

    def close(self) -> None:
        """Give the ledger back."""
        self.ledger.close()

    def start(self, at_step: Callable[[str], None] = lambda _: None) -> None:
        """Start a controller; its first cycle is due at once. ``at_step`` may raise :class:`KilledError`."""
        self._started += 1
        settings = Settings(self.policy, self.mode, f"simulated:{self._started}", self._lease)
        ports = Ports(
            live=self.cluster,
            accounting=self.cluster,
            commands=self.cluster,
            ledger=self.ledger,
            publisher=self.published,
            host_clock=lambda: self.cluster.now,
            history=self.cluster,
            pace=self.cluster,
        )
        self.controller = Reconciler(settings, ports, at_step)
        self._due = self.cluster.now

    def stop(self) -> None:
        """Stop the controller as systemd would; it gives its lease back."""
        if self.controller is not None:
            self.controller.retire()
            self.controller.close()
        self.controller = None

    def kill(self) -> None:
        """Take the controller away between two cycles."""
        self.controller = None

    def cycle(self) -> CycleResult | None:
        """One cycle now. ``None`` if it failed (``failure`` says why; the controller goes on, as with ``--every``),
        or if the controller was killed in it (it is gone)."""
        if self.controller is None:
            raise ValueError("no controller runs")
        self.last, self.failure = None, None
        try:
            self.last = self.controller.cycle(apply=True)
        except SbudgetError as failure:
            self.failure = failure
        except KilledError:
            self.controller = None
        return self.last

    def run_for(self, seconds: int) -> None:
        """Let time pass, with the cycles that are due in it; a round of claims in the last one may take longer."""
        end = self.cluster.now + seconds
        while self.controller is not None and self._due <= end:
            self.cluster.run_until(max(self._due, self.cluster.now))
            self._due = self.cluster.now + self._every
            self.cycle()
        self.cluster.run_until(max(end, self.cluster.now))
