"""``sbudget db archive`` and ``sbudget db pseudonymise``: what is old leaves the ledger, or its names do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyslurm_budget.cli import wiring
from pyslurm_budget.cli.options import Context, data, host_now, pass_context, talk
from pyslurm_budget.errors import ArchiveError, ConfigError, UsageError

if TYPE_CHECKING:
    from pyslurm_budget.config import Config
    from pyslurm_budget.ledger.files import Folder
    from pyslurm_budget.ledger.store import SqlLedger
    from pyslurm_budget.service.archive import Done, Names
    from pyslurm_budget.service.zones import Zone


@click.command(short_help="Write closed months of runs to Parquet files.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--before", metavar="YYYY-MM", help="Only months before this one.")
@click.option("--delete", is_flag=True, help="Then delete months from the ledger that nothing needs any more.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="MONTHS",
    default=13,
    show_default=True,
    help="With --delete: whole months before this one that stay in the ledger, for reports.",
)
@click.option("--pseudonymise", "renamed", is_flag=True, help="Write pseudonyms in months that are old enough.")
@click.option("--replace", "over", is_flag=True, help="Write over files whose runs are not those of the ledger.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@pass_context
def archive(
    context: Context,
    folder: Path,
    *,
    before: str | None,
    delete: bool,
    keep: int,
    renamed: bool,
    over: bool,
    as_json: bool,
) -> None:
    """Write each closed month of runs to FOLDER as runs-2026-11.parquet, and beside it a .json: what is in it.

    A month, of [reports] timezone, has the runs that ended in it, and is closed a day after its end. A file that is
    there already is read back and left alone. All rows stay in the ledger without --delete; with it, months leave
    that reports (--keep), the window of the budgets and unfinished business do not need. Their usage by hour stays.
    """
    from pyslurm_budget.service.archive import Archive, kept_since, read_month
    from pyslurm_budget.service.zones import Zone

    config, now = context.config, host_now()
    zone = Zone(config.timezone)
    last = None if before is None else read_month(zone, before)
    kept = kept_since(zone, now, keep)
    if delete and last is not None and last > kept:
        first = zone.local(kept).strftime("%Y-%m")
        raise UsageError(
            f"--delete leaves {first} and later for reports; write --before {first}, or a smaller --keep"
        )
    ledger, files = wiring.ledger(config), _files(config, folder)
    work = Archive(ledger, files, zone, _names(config, ledger, zone, now) if renamed else None)
    found: list[Done] = []
    with files.alone():
        for month in work.months(now, last):
            found.append(work.keep(month, over=over))
        if delete and not any(done.state == "differs" for done in found):
            limit, why = work.limit(kept, now - config.policy.window)
            for number, done in enumerate(found):
                if done.month.end > limit:
                    talk(f"sbudget: {done.month.name} and later stay in the ledger: {why}")
                    break
                found[number] = work.delete(done)
    _tell(found, files, as_json=as_json)


def _files(config: Config, folder: Path) -> Folder:
    try:
        from pyslurm_budget.ledger.files import Folder
    except ImportError:
        raise ArchiveError(
            "Parquet files need a library that is not installed; run: pip install 'pyslurm_budget[parquet]'"
        ) from None
    return Folder(folder, wiring.cluster_name(config), config.timezone)


def _old(config: Config, zone: Zone, now: int) -> int:
    from pyslurm_budget.service.archive import old_since

    if config.pseudonymise_after is None:
        raise ConfigError(
            f'{config.source}: privacy.pseudonymise_after is not set; write a time such as "365d" after which users '
            "get pseudonyms"
        )
    return old_since(zone, now, config.pseudonymise_after)


def _names(config: Config, ledger: SqlLedger, zone: Zone, now: int) -> Names:
    from pyslurm_budget.service.archive import Names

    return Names(before=_old(config, zone, now), key=ledger.pseudonym_key())


def _tell(found: list[Done], files: Folder, *, as_json: bool) -> None:
    if as_json:
        told: list[dict[str, Any]] = [
            {"month": done.month.name, "state": done.state, "deleted": done.deleted, "manifest": done.manifest}
            for done in found
        ]
        data(json.dumps({"months": told}, indent=2) + "\n")
    else:
        data("".join(f"{_line(done, files)}\n" for done in found))
        if not found:
            talk("sbudget: no closed month has runs in the ledger")
    wrong = [str(files.file(done.month)) for done in found if done.state == "differs"]
    if wrong:
        raise ArchiveError(
            f"{', '.join(wrong)}: the ledger has other runs or names now; nothing was written over, and nothing "
            "deleted. Move the files away, or write over them with --replace"
        )


def _line(done: Done, files: Folder) -> str:
    if done.state == "differs":
        return f"{done.month.name}  {done.state:<8}  {files.file(done.month).name}"
    runs, hours = done.manifest["runs"], done.manifest["gpu_seconds"] / 3600
    gone = "" if done.deleted is None else f"  {done.deleted:,} deleted from the ledger"
    return f"{done.month.name}  {done.state:<8}  {runs:>9,} runs  {hours:>14,.2f} GPU-h{gone}"


@click.command(short_help="Give users of old runs pseudonyms, in the ledger.")
@pass_context
def pseudonymise(context: Context) -> None:
    """Give the users of runs, contracts and actions that are older than [privacy] pseudonymise_after pseudonyms: u-
    and 10 digits, the same for the same user. Whole months at a time, by [reports] timezone.

    Sums stay as they are. Only the key in the ledger's settings leads from a name to its pseudonym; there is no way
    back. Running jobs and the window of the budgets keep their names.
    """
    from pyslurm_budget.service.zones import Zone

    config, now = context.config, host_now()
    zone = Zone(config.timezone)
    before = _old(config, zone, now)
    changed = wiring.ledger(config).pseudonymise(before)
    day = zone.local(before).strftime("%Y-%m-%d")
    rows = f"{changed['run']:,} runs, {changed['contract']:,} contracts and {changed['action']:,} actions"
    talk(f"sbudget: {rows} from before {day} have pseudonyms now")
