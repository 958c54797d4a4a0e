"""``sbudget report``: history from the ledger, for any period and grouping. No Slurm is needed for it."""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, Output, data, host_now, output_options, pass_context, talk
from pyslurm_budget.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyslurm_budget.config import Config
    from pyslurm_budget.render.clock import Clock
    from pyslurm_budget.render.table import Column
    from pyslurm_budget.service.ports import Ledger
    from pyslurm_budget.service.report import Ask, Known
    from pyslurm_budget.service.zones import Zone

Row = TypeVar("Row")
_LINES = 1000
STALE = 3600


@click.group()
def report() -> None:
    """History from the ledger. No Slurm is needed: `sbudget sync --dump FILE` loads what somebody saved."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that all reports have; times and names as they were written."""

    start: str | None
    end: str | None
    accounts: str | None
    users: str | None
    zone: str | None
    csv: bool
    output: Output


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the period, the restrictions and the forms of output; the command receives them as ``wanted``."""

    @click.option("-S", "--start", metavar="TIME", help="From this moment on.  [default: 7 days before the end]")
    @click.option("-E", "--end", metavar="TIME", help="Up to this moment, without it.  [default: now]")
    @click.option("-A", "--accounts", metavar="NAME,...", help="Only these accounts.")
    @click.option("-u", "--user", "users", metavar="NAME,...", help="Only these users.")
    @click.option("--tz", "zone", metavar="ZONE", help="Zone of TIME, days and months; else [reports] timezone.")
    @click.option("--csv", is_flag=True, help="Comma-separated values, plain numbers.")
    @output_options
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        start: str | None,
        end: str | None,
        accounts: str | None,
        users: str | None,
        zone: str | None,
        csv: bool,
        output: Output,
        **rest: Any,
    ) -> Any:
        if csv + output.json + output.style.parsable > 1:
            raise UsageError("--csv, --json and --parsable2 exclude each other; write one of them")
        return command(*args, wanted=Wanted(start, end, accounts, users, zone, csv, output), **rest)

    return wrapped


@report.command(short_help="Who used how many GPU-hours.")
@click.option(
    "--by", default="account", metavar="GROUP,...", show_default=True, help="Group by these, in this order."
)
@report_options
@pass_context
def usage(context: Context, by: str, wanted: Wanted) -> None:
    """Who used how many GPU-hours, by account, user, flavor, qos, class, pool, day, month or several of them.

    Runs are cut to the period; GPU-hours are GPUs times wall clock, suspended time included. Charged is what budgets
    pay: spare work is free, and a job that takes the larger part of a node's CPUs or memory pays for that part. TIME
    is any of Slurm's forms: 2026-12-01, 12/01-08:30, now-7days, today.
    """
    from pyslurm_budget.render import report as pages
    from pyslurm_budget.render.table import choose, draw, help_format
    from pyslurm_budget.service.report import UsageReport, groups

    grouping = groups(by)
    columns = pages.usage_columns(grouping)
    if wanted.output.help_format:
        data(help_format(columns))
        return
    choose(columns, wanted.output.style.chosen)
    config = context.config
    ledger = wiring.ledger(config)
    ask, known = _ask(config, ledger, wanted, grouping)
    found = UsageReport(ledger, ask, known)
    meta = _meta(config, ask, known) | {"by": list(grouping)}
    answers = found.rows()
    if not _for_programs(columns, answers, lambda row: pages.usage_fields(row, grouping), meta, wanted):
        rows = list(answers)
        _heading(config, ask)
        data(draw(columns, [*rows, pages.total_row(found.total, grouping)] if rows else [], wanted.output.style))
    _talk(ask, known, empty=not found.total.runs)
    if found.total.unknown_runs:
        talk(_unknown(context, found.total.unknown_runs, ask, wanted))


@report.command(short_help="Runs of which nobody knows how many GPUs they held, or until when.")
@report_options
@pass_context
def unknown(context: Context, wanted: Wanted) -> None:
    """Runs that asked for GPUs while their accounting has none: nobody knows how many they held, so 0 is not the
    answer, and GPU-hours of other reports do not have them.

    And runaway rows: accounting has them as running, while slurmctld has no such job. They count to their time limit,
    or to when they were first missed."""
    from pyslurm_budget.render import report as pages
    from pyslurm_budget.render.table import choose, draw, help_format
    from pyslurm_budget.service.report import unknown_runs

    config = context.config
    columns = pages.unknown_columns(_zone(config, wanted))
    if wanted.output.help_format:
        data(help_format(columns))
        return
    choose(columns, wanted.output.style.chosen)
    ledger = wiring.ledger(config)
    ask, known = _ask(config, ledger, wanted, ())
    runs = unknown_runs(ledger, ask, known)
    if not _for_programs(columns, runs, pages.unknown_fields, _meta(config, ask, known), wanted):
        rows = list(runs)
        _heading(config, ask)
        data(draw(columns, rows, wanted.output.style) if rows else "")
        if not rows:
            talk("sbudget: the GPUs of every run of this period are known")
    _talk(ask, known, empty=False)


def _for_programs(
    columns: list[Column[Row]],
    rows: Iterable[Row],
    fields: Callable[[Row], dict[str, Any]],
    meta: dict[str, Any],
    wanted: Wanted,
) -> bool:
    """Write the rows as they come, if a form for programs is asked for."""
    from pyslurm_budget.render.report import json_lines
    from pyslurm_budget.render.table import csv_lines, parsable_lines

    if wanted.output.json:
        _write(json_lines(meta, map(fields, rows)))
    elif wanted.csv:
        _write(csv_lines(columns, rows, wanted.output.style))
    elif wanted.output.style.parsable:
        _write(parsable_lines(columns, rows, wanted.output.style))
    else:
        return False
    return True


def _write(lines: Iterable[str]) -> None:
    """Lines as they are made, many at a time."""
    rest = iter(lines)
    while batch := list(islice(rest, _LINES)):
        data("".join(batch))


def _ask(config: Config, ledger: Ledger, wanted: Wanted, by: tuple[str, ...]) -> tuple[Ask, Known]:
    from pyslurm_budget.service import report as service

    zone, now = _zone(config, wanted), host_now()
    # An hour that comes twice is inside: from its first second, to its last.
    start = None if wanted.start is None else min(_moments("--start", wanted.start, now, zone))
    end = None if wanted.end is None else max(_moments("--end", wanted.end, now, zone))
    known = service.known(ledger)
    window = config.policy.window
    if start is None and end is None:
        start, end = service.usual_period(known, now, window)
        if end < now:
            talk("sbudget: only saved accounting was loaded, and it is older: this is all of it")
    end = now if end is None else end
    start = end - window if start is None else start
    if start > end:
        clock = _clock(zone, now)
        raise UsageError(
            f"--start {clock.full(start)} is after --end {clock.full(end)}; exchange them, or write both"
        )
    accounts = tuple(name.lower() for name in _names(wanted.accounts))
    return service.Ask(start, end, now, zone, by, accounts, _names(wanted.users)), known


def _zone(config: Config, wanted: Wanted) -> Zone:
    from pyslurm_budget.service.zones import Zone, known_zone

    if wanted.zone is None:
        return Zone(config.timezone)
    try:
        return known_zone(wanted.zone)
    except ValueError as wrong:
        raise UsageError(f"--tz: {wrong}") from None


def _moments(option: str, text: str, now: int, zone: Zone) -> tuple[int, ...]:
    from pyslurm_budget.service.zones import read_moments

    try:
        return read_moments(text, now, zone)
    except (ValueError, OverflowError) as wrong:
        raise UsageError(f"{option}: {wrong}") from None


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for word in (text or "").split(",") if (name := word.strip()))


def _clock(zone: Zone, now: int) -> Clock:
    from pyslurm_budget.render.clock import Clock

    return Clock(now, zone.name)


def _meta(config: Config, ask: Ask, known: Known) -> dict[str, Any]:
    return {
        "cluster": config.cluster,
        "start": ask.start,
        "end": ask.end,
        "open_until": known.until(ask.now),
        "timezone": ask.zone.name,
        "accounts": list(ask.accounts),
        "users": list(ask.users),
        "archived_until": known.archived,
        "archived_runs": known.left_out(ask.start),
    }


def _heading(config: Config, ask: Ask) -> None:
    clock = _clock(ask.zone, ask.now)
    talk(f"Cluster {config.cluster}, {clock.full(ask.start)} to {clock.full(ask.end)}")


def _talk(ask: Ask, known: Known, *, empty: bool) -> None:
    """What people must know to read the numbers rightly."""
    clock = _clock(ask.zone, ask.now)
    if empty:
        last = "now" if known.last is None else clock.full(known.last)
        whom = " of these accounts and users" if ask.accounts or ask.users else ""
        span = "it has no runs at all" if known.empty else f"its runs are from {clock.full(known.first)} to {last}"
        talk(f"sbudget: the ledger has no run{whom} that held GPUs then; {span}")
    if known.archived is not None and ask.start < known.archived:
        end = clock.full(known.archived)
        count = known.left_out(ask.start)
        runs = f"{count:,} runs" if count else "runs"
        talk(f"sbudget: {runs} that ended before {end} were archived and deleted; they are not in these numbers")
    if not known.saved and known.as_of is not None and known.as_of < min(ask.end, ask.now) - STALE:
        read = f"accounting was read last at {clock.full(known.as_of)}"
        talk(f"sbudget: {read}; later runs are missing, and what ran then counts as running on")


def _unknown(context: Context, count: int, ask: Ask, wanted: Wanted) -> str:
    """How many runs are missing in the sums, and the call that lists them."""
    words = ["sbudget"]
    for option, value in (("--config", context.given), ("-M", context.cluster)):
        words += [option, value] if value is not None else []
    words += ["report", "unknown", "-S", str(ask.start), "-E", str(ask.end)]
    for option, value in (("-A", wanted.accounts), ("-u", wanted.users), ("--tz", wanted.zone)):
        words += [option, value] if value is not None else []
    who, are = ("1 run", "it is") if count == 1 else (f"{count:,} runs", "they are")
    return (
        f"sbudget: {who} asked for GPUs that accounting does not show; {are} not in GPU-h. List: {shlex.join(words)}"
    )
