"""The clusters of the contract suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.backends import Backend, Simulated
from tests.contract.real import Real, real_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def real() -> Iterator[Real]:
    """The real cluster, started once."""
    with real_cluster() as found:
        yield found


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each cluster in turn, left clean."""
    found: Backend = Simulated() if request.param == "simulated" else request.getfixturevalue("real")
    yield found
    found.clean()
