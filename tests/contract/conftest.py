"""The fixture of the contract suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.backends import Backend, make

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each cluster in turn, left clean."""
    found = make(request.param, request)
    yield found
    found.clean()
