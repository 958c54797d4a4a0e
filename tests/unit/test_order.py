"""The order of waiting work (design 4.5): Fair Tree made job by job, and the steps that tell Slurm."""

from __future__ import annotations

from pyslurm_budget.domain.books import Books
from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.model import WorkClass
from pyslurm_budget.domain.order import FairOrder, Waiting
from tests.build import POOL, books, tree, use

LOTS = 1_000_000


def wait(ref: str, budget: str = "red", user: str = "alice", place: int = 0, *, front: bool = False) -> Waiting:
    return Waiting(ref, budget, user, POOL, (place,), front)


def refs(of: Books, *jobs: Waiting, amount: int = 1000, spare: bool = False) -> list[str]:
    """The order when each job that is taken adds ``amount`` to the loads."""
    found = []
    add = of.add_spare_load if spare else of.add_load
    for job in FairOrder(of, POOL, jobs, spare=spare):
        found.append(job.ref)
        add(job.budget, job.user, POOL, amount)
    return found


def equal(*names: str, allowance: int = LOTS) -> Books:
    return books(tree(**{n: f"1/{len(names)}" for n in names}), allowances=dict.fromkeys(names, allowance))


def test_two_equal_groups_alternate() -> None:
    """Ranking by past use alone would send all of one group first."""
    red = [wait(f"r{i}", "red", place=i) for i in range(4)]
    blue = [wait(f"b{i}", "blue", "bob", place=i) for i in range(4)]
    assert refs(equal("red", "blue"), *red, *blue) == ["b0", "r0", "b1", "r1", "b2", "r2", "b3", "r3"]


def test_the_least_loaded_goes_first_until_it_has_caught_up() -> None:
    of = equal("red", "blue")
    of.charge([use("blue", 3)])
    jobs = [wait(f"r{i}", "red", place=i) for i in range(4)] + [wait("b0", "blue", "bob")]
    assert refs(of, *jobs) == ["r0", "r1", "r2", "b0", "r3"]


def test_a_bigger_share_gets_more_of_the_order() -> None:
    of = books(tree(red="2/3", blue="1/3"), allowances={"red": 2 * LOTS, "blue": LOTS})
    jobs = [wait(f"r{i}", "red", place=i) for i in range(4)] + [wait(f"b{i}", "blue", place=i) for i in range(2)]
    assert refs(of, *jobs) == ["b0", "r0", "r1", "b1", "r2", "r3"]


def test_siblings_are_compared_at_each_level() -> None:
    """The nephew of a heavily loaded uncle goes last, however little he has used himself."""
    of = books(
        tree(org="1/2", red=("org", "1/2"), blue=("org", "1/2"), far="1/2"),
        allowances={"org": 2 * LOTS, "red": LOTS, "blue": LOTS, "far": 2 * LOTS},
    )
    of.charge([use("blue", 20), use("far", 10)])
    assert refs(of, wait("r", "red"), wait("b", "blue"), wait("f", "far")) == ["f", "r", "b"]


def test_an_allowance_of_nothing_ranks_last() -> None:
    of = books(tree(a="0", b="1"), allowances={"a": 0, "b": LOTS})
    of.charge([use("b", 100)])
    assert refs(of, wait("a", "a"), wait("b", "b")) == ["b", "a"]


def test_ties_are_broken_by_the_budgets_id() -> None:
    assert refs(equal("blue", "red"), wait("r", "red", place=0), wait("b", "blue", place=1)) == ["b", "r"]


def test_users_of_a_budget_have_equal_shares() -> None:
    of = books(tree(red="1"), allowances={"red": LOTS})
    of.charge([use("red", 1, user="alice")])
    jobs = [wait(f"a{i}", user="alice", place=i) for i in range(2)]
    jobs += [wait(f"c{i}", user="carol", place=10 + i) for i in range(3)]
    assert refs(of, *jobs) == ["c0", "a0", "c1", "a1", "c2"]


def test_a_user_without_use_goes_by_submission() -> None:
    of = books(tree(red="1"), allowances={"red": LOTS})
    assert refs(of, wait("late", user="alice", place=9), wait("early", user="carol", place=1)) == ["early", "late"]


def test_ones_own_jobs_go_by_submission() -> None:
    of = books(tree(red="1"), allowances={"red": LOTS})
    assert refs(of, wait("c", place=3), wait("a", place=1), wait("b", place=2)) == ["a", "b", "c"]


def test_who_comes_back_is_first_in_his_budget_and_not_in_others() -> None:
    of = equal("red", "blue")
    of.charge([use("red", 1)])
    jobs = [wait("r0"), wait("back", user="carol", place=9, front=True), wait("b0", "blue", "bob")]
    assert refs(of, *jobs) == ["b0", "back", "r0"]


def nested() -> BudgetTree:
    return tree(org="1", red=("org", "1/2"), blue=("org", "1/4"))


def test_jobs_of_the_parents_account_are_a_child_with_what_is_not_handed_out() -> None:
    """A quarter is left for them: half of what red has."""
    of = books(nested(), allowances={"org": 4 * LOTS, "red": 2 * LOTS, "blue": LOTS})
    own = [wait(f"o{i}", "org", "carol", place=i) for i in range(3)]
    red = [wait(f"r{i}", "red", place=i) for i in range(4)]
    assert refs(of, *own, *red) == ["o0", "r0", "r1", "o1", "r2", "r3", "o2"]


def test_what_children_used_does_not_count_against_the_direct_jobs() -> None:
    of = books(nested(), allowances={"org": 4 * LOTS, "red": 2 * LOTS, "blue": LOTS})
    of.charge([use("blue", 1), use("red", 1)])
    assert refs(of, wait("o", "org"), wait("b", "blue"), wait("r", "red")) == ["o", "r", "b"]


def test_direct_jobs_rank_last_when_everything_is_handed_out() -> None:
    of = books(tree(org="1", red=("org", "1")), allowances={"org": LOTS, "red": LOTS})
    of.charge([use("red", 500)])
    assert refs(of, wait("o", "org"), wait("r", "red")) == ["r", "o"]


def test_a_users_work_in_a_child_does_not_count_among_the_users_of_the_parent() -> None:
    of = books(nested(), allowances={"org": 4 * LOTS, "red": 2 * LOTS, "blue": LOTS})
    of.charge([use("red", 5, user="alice"), use("org", 1, user="carol")])
    assert refs(of, wait("c", "org", "carol", place=0), wait("a", "org", "alice", place=1)) == ["a", "c"]


def test_spare_work_is_ranked_by_all_use() -> None:
    """Else who sends everything as spare has load 0 for ever."""
    of = equal("red", "blue")
    of.charge([use("blue", 5, work_class=WorkClass.SPARE), use("red", 1)])
    jobs = [wait("b", "blue", "bob"), wait("r", "red")]
    assert refs(of, *jobs) == ["b", "r"]
    of = equal("red", "blue")
    of.charge([use("blue", 5, work_class=WorkClass.SPARE), use("red", 1)])
    assert refs(of, *jobs, spare=True) == ["r", "b"]


def test_among_users_too_spare_work_is_ranked_by_all_use() -> None:
    def after_use() -> Books:
        of = books(tree(red="1"), allowances={"red": LOTS})
        of.charge([use("red", 5, user="alice", work_class=WorkClass.SPARE), use("red", 1, user="carol")])
        return of

    jobs = [wait("a", user="alice"), wait("c", user="carol")]
    assert refs(after_use(), *jobs) == ["a", "c"]
    assert refs(after_use(), *jobs, spare=True) == ["c", "a"]
