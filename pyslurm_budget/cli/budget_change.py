"""``sbudget budget set, grant, loan, ...``: single changes of the budgets, each with who, when and why."""

from __future__ import annotations

import functools
import getpass
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from pyslurm_budget import values
from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, Output, data, host_now, output_options, pass_context, talk
from pyslurm_budget.errors import StaleDataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from pyslurm_budget.config import Config
    from pyslurm_budget.ledger.store import SqlLedger
    from pyslurm_budget.service.counts import Entry
    from pyslurm_budget.service.state import PublicState

WHY = click.option("--why", required=True, metavar="TEXT", help="Why, for the history.")
DRY = click.option("--dry-run", is_flag=True, help="Check, and say what would change.")


def amount_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of grants and loans."""

    @click.option("--pool", metavar="POOL", help="Pool that it is for; needed where there are several.")
    @WHY
    @DRY
    @functools.wraps(command)
    def wrapped(*args: Any, **rest: Any) -> Any:
        return command(*args, **rest)

    return wrapped


@click.command("set")
@click.argument("account")
@click.argument("share")
@click.option("--pool", default="*", metavar="POOL", help="Only in this pool.  [default: all pools]")
@click.option("--retroactive", is_flag=True, help="Let it count for the past hours of the window too; needs --yes.")
@click.option("--yes", is_flag=True, help="Make a retroactive change.")
@WHY
@DRY
@pass_context
def set_share(
    context: Context, *, account: str, share: str, pool: str, retroactive: bool, yes: bool, why: str, dry_run: bool
) -> None:
    """Give ACCOUNT the SHARE (35%, 1/3) of its parent, from now on.

    Allowances count the shares hour by hour: hours that have passed keep the share that they had. With --retroactive
    those of the window get the new one, too; it says first what that does to the allowances.
    """
    from pyslurm_budget.domain.budget import BudgetTree
    from pyslurm_budget.service import budgets as service
    from pyslurm_budget.service import change

    config, now = context.config, host_now()
    ledger = wiring.ledger(config)
    old = ledger.budgets()
    name = change.known_budget(account, old).account
    part = _share(share)
    since = now - config.policy.window if retroactive else now
    loans = ledger.share_loans(now)
    new = change.with_share(old, name, pool, part, since, retroactive=retroactive)
    tree = service.check_tree(new, None, "the change", loans)
    data("".join(f"{line}\n" for line in service.difference(old, new)))
    if retroactive:
        state = _state(config)
        before = BudgetTree({b.account: b for b in old}, loans)
        if state is not None:
            data("".join(f"{line}\n" for line in change.retroactively(before, tree, state, config.policy, now)))
        talk("sbudget: the hours of the window that have passed count anew" + ("" if yes else "; --yes makes it"))
    if dry_run or (retroactive and not yes):
        talk("sbudget: nothing was changed")
        return
    ledger.save_budgets(new, now, getpass.getuser(), why)


@click.command()
@click.argument("account")
@click.argument("amount")
@click.option("--until", metavar="TIME", help="New contracts may use it up to then.  [default: until it is used up]")
@amount_options
@pass_context
def grant(
    context: Context, *, account: str, amount: str, until: str | None, pool: str | None, why: str, dry_run: bool
) -> None:
    """Give ACCOUNT an AMOUNT of GPU-hours (500h) beside its share. It is used once, when the allowance is used up."""
    _give(context, _Gift(account, amount, None, until, pool, why), dry_run=dry_run)


@click.command()
@click.argument("lender")
@click.argument("borrower")
@click.argument("amount")
@click.option("--until", required=True, metavar="TIME", help="Up to then; what was not used is LENDER's again.")
@amount_options
@pass_context
def loan(
    context: Context,
    *,
    lender: str,
    borrower: str,
    amount: str,
    until: str,
    pool: str | None,
    why: str,
    dry_run: bool,
) -> None:
    """LENDER leaves an AMOUNT of GPU-hours (500h) to BORROWER. Refused above what LENDER has left."""
    _give(context, _Gift(borrower, amount, lender, until, pool, why), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Gift:
    """A grant, or with a lender a loan, as it was written."""

    account: str
    amount: str
    lender: str | None
    until: str | None
    pool: str | None
    why: str


def _give(context: Context, gift: _Gift, *, dry_run: bool) -> None:
    from pyslurm_budget.render.budgets import changes
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service import change
    from pyslurm_budget.service.counts import GRANT, LOAN, Entry

    config, now = context.config, host_now()
    ledger = wiring.ledger(config)
    known = ledger.budgets()
    name = change.known_budget(gift.account, known).account
    source = None if gift.lender is None else change.known_budget(gift.lender, known).account
    if name == source:
        raise UsageError(f"{name} cannot lend to itself")
    state = _state(config)
    entry = Entry(
        now,
        LOAN if source else GRANT,
        name,
        change.known_pool(gift.pool, state),
        change.read_amount(gift.amount),
        now,
        None if gift.until is None else _until(config, gift.until, now),
        getpass.getuser(),
        gift.why,
        lender=source,
    )
    if source is not None:
        if state is None:
            raise StaleDataError("nothing has been published: what the lender has left is not known")
        change.check_lendable(entry, state, ledger.entries((LOAN,)))
    _make(ledger, entry, dry_run=dry_run)
    shown = entry if dry_run else ledger.entries((entry.kind,))[-1]
    data(f"{changes((), [shown], Clock(now, config.timezone))[0].what}\n")


def _make(ledger: SqlLedger, entry: Entry, *, dry_run: bool) -> None:
    if dry_run:
        talk("sbudget: nothing was changed (--dry-run)")
    else:
        ledger.add_entries([entry])


@click.command()
@click.argument("number", type=int)
@WHY
@DRY
@pass_context
def recall(context: Context, number: int, why: str, dry_run: bool) -> None:
    """End the grant or loan NUMBER now. What was promised by it is kept; what is not needed for that goes back."""
    from pyslurm_budget.domain.wording import gpu_hours
    from pyslurm_budget.errors import NotFoundError
    from pyslurm_budget.service.change import recall_of

    now = host_now()
    ledger = wiring.ledger(context.config)
    found = next((g for g in ledger.grants(0) if g.id == number), None)
    if found is None:
        raise NotFoundError(f"no grant or loan has number {number}; `sbudget budget grants` lists them")
    _make(ledger, recall_of(found, now, getpass.getuser(), why), dry_run=dry_run)
    data(f"number {number} ends: {gpu_hours(found.left)} of {gpu_hours(found.amount)} GPU-h were not booked\n")


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also those that are over or used up.")
@output_options
@pass_context
def grants(context: Context, everything: bool, output: Output) -> None:
    """Grants and loans in force, with what is left of each."""
    from pyslurm_budget.render import budgets as pages
    from pyslurm_budget.render.clock import Clock

    columns = pages.grant_columns(Clock(host_now(), context.config.timezone if not output.help_format else None))
    now = host_now()
    found = [g for g in wiring.ledger(context.config).grants(0) if everything or (g.in_force(now) and g.left)]
    _show(columns, found, pages.grants_document(found), output)


@click.command()
@output_options
@pass_context
def history(context: Context, output: Output) -> None:
    """Every change of shares, grants and loans: when, who, what and why."""
    from pyslurm_budget.render import budgets as pages
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.service.counts import GRANT, LOAN, RECALL

    clock = Clock(host_now(), context.config.timezone)
    ledger = wiring.ledger(context.config)
    found = pages.changes(ledger.budget_changes(), ledger.entries((GRANT, LOAN, RECALL)), clock)
    _show(pages.history_columns(clock), found, pages.history_document(found), output)


def _show(columns: Sequence[Any], rows: Sequence[Any], document: dict[str, Any], output: Output) -> None:
    from pyslurm_budget.render.table import as_json, draw, help_format

    if output.help_format:
        data(help_format(columns))
    else:
        data(as_json(document) if output.json else draw(columns, rows, output.style))


@click.command("share-loan")
@click.argument("lender")
@click.argument("borrower")
@click.argument("share")
@click.option("--until", required=True, metavar="TIME", help="Up to then.")
@click.option("--pool", default="*", metavar="POOL", help="Only in this pool.  [default: all pools]")
@WHY
@DRY
@pass_context
def share_loan(
    context: Context, *, lender: str, borrower: str, share: str, until: str, pool: str, why: str, dry_run: bool
) -> None:
    """LENDER leaves SHARE (5%, of their parent) to BORROWER, a budget with the same parent, from now until TIME."""
    from pyslurm_budget.domain.budget import ShareLoan
    from pyslurm_budget.service import budgets as service
    from pyslurm_budget.service.change import known_budget

    config, now = context.config, host_now()
    ledger = wiring.ledger(config)
    known = ledger.budgets()
    part = _share(share)
    names = [known_budget(name, known).account for name in (lender, borrower)]
    if names[0] == names[1]:
        raise UsageError(f"{names[0]} cannot lend to itself")
    made = ShareLoan(names[0], names[1], part, now, _until(config, until, now), pool)
    service.check_tree(known, None, "the loan", [*ledger.share_loans(now), made])
    data(f"{made.lender} lends {made.borrower} {service.share_words(part)} of their parent until {until}\n")
    if dry_run:
        talk("sbudget: nothing was changed (--dry-run)")
    else:
        ledger.add_share_loan(made, now, getpass.getuser(), why)


@click.command()
@click.argument("account")
@click.argument("switch", type=click.Choice(["on", "off"]))
@WHY
@DRY
@pass_context
def borrow(context: Context, *, account: str, switch: str, why: str, dry_run: bool) -> None:
    """Whether ACCOUNT may use, as backed work, what its siblings leave unused."""
    from pyslurm_budget.service.budgets import difference
    from pyslurm_budget.service.change import known_budget

    ledger = wiring.ledger(context.config)
    old = ledger.budgets()
    name = known_budget(account, old).account
    new = [replace(b, borrow=switch == "on") if b.account == name else b for b in old]
    changes = difference(old, new)
    data("".join(f"{line}\n" for line in changes))
    if dry_run or not changes:
        talk("sbudget: nothing was changed")
    else:
        ledger.save_budgets(new, host_now(), getpass.getuser(), why)


def _share(text: str) -> Fraction:
    try:
        return values.fraction(text)
    except ValueError as wrong:
        raise UsageError(f"SHARE: {wrong}") from None


def _until(config: Config, text: str, now: int) -> int:
    from pyslurm_budget.service.zones import Zone, read_moments

    try:
        found = max(read_moments(text, now, Zone(config.timezone)))
    except ValueError as wrong:
        raise UsageError(f"--until: {wrong}") from None
    if found <= now:
        raise UsageError(f"--until: {text} is past")
    return found


def _state(config: Config) -> PublicState | None:
    try:
        return wiring.public_state(config)
    except StaleDataError:
        return None


CHANGES = (set_share, grant, loan, recall, grants, share_loan, borrow, history)
