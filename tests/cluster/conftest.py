"""Real clusters, shared by the tests of this folder: one as most need it, one with an epilog that takes 8 seconds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.devcluster import PORT, DevCluster, closing_cluster, folder, install
from tests.cluster.network import private_network
from tests.cluster.site import Site


@pytest.fixture(scope="package", autouse=True)
def network() -> Iterator[None]:
    """All of this folder is in a network of its own; packages are installed before, from the machine's."""
    install()
    with private_network():
        yield


@pytest.fixture(scope="package")
def cluster(network: None) -> Iterator[DevCluster]:
    """4 nodes of 4 GPUs; requeued jobs may start again after 5 s."""
    with folder("test") as place, closing_cluster(place, PORT + 100, requeue_delay=5) as found:
        yield found


@pytest.fixture(scope="package")
def slow_cluster(network: None) -> Iterator[DevCluster]:
    """2 nodes of 4 GPUs with an epilog of 8 s."""
    options = {"nodes": 2, "epilog_seconds": 8, "requeue_delay": 5}
    with folder("slow") as place, closing_cluster(place, PORT + 200, **options) as found:
        yield found


class Installation:
    """What setup made in one cluster: made once, since sacctmgr takes half a second a call."""

    def __init__(self, cluster: DevCluster) -> None:
        self.site = Site(cluster, cluster.folder.parent / "installed")
        self.there = False

    def ensure(self) -> None:
        """Set Slurm up."""
        if not self.there:
            self.site.folder.mkdir(exist_ok=True)
            self.site.configure()
            self.site.sbudget("setup", "apply")
            self.there = True

    def remove(self) -> None:
        """Give it back."""
        if self.there:
            self.site.clean()
            self.site.sbudget("setup", "remove")
            shutil.rmtree(self.site.folder)
            self.there = False


@pytest.fixture(scope="package")
def installation(cluster: DevCluster) -> Installation:
    """Setup in the cluster that most tests use; at the end it goes with the cluster."""
    return Installation(cluster)


@pytest.fixture(scope="package")
def slow_installation(slow_cluster: DevCluster) -> Installation:
    """Setup in the cluster with the slow epilog."""
    return Installation(slow_cluster)


@pytest.fixture
def site(installation: Installation, tmp_path: Path) -> Site:
    """The cluster, empty, set up and in enforce, with a ledger and a history of its own."""
    return fresh(installation, tmp_path)


@pytest.fixture
def slow_site(slow_installation: Installation, tmp_path: Path) -> Site:
    """The same on the cluster with the slow epilog."""
    return fresh(slow_installation, tmp_path)


@pytest.fixture
def bare_site(installation: Installation, tmp_path: Path) -> Site:
    """The cluster, empty, with a configuration and nothing of ours in Slurm."""
    installation.remove()
    made = Site(installation.site.cluster, tmp_path)
    made.clean()
    made.forget_history()
    made.configure()
    return made


def fresh(installation: Installation, tmp_path: Path) -> Site:
    """An empty cluster that is set up, with a configuration, a ledger and a history of its own in the folder."""
    installation.ensure()
    made = Site(installation.site.cluster, tmp_path, table=installation.site.table)
    made.clean()
    made.forget_history()
    made.configure()
    made.begin()
    return made
