"""The decision table of a budget that borrows: the plugin lets in what the rules would, and no more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from pyslurm_budget.domain.budget import Budget
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.table import parse, render
from pyslurm_budget.service.tabledata import decision_table
from tests.build import HOUR, pending, share, situation, tree, use

FREE = replace(Policy(), ceiling_part=Fraction(100), overdraft=Fraction(0))


def test_a_borrower_has_what_its_parent_has_left_and_a_sibling_its_own() -> None:
    """Of 1344 GPU-h red and blue have 672 each; red used 800 of them, blue 100."""
    red = Budget("red", "org", (share("1/2"),), borrow=True)
    of = situation(
        [pending(1, account="red"), pending(2, account="blue")],
        policy=FREE,
        tree=tree(org="1", red=red, blue=("org", "1/2")),
        uses=[use("red", 800 * HOUR), use("blue", 100 * HOUR)],
        parents={"org": None, "red": "org", "blue": "org"},
    )
    table = decision_table(of, evaluate(of), 1, ())
    assert sorted(parse(render(table)).limits, key=str) == sorted(table.limits, key=str)
    by_limit = {(line.limit, line.pool): line for line in table.limits}
    left = {}
    for line in table.accounts:
        limits = [by_limit[name, line.pool] for name in line.limits]
        left[line.account] = min(limit.left[-1] for limit in limits) // (1000 * HOUR)
    assert left == {"red": 444 - 2, "blue": 572 - 1, "org": 0}
