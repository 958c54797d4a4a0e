"""``sbudget sync --dump``: saved accounting into the ledger, and what people are told about it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import host_now, talk
from pyslurm_budget.errors import SlurmOutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyslurm_budget.config import Config
    from pyslurm_budget.service.dump import DumpCounts
    from pyslurm_budget.slurm.dump_summary import Summary


def load_dump(config: Config, name: str, as_of: str | None) -> None:
    """Load the file (``-`` is stdin) and say what became of its rows; raises UsageError for a file or a time that
    cannot be used, SlurmOutputError for a dump that cannot be read, also if that is true of every row of it."""
    from pyslurm_budget.service.dump import load_dump as load
    from pyslurm_budget.slurm.dump import DumpAccounting

    taken = None if as_of is None else _moment(as_of, config.timezone)
    cluster = wiring.cluster_name(config)
    with _opened(name) as stream:
        accounting = DumpAccounting(stream, as_of=taken, timezone=config.timezone, cluster=cluster)
        counts = load(accounting, wiring.ledger(config), config.policy, host_now())
    summary = accounting.summary
    for line in lines(summary, counts):
        talk(f"sbudget: {line}")
    if summary.lost and not summary.records:
        raise SlurmOutputError(f"{name}: none of its {summary.lost:,} rows can be read")


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except OSError as failure:
        raise UsageError(f"{name}: cannot be read ({failure.strerror})") from failure


def lines(summary: Summary, counts: DumpCounts) -> Iterator[str]:
    """What people are told, a sentence a line: the result, what was left out and why, what to look at."""
    yield f"{summary.records:,} runs and {summary.steps:,} steps read, {counts.changed:,} rows of the ledger changed"
    if counts.kept or counts.twice:
        yield f"{counts.kept:,} runs are known better in the ledger, {counts.twice:,} rows came twice"
    yield f"{counts.never_started:,} never started and {counts.without_gpus:,} held no GPUs: nothing to charge"
    if counts.archived:
        yield f"{counts.archived:,} runs are of months that were archived and deleted: left out"
    if counts.unknown_gpus:
        yield f"{counts.unknown_gpus:,} runs asked for GPUs but their accounting has none: unknown, not 0"
    if counts.without_budget:
        yield f"{counts.without_budget:,} runs are of accounts without a budget of their own: nobody is charged"
    if summary.open:
        yield f"{summary.open:,} runs still ran and nothing says until when: load it again with --as-of"
    if summary.capped:
        yield f"{summary.capped:,} running rows are past their time limit (runaway?) and count until then"
    if summary.elapsed_differs:
        yield f"{summary.elapsed_differs:,} rows have an Elapsed that is not End - Start: wrong [reports] timezone?"
    if summary.ambiguous:
        yield f"{summary.ambiguous:,} rows have a time in an hour that came twice; the first is taken"
    for kind, count in summary.rejected.most_common():
        first = next((e for e in summary.examples if e.kind == kind), None)
        where = f", first at line {first.line}: {first.detail}" if first else ""
        yield f"{count:,} rows rejected: {kind}{where}"


def _moment(text: str, zone: str | None) -> int:
    from pyslurm_budget.slurm.dump_times import moments

    try:
        found = moments(text, zone)
    except ValueError as wrong:
        raise UsageError(f"--as-of {text}: {wrong}") from wrong
    if not found:
        raise UsageError(f"--as-of {text}: write seconds since the epoch, or a time such as 2026-12-01T08:00:00")
    return found[-1]
