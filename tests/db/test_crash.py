"""A process that is killed while it writes leaves the ledger as before or after, never in between."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.service.ports import SyncState
from tests.db import other
from tests.db.conftest import new_cluster
from tests.db.made import runs_of_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyslurm_budget.ledger.store import SqlLedger


@pytest.mark.parametrize(
    ("step", "stands"),
    [("1", 1), ("commit", 1), ("after", 2)],
)
def test_killed_while_it_saves_runs(
    opened: Callable[[str], SqlLedger], database: str, step: str, stands: int
) -> None:
    cluster = new_cluster()
    ledger = opened(cluster)
    ledger.save_runs(runs_of_version(1), SyncState(1, 1, True))
    process = other.start(database, cluster, "save", ["2", step])
    process.communicate("go\n", timeout=60)
    assert process.returncode == -signal.SIGKILL
    state = ledger.sync_state()
    assert state is not None
    assert (state.watermark, {run.rate for run in ledger.open_runs()}) == (stands, {stands})
    ledger.save_runs(runs_of_version(3), SyncState(3, 3, True))
    assert {run.rate for run in ledger.open_runs()} == {3}
