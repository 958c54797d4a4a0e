"""How the tests are spread over processes: those of real clusters stay in one, so that only one cluster is up."""

from __future__ import annotations

from pathlib import Path

import pytest

REAL = (Path(__file__).parent / "cluster", Path(__file__).parent / "contract")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One group for the tests of real clusters, and those first: they wait more than they compute."""
    for item in items:
        if any(folder in item.path.parents for folder in REAL):
            item.add_marker(pytest.mark.xdist_group("real-cluster"))
    items.sort(key=lambda item: not any(folder in item.path.parents for folder in REAL))
