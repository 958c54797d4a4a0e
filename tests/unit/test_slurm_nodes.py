"""Nodes, reservations, settings and associations: the states and lists that the recordings do not show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import Node
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.fields import node_names, numbers, ranges
from pyslurm_budget.slurm.nodes import nodes_of, partitions_of, reservations_of
from pyslurm_budget.slurm.settings import associations_of, controller_of


def node(state: str = "IDLE", end: str = "", cfg: str = "cpu=16,gres/gpu=4", gres: str = "gpu:a100:4(S:0-1)") -> Node:
    text = (
        f"NodeName=n1 CPUAlloc=0 CPUEfctv=14 CPUTot=16 Gres={gres} GresUsed=gpu:a100:3(IDX:0-2) OS=Linux 6.1 SMP "
        f"RealMemory=64000 AllocMem=100 State={state} Partitions=gpu,all CfgTRES={cfg} AllocTRES=gres/gpu=1{end}\n"
    )
    (found,) = nodes_of(text)
    return found


@pytest.mark.parametrize(
    ("state", "up", "draining", "reserved"),
    [
        ("IDLE", True, False, False),
        ("MIXED+PLANNED", True, False, False),
        ("ALLOCATED", True, False, False),
        ("IDLE+DRAIN", True, True, False),
        ("MIXED+DRAIN", True, True, False),
        ("DOWN", False, False, False),
        ("DOWN*+DRAIN", False, True, False),
        ("DOWN+DRAIN+NOT_RESPONDING", False, True, False),
        ("IDLE*", False, False, False),
        ("IDLE+NOT_RESPONDING", False, False, False),
        ("IDLE+FAIL", False, False, False),
        ("MIXED+FAIL", False, False, False),
        ("IDLE+CLOUD+POWERED_DOWN", True, False, False),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", True, False, False),
        ("DOWN+CLOUD+POWERED_DOWN", False, False, False),
        ("IDLE~", True, False, False),
        ("IDLE*~", True, False, False),
        ("MIXED+RESERVED", True, False, True),
        ("IDLE+MAINTENANCE+RESERVED", True, False, True),
        ("FUTURE", False, False, False),
        ("UNKNOWN", False, False, False),
        ("IDLE+INVALID_REG", False, False, False),
        ("IDLE+A_FLAG_OF_THE_FUTURE", True, False, False),
    ],
)
def test_states(state: str, up: bool, draining: bool, reserved: bool) -> None:
    found = node(state)
    assert (found.up, found.draining, found.reserved) == (up, draining, reserved)


def test_an_unknown_base_state_is_refused() -> None:
    for state in ("RESERVED", "SLEEPY", ""):
        with pytest.raises(SlurmOutputError, match="State="):
            node(state)


@pytest.mark.parametrize(
    ("end", "reason", "since"),
    [
        ("", "", None),
        (" Reason=bad gpu [root@1796102007]", "bad gpu", 1796102007),
        (" Reason=bad gpu", "bad gpu", None),
        (" Reason=a [b] c [ops@2026-12-01T05:13:27] ReservationName=x", "a [b] c", 1796102007),
        (" Reason=x=y State=IDLE [root@1796102007] Comment=z", "x=y State=IDLE", 1796102007),
        (" Reason=two\nlines [root@1796102007]", "two\nlines", 1796102007),
    ],
)
def test_reasons(end: str, reason: str, since: int | None) -> None:
    found = node("DOWN", end)
    assert (found.reason, found.reason_since, found.up) == (reason, since, False)


def test_gpus_where_they_are_not_tracked() -> None:
    assert (node().gpus, node().gpus_used, node().cpus, node().partitions) == (4, 1, 14, ("gpu", "all"))
    untracked = node(cfg="cpu=16")
    assert (untracked.gpus, untracked.gpus_used, untracked.gpu_type) == (4, 3, "a100")
    mixed = node(gres="gpu:a100:2,gpu:h100:6", cfg="cpu=1,gres/gpu=8")
    assert (mixed.gpus, mixed.gpu_type) == (8, "h100")
    assert node(gres="(null)", cfg="cpu=1").gpus == 0


@pytest.mark.parametrize("text", ["", "x\n", "NodeName=n1\n", "slurm_load_node error: x\nNodeName=n1"])
def test_a_damaged_answer_is_refused(text: str) -> None:
    with pytest.raises(SlurmOutputError, match="scontrol show node"):
        nodes_of(text)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (nodes_of, partitions_of, controller_of, associations_of):
        with pytest.raises(SlurmOutputError):
            read(text)
    if text.strip() != "No reservations in the system":
        with pytest.raises(SlurmOutputError):
            reservations_of(text)


def test_reservations_of_ours() -> None:
    text = (
        "ReservationName=sbudget_w1 StartTime=1796102007 EndTime=1796102107 Nodes=n[1-2] Flags=IGNORE_JOBS,SPEC_NODES"
        " Accounts=pa,pb\nReservationName=mine StartTime=1796102007 EndTime=1796102107 Nodes=(null) Flags= "
        "Accounts=(null)\n"
    )
    ours, theirs = reservations_of(text)
    assert (ours.ours, ours.nodes, ours.accounts) == (True, ("n1", "n2"), ("pa", "pb"))
    assert (theirs.ours, theirs.nodes, theirs.accounts) == (False, (), ())


def test_partition_states_and_times() -> None:
    text = "PartitionName=p Default=NO DefaultTime=00:30:00 MaxTime=2-00:00:00 Nodes=(null) State={}\n"
    found = partitions_of(text.format("UP") + text.format("DRAIN") + text.format("INACTIVE") + text.format("DOWN"))
    assert [p.up for p in found] == [True, False, False, False]
    assert (found[0].max_time, found[0].default_time, found[0].nodes) == (172800, 1800, ())


def test_association_lists_are_inherited() -> None:
    allowed, parents = associations_of(
        "root|||normal\ntop||root|a,b\nmid||top|\nlow||mid|+c,-a\n"
        "mid|alice||\nlow|bob||\nlow|carol||x\ntop|alice||\ntop|alice||z\n"
    )
    assert parents == {"root": None, "top": "root", "mid": "top", "low": "mid"}
    assert allowed[("mid", "alice")] == {"a", "b"}
    assert allowed[("low", "bob")] == {"b", "c"}
    assert allowed[("low", "carol")] == {"x"}
    assert allowed[("top", "alice")] == {"a", "b", "z"}, "associations per partition are joined"


@pytest.mark.parametrize("text", ["", "pa|alice||x\n", "a|b|c\n", "a||b|x\nb||a|y\n", "|alice||x\n"])
def test_damaged_associations_are_refused(text: str) -> None:
    with pytest.raises(SlurmOutputError, match="sacctmgr show assoc"):
        associations_of(text)


def test_node_lists_ask_no_group_of_this_machine() -> None:
    assert node_names("n[1-2,7],gpu3") == ("gpu3", "n1", "n2", "n7")
    assert set(node_names("@all,n1")) == {"@all", "n1"}
    assert node_names("(null)") == node_names("None assigned") == ()


@given(st.sets(st.integers(0, 300), min_size=1))
def test_array_expressions_round_trip(tasks: set[int]) -> None:
    assert numbers(ranges(tuple(sorted(tasks)))) == tuple(sorted(tasks))


@pytest.mark.parametrize(
    ("text", "count"),
    [("9201-10000%500", 800), ("3-4%2", 2), ("60-89,91-94,96-98", 37), ("9-11,20", 4), ("0-467", 468)],
)  # fmt: skip
def test_array_expressions_of_public_reports(text: str, count: int) -> None:
    assert len(numbers(text)) == count


@pytest.mark.parametrize("text", ["", "1,", "3-", "9-3", "1,2...", "x", "0-99999999999", "1-9:0", "٣"])
def test_damaged_array_expressions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of numbers"):
        numbers(text)
