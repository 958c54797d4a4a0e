"""Real clusters, shared by the tests of this folder: one as most need it, one with an epilog that takes 8 seconds."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.devcluster import DevCluster, closing_cluster
from tests.cluster.site import Site

# Another base lets two runs of the tests go on side by side on one machine.
PORT = int(os.environ.get("SBUDGET_TEST_PORT", "21600"))
SLOW_PORT = PORT + 100


def folder(name: str) -> Path:
    """A new folder that the cluster's users can enter (pytest's own they cannot)."""
    made = Path(tempfile.mkdtemp(prefix=f"sbudget-{name}-", dir="/var/tmp"))
    made.chmod(0o755)
    return made / "cluster"


@pytest.fixture(scope="session")
def cluster() -> Iterator[DevCluster]:
    """4 nodes of 4 GPUs; requeued jobs may start again after 5 s."""
    place = folder("test")
    with closing_cluster(place, PORT, requeue_delay=5) as found:
        yield found
    place.parent.rmdir()


@pytest.fixture(scope="session")
def slow_cluster() -> Iterator[DevCluster]:
    """2 nodes of 4 GPUs with an epilog of 8 s."""
    place = folder("slow")
    with closing_cluster(place, SLOW_PORT, nodes=2, epilog_seconds=8, requeue_delay=5) as found:
        yield found
    place.parent.rmdir()


class Installation:
    """What setup made in one cluster: made once, since sacctmgr takes half a second a call, and given back once."""

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


@pytest.fixture(scope="session")
def installation(cluster: DevCluster) -> Iterator[Installation]:
    """Setup in the cluster that most tests use."""
    made = Installation(cluster)
    yield made
    made.remove()


@pytest.fixture(scope="session")
def slow_installation(slow_cluster: DevCluster) -> Iterator[Installation]:
    """Setup in the cluster with the slow epilog."""
    made = Installation(slow_cluster)
    yield made
    made.remove()


@pytest.fixture
def site(installation: Installation, tmp_path: Path) -> Iterator[Site]:
    """The cluster, empty, set up and in enforce, with a ledger of its own."""
    yield from _fresh(installation, tmp_path)


@pytest.fixture
def slow_site(slow_installation: Installation, tmp_path: Path) -> Iterator[Site]:
    """The same on the cluster with the slow epilog."""
    yield from _fresh(slow_installation, tmp_path)


@pytest.fixture
def bare_site(installation: Installation, tmp_path: Path) -> Iterator[Site]:
    """The cluster, empty, with a configuration and nothing of ours in Slurm."""
    installation.remove()
    made = Site(installation.site.cluster, tmp_path)
    made.clean()
    made.configure()
    yield made
    made.clean()


def _fresh(installation: Installation, tmp_path: Path) -> Iterator[Site]:
    installation.ensure()
    made = Site(installation.site.cluster, tmp_path, table=installation.site.table)
    made.clean()
    made.configure()
    made.begin()
    yield made
    made.clean()
