"""How the tests are spread over processes: those of real clusters are two groups, each of which stays in one process,
so that two clusters are up at most, and both processes wait for one while the other computes."""

from __future__ import annotations

from pathlib import Path

import pytest

CLUSTER, CONTRACT = Path(__file__).parent / "cluster", Path(__file__).parent / "contract"
# Modules of tests/cluster that start clusters of their own: with the contract suite, they are the second group.
APART = {"test_claims", "test_devcluster", "test_setup"}


def _group(item: pytest.Item) -> str | None:
    """The group of a test of real clusters."""
    if CONTRACT in item.path.parents or (CLUSTER in item.path.parents and item.path.stem in APART):
        return "clusters-of-their-own"
    return "shared-cluster" if CLUSTER in item.path.parents else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tell the group to pytest-xdist."""
    group = _group(item)
    if group is not None:
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those first: they wait more than they compute."""
    items.sort(key=lambda item: _group(item) is None)
