"""The plan of `setup` and its undoing, against a model of sacctmgr that knows only its command lines."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.policy import ClassMap
from pyslurm_budget.errors import LedgerError, SlurmOutputError, SlurmSetupError
from pyslurm_budget.service.setup import Association, LetUse, MakeQos, parents_first, plan, step_of
from pyslurm_budget.service.setup_undo import Record, drop_qos, home_of, record_of, record_text, undo
from tests.unit.setup_model import Slurmdbd, StoredQos, site

DEFAULT = ClassMap()
NONE = Record()
NORMAL = ClassMap(MappingProxyType({"normal": "normal-spare"}), adopt=None)
TWO = ClassMap(MappingProxyType({"normal": "low", "high": "low"}), adopt=None)
BOTH = ClassMap(MappingProxyType({"normal": "normal-spare", "high": "low"}), adopt=None)
NAMES = ("normal", "backed", "spare", "high", "x", "normal-spare", "low")


@st.composite
def sites(draw: st.DrawFn) -> Slurmdbd:
    """Any site: QOS, Preempt lists without loops, a tree of accounts, users, lists of each kind."""
    made = Slurmdbd()
    for name in draw(st.sets(st.sampled_from(NAMES[1:]))):
        limits = draw(st.dictionaries(st.sampled_from(["maxwall", "grpjobs", "flags"]), st.just("7"), max_size=2))
        made.qos[name] = StoredQos({"priority": str(draw(st.integers(0, 200)))} | limits)
    known = sorted(made.qos)
    for name in ("backed", "high", "normal"):
        if name in made.qos:
            below = [q for q in known if q in ("spare", "x", "low", "normal-spare")]
            made.qos[name].preempt = draw(st.sets(st.sampled_from(below))) if below else set()
    plain = st.lists(st.sampled_from(known), unique=True, max_size=3).map(",".join)
    signed = st.lists(st.sampled_from(known), unique=True, max_size=2).flatmap(
        lambda names: st.tuples(*(st.sampled_from([f"+{n}", f"-{n}"]) for n in names)).map(",".join)
    )
    lists = st.one_of(st.just(""), plain, signed)
    made.account("root", "", "normal")
    accounts = ["root"]
    for index in range(draw(st.integers(0, 5))):
        made.account(f"a{index}", draw(st.sampled_from(accounts)), draw(lists))
        accounts.append(f"a{index}")
    for index in range(draw(st.integers(0, 4))):
        made.user(f"u{index}", draw(st.sampled_from(accounts)), draw(lists), draw(st.sampled_from(["", "gpu"])))
    return made


bounds = st.one_of(st.none(), st.sets(st.sampled_from(["a0", "a1", "a2", "gone"])))
maps = st.sampled_from([DEFAULT, NORMAL, TWO, BOTH, ClassMap(NORMAL.twins, adopt="normal")])


def applied(model: Slurmdbd, classes: ClassMap, bound: set[str] | None, record: Record = NONE) -> Record:
    changes = plan(model.facts(), classes, bound, record.made)
    for change in changes:
        model.do(step_of(change, "demo"))
    return record.with_changes(changes)


def taken_back(model: Slurmdbd, record: Record) -> None:
    for step in undo(record, model.facts()):
        model.do(step)
    steps, stay = drop_qos(record, model.facts(), {})
    assert not stay
    for step in steps:
        model.do(step)


@given(sites(), maps, bounds)
def test_apply_leaves_nothing_to_do_and_remove_gives_everything_back(model, classes, bound) -> None:
    before = copy.deepcopy(model.picture())
    record = applied(model, classes, bound)
    assert plan(model.facts(), classes, bound, record.made) == []
    taken_back(model, record)
    assert model.picture() == before
    assert undo(record, model.facts()) == []


@given(sites(), maps, bounds, st.integers(0, 8))
def test_an_apply_that_broke_off_is_gone_on_with_or_undone(model, classes, bound, done) -> None:
    before = copy.deepcopy(model.picture())
    changes = plan(model.facts(), classes, bound)
    record = Record().with_changes(changes)  # all are written down, some are made
    for change in changes[:done]:
        model.do(step_of(change, "demo"))
    other = copy.deepcopy(model)
    taken_back(other, record)
    assert other.picture() == before
    record = applied(model, classes, bound, record)
    assert plan(model.facts(), classes, bound, record.made) == []
    taken_back(model, record)
    assert model.picture() == before


@given(sites(), maps, bounds)
def test_who_has_a_managed_qos_has_its_twin_and_nobody_loses_one(model, classes, bound) -> None:
    before = {key: model.may(*key) for key in model.associations}
    applied(model, classes, bound)
    for key, had in before.items():
        have = model.may(*key)
        assert had <= have
        for managed, twin in classes.twins.items():
            assert managed not in have or twin in have
    for managed in classes.twins:
        assert set(classes.twins.values()) <= model.qos[managed].preempt


def needed(have: set[str], classes: ClassMap) -> set[str]:
    """The QOS that jobs may get of someone who has these."""
    return have & {name for managed, twin in classes.twins.items() if managed in have for name in (managed, twin)}


@given(sites(), maps, bounds, st.integers(0, 8), st.booleans())
def test_slurmctld_refuses_nobody_what_slurmdbd_allows(model, classes, bound, done, deep) -> None:
    """Also where the first apply broke off, and after everything was taken back; as 22.05 and as 24.11 tells it."""
    model.deep = deep
    before = {key: model.may(*key) for key in model.associations if key[1]}
    changes = plan(model.facts(), classes, bound)
    for change in changes[:done]:
        model.do(step_of(change, "demo"))
    record = applied(model, classes, bound, Record().with_changes(changes))
    for key, had in before.items():
        assert had | needed(model.may(*key), classes) <= model.slurmctld[key], key
    taken_back(model, record)
    for key, had in before.items():
        assert had <= model.slurmctld[key], key


@given(sites(), maps, bounds)
def test_nothing_but_what_is_needed_is_given(model, classes, bound) -> None:
    """An association gets only managed QOS and twins, and the twin only where the managed one is."""
    before = {key: model.may(*key) for key in model.associations}
    kept = {name: dict(q.settings) for name, q in model.qos.items()}
    applied(model, classes, bound)
    twins = set(classes.twins.values())
    for key, had in before.items():
        gained = model.may(*key) - had
        assert gained <= twins | set(classes.twins)
        account_is_bound = bound is None or any(a in bound for a in _ancestors(model, key[0]))
        if not account_is_bound:
            assert not gained - twins
    for name, settings in kept.items():
        assert model.qos[name].settings == settings


def _ancestors(model: Slurmdbd, account: str) -> list[str]:
    found = [account]
    while (parent := model.associations[(found[-1], "", "")].parent) != "":
        found.append(parent)
    return found


@given(sites(), maps, bounds, sites())
def test_what_the_site_changed_since_is_left_alone(model, classes, bound, later) -> None:
    """A list that somebody else replaced by names that are not ours is not touched by remove."""
    record = applied(model, classes, bound)
    ours = {*classes.twins, *classes.twins.values()}
    touched = []
    for key, stored in model.associations.items():
        names = [q for q in later.associations[key].qos if q in model.qos] if key in later.associations else []
        if names and not set(names) & ours:
            stored.qos, stored.delta = names, []
            touched.append((key, sorted(names)))
    taken_back(model, record)
    for key, names in touched:
        assert sorted(model.associations[key].qos) == names


@given(sites(), maps, bounds, st.data())
def test_no_list_has_a_qos_of_ours_when_it_is_deleted(model, classes, bound, data) -> None:
    """Also where the site itself put it since: the model refuses to delete it from under a list."""
    record = applied(model, classes, bound)
    for stored in model.associations.values():
        if data.draw(st.booleans()):
            stored.qos, stored.delta = data.draw(st.lists(st.sampled_from(sorted(model.qos)), unique=True)), []
    model.qos["boss"] = StoredQos(preempt=set(data.draw(st.lists(st.sampled_from(sorted(model.qos)), unique=True))))
    taken_back(model, record)
    for stored in model.associations.values():
        assert not {q.lstrip("+-") for q in (*stored.qos, *stored.delta)} - set(model.qos)
    for stored_qos in model.qos.values():
        assert stored_qos.preempt <= set(model.qos)


def test_the_empty_site_gets_both_qos_in_each_account() -> None:
    model = site()
    record = applied(model, DEFAULT, None)
    assert [step_of(c, "demo").says for c in record.changes] == [
        "make the QOS spare (spare twin of backed)",
        "make the QOS backed (work that a budget pays for)",
        "let backed preempt spare",
        "let account nlp use backed,spare",
        "let account lab use backed,spare",
        "let account bio use backed,spare",
    ]
    assert model.may("nlp", "alice") == {"normal", "backed", "spare"}
    assert model.may("root", "root") == {"normal"}
    assert int(model.qos["backed"].settings["priority"]) == 100 > int(model.qos["spare"].settings["priority"]) == 1
    assert {model.qos[q].settings["preemptmode"] for q in ("backed", "spare")} == {"requeue"}


def test_with_budgets_only_their_accounts_and_those_below_get_the_new_qos() -> None:
    model = site()
    applied(model, DEFAULT, {"lab"})
    assert model.may("nlp", "alice") == {"normal", "backed", "spare"}
    assert model.may("bio", "bob") == {"normal"}


def test_a_site_that_keeps_its_normal_gets_one_twin_in_each_account() -> None:
    model = site()
    record = applied(model, NORMAL, {"lab"})
    made = [c for c in record.changes if isinstance(c, MakeQos)]
    assert [c.name for c in made] == ["normal-spare"]
    assert [c.key for c in record.changes if isinstance(c, LetUse)] == [
        ("nlp", "", ""), ("lab", "", ""), ("bio", "", ""), ("root", "", "")
    ]  # fmt: skip
    assert model.may("bio", "bob") == {"normal", "normal-spare"}
    assert model.qos["normal"].preempt == {"normal-spare"}
    assert model.qos["normal"].settings == {"priority": "0"}


def test_a_twin_has_every_limit_and_the_grace_of_its_managed_qos_and_ranks_below() -> None:
    model = site()
    model.qos["high"] = StoredQos(
        {"priority": "50", "maxwall": "1-00:00:00", "grptres": "gres/gpu=8", "gracetime": "45"}
    )
    applied(model, ClassMap(MappingProxyType({"high": "high-spare"}), adopt=None), None)
    twin = model.qos["high-spare"].settings
    del twin["description"]
    assert twin == {
        "priority": "1", "preemptmode": "requeue", "maxwall": "1-00:00:00", "grptres": "gres/gpu=8", "gracetime": "45"
    }  # fmt: skip


@pytest.mark.parametrize(("priority", "twin"), [(0, "0"), (1, "0"), (2, "1"), (100, "1")])
def test_a_twin_ranks_below_its_managed_qos_where_slurm_has_room_for_that(priority: int, twin: str) -> None:
    model = site()
    model.qos["normal"].settings["priority"] = str(priority)
    applied(model, NORMAL, None)
    assert model.qos["normal-spare"].settings["priority"] == twin


def test_a_list_that_would_be_left_with_nothing_becomes_what_it_was() -> None:
    """The site reduced it to a twin that was there before us: without anything it would inherit more than it had."""
    model = site()
    model.qos |= {"backed": StoredQos({"priority": "9"}), "spare": StoredQos()}
    model.account("bio", "root", "normal")
    record = applied(model, DEFAULT, None)
    model.associations[("bio", "", "")].qos = ["spare"]
    taken_back(model, record)
    assert model.associations[("bio", "", "")].qos == ["normal"]


def test_a_users_own_list_gets_the_twin_by_itself_and_only_in_that_association() -> None:
    model = site()
    model.user("carol", "bio", "normal")
    model.user("carol", "bio", partition="gpu")
    record = applied(model, NORMAL, None)
    assert ("bio", "carol", "") in [c.key for c in record.changes if isinstance(c, LetUse)]
    assert ("bio", "carol", "gpu") not in [c.key for c in record.changes if isinstance(c, LetUse)]
    assert model.associations[("bio", "carol", "")].qos == ["normal", "normal-spare"]


def test_a_twin_that_may_preempt_its_managed_qos_is_refused_with_the_line_to_write() -> None:
    model = site()
    model.qos |= {"spare": StoredQos(preempt={"x"}), "x": StoredQos(preempt={"backed"}), "backed": StoredQos()}
    with pytest.raises(SlurmSetupError, match=r"spare may preempt backed.*modify qos spare set preempt-="):
        plan(model.facts(), DEFAULT)


def test_accounts_that_are_their_own_ancestors_end_the_plan() -> None:
    ring = [Association("a", parent="b"), Association("b", parent="a")]
    with pytest.raises(SlurmOutputError, match="their own ancestors: a, b"):
        parents_first(ring)


@given(sites(), maps, bounds)
def test_the_record_is_read_as_it_was_written(model, classes, bound) -> None:
    record = Record().with_changes(plan(model.facts(), classes, bound))
    assert record_of(record_text(record)) == record
    assert record.with_changes(record.changes) == record


def test_no_record_and_an_unreadable_one_are_told_apart() -> None:
    assert record_of(None) == Record()
    assert record_text(Record()) is None
    for text in ("", "[]", "{}", '{"version": 2}', '{"version": 1, "changes": [{"kind": "Other"}], "plugin": null}'):
        with pytest.raises(LedgerError, match="cannot be read"):
            record_of(text)


def test_a_qos_of_ours_stays_while_jobs_use_it_or_it_is_a_default() -> None:
    model = site()
    record = applied(model, DEFAULT, None)
    model.associations[("bio", "", "")].default = "backed"
    steps, stay = drop_qos(record, model.facts(), {"spare": "2 jobs use it (5, 6)"})
    assert steps == []
    assert stay == {"spare": "2 jobs use it (5, 6)", "backed": "it is the DefaultQOS of account bio"}
    _, stay = drop_qos(record, replace(model.facts(), elsewhere=frozenset({"spare"})), {})
    assert stay["spare"] == "another cluster of this slurmdbd has it in its lists"


def test_pending_jobs_go_home() -> None:
    model = site()
    model.account("own", "root", "x")
    model.user("carol", "own")
    model.user("dave", "bio", default="high")
    model.qos |= {"x": StoredQos(), "high": StoredQos()}
    model.associations[("bio", "dave", "")].delta = ["+high"]
    record = applied(model, DEFAULT, None)
    home = home_of(record, model.facts(), DEFAULT)
    assert home("nlp", "alice", "spare") == "normal"
    assert home("nlp", "alice", "backed") == "normal"
    assert home("own", "carol", "backed") == "x"
    assert home("bio", "dave", "spare") == "high"
    assert home("bio", "unknown", "spare") == "normal"


def test_pending_jobs_of_a_twin_go_back_to_the_managed_qos_that_stays() -> None:
    model = site()
    record = applied(model, NORMAL, None)
    assert home_of(record, model.facts(), NORMAL)("bio", "bob", "normal-spare") == "normal"


def test_a_user_who_may_use_nothing_else_has_nowhere_to_go() -> None:
    model = site()
    model.account("root", "", "")
    record = applied(model, DEFAULT, None)
    assert home_of(record, model.facts(), DEFAULT)("bio", "bob", "spare") is None
