"""What slurmctld is asked after the lists were made, and what its answers mean."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given

from pyslurm_budget.domain.policy import ClassMap
from pyslurm_budget.service.setup import PartitionRule
from pyslurm_budget.service.setup_point import Verdict
from pyslurm_budget.service.setup_verify import MOST_ASKED, point, questions, refusals
from tests.unit.setup_model import Slurmdbd, StoredQos, site
from tests.unit.test_setup_plan import applied, bounds, maps, needed, sites

DEFAULT = ClassMap()


@pytest.fixture
def model() -> Slurmdbd:
    made = site()
    applied(made, DEFAULT, None)
    return made


def asked(model: Slurmdbd, classes: ClassMap = DEFAULT) -> list[tuple[str, tuple[str, ...], str, str]]:
    return [(q.account, q.users, q.qos, q.partition) for q in questions(model.facts(), classes)]


def test_both_classes_are_asked_for_in_each_account_with_users(model: Slurmdbd) -> None:
    assert asked(model) == [
        ("nlp", ("alice",), "backed", "gpu"), ("nlp", ("alice",), "spare", "gpu"),
        ("bio", ("bob",), "backed", "gpu"), ("bio", ("bob",), "spare", "gpu"),
    ]  # fmt: skip


def test_a_user_with_a_list_of_his_own_is_asked_for_by_himself_and_some_of_the_others(model: Slurmdbd) -> None:
    model.user("carol", "bio", "+normal")
    for name in ("dave", "erin", "fred"):
        model.user(name, "bio")
    model.user("adam", "bio")
    model.user("adam", "bio", partition="gpu")
    users = {users for account, users, *_ in asked(model) if account == "bio"}
    assert users == {("bob", "dave", "erin"), ("carol",)}
    assert MOST_ASKED == 3


def test_the_job_is_for_a_partition_that_takes_the_qos_or_not_asked_for(model: Slurmdbd) -> None:
    rules = {"deny": PartitionRule(deny=frozenset({"spare"})), "low": PartitionRule(allow=frozenset({"spare"}))}
    facts = replace(model.facts(), partitions=rules)
    assert {(q.qos, q.partition) for q in questions(facts, DEFAULT)} == {("backed", "deny"), ("spare", "low")}
    facts = replace(facts, partitions={"deny": rules["deny"]})
    assert {q.qos for q in questions(facts, DEFAULT)} == {"backed"}


def test_a_user_whom_nobody_knows_is_passed_over_for_the_next(model: Slurmdbd) -> None:
    model.account("old", "root", "+backed,+spare")
    model.user("gone1", "old")
    model.slurmctld[("old", "gone1", "")] = set()
    assert refusals(list(questions(model.facts(), DEFAULT)), model.accepts) == []
    model.user("hugo", "old")
    model.slurmctld[("old", "hugo", "")] = {"backed"}
    found = refusals(list(questions(model.facts(), DEFAULT)), model.accepts)
    assert [(question.account, question.qos, user) for question, user in found] == [("old", "spare", "hugo")]


@given(sites(), maps, bounds)
def test_every_user_who_would_be_refused_is_found_by_the_users_of_his_list(model, classes, bound) -> None:
    """slurmctld misses everything; then it knows everything."""
    model.deaf = True
    applied(model, classes, bound)
    found = refusals(list(questions(model.facts(), classes)), model.accepts)
    refused = {
        (account, qos)
        for account, user, partition in model.associations
        if user and not partition
        for qos in needed(model.may(account, user), classes) - model.slurmctld[(account, user, "")]
    }
    assert {(question.account, question.qos) for question, _ in found} == refused
    model.restart_slurmctld()
    assert refusals(list(questions(model.facts(), classes)), model.accepts) == []


def test_the_point_of_the_check(model: Slurmdbd) -> None:
    assert point(model.facts(), DEFAULT, model.accepts, may_ask=True).verdict is Verdict.OK
    model.slurmctld[("nlp", "alice", "")] = {"normal", "backed"}
    wrong = point(model.facts(), DEFAULT, model.accepts, may_ask=True)
    assert (wrong.verdict, wrong.blocks) == (Verdict.MUST, False)
    assert wrong.says == "slurmctld refuses QOS spare to alice in account nlp, though slurmdbd has it in the list"
    assert wrong.line == "restart slurmctld, then run sbudget setup apply again"
    assert point(model.facts(), DEFAULT, model.accepts, may_ask=False).verdict is Verdict.ADVISED


def test_classes_of_the_site_are_asked_for_where_they_are_in_force() -> None:
    model = site()
    classes = ClassMap(MappingProxyType({"high": "high-spare"}), adopt=None)
    model.qos["high"] = StoredQos({"priority": "9"})
    model.account("bio", "root", "+high")
    applied(model, classes, {"bio"})
    assert {(account, qos) for account, _, qos, _ in asked(model, classes)} == {
        ("bio", "high"),
        ("bio", "high-spare"),
    }
