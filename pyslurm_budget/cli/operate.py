"""Commands of the operator: the cycle, its health, and the configuration."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.dump import load_dump
from pyslurm_budget.cli.options import Context, data, host_now, pass_context, seconds, talk
from pyslurm_budget.config import effective, setting_lines
from pyslurm_budget.errors import SbudgetError, UnhealthyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyslurm_budget.config import Config
    from pyslurm_budget.service.reconcile import CycleResult, Reconciler


@click.command(short_help="Read Slurm's accounting, or saved accounting, into the ledger.")
@click.option("--dump", metavar="FILE", help="Read what somebody saved with sacct (- is stdin); needs no Slurm here.")
@click.option("--as-of", metavar="TIME", help="With --dump: when it was saved; running jobs count until then.")
@pass_context
def sync(context: Context, dump: str | None, as_of: str | None) -> None:
    """Read Slurm's accounting into the ledger, and nothing else.

    A dump is sacct's text with its header (-P or -p, any columns and delimiter), or the answer of sacct --json.
    TIME is seconds since the epoch or such as 2026-12-01T08:00:00, in [reports] timezone if it names no zone.
    """
    if dump is not None:
        load_dump(context.config, dump, as_of)
        return
    if as_of is not None:
        raise click.UsageError("--as-of needs --dump")
    rows = wiring.reconciler(context.config).sync()
    talk(f"sbudget: {rows:,} accounting rows changed")


@click.command(short_help="Read, evaluate, plan, publish; with --apply, act.")
@click.option("--apply", is_flag=True, help="Carry the plan out, as far as the configured mode allows.")
@click.option("--every", callback=seconds, metavar="TIME", help="Go on for ever, a cycle every TIME (such as 30s).")
@click.option("--cycles", type=click.IntRange(min=1), metavar="N", help="With --every: end after N cycles.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a cycle, on one line.")
@pass_context
def reconcile(context: Context, apply: bool, every: int | None, cycles: int | None, as_json: bool) -> None:
    """One cycle: read, evaluate the budgets, plan, publish; with --apply, act.

    Without --apply nothing outside the ledger changes in advise and enforce mode. With --every a failed cycle is
    reported and the next one is made; SIGTERM and SIGINT end the loop after the cycle at hand.
    """
    config = context.config
    if cycles is not None and every is None:
        raise click.UsageError("--cycles needs --every")
    reconciler = wiring.reconciler(config)

    def cycle() -> None:
        data(_told(reconciler.cycle(apply=apply), config, as_json=as_json))

    try:
        if every is None:
            cycle()
        else:
            _loop(cycle, every, cycles)
            if apply:
                _retire(reconciler)
    finally:
        reconciler.close()


def _retire(reconciler: Reconciler) -> None:
    """A failure changes nothing about the end: the next service's first cycle takes back what is left."""
    try:
        reconciler.retire()
    except SbudgetError as failure:
        talk(f"sbudget: {failure}")


def _told(result: CycleResult, config: Config, *, as_json: bool) -> str:
    from pyslurm_budget.render import cycle as pages
    from pyslurm_budget.render.clock import Clock

    if as_json:
        return json.dumps(pages.document(result), ensure_ascii=False) + "\n"
    return pages.text(result, config.mode, Clock(host_now(), config.timezone), config.policy.classes.twins.values())


def _loop(cycle: Callable[[], None], every: int, cycles: int | None) -> None:
    """Cycle after cycle, ``every`` seconds from begin to begin; one that takes long is followed by as long a rest, so
    that slurmctld gets half of the time to itself at least."""
    stop = threading.Event()
    with _ended_by(stop, signal.SIGTERM, signal.SIGINT):
        made = 0
        while not stop.is_set():
            began = time.monotonic()
            try:
                cycle()
            except SbudgetError as failure:
                talk(f"sbudget: cycle failed: {failure}")
            made += 1
            if made == cycles:
                return
            took = time.monotonic() - began
            stop.wait(max(every - took, min(took, every)))


@contextmanager
def _ended_by(stop: threading.Event, *signals: signal.Signals) -> Iterator[None]:
    """While inside, the signals only set the event: the cycle at hand is finished first."""
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command(short_help="Whether the controller does its work.")
@click.option("--max-age", callback=seconds, metavar="TIME", help="Oldest good cycle; by default three intervals.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@pass_context
def health(context: Context, max_age: int | None, as_json: bool) -> None:
    """Whether the controller does its work, a line a point. Exit status 0 if all is well, 40 if not."""
    from pyslurm_budget.errors import StaleDataError
    from pyslurm_budget.service.health import CYCLES_MISSED, check_health
    from pyslurm_budget.service.published import fault_of
    from pyslurm_budget.service.state import PublicState

    config = context.config
    state: PublicState | StaleDataError
    try:
        state = wiring.public_state(config)
    except StaleDataError as failure:
        state = failure
    points = check_health(
        wiring.ledger(config),
        state,
        now=host_now(),
        max_age=max_age if max_age is not None else CYCLES_MISSED * config.interval,
        kill_switch=str(config.kill_switch) if wiring.is_set(config.kill_switch) else None,
        table_fault=fault_of(config.table_path, config.state_path),
    )
    wrong = [point for point in points if not point.ok]
    if as_json:
        told = [{"name": point.name, "ok": point.ok, "says": point.says} for point in points]
        data(json.dumps({"ok": not wrong, "points": told}, ensure_ascii=False, indent=2) + "\n")
    else:
        data("".join(f"{'ok ' if point.ok else 'BAD'}  {point.name:<11}  {point.says}\n" for point in points))
    if wrong:
        names = ", ".join(point.name for point in wrong)
        raise UnhealthyError(f"{len(wrong)} of {len(points)} points need a person: {names}")


@click.command(short_help="Go on after the breaker opened.")
@pass_context
def resume(context: Context) -> None:
    """Go on after the breaker opened; what it counted until now is forgiven."""
    from pyslurm_budget.service.gather import RESUMED
    from pyslurm_budget.service.reconcile import BREAKER

    ledger = wiring.ledger(context.config)
    was = ledger.get(BREAKER)
    if was is None:
        talk("sbudget: the breaker is closed; nothing to resume")
        return
    ledger.put(RESUMED, str(host_now()))
    ledger.put(BREAKER, None)
    talk(f"sbudget: the breaker ({was}) is closed again; the next cycle acts")


@click.group()
def config() -> None:
    """The configuration of this call."""


@config.command()
@pass_context
def check(context: Context) -> None:
    """Read and check the configuration, and say what it stands for."""
    found = context.config
    wiring.operators(found)
    cluster, url = found.cluster or "not named", effective(found)["ledger.url"]
    talk(f"sbudget: {found.source} is good: cluster {cluster}, mode {found.mode}, ledger {url}")


@config.command("show")
@click.option("--json", "as_json", is_flag=True, help="One JSON document; durations in seconds.")
@pass_context
def show_config(context: Context, as_json: bool) -> None:
    """Every setting in force, defaults included, in the form of the file."""
    if as_json:
        told = {
            path: str(value) if not _is_json(value) else value for path, value in effective(context.config).items()
        }
        data(json.dumps(told, ensure_ascii=False, indent=2) + "\n")
    else:
        data("".join(f"{line}\n" for line in setting_lines(context.config)))


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, bool | int | str | tuple)
