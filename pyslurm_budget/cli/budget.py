"""``sbudget budget``: the tree of budgets."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, data, host_now, pass_context, talk
from pyslurm_budget.errors import BudgetFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyslurm_budget.domain.budget import Budget, BudgetTree, ShareLoan


@click.group()
def budget() -> None:
    """The tree of budgets: who has which share."""


@budget.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Check, and say what would change.")
@click.option("--why", default="", metavar="TEXT", help="Why, for the history.")
@pass_context
def apply(context: Context, file: Path, dry_run: bool, why: str) -> None:
    """Make FILE the tree of budgets. Changed shares act from now on; the very first tree acts on past hours too.

    The file is checked against itself and against Slurm's accounts first; nothing is changed if anything is wrong.
    """
    from pyslurm_budget.service.budgets import check_tree, difference, merge_history, read_budget_file

    now = host_now()
    new = read_budget_file(_text(file), now, str(file))
    config = context.config
    _, parents = wiring.queue(config).associations(wiring.cluster_name(config))
    ledger = wiring.ledger(config)
    check_tree(new, parents, str(file), ledger.share_loans(now))
    _tell_without(new, parents)
    old = ledger.budgets()
    changes = difference(old, new)
    data("".join(f"{line}\n" for line in changes))
    if not changes:
        talk("sbudget: nothing changes")
    elif dry_run:
        talk(f"sbudget: {len(changes)} changes, not made (--dry-run)")
    else:
        ledger.save_budgets(merge_history(old, new, now), now, getpass.getuser(), why)
        talk(f"sbudget: {len(changes)} changes made; the next cycle uses them")


def _tell_without(budgets: Sequence[Budget], parents: Mapping[str, str | None]) -> None:
    """Name the Slurm accounts that no budget pays for."""
    from pyslurm_budget.domain.budget import BudgetTree

    tree = BudgetTree({b.account: b for b in budgets})
    without = [name for name in sorted(parents) if name != "root" and tree.budget_of(name, parents) is None]
    if without:
        talk(f"sbudget: without a budget, so always spare: {', '.join(without)}")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as failure:
        raise BudgetFileError(f"{file}: cannot be read ({failure.strerror})") from failure
    except UnicodeDecodeError as failure:
        raise BudgetFileError(f"{file}: is not UTF-8 text (byte {failure.start})") from failure


@budget.command()
@pass_context
def export(context: Context) -> None:
    """The tree in force as a budget file: `budget apply` of it changes nothing."""
    from pyslurm_budget.service.change import toml

    data(toml(wiring.ledger(context.config).budgets()))


@budget.command()
@click.option("--accounts", is_flag=True, help="List Slurm's accounts with the budget that pays for each.")
@pass_context
def tree(context: Context, accounts: bool) -> None:
    """The tree in force, with each share of its parent; loans of shares are told below it."""
    from pyslurm_budget.domain.budget import BudgetTree
    from pyslurm_budget.service.budgets import check_tree

    ledger = wiring.ledger(context.config)
    budgets = ledger.budgets()
    if accounts:
        _, parents = wiring.queue(context.config).associations(wiring.cluster_name(context.config))
        known = BudgetTree({b.account: b for b in budgets})
        payers = {name: known.budget_of(name, parents) for name in sorted(parents)}
        data("".join(f"{name}  {payer or '(none: always spare)'}\n" for name, payer in payers.items()))
        return
    if not budgets:
        talk("sbudget: there are no budgets yet; see sbudget budget apply --help")
        return
    data("".join(f"{line}\n" for line in _lines(check_tree(budgets, None, "ledger"), None, "")))
    data("".join(f"{line}\n" for line in _loans(ledger.share_loans(host_now()), context.config.timezone)))


def _lines(tree: BudgetTree, parent: str | None, lead: str) -> Iterator[str]:
    from pyslurm_budget.service.budgets import share_line

    for name in tree.children.get(parent, ()):
        borrows = ", borrows" if tree.budgets[name].borrow else ""
        yield f"{lead}{name}  {share_line(tree.budgets[name])}{borrows}"
        yield from _lines(tree, name, f"{lead}  ")


def _loans(loans: Sequence[ShareLoan], zone: str | None) -> Iterator[str]:
    from pyslurm_budget.domain.budget import ANY_POOL
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.budgets import share_words

    clock = Clock(host_now(), zone)
    for loan in loans:
        where = "" if loan.pool == ANY_POOL else f" in {loan.pool}"
        yield (
            f"{loan.lender} lends {loan.borrower} {share_words(loan.share)} of their parent{where} "
            f"until {clock.full(loan.until)}"
        )
