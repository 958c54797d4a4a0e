"""What a cycle publishes: the decision table for the submit plugin, and the public state for people."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.slices import thousandths
from pyslurm_budget.domain.steps import BACKED_BASE, SPARE_BASE, ladder
from pyslurm_budget.domain.table import (
    AccountLine,
    ContractLine,
    DecisionTable,
    LimitLine,
    PartitionLine,
    ShapeLine,
    UserLine,
)
from pyslurm_budget.domain.table import render as render_table
from pyslurm_budget.service.state import PoolState, PublicState, state_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyslurm_budget.domain.books import Book
    from pyslurm_budget.domain.evaluate import Evaluation
    from pyslurm_budget.domain.model import Mode, Partition
    from pyslurm_budget.domain.situation import Situation


def published(
    situation: Situation, evaluation: Evaluation, cycle: int, generation: int, operators: tuple[tuple[str, int], ...]
) -> tuple[str, str]:
    """The texts of the table and of the state."""
    table = decision_table(situation, evaluation, generation, operators)
    stale_after = table.stale_after
    state = PublicState(
        cluster=table.cluster,
        mode=situation.mode,
        as_of=situation.now,
        cycle=cycle,
        generation=generation,
        window=situation.policy.window,
        stale_after=stale_after,
        budgets=evaluation.plan.budgets,
        parents={account: budget.parent for account, budget in situation.tree.budgets.items()},
        pools=tuple(
            PoolState(pool, round(situation.pools.size(pool)), round(situation.pools.in_service(pool)))
            for pool in situation.pools.members
        ),
        notes=evaluation.plan.notes,
    )
    return render_table(table), state_json(state)


def decision_table(
    situation: Situation, evaluation: Evaluation, generation: int, operators: tuple[tuple[str, int], ...]
) -> DecisionTable:
    """The table of this cycle: what is left once every pending admission has been entered."""
    policy = situation.policy
    requeue = situation.snapshot.controller.settings.get("JobRequeue", "1") == "1"
    return DecisionTable(
        generation=generation,
        snapshot=situation.now,
        stale_after=situation.now + policy.stale_after,
        cluster=situation.snapshot.controller.cluster,
        mode=situation.mode,
        contract=ContractLine(policy.cap, policy.default_contract, policy.floor, requeue),
        ahead=policy.array_ahead,
        backed_base=BACKED_BASE,
        spare_base=SPARE_BASE,
        horizons=evaluation.books.grid,
        twins=MappingProxyType(dict(policy.classes.twins)),
        adopt=policy.classes.adopt,
        claim=(policy.classes.claim, policy.classes.home),
        operators=operators,
        partitions=tuple(_partition(situation, p) for p in situation.snapshot.partitions),
        limits=tuple(_limits(evaluation)),
        accounts=tuple(_accounts(situation, evaluation)),
        users=tuple(_users(situation)),
        fractions=policy.fractions,
        partition_modes=_partition_modes(situation),
        account_modes=_account_modes(situation),
        interactive=policy.interactive,
    )


def _partition_modes(situation: Situation) -> Mapping[str, Mode]:
    """Partitions that stay behind the cluster's mode."""
    modes = situation.policy.modes
    of = {p.name: modes.of_partition(situation.mode, p.name) for p in situation.snapshot.partitions}
    return MappingProxyType({name: mode for name, mode in of.items() if mode is not situation.mode})


def _account_modes(situation: Situation) -> Mapping[str, Mode]:
    """Slurm accounts whose budgets stay behind the cluster's mode."""
    modes, tree = situation.policy.modes, situation.tree
    of = {
        account: modes.of_budget(situation.mode, tree.path_of(situation.budget_of(account)))
        for account in sorted(situation.snapshot.parents)
    }
    return MappingProxyType({name: mode for name, mode in of.items() if mode is not situation.mode})


def _partition(situation: Situation, partition: Partition) -> PartitionLine:
    limit = partition.default_time if partition.default_time is not None else partition.max_time
    shapes: dict[ShapeLine, None] = {}
    for name in partition.nodes:
        node = situation.pools.by_name.get(name)
        pool = situation.pools.pool_of(node) if node else None
        if node is not None and pool is not None:
            largest = situation.policy.charge_largest
            size = (node.cpus, node.memory_mb) if largest else (0, 0)
            gpus = thousandths(situation.pools.worth[name])
            shapes |= {ShapeLine(pool, kind, gpus, *size): None for kind, count in node.types.items() if count}
    return PartitionLine(
        partition.name, situation.policy.default_contract, partition.default, limit, tuple(sorted(shapes, key=str))
    )


def _accounts(situation: Situation, evaluation: Evaluation) -> Iterator[AccountLine]:
    """Every Slurm account in every pool; those without a budget say so."""
    for pool in situation.pools.members:
        for account in sorted(situation.snapshot.parents):
            budget = situation.budget_of(account)
            if budget is None or (budget, pool) not in evaluation.books.books:
                yield AccountLine(account, pool, BACKED_BASE, SPARE_BASE)
            else:
                yield _account(situation, evaluation, account, budget, pool)


def _account(situation: Situation, evaluation: Evaluation, account: str, budget: str, pool: str) -> AccountLine:
    steps = ladder(situation.snapshot.controller.weights)
    return AccountLine(
        account=account,
        pool=pool,
        backed_factor=steps.factor(BACKED_BASE, steps.step_of(_place(evaluation, budget, pool, spare=False))),
        spare_factor=steps.factor(SPARE_BASE, steps.step_of(_place(evaluation, budget, pool, spare=True))),
        limits=_limit_names(evaluation, budget, pool),
    )


def _limits(evaluation: Evaluation) -> Iterator[LimitLine]:
    """What every budget has left in every pool; of one with children also what it has not handed out to them, and of
    one that borrows what it has by that."""
    books = evaluation.books
    for budget, pool in books.books:
        limits = books.limits(budget, pool)
        for i, (name, book) in enumerate(limits):
            if name == budget:
                left = tuple(books.borrowing.left(name, book, pool))
                yield LimitLine(_limit_name(i, limits), pool, name, book.ceiling_left, left)
        if books.borrowing.may(budget):
            rooms = books.borrowing.best(budget, pool)
            left = tuple(min(values) for values in zip(*(room for _, room in rooms), strict=True))
            ceiling = min(book.ceiling_left for _, book in limits)
            yield LimitLine(f"{budget} (borrows)", pool, budget, ceiling, left)


def _limit_names(evaluation: Evaluation, budget: str, pool: str) -> tuple[str, ...]:
    """What a contract of the budget must fit into: it and all above it; of one that borrows only those above that do
    not borrow."""
    books = evaluation.books
    limits = books.limits(budget, pool)
    if not books.borrowing.may(budget):
        return tuple(_limit_name(i, limits) for i in range(len(limits)))
    return (f"{budget} (borrows)", *(name for name in books.path(budget) if not books.borrowing.may(name)))


def _limit_name(i: int, limits: Sequence[tuple[str, Book]]) -> str:
    """The name of a limit in the table: the budget's; the implicit child (of the same id) comes before its parent."""
    name = limits[i][0]
    return f"{name} (direct)" if i == 0 and len(limits) > 1 and limits[1][0] == name else name


def _place(evaluation: Evaluation, budget: str, pool: str, *, spare: bool) -> int:
    """About where a new job of the budget would stand: behind its own, and behind those of less loaded budgets.

    The next cycle puts it right; until then a wrong neighbour costs seconds.
    """
    books = evaluation.books
    load = books.spare_load if spare else books.load
    mine = load(budget, pool)
    order = (evaluation.classes.spare if spare else evaluation.classes.backed).get(pool, [])
    ahead = 0
    for c in order:
        theirs = load(c.budget, pool) if c.budget is not None else None
        if c.budget == budget or (theirs is not None and (mine is None or theirs < mine)):
            ahead += 1
    return ahead


def _users(situation: Situation) -> Iterator[UserLine]:
    """Associations with the managed QOS and twins that they may use."""
    for (account, user), allowed in sorted(situation.snapshot.allowed_qos.items()):
        qos = tuple(sorted(name for name in allowed if situation.policy.classes.is_managed(name)))
        if user:
            yield UserLine(account, user, qos)
