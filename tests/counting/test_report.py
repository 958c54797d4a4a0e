"""``sbudget sync --dump FILE`` and ``sbudget report usage``, against the counter of these tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyslurm_budget.cli import dump as dump_command
from pyslurm_budget.cli import report as report_command
from tests.counting.histories import (
    HEADER,
    LONG_AGO,
    NIGHTS,
    SPARE,
    History,
    Life,
    histories,
    open_line,
    sacct_line,
    windows,
)
from tests.counting.oracle import GROUPINGS, Row, by_piece
from tests.counting.reporting import Site, differs

quick = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
PERIODS = ("day", "month")
OTHERS = st.lists(st.sampled_from([g for g in GROUPINGS if g not in PERIODS]), unique=True, max_size=3).map(tuple)
BY = (
    st.builds(lambda period, others: (period, *others), st.sampled_from(PERIODS), OTHERS)
    | st.builds(lambda period, others: (*others, period), st.sampled_from(PERIODS), OTHERS)
    | OTHERS.filter(bool)
)
_numbers = count(1)


@pytest.fixture(scope="module", params=["observe", "enforce"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.devnull)
        yield Site(tmp_path_factory.mktemp("report"), request.param)


@settings(quick, max_examples=20)
@given(data=st.data(), night=st.sampled_from(NIGHTS), by=BY)
def test_any_report_is_what_was_counted(
    site: Site, data: st.DataObject, night: tuple[str, int], by: tuple[str, ...]
) -> None:
    """Around a night in which clocks change, days and months of the zone; what ran in no spare QOS is charged,
    whatever the site's mode is now."""
    zone, change = night
    history: History = data.draw(histories(begin=change - 300_000, span=300_000))
    cluster = f"c{next(_numbers)}"
    for number, sync in enumerate(history.syncs):
        site.load(history.text(number), "--as-of", sync.when, cluster=cluster)
    rows = [row for row in history.seen() if row.gpus != () and row.start is not None]
    if not rows:
        return
    start, end = data.draw(windows(history))
    totals = by_piece(rows, start, end, end, by, zone, SPARE)
    found = site.report(by, start, end, zone, cluster=cluster)
    assert {
        keys: d for keys in totals.keys() | found.keys() if (d := differs(found.get(keys), totals.get(keys)))
    } == {}


def test_what_still_runs_counts_until_it_was_loaded(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)  # type: ignore[arg-type]
    day = 86400
    for number in (0, 1):
        row = Row(number + 1, LONG_AGO + number * day, LONG_AGO + number * day, None, (("gpu", 1),))
        monkeypatch.setattr(dump_command, "host_now", lambda number=number: LONG_AGO + (number + 1) * day)
        site.load(HEADER + open_line(row))
    monkeypatch.setattr(report_command, "host_now", lambda: LONG_AGO + 10 * day)
    found = site.report(("account",), LONG_AGO, LONG_AGO + 10 * day)
    assert {keys: row["gpu_hours"] for keys, row in found.items()} == {("lab",): 3 * 24}


def test_a_run_with_gpus_of_two_types_is_split(site: Site) -> None:
    """Also where some of its GPUs have no type in accounting, as none was asked for."""
    cluster = f"c{next(_numbers)}"
    row = Row(1, LONG_AGO, LONG_AGO, LONG_AGO + 3600, (("a100", 3), ("gpu", 2), ("h100", 1)))
    tres = ("gres/gpu=6,gres/gpu:a100=3,gres/gpu:h100=1", "gres/gpu=6")
    site.load(HEADER + sacct_line(row, Life(row, "1", "COMPLETED", tres), LONG_AGO + 3600), cluster=cluster)
    totals = by_piece([row], LONG_AGO, LONG_AGO + 3600, LONG_AGO + 3600, ("flavor",))
    found = site.report(("flavor",), LONG_AGO, LONG_AGO + 3600, cluster=cluster)
    assert {keys: row["gpu_hours"] for keys, row in found.items()} == {
        keys: total.gpu_seconds / 3600 for keys, total in totals.items()
    }
