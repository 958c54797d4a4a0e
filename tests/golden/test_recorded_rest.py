"""Nodes, partitions, reservations, settings, associations and accounting of four releases."""

from __future__ import annotations

from collections import Counter

import pytest

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.nodes import nodes_of, partitions_of, reservations_of
from pyslurm_budget.slurm.sacct import runs_of
from pyslurm_budget.slurm.settings import associations_of, controller_of
from tests.golden.recorded import RELEASES, recorded, scenario

releases = pytest.mark.parametrize("release", RELEASES)


def rows(release: str, name: str = "sacct") -> list[RunRecord]:
    return list(runs_of(recorded(release, name).split("\n")[:-1], "\x1f"))


@releases
def test_nodes(release: str) -> None:
    nodes = {node.name: node for node in nodes_of(recorded(release, "scontrol_show_node_o"))}
    assert list(nodes) == ["n1", "n2", "n3", "n4"]
    assert all((n.gpus, n.gpu_type, n.cpus, n.memory_mb) == (4, "a100", 16, 1) for n in nodes.values())
    assert [n.gpus_used for n in nodes.values()] == [4, 4, 0, 4]
    assert [n.cpus_used for n in nodes.values()] == [1, 2, 0, 3]
    drained = nodes["n1"]
    assert (drained.draining, drained.up, drained.in_service, drained.takes_work) == (True, True, True, False)
    assert drained.reason == "gpu ecc|err=1 x"
    assert (nodes["n3"].up, nodes["n3"].in_service, nodes["n3"].reason) == (False, False, "admin test")
    assert nodes["n2"].reserved
    assert (nodes["n4"].reserved, nodes["n4"].takes_work, nodes["n4"].reason) == (False, True, "")
    since = nodes["n3"].reason_since
    assert since is not None
    controller = controller_of(recorded(release, "scontrol_show_config"))
    assert 0 <= controller.now - since < 60


@releases
def test_nodes_before_the_drain(release: str) -> None:
    nodes = nodes_of(recorded(release, "pre_scontrol_show_node_o"))
    assert all(n.up and not n.draining and not n.reason for n in nodes)


@releases
def test_partition(release: str) -> None:
    (found,) = partitions_of(recorded(release, "scontrol_show_partition_o"))
    assert (found.name, found.nodes, found.default, found.up) == ("gpu", ("n1", "n2", "n3", "n4"), True, True)
    assert (found.max_time, found.default_time) == (None, None)


@releases
def test_reservations(release: str) -> None:
    found = {r.name: r for r in reservations_of(recorded(release, "scontrol_show_reservation_o"))}
    assert set(found) == {"rmaint", "ract"} | (set() if release == "22.05.8" else {"rusers"})
    assert (found["ract"].nodes, found["ract"].accounts) == (("n2",), ("pa",))
    assert found["ract"].flags == ("IGNORE_JOBS", "SPEC_NODES")
    assert found["ract"].end - found["ract"].start == 7200
    assert not any(r.ours for r in found.values())
    if "rusers" in found:
        assert (found["rusers"].nodes, found["rusers"].accounts) == (("n1", "n2"), ())


@releases
def test_controller(release: str) -> None:
    found = controller_of(recorded(release, "scontrol_show_config"))
    assert found.release == tuple(int(part) for part in release.split("."))
    assert found.cluster == "lv" if release != "25.11.7" else found.cluster
    assert 0 < found.now - found.started < 600
    assert (found.preempt_type, found.preempt_mode, found.weights) == ("preempt/qos", "REQUEUE", 2000)
    assert found.kill_wait in (2, 5)
    assert found.settings["AccountingStorageEnforce"].startswith("associations")
    assert len(found.settings) > 200


@releases
def test_associations(release: str) -> None:
    lines = recorded(release, "sacctmgr_show_assoc").splitlines()[1:]
    text = "\n".join("|".join(cells[1:3] + cells[4:6]) for cells in (line.split("|") for line in lines))
    allowed, parents = associations_of(text)
    assert parents == {"root": None, "ops": "root", "pa": "root", "pb": "root"}
    assert allowed[("pa", "alice")] == {"backed", "normal", "spare"}
    assert ("pa", "bob") not in allowed


@releases
def test_accounting_states(release: str) -> None:
    found = rows(release)
    assert len(found) == 35
    assert len({row.key for row in found}) == 35
    states = Counter(row.state for row in found)
    assert states["REQUEUED"] == 2
    assert states["PREEMPTED"] == 3
    assert (states["NODE_FAIL"], states["FAILED"], states["SUSPENDED"]) == (1, 1, 1)
    assert {row.by_uid for row in found if row.state == "CANCELLED"} >= {0}
    assert all(row.by_uid is None for row in found if row.state != "CANCELLED")


@releases
def test_rows_without_a_start_hold_nothing(release: str) -> None:
    waiting = [row for row in rows(release) if row.start is None]
    assert waiting
    assert all(row.state == "PENDING" and row.tres.gpus == 0 and row.end is None for row in waiting)
    stale = [row for row in waiting if row.key.job_id == scenario(release)["preemptor2"]]
    assert len(stale) == 1, "the run after the node failure, with the AllocTRES of the one before"
    assert stale[0].requested_gpus == 4


@releases
def test_each_run_of_a_requeued_job(release: str) -> None:
    runs = [row for row in rows(release) if row.key.job_id == scenario(release)["requeued2"]]
    assert [row.state for row in runs] == ["REQUEUED", "REQUEUED", "RUNNING"]
    assert all(row.tres.gpus == 4 and row.nodes == ("n1",) for row in runs)
    assert runs[-1].end is None
    assert runs[0].end is not None
    assert runs[0].end <= runs[1].key.submit


@releases
def test_gpus_of_each_run(release: str) -> None:
    ids = scenario(release)
    by_id = {row.key.job_id: row for row in rows(release)}
    assert (by_id[ids["ok-excl"]].tres.gpus, by_id[ids["ok-excl"]].requested_gpus) == (4, 0)
    assert by_id[ids["ok-nogpu"]].tres.gpus == 0
    assert (by_id[ids["ok-untyped"]].tres.gpus, dict(by_id[ids["ok-untyped"]].tres.gpus_by_type)) == (2, {"a100": 2})
    assert by_id[ids["ok-typed"]].time_limit == 300
    assert by_id[ids["toobig"]].time_limit == 86400
    preempted = next(r for r in rows(release) if r.state == "PREEMPTED" and r.key.job_id == ids["victim"])
    assert (preempted.nodes, preempted.tres.gpus) == (("n2", "n3", "n4"), 12)


@releases
def test_accounting_of_arrays_and_suspension(release: str) -> None:
    ids = scenario(release)
    refs = {row.job_ref for row in rows(release)}
    assert {f"{ids['arr']}_0", f"{ids['arr']}_1", f"{ids['arrpend']}_[0-3]"} <= refs
    suspended = next(row for row in rows(release) if row.key.job_id == ids["suspended"])
    assert 10 <= suspended.suspended <= 20


@releases
def test_the_end_of_the_window_hides_requeued_runs(release: str) -> None:
    """Why `-E` must lie ahead: with `now` the runs that become eligible in two minutes are missing."""
    hidden = {row.key for row in rows(release)} - {row.key for row in rows(release, "sacct_Enow")}
    ids = scenario(release)
    assert {key.job_id for key in hidden} == {ids["victim"], ids["preemptor2"], ids["begin"]}


@releases
def test_wrong_columns_are_refused(release: str) -> None:
    with pytest.raises(SlurmOutputError, match="lacks"):
        list(runs_of(recorded(release, "sacct_isotime").splitlines(), "|"))
    with pytest.raises(SlurmOutputError, match="empty answer"):
        list(runs_of([], "\x1f"))
