"""The budget file: exact shares, one sentence for each fault, history that is never given twice."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.budget import ANY_POOL, Budget, ShareSince
from pyslurm_budget.errors import BudgetFileError
from pyslurm_budget.service.budgets import (
    check_tree,
    current_share,
    difference,
    merge_history,
    read_budget_file,
    share_words,
)

NOW = 1_000_000
LAB = """
[budgets.lab]
share = "100%"
[budgets.nlp]
parent = "lab"
share = "35%"
[budgets.olmo]
parent = "nlp"
share = 0.6
[budgets.bio]
parent = "lab"
account = "Biology"
share = { "*" = "1/3", h100 = "40%" }
"""
SLURM = {"root": None, "lab": "root", "nlp": "lab", "olmo": "nlp", "biology": "lab", "idle": "lab"}


def test_shares_are_read_exactly_and_accounts_are_lower_case() -> None:
    lab, nlp, olmo, bio = read_budget_file(LAB, NOW)
    assert (lab.account, lab.parent, lab.shares) == ("lab", None, (ShareSince(NOW, Fraction(1)),))
    assert (nlp.parent, current_share(nlp, "a100")) == ("lab", Fraction(35, 100))
    assert (olmo.parent, current_share(olmo, "a100")) == ("nlp", Fraction(6, 10))
    assert bio.account == "biology"
    assert (current_share(bio, "a100"), current_share(bio, "h100")) == (Fraction(1, 3), Fraction(2, 5))


def test_the_tree_of_the_file_is_checked_against_slurm() -> None:
    tree = check_tree(read_budget_file(LAB, NOW), SLURM)
    assert tree.path("olmo") == ("olmo", "nlp", "lab")
    assert tree.effective_share("olmo", "a100", NOW) == Fraction(21, 100)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["has no budget", "[budgets.NAME]"]),
        ("[budget.a]\nshare = 1", ["unknown key budget"]),
        ("[budgets]\nlab = '50%'", ["budgets.lab", "found '50%'", "a table"]),
        ("[budgets.a]\nshares = 1", ["budgets.a", "unknown key shares", "did you mean share?"]),
        ("[budgets.a]", ["budgets.a", "has no share"]),
        ("[budgets.a]\nshare = '50'", ["budgets.a", "5000 % is more than the whole"]),
        ("[budgets.a]\nshare = 'half'", ["budgets.a", "found 'half'", '"2%"']),
        ("[budgets.a]\nshare = { a100 = -1 }", ["pool a100", "found -1"]),
        ("[budgets.a]\nshare = {}", ["budgets.a", "empty"]),
        ("[budgets.a]\naccount = 3\nshare = 1", ["budgets.a.account", "found 3"]),
        ("[budgets.nlp]\nshare = 1\n[budgets.x]\nparent = 'npl'\nshare = 1", ["x", "'npl'", "did you mean nlp?"]),
        ("[budgets.a]\nshare = 0.1\n[budgets.b]\naccount = 'A'\nshare = 0.1", ["account a", "a and b"]),
        ("budgets = ", ["not valid TOML"]),
    ],
)
def test_what_is_wrong_in_the_text_is_named(text: str, words: list[str]) -> None:
    with pytest.raises(BudgetFileError) as refused:
        read_budget_file(text, NOW, "b.toml")
    for word in ["b.toml", *words]:
        assert word in str(refused.value)


def budget(account: str, parent: str | None, share: str, pool: str = ANY_POOL) -> Budget:
    return Budget(account, parent, (ShareSince(NOW, Fraction(share), pool),))


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        (
            [budget("lab", None, "1"), budget("nlp", "lab", "7/10"), budget("biology", "lab", "4/10")],
            ["children of lab", "110 %", "nlp 70 %", "biology 40 %"],
        ),
        ([budget("lab", None, "7/10"), budget("nlp", None, "4/10")], ["budgets without a parent", "110 %"]),
        ([budget("lab", "nlp", "1"), budget("nlp", "lab", "1")], ["circle", "lab -> nlp -> lab"]),
        ([budget("lab", "lab", "1")], ["circle", "lab -> lab"]),
        ([budget("lab", None, "1"), budget("nlp", "lap", "1")], ["parent lap", "did you mean lab?"]),
        ([budget("lab", None, "1/2"), budget("Lab".lower(), None, "1/2")], ["account lab", "one budget"]),
        ([budget("labb", None, "1")], ["labb", "no account of Slurm", "did you mean lab?"]),
        ([budget("nlp", None, "1"), budget("biology", "nlp", "1")], ["biology", "parent nlp", "not lie below"]),
        ([budget("lab", None, "1/2"), budget("nlp", None, "1/2")], ["nlp", "below lab", "no parent here"]),
        (
            [budget("lab", None, "1"), budget("nlp", "lab", "1/2"), budget("olmo", "lab", "1/2")],
            ["olmo has parent lab", "nearest budget above it is nlp"],
        ),
    ],
)
def test_what_is_wrong_in_the_tree_is_named(budgets: list[Budget], words: list[str]) -> None:
    with pytest.raises(BudgetFileError) as refused:
        check_tree(budgets, SLURM, "b.toml")
    for word in ["b.toml", *words]:
        assert word in str(refused.value)


def test_shares_are_summed_in_each_pool() -> None:
    lab = budget("lab", None, "1")
    nlp = Budget("nlp", "lab", (ShareSince(NOW, Fraction(1, 2)), ShareSince(NOW, Fraction(7, 10), "h100")))
    with pytest.raises(BudgetFileError, match="120 % together in pool h100"):
        check_tree([lab, nlp, budget("biology", "lab", "1/2")], SLURM)


def test_the_very_first_tree_acts_from_the_beginning() -> None:
    merged = merge_history((), read_budget_file(LAB, NOW), NOW)
    assert {s.since for b in merged for s in b.shares} == {0}


def test_a_changed_share_acts_from_now_on_and_the_rest_keeps_its_past() -> None:
    old = merge_history((), read_budget_file(LAB, NOW), NOW)
    new = read_budget_file(LAB.replace("35%", "50%"), NOW + 10)
    merged = {b.account: b for b in merge_history(old, new, NOW + 10)}
    assert merged["lab"].shares == old[0].shares
    assert merged["nlp"].shares == (ShareSince(0, Fraction(35, 100)), ShareSince(NOW + 10, Fraction(1, 2)))
    assert difference(old, merged.values()) == ["~ nlp: 35 % -> 50 % of lab"]


def test_a_share_of_one_pool_that_is_taken_out_of_the_file_follows_the_others() -> None:
    old = merge_history(
        (), [Budget("lab", None, (ShareSince(1, Fraction(1)), ShareSince(1, Fraction(1, 2), "h100")))], 1
    )
    merged = merge_history(old, [budget("lab", None, "1")], NOW)
    assert current_share(merged[0], "h100") == 1
    assert merged[0].share_at("h100", NOW - 1) == Fraction(1, 2)


def test_a_budget_under_another_parent_begins_anew() -> None:
    old = merge_history((), [budget("lab", None, "1"), budget("nlp", "lab", "1/2")], 1)
    merged = merge_history(old, [budget("lab", None, "1/2"), budget("nlp", None, "1/2")], NOW)
    assert merged[1].share_at("a100", NOW - 1) == 0
    assert "~ nlp: moves from lab to the cluster, 50 %" in difference(old, merged)


def test_the_difference_is_told_a_line_each() -> None:
    old = [budget("lab", None, "1"), budget("nlp", "lab", "1/3")]
    new = [budget("lab", None, "1"), budget("biology", "lab", "1/8")]
    assert difference(old, new) == ["- nlp: no budget any more", "+ biology: 12.5 % of lab"]
    assert difference(old, old) == []


@pytest.mark.parametrize(
    ("share", "words"), [("1", "100 %"), ("1/8", "12.5 %"), ("1/3", "1/3"), ("0", "0 %"), ("1/10000", "0.01 %")]
)
def test_shares_in_words(share: str, words: str) -> None:
    assert share_words(Fraction(share)) == words


NAMES = ("a", "b", "c", "d")
POOLS = (ANY_POOL, "a100", "h100")


@st.composite
def siblings(draw: st.DrawFn) -> tuple[Budget, ...]:
    """A root and children whose shares never sum to more than 1 in any pool."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    parts = {n: draw(st.dictionaries(st.sampled_from(POOLS[1:]), st.integers(0, 25))) for n in names}
    found = [Budget("root", None, (ShareSince(0, Fraction(1)),))]
    for name in names:
        shares = [ShareSince(0, Fraction(draw(st.integers(0, 25)), 100))]
        shares += [ShareSince(0, Fraction(n, 100), pool) for pool, n in parts[name].items()]
        found.append(Budget(name, draw(st.sampled_from(["root"])), tuple(shares)))
    return tuple(found)


@given(st.lists(siblings(), min_size=1, max_size=5))
def test_nothing_is_given_twice_at_any_time_and_the_last_file_holds(files: list[tuple[Budget, ...]]) -> None:
    tree: tuple[Budget, ...] = ()
    times = [1000 * (i + 1) for i in range(len(files))]
    for now, file in zip(times, files, strict=True):
        tree = merge_history(tree, file, now)
    for pool in POOLS:
        for when in [0, *times, *(t - 1 for t in times), 10**6]:
            assert sum(b.share_at(pool, when) for b in tree if b.parent == "root") <= 1
        for wanted, got in zip(files[-1], tree, strict=True):
            assert current_share(got, pool) == current_share(wanted, pool)
    assert difference(files[-1], tree) == []
    assert merge_history(tree, files[-1], 10**6) == tree


@given(siblings())
def test_a_file_written_from_a_tree_reads_back_as_it(tree: tuple[Budget, ...]) -> None:
    lines = []
    for b in tree:
        shares = ", ".join(f'"{s.pool}" = "{s.share}"' for s in b.shares)
        parent = f'parent = "{b.parent}"\n' if b.parent else ""
        lines.append(f"[budgets.{b.account}]\n{parent}share = {{ {shares} }}")
    assert read_budget_file("\n".join(lines), 0) == tree
