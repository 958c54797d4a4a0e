"""What setup does for claims: nothing where Slurm cannot, the exact line where something is wrong."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from pyslurm_budget.domain.engine import AUTO, CLAIM, REQUEUE
from pyslurm_budget.domain.policy import ClassMap
from pyslurm_budget.service.setup import Association, MakeQos, PartitionRule, SlurmFacts, step_of
from pyslurm_budget.service.setup_check import check
from pyslurm_budget.service.setup_claim import are_set_up, everything
from pyslurm_budget.service.setup_point import Point, Verdict
from pyslurm_budget.service.setup_undo import Record, drop_qos, undo
from tests.unit.setup_model import Slurmdbd, StoredQos, site

CLASSES = ClassMap()
WORD = "min_exempt_priority=1000000"
NEW = {"SLURM_VERSION": "24.11.5", "PreemptParameters": WORD}


def model(**settings: str) -> Slurmdbd:
    made = site()
    made.settings |= {**NEW, **settings}
    return made


def apply(to: Slurmdbd, classes: ClassMap = CLASSES, engine: str = AUTO) -> Record:
    changes = everything(to.facts(), classes, engine=engine)
    for change in changes:
        to.do(step_of(change, "demo"))
    assert everything(to.facts(), classes, made=Record(tuple(changes)).made, engine=engine) == []
    return Record(tuple(changes))


def points(facts: SlurmFacts, engine: str = AUTO) -> list[Point]:
    return [p for p in check(facts, CLASSES, made={"backed", "spare"}, engine=engine) if p.name == "claims"]


def test_where_slurm_can_the_qos_is_made_and_nobody_may_use_it() -> None:
    to = model()
    before = to.picture()
    record = apply(to)
    claim = to.qos["claim"]
    assert (claim.settings["priority"], claim.settings["preemptmode"]) == ("100", "within,requeue")
    assert claim.preempt == {"backed", "spare"}
    assert all("claim" not in to.may(*key) for key in to.associations)
    assert {p.verdict for p in points(to.facts())} == {Verdict.OK}
    for step in undo(record, to.facts()):
        to.do(step)
    steps, stay = drop_qos(record, to.facts(), {})
    for step in steps:
        to.do(step)
    assert (to.picture(), stay) == (before, {})


def test_it_has_the_limits_of_the_managed_qos_and_takes_the_place_of_all_classes() -> None:
    to = model()
    to.qos["high"] = StoredQos({"priority": "70", "maxwall": "7"})
    apply(to, ClassMap(MappingProxyType({"high": "low", "normal": "cheap"}), adopt=None))
    assert (to.qos["claim"].settings["maxwall"], to.qos["claim"].settings["priority"]) == ("7", "70")
    assert to.qos["claim"].preempt == {"high", "low", "normal", "cheap"}


@pytest.mark.parametrize(
    ("settings", "engine"),
    [
        ({"SLURM_VERSION": "22.05.8"}, AUTO),
        ({"SLURM_VERSION": "22.05.8"}, CLAIM),
        ({"PreemptParameters": "(null)"}, AUTO),
        ({"PreemptParameters": "min_exempt_priority=100"}, CLAIM),
        ({}, REQUEUE),
    ],
)
def test_where_runs_could_not_be_shielded_the_qos_is_never_made(settings: dict[str, str], engine: str) -> None:
    facts = model(**settings).facts()
    assert not are_set_up(facts, engine)
    changes = everything(facts, CLASSES, engine=engine)
    assert "claim" not in {c.name for c in changes if isinstance(c, MakeQos)}


@pytest.mark.parametrize(
    ("settings", "engine", "verdict", "line"),
    [
        ({"SLURM_VERSION": "22.05.8"}, CLAIM, Verdict.MUST, '[displace] engine = "auto" in sbudget.toml'),
        ({"PreemptParameters": "(null)"}, AUTO, Verdict.ADVISED, f"PreemptParameters={WORD}  (then restart"),
        ({"PreemptParameters": "reorder_count=2"}, CLAIM, Verdict.MUST, f"=reorder_count=2,{WORD}  (then"),
        ({"PreemptParameters": f"{WORD},reorder_count=2"}, AUTO, Verdict.MUST, f"=reorder_count=2,{WORD}  (then"),
        ({"PreemptParameters": f"youngest_first,{WORD}"}, AUTO, Verdict.MUST, "take youngest_first out"),
        ({"SchedulerParameters": "bf_interval=30,preempt_youngest_first"}, AUTO, Verdict.MUST,
         "take preempt_youngest_first out"),
    ],
)  # fmt: skip
def test_wrong_settings_are_told_with_the_line_to_write(
    settings: dict[str, str], engine: str, verdict: Verdict, line: str
) -> None:
    to = model()
    apply(to)
    to.settings |= settings
    (found,) = [p for p in points(to.facts(), engine) if p.verdict is not Verdict.OK]
    assert found.verdict is verdict
    assert line in found.line


def test_an_old_slurm_and_an_engine_of_requeues_are_told_nothing() -> None:
    assert points(model(SLURM_VERSION="22.05.8").facts()) == []
    assert points(model(PreemptParameters="(null)").facts(), REQUEUE) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"preempt_mode": "requeue"}, "sacctmgr -i modify qos claim set preemptmode=within,requeue"),
        ({"grace": -1}, "sacctmgr -i modify qos claim set gracetime=0"),
    ],
)
def test_a_wrong_qos_of_claims(change: dict[str, object], line: str) -> None:
    to = model()
    apply(to)
    facts = to.facts()
    qos = {**facts.qos, "claim": replace(facts.qos["claim"], **change)}  # type: ignore[arg-type]
    assert [p.line for p in points(replace(facts, qos=qos)) if p.wrong] == [line]


def test_a_limit_of_the_managed_qos_that_claims_would_escape() -> None:
    to = model()
    apply(to)
    to.qos["backed"].settings["grptres"] = "gres/gpu=4"
    lines = [p.line for p in points(to.facts()) if p.wrong]
    assert lines == ["sacctmgr -i modify qos claim set grptres=gres/gpu=4"]


@pytest.mark.parametrize(
    ("association", "line"),
    [
        (Association("nlp", own=frozenset({"backed", "claim"})), "account nlp set qos-=claim"),
        (Association("nlp", "alice", own=frozenset({"+claim"})), "user alice where account=nlp set qos-=claim"),
        (Association("nlp", default="claim"), "account nlp set qos-=claim"),
    ],
)
def test_nobody_may_have_it(association: Association, line: str) -> None:
    to = model()
    apply(to)
    facts = to.facts()
    found = points(replace(facts, associations=(*facts.associations, association)))
    assert [p.line for p in found if p.wrong] == [f"sacctmgr -i modify {line}"]


def test_a_partition_that_takes_backed_work_must_take_claims() -> None:
    to = model()
    apply(to)
    facts = replace(to.facts(), partitions={"gpu": PartitionRule(frozenset({"backed", "spare"}))})
    lines = [p.line for p in check(facts, CLASSES, made={"backed", "spare"}) if p.name == "partitions"]
    assert lines == ["PartitionName=gpu ... AllowQos=backed,claim,spare"]
