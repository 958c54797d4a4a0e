"""The books of one moment (design 4.3), example by example; every horizon is asked in the property tests."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from pyslurm_budget.domain.books import Books, Price, Refusal, horizons
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.policy import Policy
from tests.build import DAY, HOUR, NOW, POOL, books, tree, use

GPU_H = 1000 * HOUR
WINDOW = 7 * DAY
NO_SLACK = replace(Policy(), overdraft=Fraction(0))


def test_the_example_of_the_design() -> None:
    """After 840 GPUs x 8 h have used up an allowance of 6,720, a test at 15 minutes would still see 6,510."""
    of = books(tree(red="1"), NO_SLACK, allowances={"red": 6720 * GPU_H})
    price = Price(840_000, 8 * HOUR)
    assert of.refusal("red", POOL, price) is None
    of.run_contract("red", "alice", POOL, price)
    assert of.refusal("red", POOL, Price(1000, HOUR)) == Refusal("red", "headroom", 0, GPU_H)


def test_idle_for_six_days_may_burst_on_the_seventh() -> None:
    """What was used eight days ago is forgotten, and what rolls out during the contract makes room for it."""
    size = 100 * 168 * GPU_H
    old = use("red", rate=100_000, start=NOW - WINDOW, end=NOW - WINDOW + 8 * HOUR)
    of = books(tree(red="1"), NO_SLACK, allowances={"red": size})
    of.charge([old])
    assert of.books["red", POOL].charged_now == 800 * GPU_H
    # 16,000 GPU-h are left now; all 800 will have rolled out by the end of eight hours. In the first segment nothing
    # has, so a contract of 8 h may take 16,800 - 800/32 or so in all: more than is left at this moment.
    assert of.refusal("red", POOL, Price(2_050_000, 8 * HOUR)) is None
    assert of.refusal("red", POOL, Price(2_100_001, 8 * HOUR)) is not None


def test_a_steady_group_at_its_share_stays_backed() -> None:
    of = books(tree(red="1"), allowances={"red": 100 * 168 * GPU_H})
    of.charge([use("red", rate=100_000, start=NOW - 2 * WINDOW, end=None)])
    assert of.refusal("red", POOL, Price(100_000, 8 * HOUR)) is None


def test_an_ancestor_refuses_what_its_child_could_pay() -> None:
    of = books(tree(org="1", red=("org", "1")), NO_SLACK, allowances={"org": 10 * GPU_H, "red": 100 * GPU_H})
    assert of.refusal("red", POOL, Price(1000, 8 * HOUR)) is None
    assert of.refusal("red", POOL, Price(2000, 8 * HOUR)) == Refusal("org", "headroom", 10 * GPU_H, 16 * GPU_H)


def test_jobs_of_a_parents_own_account_pay_from_what_is_not_handed_out() -> None:
    """The implicit child of design 4.1: else a coordinator could use up what belongs to the children."""
    of = books(tree(org="1", red=("org", "3/4")), NO_SLACK, allowances={"org": 100 * GPU_H, "red": 75 * GPU_H})
    assert of.refusal("org", POOL, Price(25_000, HOUR)) is None
    assert of.refusal("org", POOL, Price(26_000, HOUR)) == Refusal("org", "headroom", 25 * GPU_H, 26 * GPU_H)
    of.charge([use("red", 75 * HOUR)])
    assert of.refusal("org", POOL, Price(25_000, HOUR)) is None
    of.commit("org", POOL, Price(1000, HOUR))
    assert of.refusal("org", POOL, Price(25_000, HOUR)) is not None


def test_what_children_used_over_their_part_is_not_taken_from_the_direct_jobs_alone() -> None:
    of = books(tree(org="1", red=("org", "3/4")), NO_SLACK, allowances={"org": 100 * GPU_H, "red": 75 * GPU_H})
    of.charge([use("red", 90 * HOUR)])
    assert of.refusal("org", POOL, Price(10_000, HOUR)) is None
    assert of.refusal("org", POOL, Price(11_000, HOUR)) == Refusal("org", "headroom", 10 * GPU_H, 11 * GPU_H)


def test_overdraft_is_part_of_the_line() -> None:
    of = books(tree(red="1"), allowances={"red": 100 * GPU_H})
    assert of.refusal("red", POOL, Price(102_000, HOUR)) is None
    assert of.refusal("red", POOL, Price(102_001, HOUR)) is not None


def with_ceiling(**shares: str | tuple[str, str]) -> Books:
    of = tree(**shares)
    return Books(of, Policy(), {(a, POOL): 10_000 * GPU_H for a in of.budgets}, {POOL: 100}, NOW)


@pytest.mark.parametrize(("share", "gpus"), [("1/10", 50), ("1/4", 75), ("1/2", 100), ("1", 100)])
def test_the_ceiling_is_three_shares_or_half_of_the_pool(share: str, gpus: int) -> None:
    assert with_ceiling(red=share).books["red", POOL].ceiling == gpus * 1000


def test_the_ceiling_counts_running_and_admitted_contracts() -> None:
    of = with_ceiling(red="1/10")
    of.run_contract("red", "alice", POOL, Price(20_000, HOUR))
    of.commit("red", POOL, Price(20_000, HOUR))
    assert of.refusal("red", POOL, Price(10_000, HOUR)) is None
    assert of.refusal("red", POOL, Price(10_001, HOUR)) == Refusal("red", "ceiling", 10_000, 10_001)


def test_a_budget_gets_no_second_ceiling_by_its_children() -> None:
    """Divided over two children, each with the least ceiling of half of the pool, it still has its own."""
    of = with_ceiling(org="1/10", red=("org", "1/2"), blue=("org", "1/2"))
    of.commit("red", POOL, Price(50_000, HOUR))
    assert of.refusal("blue", POOL, Price(1000, HOUR)) == Refusal("org", "ceiling", 0, 1000)


def test_a_contract_that_has_ended_holds_nothing() -> None:
    of = with_ceiling(red="1/10")
    of.run_contract("red", "alice", POOL, Price(50_000, 0))
    assert of.refusal("red", POOL, Price(50_000, HOUR)) is None
    assert of.books["red", POOL].outstanding == 0


def test_only_what_was_used_recalls_a_promise() -> None:
    of = books(tree(org="1", red=("org", "1")), NO_SLACK, allowances={"org": 10 * GPU_H, "red": 20 * GPU_H})
    of.commit("red", POOL, Price(1_000_000, 8 * HOUR))
    assert of.over("red", POOL) is None
    of.charge([use("red", 10 * HOUR)])
    assert of.over("red", POOL) is None
    of.charge([use("red", 1)])
    assert of.over("red", POOL) == "org"


def test_what_is_promised_and_the_overdraft_recall_nothing() -> None:
    of = books(tree(red="1"), allowances={"red": 100 * GPU_H})
    of.run_contract("red", "alice", POOL, Price(1_000_000, 8 * HOUR))
    of.charge([use("red", 102 * HOUR)])
    assert of.over("red", POOL) is None
    of.charge([use("red", 1)])
    assert of.over("red", POOL) == "red"


def test_spare_use_is_remembered_for_the_order_and_never_charged() -> None:
    of = books(allowances={"red": 10 * GPU_H, "blue": 10 * GPU_H})
    of.charge([use("red", 5 * HOUR, work_class=WorkClass.SPARE)])
    book = of.books["red", POOL]
    assert (book.charged_now, book.spare_used) == (0, 5 * GPU_H)
    assert of.load("red", POOL) == 0
    assert of.spare_load("red", POOL) == Fraction(1, 2)
    assert (book.user_use["alice"], book.user_all["alice"]) == (0, 5 * GPU_H)


def test_nothing_is_charged_outside_the_window_or_to_nobody() -> None:
    of = books(allowances={"red": 10 * GPU_H, "blue": 10 * GPU_H})
    of.charge(
        [
            use("red", start=NOW - WINDOW - HOUR, end=NOW - WINDOW),
            use("red", start=NOW + HOUR, end=None),
            use("red", pool="h100"),
            use(None),
            use("green"),
            use("blue", rate=1000, start=NOW - HOUR, end=NOW + HOUR),
        ]
    )
    assert of.books["red", POOL].charged_now == 0
    assert of.books["blue", POOL].charged_now == GPU_H


def test_an_allowance_of_nothing_has_no_load_and_admits_nothing() -> None:
    of = books(allowances={"red": 0, "blue": 10 * GPU_H})
    assert of.load("red", POOL) is None
    assert of.spare_load("red", POOL) is None
    assert of.refusal("red", POOL, Price(1, 1)) == Refusal("red", "headroom", 0, 1)


def test_horizons_of_a_cap() -> None:
    assert horizons(8 * HOUR) == tuple(900 * i for i in range(1, 33))
    assert horizons(3) == (1, 2, 3)
    assert horizons(1) == (1,)
