"""The contract's real cluster: a dev cluster set up by ``sbudget setup apply``, and the product's own ports over it.

The plugin of setup is there without a table, so every job keeps the QOS that it was submitted with.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyslurm_budget.service.reconcile import HostPace
from pyslurm_budget.slurm.commands import SlurmCommands
from pyslurm_budget.slurm.queue import SlurmQueue
from pyslurm_budget.slurm.run import Runner
from pyslurm_budget.slurm.sacct import SacctAccounting
from tests.cluster.devcluster import PORT, claim_settings, closing_cluster, folder, install, require
from tests.cluster.network import private_network
from tests.cluster.site import Site
from tests.contract.backends import ACCOUNTS, Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyslurm_budget.service.engines import Pace
    from pyslurm_budget.service.ports import Accounting, Commands, LiveCluster
    from tests.cluster.devcluster import DevCluster

FIRST_PORT = PORT + 400
REQUEUE_DELAY = 5


class Real:
    """The real cluster: one for all tests, as starting it takes longer than any of them."""

    patience = 60
    requeue_delay = REQUEUE_DELAY + 1
    rounds_a_minute = 20

    def __init__(self, site: Site) -> None:
        """Over a site that is set up."""
        self.site = site
        runner = Runner(site.cluster.conf)
        self.live: LiveCluster = SlurmQueue(runner)
        self.pace: Pace = HostPace()
        self.commands: Commands = SlurmCommands(runner)
        self.accounting: Accounting = SacctAccounting(runner)

    @property
    def cluster(self) -> DevCluster:
        """Where Slurm's own commands run."""
        return self.site.cluster

    def submit(self, ask: Ask) -> str:
        """See :class:`tests.contract.backends.Backend`."""
        assert ask.limit % 60 == 0, "sbatch takes whole minutes"
        words = ["--parsable", f"--account={ACCOUNTS[ask.user]}", f"--qos={ask.qos}", "--output=/dev/null"]
        words += [f"--nodes={ask.nodes}", f"--gres=gpu:{ask.gpus}", f"--time={ask.limit // 60}"]
        words += [f"--comment={ask.comment}"] if ask.comment else []
        words += [f"--array=0-{ask.array - 1}"] if ask.array else []
        words += ["--requeue" if ask.requeue else "--no-requeue"]
        words += ["--hold"] if ask.hold else []
        return self.cluster.run(["sbatch", *words, f"--wrap=sleep {ask.seconds}"], user=ask.user).out.strip()

    def cancel(self, ref: str) -> None:
        """See :class:`tests.contract.backends.Backend`."""
        self.cluster.run(["scancel", ref])

    def lower(self, ref: str, way: str) -> None:
        """See :class:`tests.contract.backends.Backend`."""
        argv = ["hold", ref] if way == "hold" else ["update", f"jobid={ref}", "nice=100000000"]
        user = self.cluster.run(["squeue", "-h", "-j", ref, "-o", "%u"]).out.strip()
        self.cluster.run(["scontrol", *argv], user=user)

    def drain(self, node: str, reason: str) -> None:
        """See :class:`tests.contract.backends.Backend`."""
        self.cluster.run(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"])

    def resume(self, node: str) -> None:
        """See :class:`tests.contract.backends.Backend`."""
        self.cluster.run(["scontrol", "update", f"nodename={node}", "state=resume"])

    def until(self, what: Callable[[], bool], within: int) -> bool:
        """See :class:`tests.contract.backends.Backend`."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if what():
                return True
            time.sleep(0.1)
        return what()

    def clean(self) -> None:
        """See :class:`tests.contract.backends.Backend`."""
        self.site.clean()


@contextmanager
def real_cluster() -> Iterator[Real]:
    """A cluster in a network of its own, taken down whatever happens; a skip only where none can be."""
    require()
    install()
    with (
        private_network(),
        folder("contract") as place,
        closing_cluster(place, FIRST_PORT, requeue_delay=REQUEUE_DELAY, conf=claim_settings()) as cluster,
    ):
        site = Site(cluster, place.parent / "site")
        site.folder.mkdir()
        site.configure()
        site.sbudget("setup", "apply")
        yield Real(site)
