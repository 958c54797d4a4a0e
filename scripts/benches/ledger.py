"""Reading a long history into the ledger: a million runs in slurmdbd, by sacct and from its database.

The targets are parts of the time that the very same sacct takes to write to /dev/null, measured before and after, so
that they hold on any machine.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benches.copies import older as copied
from benches.history import ACCOUNTS, DAY, FLAVORS
from benches.process import Took, timed
from benches.slurmdb import NAME, SlurmHistory
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.slurm.run import Runner
from pyslurm_budget.slurm.sacct import SacctAccounting

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

FOLDER = Path("/var/tmp/sbudget-bench-ledger")
BASE_PORT = 24800
DAYS = 60
SACCT_PART = 1.25
SQL_PART = 0.5
PEAK_MB = 250
TRIES = 5
LEAST_PART = 0.9  # of the runs; the others never started
NEW, NEW_CPU, NEW_PART = 1000, 1.0, 1.1
WEEK, WEEKS, USAGE_SECONDS = 7 * DAY, 10, 0.2

CONFIG = f"""\
cluster = "{NAME}"
mode = "observe"
state_dir = "{{state}}"

[slurm]
conf = "{{conf}}"
timeout = "20m"
{{accounting}}
[ledger]
url = "sqlite:///{{state}}/{{name}}.sqlite"
lease = "20m"

[publish]
table = "{{state}}/table"
state = "{{state}}/state.json"

[window]
length = "{DAYS + 1}d"
"""
SQL = """\
accounting = "sql"

[slurm.database]
socket = "{socket}"
user = "slurm"
password_file = "{password}"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=1_000_000, help="runs in slurmdbd (%(default)s)")
    parser.add_argument("--older", type=int, default=9, help="how many times as much older history (%(default)s)")


def measure(rows: int, older: int) -> list[dict[str, object]]:
    """Make the history; time the first read of all of it into an empty ledger, and what comes after."""
    history = SlurmHistory(FOLDER, BASE_PORT)
    try:
        history.up()
        history.fill(rows, int(time.time()) - 600)
        place = Place(history)
        return [*_first(place, rows), *_later(place, older)]
    finally:
        history.down()


class Place:
    """Where the benchmark runs its commands, with a configuration file for each way of reading."""

    def __init__(self, history: SlurmHistory) -> None:
        """The cluster is up, and has its history."""
        self.history = history
        self.site = history.site
        self.state = history.site.folder / "site"
        self.state.mkdir(exist_ok=True)
        self.env = {**os.environ, "SLURM_CONF": self.site.conf}

    def configure(self, name: str, accounting: str = "") -> None:
        """Use an empty ledger of this name, with a budget for each account."""
        config = self.state / f"{name}.toml"
        text = CONFIG.format(state=self.state, conf=self.site.conf, name=name, accounting=accounting)
        config.write_text(text, encoding="utf-8")
        budgets = self.state / "budgets.toml"
        share = f'share = "{100 / len(ACCOUNTS):g}%"'
        budgets.write_text("\n".join(f"[budgets.{a}]\n{share}\n" for a in ACCOUNTS), encoding="utf-8")
        self.env["SBUDGET_CONFIG"] = str(config)
        self.sbudget("db", "upgrade")
        self.sbudget("budget", "apply", str(budgets))

    def use(self, name: str) -> None:
        """Use a ledger of this name that is there already, and sacct."""
        config = self.state / f"{name}.toml"
        config.write_text((self.state / "sacct.toml").read_text().replace("/sacct.sqlite", f"/{name}.sqlite"))
        self.env["SBUDGET_CONFIG"] = str(config)

    def sbudget(self, *argv: str) -> Took:
        """Run our own command."""
        return timed([*argv], self.env, self.state)

    def sql(self) -> str:
        """The lines of the configuration that read slurmdbd's database."""
        secret = next(
            line.partition("=")[2]
            for line in (Path(self.site.conf).parent / "slurmdbd.conf").read_text(encoding="utf-8").splitlines()
            if line.startswith("StoragePass=")
        )
        password = self.state / "password"
        password.touch(mode=0o600)
        password.write_text(f"{secret}\n", encoding="utf-8")
        return SQL.format(socket=self.site.folder / "db" / "sock", password=password)

    def sacct(self) -> float:
        """Seconds of the sacct that `sbudget sync` starts, for all of the time at once, writing to /dev/null."""
        asked = Asked(self.site.conf)
        now = int(time.time())
        with suppress(SlurmOutputError):  # that the answer is empty
            list(SacctAccounting(asked, part=2 * DAYS * DAY).runs(now - (DAYS + 2) * DAY, now + DAY))
        for _ in range(TRIES):
            failures = self._failures()
            began = time.monotonic()
            subprocess.run(asked.command, env=asked.environment(os.environ), stdout=subprocess.DEVNULL, check=True)
            seconds = time.monotonic() - began
            if self._failures() == failures:
                return seconds
        raise RuntimeError(f"slurmdbd failed to read its own table {TRIES} times; see {self._log()}")

    def sync(self, rows: int) -> Took:
        """Read into the ledger; raises RuntimeError if not about so many new rows came."""
        took = self.sbudget("sync")
        changed = int(took.said.split()[1].replace(",", ""))
        if changed < LEAST_PART * rows:
            raise RuntimeError(f"of {rows} runs only {changed} were read; see {self._log()}")
        return took

    def _log(self) -> Path:
        return self.site.folder / "log" / "slurmdbd.log"

    def _failures(self) -> int:
        """How often slurmdbd could not read its table. sacct then prints no row, no error, and ends with status 0."""
        return self._log().read_text(encoding="utf-8", errors="replace").count("Problem getting jobs")


class Asked(Runner):
    """Starts nothing, and remembers what it was asked for."""

    command: tuple[str, ...] = ()

    @contextmanager
    def started(self, *command: str) -> Iterator[Iterator[str]]:
        """No lines."""
        self.command = command
        yield iter(())


def _first(place: Place, count: int) -> Iterator[dict[str, object]]:
    """The first read of everything, by sacct and by SQL."""
    place.sacct()  # the first one finds nothing in the caches
    before = place.sacct()
    place.configure("sacct")
    first = place.sync(count)
    after = place.sacct()
    alone = (before + after) / 2
    runs = f"{count:,} runs"
    yield _row(f"sacct alone, {runs} to /dev/null, before", before, "s", None)
    yield _row("the same, after", after, "s", None)
    yield _row(f"first sync by sacct, {runs}, whole command", first.seconds, "s", None)
    yield _row("  part of sacct alone", first.seconds / alone, "x", SACCT_PART)
    yield _row("  own CPU", first.cpu, "s", None)
    yield _row("  own peak memory", first.peak_mb, "MiB", PEAK_MB)
    if importlib.util.find_spec("pyslurm_budget.slurm.slurmdb") is None:
        return
    place.configure("sql", place.sql())
    second = place.sync(count)
    yield _row(f"first sync by SQL, {runs}, whole command", second.seconds, "s", None)
    yield _row("  part of sacct alone", second.seconds / alone, "x", SQL_PART)
    yield _row("  own CPU", second.cpu, "s", None)
    yield _row("  own peak memory", second.peak_mb, "MiB", PEAK_MB)


def _later(place: Place, older: int) -> Iterator[dict[str, object]]:
    """A read that finds little new, and the usage of a week, in a ledger of two months and in one of years."""
    place.history.add(NEW, int(time.time()))
    took: list[Took] = []
    for name, copies in (("months", 0), ("years", older)):
        runs = copied(place.state / "sacct.sqlite", place.state / f"{name}.sqlite", copies, DAYS + 2)
        place.use(name)
        took.append(place.sync(NEW))
        yield _row(f"sync of {NEW:,} new runs, {runs:,} in the ledger, own CPU", took[-1].cpu, "s", NEW_CPU)
    yield _row("  part of that with the smaller ledger", took[1].cpu / took[0].cpu, "x", NEW_PART)
    ledger = SqlLedger(f"sqlite:///{place.state / 'years.sqlite'}", NAME)
    times: list[float] = []
    for back in range(WEEKS):
        end = int(time.time()) - back * 5 * DAY - back * 1234
        began = time.monotonic()
        ledger.history((end - WEEK,), end)
        times.append(time.monotonic() - began)
    ledger.close()
    what = f"usage of {len(ACCOUNTS)} budgets in {len(FLAVORS)} pools over a week, the slowest of {WEEKS}"
    yield _row(what, max(times), "s", USAGE_SECONDS)


def _row(what: str, value: float, unit: str, target: float | None) -> dict[str, object]:
    return {"what": what, "value": value, "unit": unit, "target": target, "ok": target is None or value <= target}
