"""Each point of the check: right as it should be, and the exact line to write where it is not."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from pyslurm_budget.domain.policy import ClassMap
from pyslurm_budget.errors import SlurmSetupError
from pyslurm_budget.service.setup import PartitionRule, Qos, SlurmFacts, plan, step_of
from pyslurm_budget.service.setup_check import check, refuse
from pyslurm_budget.service.setup_point import Point, Verdict
from tests.unit.setup_model import GOOD, site

DEFAULT = ClassMap()
ENFORCE = "AccountingStorageEnforce=associations,limits,qos"
TRES = "AccountingStorageTRES=gres/gpu  (and each type, as gres/gpu:a100)"
KEPT = ClassMap(MappingProxyType({"normal": "cheap"}), adopt=None)


def ready() -> SlurmFacts:
    """Facts of a site where nothing is to do."""
    model = site()
    for change in plan(model.facts(), DEFAULT):
        model.do(step_of(change, "demo"))
    return model.facts()


def points(facts: SlurmFacts, classes: ClassMap = DEFAULT) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in check(facts, classes, made={"backed", "spare"}):
        found.setdefault(point.name, []).append(point)
    return found


def with_settings(**settings: str | None) -> SlurmFacts:
    merged = {k: v for k, v in (GOOD | settings).items() if v is not None}
    return replace(ready(), settings=merged)


def test_a_site_that_has_all_of_it_has_nothing_to_change() -> None:
    found = check(ready(), DEFAULT)
    assert {p.verdict for p in found} == {Verdict.OK}
    assert not any(p.line for p in found)
    refuse(found)


@pytest.mark.parametrize(
    ("settings", "name", "line"),
    [
        ({"PreemptType": "preempt/partition_prio"}, "preemption", "PreemptType=preempt/qos"),
        ({"PreemptType": None}, "preemption", "PreemptType=preempt/qos"),
        ({"PreemptMode": "OFF"}, "preempt mode", "PreemptMode=REQUEUE"),
        ({"PreemptMode": "GANG,SUSPEND"}, "preempt mode", "PreemptMode=REQUEUE"),
        ({"PreemptMode": "WITHIN,REQUEUE"}, "preempt mode", "PreemptMode=REQUEUE"),
        ({"PreemptMode": "CANCEL"}, "preempt mode", "PreemptMode=REQUEUE"),
        ({"JobRequeue": "0"}, "requeue", "JobRequeue=1"),
        ({"AccountingStorageEnforce": "none"}, "enforce associations", ENFORCE),
        ({"AccountingStorageEnforce": "associations,limits"}, "enforce qos", ENFORCE),
        ({"AccountingStorageEnforce": "associations,qos,nojobs"}, "jobs accounted", ENFORCE),
        ({"AccountingStorageTRES": "cpu,mem,gres/gpu:a100"}, "GPUs accounted", TRES),
        ({"PriorityType": "priority/basic"}, "priority", "PriorityType=priority/multifactor"),
    ],
)  # fmt: skip
def test_what_slurm_conf_must_say(settings: dict[str, str | None], name: str, line: str) -> None:
    found = points(with_settings(**settings))
    (point,) = found.pop(name)
    assert (point.verdict, point.line, point.blocks) == (Verdict.MUST, line, True)
    key = next(iter(settings))
    assert point.says.startswith(f"{key} is ")
    others = [p for listed in found.values() for p in listed if p.wrong and not p.line.startswith(key)]
    assert others == []
    with pytest.raises(SlurmSetupError, match=f"{key} is .*; write: "):
        refuse([point])


@pytest.mark.parametrize("value", ["qos", "all", "safe,qos", "Associations,Limits,QOS"])
def test_words_of_enforce_switch_others_on(value: str) -> None:
    found = points(with_settings(AccountingStorageEnforce=value))
    assert not any(p.wrong for name in ("enforce associations", "enforce qos") for p in found[name])


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"AccountingStoreFlags": "(null)"}, "comments kept"), ({"AccountingStorageEnforce": "qos"}, "enforce limits")],
)
def test_what_is_advised(settings: dict[str, str], name: str) -> None:
    (point,) = points(with_settings(**settings))[name]
    assert point.verdict is Verdict.ADVISED
    assert point.line


def test_without_the_plugin_in_slurm_conf_apply_may_still_write_the_file() -> None:
    """slurmctld does not start with JobSubmitPlugins=lua and no file: the file comes first."""
    (point,) = points(with_settings(JobSubmitPlugins="(null)"))["submit plugin"]
    assert point.wrong
    assert point.line.startswith("JobSubmitPlugins=lua")
    refuse([point])


@pytest.mark.parametrize(
    ("weights", "verdict"),
    [
        (0, Verdict.OK),
        (5999, Verdict.OK),
        (7000, Verdict.ADVISED),
        (999_999, Verdict.ADVISED),
        (1_000_000, Verdict.MUST),
    ],
)
def test_weights(weights: int, verdict: Verdict) -> None:
    (point,) = points(replace(ready(), weights=weights))["weights"]
    assert point.verdict is verdict
    assert str(weights) in point.says


@pytest.mark.parametrize(("level", "wrong"), [("none", True), ("operator", False), ("administrator", False)])
def test_rights(level: str, wrong: bool) -> None:
    (point,) = points(replace(ready(), admin_level=level))["rights"]
    assert point.wrong is wrong


def test_an_operator_is_told_that_qos_need_an_administrator() -> None:
    model = site()
    model.level = "operator"
    assert "who applies" in points(model.facts())
    model.level = "administrator"
    assert "who applies" not in points(model.facts())


def test_a_grace_time_without_end_is_refused() -> None:
    facts = ready()
    for name in ("backed", "spare"):
        changed = replace(facts, qos={**facts.qos, name: replace(facts.qos[name], grace=-1)})
        (point,) = points(changed)["grace time"]
        assert point.wrong
        assert point.line == f"sacctmgr -i modify qos {name} set gracetime=0"


def twins(managed: Qos, twin: Qos) -> dict[str, list[Point]]:
    facts = ready()
    return points(replace(facts, qos={"normal": managed, "cheap": twin}), KEPT)


def test_a_limit_that_a_job_would_lose_is_named_and_refused() -> None:
    managed = Qos("normal", limits={"maxwall": "1-00:00:00", "flags": "DenyOnLimit,NoReserve"})
    found = twins(managed, Qos("cheap", limits={"flags": "NoReserve"}))["limits"]
    assert [(p.verdict, p.line) for p in found] == [
        (Verdict.MUST, "sacctmgr -i modify qos cheap set maxwall=1-00:00:00"),
        (Verdict.MUST, "sacctmgr -i modify qos cheap set flags+=DenyOnLimit"),
    ]
    assert "would lose maxwall=1-00:00:00 of normal" in found[0].says
    with pytest.raises(SlurmSetupError, match=r"would lose maxwall.*1 more"):
        refuse(found)


def test_a_limit_that_differs_is_the_sites_will_and_shown() -> None:
    found = twins(Qos("normal", limits={"grptres": "gres/gpu=8"}), Qos("cheap", limits={"grptres": "gres/gpu=4"}))
    assert [p.verdict for p in found["limits"]] == [Verdict.ADVISED]
    assert "limits" not in twins(Qos("normal"), Qos("cheap", limits={"grptres": "gres/gpu=4"}))


def test_a_twin_whose_jobs_would_be_killed_or_rank_above_is_refused() -> None:
    found = twins(Qos("normal", 5), Qos("cheap", 9, preempt_mode="cancel"))
    assert found["preempted jobs"][0].line == "sacctmgr -i modify qos cheap set preemptmode=requeue"
    assert found["rank"][0].line == "sacctmgr -i modify qos cheap set priority=1"
    assert not {"preempted jobs", "rank"} & set(twins(Qos("normal", 5), Qos("cheap", 5)))


@pytest.mark.parametrize(
    ("rule", "classes", "line"),
    [
        (PartitionRule(frozenset({"normal"})), DEFAULT, "AllowQos=backed,normal,spare"),
        (PartitionRule(frozenset({"backed"})), DEFAULT, "AllowQos=backed,spare"),
        (PartitionRule(frozenset({"normal"})), KEPT, "AllowQos=cheap,normal"),
        (PartitionRule(None, frozenset({"x", "spare"})), DEFAULT, "DenyQos=x"),
        (PartitionRule(frozenset({"debug"})), DEFAULT, None),
        (PartitionRule(), DEFAULT, None),
        (PartitionRule(frozenset({"normal", "cheap"})), KEPT, None),
    ],
)
def test_partitions_take_what_jobs_may_get(rule: PartitionRule, classes: ClassMap, line: str | None) -> None:
    found = points(replace(ready(), partitions={"gpu": rule}), classes).get("partitions", [])
    assert [p.line for p in found] == ([] if line is None else [f"PartitionName=gpu ... {line}"])
