"""The decision table's text: exact both ways, and refused when it is cut, doubled or of another version."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.table import UserLine, parse, render
from tests.unit.tables import TABLE, changed, ended, measured, tables

if TYPE_CHECKING:
    from pyslurm_budget.domain.table import DecisionTable

TEXT = render(TABLE)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "table.md"


@settings(deadline=None)
@given(tables())
def test_text_and_value_are_the_same(table: DecisionTable) -> None:
    text = render(table)
    assert parse(text) == table
    assert render(parse(text)) == text


def test_the_text_is_what_the_page_says() -> None:
    lines = TEXT.split("\n")
    assert lines[0] == "sbudget-table\t3\t7\t1000000\t1003600\talpha\tenforce"
    assert "contract\t28800\t3600\t3600\t1" in lines
    assert "horizons\t14400\t28800" in lines
    assert "partition\tgpu\t3600\t1\t86400" in lines
    assert "shape\tmixed\th100\th100\t4000\t64\t2048000" in lines
    at = lines.index("block\tlimit\tpb\t43")
    assert lines[at + 1] == "limit\ta100\tpb\t64000\t-1760400000\t-360000000"
    assert len(lines[at + 1]) + 1 == 43
    at = lines.index("block\taccount\tnone\t25")
    assert lines[at + 1] == "account\ta100\t2000000\t0\t-"
    assert "account\ta100\t2000001\t1\tpb\tlab" in lines
    at = lines.index("block\tusers\tpb\t24")
    assert lines[at + 1] == "user\talice\tbacked,spare"
    assert lines[-2:] == [f"end\t{len(TEXT) - len(lines[-2]) - 1}", ""]
    fractions, behind = MappingProxyType({"1g.5gb": Fraction(1, 7)}), MappingProxyType({"pa": Mode.OBSERVE})
    whole = render(
        changed(adopt="backed", fractions=fractions, account_modes=behind, interactive=Interactive(qos=("high",)))
    )
    assert "\nfraction\t1g.5gb\t1\t7\n" in whole
    kinds = {line.split("\t")[0] for line in whole.split("\n")[:-1]}
    assert kinds == set(re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_a_text_cut_anywhere_is_refused() -> None:
    for length in range(len(TEXT)):
        with pytest.raises(ValueError, match="the text is cut"):
            parse(TEXT[:length])


def with_line(old: str, new: str) -> str:
    """The text with one line replaced (``""`` removes it) and a fitting end line."""
    assert f"\n{old}\n" in "\n" + TEXT
    body = ("\n" + TEXT).replace(f"\n{old}\n", f"\n{new}\n" if new else "\n", 1)[1:]
    return ended("\n".join(body.split("\n")[:-2]) + "\n")


FIRST, *_ = TEXT.split("\n")
USER = "user\tbob\tbacked,spare"
LIMIT = next(line for line in TEXT.split("\n") if line.startswith("limit\ta100\tpb"))
ACCOUNT = "account\ta100\t2000001\t1\tpb\tlab"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("operator\tslurm\t64", "mode\tpool\ta100\tobserve", "'pool' where partition or account is expected"),
        ("operator\tslurm\t64", "mode\taccount\tpa\toff", "'off' is not a valid Mode"),
        (FIRST, FIRST.replace("\t3\t", "\t4\t", 1), "Line 1 .*version 4, this release reads version 3"),
        (FIRST, FIRST.replace("\t3\t", "\t2\t", 1), "Line 1 .*version 2, this release reads version 3"),
        ("operator\tslurm\t64", "fraction\tshard\t9\t8", "9/8 is no part of a GPU"),
        ("operator\tslurm\t64", "fraction\tshard\t0\t8", "0/8 is no part of a GPU"),
        ("operator\tslurm\t64", "fraction\tshard\t1\t1001", "1/1001 is no part of a GPU"),
        ("operator\tslurm\t64", "fraction\ta\t1\t8\nfraction\ta\t1\t8", "'a' comes twice"),
        (FIRST, FIRST.replace("enforce", "on"), "Line 1 .*on"),
        (FIRST, "", "Line 1 .*'contract' where the first line"),
        ("array\t50", FIRST, "a record is expected"),
        ("array\t50", "", "no array line"),
        ("array\t50", "array\t50\narray\t50", "Line 4 .*array comes twice"),
        ("array\t50", "array\t050", "Line 3 .*'050' where a whole number"),
        ("array\t50", "array\t-1", "'-1' where a whole number"),
        ("array\t50", "array\t9007199254740992", "'9007199254740992' where a whole number"),
        ("array\t50", "array\t٣", "where a whole number"),
        ("array\t50", "array\t50\t1", "2 fields where 1 are expected"),
        ("array\t50", "array\t", "a field is empty"),
        ("array\t50", "\n", "unknown record ''"),
        ("array\t50", "sbudget_table\t1", "unknown record"),
        ("horizons\t14400\t28800", "horizons\t14400\t14400", "do not ascend"),
        ("horizons\t14400\t28800", "horizons\t0\t28800", "do not ascend"),
        ("horizons\t14400\t28800", "horizons\t14400\t28801", "last horizon is not the cap"),
        ("horizons\t14400\t28800", "", "5 fields where 3 are expected"),
        ("qos\tbacked\tspare", "qos\tbacked\tbacked", "both managed and a spare twin"),
        ("qos\tbacked\tspare", "qos\tbacked\tspare\nqos\tbacked\tlow", "'backed' comes twice"),
        ("claim\tclaim\tbacked", "claim\tclaim\tspare", "without a managed home"),
        ("claim\tclaim\tbacked", "claim\tbacked\tbacked", "'backed' is a second claim QOS"),
        ("claim\tclaim\tbacked", "claim\ta\tbacked\nclaim\tb\tbacked", "'b' is a second claim QOS"),
        ("operator\tslurm\t64", "adopt\tspare", "'spare' is no managed QOS"),
        ("operator\tslurm\t64", "adopt\tbacked\nadopt\tbacked", "or a second one"),
        ("operator\tslurm\t64", "operator\tslurm\t64\noperator\tx\t64", "64 comes twice"),
        ("partition\tgpu\t3600\t1\t86400", "partition\tgpu\t3600\tyes\t86400", "'yes' where 0 or 1"),
        ("partition\tgpu\t3600\t1\t86400", "", "partition 'gpu' is not known"),
        (LIMIT, LIMIT + "\t0", "6 fields where 5 are expected"),
        (LIMIT, LIMIT + "\n" + LIMIT, "comes twice"),
        (LIMIT, LIMIT.replace("-1760400000", "-0"), "'-0' where a whole number"),
        (ACCOUNT, ACCOUNT + "\n" + ACCOUNT, "comes twice"),
        (ACCOUNT, ACCOUNT.replace("lab", "-"), "'-' among limits"),
        (ACCOUNT, ACCOUNT.replace("lab", "lap"), "no limit 'lap' in pool 'a100'"),
        (ACCOUNT, "account\ta100\t2000001\t1", "3 fields where 4 are expected"),
        (ACCOUNT, USER, "'user' where 'account' is expected"),
        (USER, USER + "\n" + USER, "comes twice"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(measured(with_line(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (USER, USER + "x", "a block is expected, or a block of another length"),
        (USER, USER[:-1], "where 'user' is expected"),
        ("block\tlimit\tpb\t43", "block\tlimit\tpb\t0", "'limit' where a block is expected"),
        ("block\tlimit\tpb\t43", "block\tlimits\tpb\t43", "unknown block 'limits'"),
        ("block\tlimit\tpb\t43", "block\tlimit\tpa\t44", "comes twice"),
        ("block\tlimit\tpb\t43", "", "'limit' where a block is expected"),
        ("block\tusers\tpc\t24", "block\tusers\tpc\t25", "'pc' has another length"),
    ],
)
def test_blocks_have_the_length_that_they_say(old: str, new: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(with_line(old, new))


@pytest.mark.parametrize(
    "bad",
    [
        changed(cluster="al\tpha"),
        changed(cluster=""),
        changed(cluster="a\nend\t1"),
        changed(ahead=-1),
        changed(ahead=2**53),
        changed(users=(UserLine("pa", "alice", ("a,b",)),)),
        changed(users=(UserLine("pa", "alice", ("-",)),)),
        changed(users=(UserLine("pa", "alice", ()), UserLine("pa", "alice", ()))),
        changed(twins=MappingProxyType({"a": "b", "b": "c"}), claim=None),
        changed(horizons=()),
        changed(limits=TABLE.limits[1:]),
        changed(limits=(*TABLE.limits, TABLE.limits[0])),
        changed(fractions=MappingProxyType({"a": Fraction(1, 1001)})),
        changed(accounts=(*TABLE.accounts, TABLE.accounts[0])),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(bad: DecisionTable) -> None:
    with pytest.raises(ValueError, match=r"table|Line"):
        render(bad)


def test_look_ups() -> None:
    assert TABLE.by_user["pa", "alice"] == {"backed", "spare"}
    assert TABLE.by_account["pb", "a100"].limits == ("pb", "lab")
    assert TABLE.by_limit["pb", "a100"].left[0] < 0
    assert TABLE.by_partition["cpu"].shapes == ()
