"""Modes of parts of a site: the most careful counts, and what stays behind is shown and left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.evaluate import drains, evaluate
from pyslurm_budget.domain.model import Mode, WorkClass
from pyslurm_budget.domain.modes import Modes
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from tests.build import HOUR, MINUTE, NOW, held, live, node, nodes, pending, running, situation, tree, use

OBSERVE, ADVISE, ENFORCE = Mode.OBSERVE, Mode.ADVISE, Mode.ENFORCE
ORDER = (OBSERVE, ADVISE, ENFORCE)
NAMES = st.sampled_from(["a", "b", "c", "*"])
MODES = st.builds(
    Modes,
    st.dictionaries(NAMES, st.sampled_from(ORDER), max_size=3),
    st.dictionaries(NAMES, st.sampled_from(ORDER), max_size=3),
)


@given(MODES, st.sampled_from(ORDER), st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc"), unique=True))
def test_no_part_goes_ahead_of_the_site_and_no_partition_of_a_list_is_forgotten(
    modes: Modes, site: Mode, partitions: list[str], path: list[str]
) -> None:
    found = modes.of(site, partitions, path)
    assert ORDER.index(found) <= ORDER.index(site)
    for name in partitions:
        assert ORDER.index(found) <= ORDER.index(modes.partitions.get(name, ENFORCE))
    if path and path[0] in modes.budgets:
        assert ORDER.index(found) <= ORDER.index(modes.budgets[path[0]])
    assert Modes().of(site, partitions, path) is site


@pytest.mark.parametrize(
    ("path", "expected"),
    [(("dolma", "nlp"), ENFORCE), (("olmo", "nlp"), ADVISE), (("bio",), OBSERVE), ((), OBSERVE)],
)
def test_the_nearest_named_budget_on_the_path_counts(path: tuple[str, ...], expected: Mode) -> None:
    modes = Modes(budgets={"nlp": ADVISE, "dolma": ENFORCE, "*": OBSERVE})
    assert modes.of(ENFORCE, (), path) is expected


BEHIND = Policy(modes=Modes(budgets={"red": OBSERVE}))


@pytest.mark.parametrize("modes", [Modes(budgets={"red": OBSERVE}), Modes(partitions={"gpu": ADVISE})])
def test_a_waiting_job_that_stays_behind_is_judged_and_not_changed(modes: Modes) -> None:
    job = pending(1, 8, qos="spare")
    assert [a.kind for a in evaluate(situation([job], on=nodes(4))).plan.actions] == [ActionKind.SET_CLASS]
    plan = evaluate(situation([job], on=nodes(4), policy=Policy(modes=modes))).plan
    assert [a.work_class for a in plan.admissions] == [WorkClass.BACKED]
    assert plan.actions == ()


def test_nobody_gives_way_to_a_job_that_stays_behind() -> None:
    run = live(running(101, held("n1", 8)))
    job = pending(1, 8)
    given = {"tree": tree(red="1/2", blue="1/100"), "uses": (use("blue", 800 * HOUR),)}
    by_mode = [
        evaluate(situation([job], [run], policy=policy, **given)).plan.actions for policy in (Policy(), BEHIND)
    ]
    assert [[a.kind for a in actions if a.kind.is_requeue] for actions in by_mode] == [[ActionKind.DISPLACE], []]


@pytest.mark.parametrize("qos", ["backed", "spare"])
def test_a_run_that_stays_behind_is_not_requeued_for_a_drain(qos: str) -> None:
    run = live(running(101, held("n1", 8), qos=qos))
    on = [node("n1", draining=True, reason="xid", reason_since=NOW - HOUR), *nodes(9)[1:]]
    assert [a.ref for a in drains(situation((), [run], on))] == ["101"]
    assert drains(situation((), [replace(run, withheld=True)], on)) == []


def test_while_the_site_observes_the_whole_plan_is_shown() -> None:
    job = pending(1, 8, qos="spare", submit=NOW - 5 * MINUTE)
    plan = evaluate(situation([job], on=nodes(4), policy=BEHIND, mode=OBSERVE)).plan
    assert [a.kind for a in plan.actions] == [ActionKind.SET_CLASS]
