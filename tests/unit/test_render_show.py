"""What ``show`` prints: the tree for people, plain fields for programs, integers as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.plan import BudgetState, Reason
from pyslurm_budget.domain.wording import MGPU_S_PER_GPU_H as GPU_H
from pyslurm_budget.errors import StaleDataError, UsageError
from pyslurm_budget.render.clock import Clock
from pyslurm_budget.render.show import COLUMNS, block, document, lines
from pyslurm_budget.render.table import Style, draw, help_format
from pyslurm_budget.service.state import PoolState, PublicState, from_json, state_json

AS_OF = 1796118120  # 2026-12-01 10:42 in Berlin


def budget(name: str, share: str, *hours: int, gpus: tuple[int, int, int], pool: str = "a100") -> BudgetState:
    allowance, charged, promised, headroom = (h * GPU_H for h in hours)
    backed, spare, waiting = (1000 * g for g in gpus)
    return BudgetState(
        name, pool, share, allowance, allowance // 50, charged, promised, headroom, backed, spare, waiting
    )


STATE = PublicState(
    cluster="alpha",
    mode=Mode.ENFORCE,
    as_of=AS_OF,
    cycle=7,
    generation=88412,
    window=7 * 86400,
    stale_after=AS_OF + 3600,
    budgets=(
        budget("bio", "1/10", 8064, 482, 64, 7679, gpus=(8, 0, 0)),
        budget("dolma", "14/100", 11290, 9452, 926, 1137, gpus=(36, 40, 0)),
        budget("lab", "1/1", 80640, 38330, 1812, 42110, gpus=(174, 52, 72)),
        budget("nlp", "35/100", 28224, 26904, 1236, 648, gpus=(122, 40, 64)),
        budget("olmo", "21/100", 16934, 17452, 310, -489, gpus=(86, 0, 64)),
        budget("vision", "25/100", 20160, 10944, 512, 9107, gpus=(44, 12, 8)),
    ),
    parents={"lab": None, "nlp": "lab", "bio": "lab", "vision": "lab", "olmo": "nlp", "dolma": "nlp"},
    pools=(PoolState("a100", 480, 480),),
    notes=(Reason("drain-limit", {"pool": "a100", "nodes": 3, "limit": 2}),),
)
CLOCK = Clock(AS_OF + 38, "Europe/Berlin")

PLAIN = """\
Cluster alpha, pool a100 (480 GPUs), 7 d to 2026-12-01 10:42 CET (data 38 s old)
Budget       Share  Allowance  Charged  Promised  Headroom   Load  Backed  Spare  Waiting
lab          100 %     80,640   38,330     1,812    42,110   50 %     174     52       72
  bio         10 %      8,064      482        64     7,679    7 %       8      0        0
  nlp         35 %     28,224   26,904     1,236       648  100 %     122     40       64
    dolma     40 %     11,290    9,452       926     1,137   92 %      36     40        0
    olmo      60 %     16,934   17,452       310      -489  105 %      86      0       64
  vision      25 %     20,160   10,944       512     9,107   57 %      44     12        8
  not given   30 %     24,192
nlp has 648 GPU-h left in all, so dolma can use 648 of its 1,137.
olmo is 489 GPU-h over its budget: new work is spare; 86 GPUs run on as backed.
"""

PARSABLE = """\
Budget|Pool|Share|Allowance|Charged|Promised|Headroom|Load|Backed|Spare|Waiting
nlp|a100|35|28224.000|26904.000|1236.000|648.000|100|122|40|64
dolma|a100|40|11290.000|9452.000|926.000|1137.000|92|36|40|0
olmo|a100|60|16934.000|17452.000|310.000|-489.000|105|86|0|64
"""


def test_the_table_for_people() -> None:
    assert block(STATE, "a100", (), Style(), CLOCK) == PLAIN


def test_a_terminal_gets_a_drawn_tree_and_bars() -> None:
    text = block(STATE, "a100", (), Style(fancy=True), CLOCK)
    for part in (
        "├ nlp",
        "│ ├ dolma",
        "│ └ olmo",
        "├ vision",
        "└ not given",
        "100 % ██████████ ",
        "105 % ██████████▌",
        "7 % ▊",
    ):
        assert part in text


def test_the_table_for_programs_of_one_subtree() -> None:
    rows = lines(STATE, "a100", ("nlp",), fancy=False, remainder=False)
    assert draw(COLUMNS, rows, Style(parsable=True)) == PARSABLE
    assert draw(COLUMNS, rows, Style(parsable=True, header=False)) == "".join(PARSABLE.splitlines(True)[1:])


def test_named_accounts_are_shown_once_with_what_is_below_them() -> None:
    shown = lines(STATE, "a100", ("olmo", "nlp", "bio"), fancy=False, remainder=False)
    assert [line.state.budget for line in shown] == ["bio", "nlp", "dolma", "olmo"]


def test_columns_and_widths_are_chosen_as_in_sacct() -> None:
    rows = lines(STATE, "a100", ("olmo",), fancy=False, remainder=False)
    assert draw(COLUMNS, rows, Style(chosen="budget%-6,HEADROOM%9,Share")) == (
        "Budget   Headroom  Share\nolmo         -489   60 %\n"
    )
    assert draw(COLUMNS, rows, Style(chosen="Allowance%4", header=False)) == "16,+\n"
    assert draw(COLUMNS, rows, Style(parsable=True, delimiter=";", chosen="Allowance%4,Budget", header=False)) == (
        "16934.000;olmo\n"
    )


@pytest.mark.parametrize("wanted", ["Lod", "Load%", "Load%x", ""])
def test_a_format_that_cannot_be_understood_is_refused(wanted: str) -> None:
    with pytest.raises(UsageError, match="--helpformat"):
        draw(COLUMNS, [], Style(chosen=wanted))


def test_helpformat_lists_every_column() -> None:
    assert help_format(COLUMNS).split() == [column.name for column in COLUMNS]


def test_json_has_exact_integers() -> None:
    told = document(STATE, ["a100"], ("olmo",), AS_OF + 38)
    (entry,) = told["budgets"]
    assert (entry["budget"], entry["parent"], entry["charged"]) == ("olmo", "nlp", 17452 * GPU_H)
    assert told["age"] == 38
    json.dumps(told)


def test_a_budget_without_allowance_says_so() -> None:
    none = replace(STATE.budgets[0], allowance=0, charged=0, outstanding=0, headroom=0)
    text = block(replace(STATE, budgets=(none,), parents={"bio": None}), "a100", (), Style(), CLOCK)
    assert "bio has no allowance in a100: its work is spare." in text
    assert "    -" in text


def test_the_state_survives_publishing() -> None:
    assert from_json(state_json(STATE), "x") == STATE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"version": 2}',
        state_json(STATE).replace('"version": 1', '"version": 2'),
        state_json(STATE)[:-30],
        state_json(STATE).replace('"as_of"', '"as"'),
    ],
)
def test_a_state_that_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(StaleDataError, match=r"/pub/state.json"):
        from_json(text, "/pub/state.json")


@given(
    st.lists(
        st.tuples(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(-(10**12), 10**12)),
        min_size=1,
        max_size=5,
    )
)
def test_every_row_is_told_and_the_fields_are_numbers(amounts: list[tuple[int, int, int]]) -> None:
    budgets = tuple(BudgetState(f"b{i}", "p", "1/9", a, 0, c, 0, h, 0, 0, 0) for i, (a, c, h) in enumerate(amounts))
    state = replace(STATE, budgets=budgets, parents={b.budget: None for b in budgets})
    rows = lines(state, "p", (), fancy=False, remainder=True)
    fields = [line.split("|") for line in draw(COLUMNS, rows, Style(parsable=True, header=False)).splitlines()]
    assert [line[0] for line in fields] == [b.budget for b in budgets]
    for line, b in zip(fields, budgets, strict=True):
        assert abs(Fraction(line[3]) - Fraction(b.allowance, GPU_H)) <= Fraction(1, 2000)
        assert len(line) == len(COLUMNS)
    assert block(state, "p", (), Style(), CLOCK).count("\n") >= len(budgets) + 2
