"""How the tests are spread over processes: those of real clusters are two groups, each of which stays in one process.

So both wait for Slurm at the same time while a third process computes, and few clusters are started twice.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Modules of tests/cluster that are the second group, with the contract suite: those that start clusters of their own,
# and so many others that both groups take about the same time (`--durations=0` tells it).
APART = {"test_claims", "test_devcluster", "test_resized", "test_setup", "test_sync_sql"}


def group(nodeid: str) -> str | None:
    """The group of a test of real clusters, by its id."""
    path = PurePosixPath(nodeid.partition("::")[0])
    if path.parent.name == "contract" or (path.parent.name == "cluster" and path.stem in APART):
        return "other-clusters"
    return "shared-cluster" if path.parent.name == "cluster" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """By hand, as the marks of `--dist loadgroup` go unseen: pytest-xdist 3.8 writes them where pytest 9.2 does not
    look any more, and then each test of a cluster goes wherever there is room, with a cluster for it."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        """A group stays together; any other test goes by itself."""

        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid) or nodeid

    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those first: they wait more than they compute."""
    items.sort(key=lambda item: group(item.nodeid) is None)
