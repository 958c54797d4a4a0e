"""How the tests are spread over processes: those of real clusters stay in one, so that only one cluster is up."""

from __future__ import annotations

from pathlib import Path

import pytest

REAL = (Path(__file__).parent / "cluster", Path(__file__).parent / "contract")


def _is_real(item: pytest.Item) -> bool:
    return any(folder in item.path.parents for folder in REAL)


def pytest_itemcollected(item: pytest.Item) -> None:
    """One group for the tests of real clusters."""
    if _is_real(item):
        item.add_marker(pytest.mark.xdist_group("real-cluster"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those first: they wait more than they compute."""
    items.sort(key=lambda item: not _is_real(item))
