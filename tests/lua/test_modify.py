"""What owners and coordinators may change of a job, and what happens to its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.table import render
from tests.lua.harness import INFINITE, NO_VAL, VERSIONS, Plugin
from tests.unit.tables import NOW, TABLE, changed

if TYPE_CHECKING:
    from pathlib import Path

RUNNING = 1
DENIED = 2002


@pytest.fixture(params=VERSIONS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Plugin:
    (tmp_path / "table").write_text(render(TABLE), encoding="utf-8")
    return Plugin(request.param, tmp_path / "table", now=NOW)


def change(plugin: Plugin, fields: dict[str, Any], record: dict[str, Any], uid: int = 1000) -> tuple[int, str, Any]:
    job = plugin.change(**fields)
    code, said = plugin.modify(job, plugin.record(**record), uid)
    return code, said, job


REFUSED = [
    ({"qos": "backed"}, {"qos": "spare"}, "only the budget controller"),
    ({"qos": "BACKED"}, {"qos": "spare"}, "only the budget controller"),
    ({"qos": "spare,backed"}, {"qos": "spare"}, "only the budget controller"),
    ({"qos": "backed"}, {"qos": "urgent"}, "only the budget controller"),
    ({"qos": ""}, {"qos": "spare"}, "only the budget controller"),
    ({"qos": "claim"}, {}, "only the budget controller gives QOS claim"),
    ({"qos": "backed,Claim"}, {}, "only the budget controller gives QOS claim"),
    ({"qos": "claim"}, {"qos": "urgent"}, "only the budget controller gives QOS claim"),
    ({"comment": "min-runtime=4h"}, {"comment": "min-runtime=1h", "qos": "claim"}, "can only be lowered"),
    ({"requeue": 0}, {"qos": "claim"}, "requeueable"),
    ({"requeue": 0}, {}, "requeueable"),
    ({"requeue": 0}, {"job_state": RUNNING}, "requeueable"),
    ({"account": "pb"}, {}, "stays in its account"),
    ({"account": "pb"}, {"qos": "spare"}, "stays in its account"),
    ({"reservation": "sbudget_3"}, {}, "reservations named sbudget_*"),
    ({"reservation": "sbudget_3"}, {"qos": "urgent"}, "reservations named sbudget_*"),
    ({"comment": "min-runtime=4h"}, {"comment": "min-runtime=1h"}, "can only be lowered"),
    ({"comment": "min-runtime=4h"}, {"comment": "min-runtime=1h", "job_state": RUNNING}, "can only be lowered"),
    ({"comment": "min-runtime=61"}, {}, "can only be lowered"),
    ({"comment": ""}, {"comment": "min-runtime=15"}, "can only be lowered"),
    ({"comment": "min-runtime=9h"}, {"qos": "spare"}, "the longest contract here is 8 h"),
    ({"comment": "min-runtime=soon"}, {}, "not a duration"),
]


@pytest.mark.parametrize(("fields", "record", "words"), REFUSED)
def test_refused(plugin: Plugin, fields: dict[str, Any], record: dict[str, Any], words: str) -> None:
    code, said, job = change(plugin, fields, record)
    assert code == DENIED
    assert words in said
    assert dict(job.items()) == dict(plugin.change(**fields).items())


@pytest.mark.parametrize(("fields", "record", "words"), REFUSED)
@pytest.mark.parametrize("uid", [0, 64])
def test_root_and_operators_may_do_everything(
    plugin: Plugin, fields: dict[str, Any], record: dict[str, Any], words: str, uid: int
) -> None:
    code, said, job = change(plugin, fields, record, uid)
    assert (code, said) == (0, "")
    assert dict(job.items()) == dict(plugin.change(**fields).items())


@pytest.mark.parametrize(
    ("fields", "record"),
    [
        ({"priority": 0}, {}),
        ({"priority": INFINITE}, {}),
        ({"priority": 0}, {"job_state": RUNNING}),
        ({"nice": 5}, {}),
        ({"begin_time": NOW + 60}, {}),
        ({"name": "x"}, {}),
        ({"time_limit": 60}, {}),
        ({"time_limit": 600}, {}),
        ({"requeue": 1}, {}),
        ({"account": "PA"}, {}),
        ({"qos": "spare"}, {}),
        ({"qos": "backed"}, {}),
        ({"qos": "urgent"}, {}),
        ({"comment": "min-runtime=30 more"}, {"comment": "min-runtime=4h"}),
        ({"comment": "min-runtime=1h"}, {}),
        ({"comment": "no contract here"}, {"comment": "min-runtime=4h"}),
        ({"comment": "min-runtime=8h"}, {"qos": "spare"}),
        ({"min_nodes": 4}, {"qos": "spare"}),
        ({"min_nodes": 4}, {"qos": "urgent"}),
        ({"requeue": 0, "account": "pb", "comment": "min-runtime=soon"}, {"qos": "urgent"}),
        ({"time_limit": 9000}, {"job_state": RUNNING}),
        ({"comment": "min-runtime=0"}, {"job_state": RUNNING, "comment": "min-runtime=4h"}),
        ({"min_nodes": 4}, {"account": "pz"}),
    ],
)
def test_allowed_and_left_as_it_is(plugin: Plugin, fields: dict[str, Any], record: dict[str, Any]) -> None:
    code, _, job = change(plugin, fields, record)
    assert code == 0
    assert dict(job.items()) == dict(plugin.change(**fields).items())


@pytest.mark.parametrize(
    "fields",
    [
        {"min_nodes": 4},
        {"max_nodes": 4},
        {"num_tasks": 64},
        {"min_cpus": 64},
        {"cpus_per_task": 64},
        {"min_mem_per_node": 64},
        {"tres_per_job": "gres/gpu:64"},
        {"tres_per_node": "gres/gpu:8", "gres": "gres/gpu:8"},
        {"partition": "mixed"},
        {"features": "big"},
        {"features": ""},
        {"array_inx": "%500"},
        {"time_limit": 601},
        {"time_limit": INFINITE},
        {"shared": 0},
        {"reservation": "theirs"},
        {"comment": "min-runtime=0"},
        {"qos": "backed", "min_nodes": 4},
        {"array_inx": "0-9%500"},
        {"licenses": "x:2"},
        {"req_nodes": "n[1-2]"},
    ],
)
def test_a_change_that_reopens_the_admission_makes_it_spare_at_once(plugin: Plugin, fields: dict[str, Any]) -> None:
    code, said, job = change(plugin, fields, {"comment": "min-runtime=4h"})
    assert code == 0
    assert "spare until the budget controller" in said
    limit = fields.get("time_limit", 600)
    assert dict(job.items()) == dict(plugin.change(**{**fields, "qos": "spare", "time_limit": limit}).items())


def test_a_job_that_claims_is_as_a_backed_one(plugin: Plugin) -> None:
    code, said, job = change(plugin, {"min_nodes": 4}, {"qos": "claim"})
    assert (code, job.qos) == (0, "spare")
    assert "spare until the budget controller" in said


def test_no_class_that_the_association_does_not_have(plugin: Plugin) -> None:
    code, _, job = change(plugin, {"min_nodes": 4}, {"user_name": "carol"})
    assert (code, job.qos, job.time_limit) == (0, None, NO_VAL)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ADVISE])
def test_nothing_is_refused_before_enforce(plugin: Plugin, tmp_path: Path, mode: Mode) -> None:
    (tmp_path / "table").write_text(render(changed(generation=8, mode=mode)), encoding="utf-8")
    for fields, record, _ in REFUSED:
        code, said, job = change(plugin, fields, record)
        assert (code, said) == (0, "")
        assert dict(job.items()) == dict(plugin.change(**fields).items())


def test_the_last_good_table_still_rules_when_it_is_gone(plugin: Plugin, tmp_path: Path) -> None:
    assert change(plugin, {"qos": "backed"}, {"qos": "spare"})[0] == DENIED
    (tmp_path / "table").unlink()
    assert change(plugin, {"qos": "backed"}, {"qos": "spare"})[0] == DENIED
    plugin.load()
    assert change(plugin, {"qos": "backed"}, {"qos": "spare"})[0] == 0, "none was ever read"
