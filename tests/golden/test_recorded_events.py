"""Node events of the recorded releases."""

from __future__ import annotations

import pytest

from pyslurm_budget.domain.capacity import is_out
from pyslurm_budget.slurm.events import events_of
from pyslurm_budget.slurm.nodes import reservations_of
from tests.golden.recorded import RELEASES, recorded

NODE, START, END, STATE, REASON = 1, 2, 3, 4, 5


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_node_events(release: str) -> None:
    """The recording has more columns around ours, and a bar in one reason."""
    lines = recorded(release, "sacctmgr_show_event_node").splitlines()
    text = "".join("|".join(line.split("|")[NODE:-2]) + "\n" for line in lines)
    found = events_of(text)
    assert len(found) == len(lines) > 0
    assert all(is_out(event.state) and event.start > 1_796_000_000 for event in found)
    open_ = [event for event in found if event.end is None]
    assert [(event.node, event.state, event.reason) for event in open_] == [("n3", "DOWN", "admin test")]
    if release != "25.11.7":
        assert ("n1", "DRAIN", "gpu ecc|err=1 x") in {(e.node, e.state, e.reason) for e in found}


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_reservations_say_what_they_take(release: str) -> None:
    found = {r.name: r for r in reservations_of(recorded(release, "scontrol_show_reservation_o"))}
    assert (found["ract"].cpus, found["ract"].gpus, found["ract"].accounts) == (16, None, ("pa",))
    if "rusers" in found:
        assert (found["rusers"].cpus, found["rusers"].gpus, found["rusers"].accounts) == (32, 8, ())
