"""The simulated submit plugin: reads the published text, remembers what it let in, refuses with words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyslurm_budget.domain import table
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.submit import Outcome
from pyslurm_budget.errors import SlurmRefusedError
from pyslurm_budget.simulate.plugin import Published, SubmitPlugin
from pyslurm_budget.simulate.shapes import AccountSpec, ClusterSpec, NodeSpec, PartitionSpec, QosSpec, SubmitSpec
from tests.unit.tables import NOW, TABLE

SPEC = ClusterSpec(
    (NodeSpec("n1"),),
    (PartitionSpec("gpu", ("n1",), default=True),),
    (AccountSpec("pa", users=("alice",), default_qos="backed"),),
    (QosSpec("backed"), QosSpec("spare")),
)
JOB = SubmitSpec("alice", "pa", 100, gpus_per_node=8, time_limit=4 * 3600, comment="min-runtime=4h")


@pytest.fixture
def published() -> Published:
    found = Published()
    found.publish(table.render(TABLE), "{}")
    return found


def test_what_it_let_in_counts_until_the_table_knows_it(published: Published) -> None:
    """100 GPU-h are left in 4 h: three jobs of 8 GPUs x 4 h fit."""
    plugin = SubmitPlugin(SPEC, published)
    assert [plugin(JOB, NOW + i).qos for i in range(4)] == ["backed"] * 3 + ["spare"]
    assert "spare" in plugin.said
    published.publish(table.render(replace(TABLE, generation=8, snapshot=NOW + 60)), "{}")
    assert plugin(JOB, NOW + 61).qos == "backed"
    assert "backed" in plugin.said


def test_no_table_no_decision(published: Published) -> None:
    plugin = SubmitPlugin(SPEC, Published())
    assert plugin(JOB, NOW).qos is None
    assert plugin.said == ""


def test_a_broken_table_makes_a_typed_class_spare(published: Published) -> None:
    plugin = SubmitPlugin(SPEC, published)
    plugin(JOB, NOW)
    published.table = table.render(TABLE)[:-5]
    assert plugin(JOB, NOW).qos is None
    assert plugin(replace(JOB, qos="backed"), NOW).qos == "spare"


def test_refused_with_the_sentence(published: Published) -> None:
    plugin = SubmitPlugin(SPEC, published)
    with pytest.raises(SlurmRefusedError, match="longest contract"):
        plugin(replace(JOB, comment="min-runtime=9h"), NOW)
    assert plugin.decision is not None
    assert plugin.decision.outcome is Outcome.REFUSED


def test_observe_leaves_everything(published: Published) -> None:
    published.publish(table.render(replace(TABLE, mode=Mode.OBSERVE)), "{}")
    assert SubmitPlugin(SPEC, published)(JOB, NOW).qos is None


def test_an_array_is_judged_as_a_whole_and_no_requeue_has_its_limit_as_contract(published: Published) -> None:
    plugin = SubmitPlugin(SPEC, published)
    assert plugin(replace(JOB, array=tuple(range(4))), NOW).qos == "spare"
    assert plugin(replace(JOB, requeue=False, time_limit=9 * 3600, comment=""), NOW).qos == "spare"
    assert "cannot be requeued" in plugin.said
