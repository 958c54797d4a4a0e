"""Reading a long history into the ledger: a million runs in slurmdbd, by sacct and from its database.

The targets are parts of the time that the very same sacct takes to write to /dev/null, measured before and after, so
that they hold on any machine.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benches.history import ACCOUNTS, DAY
from benches.process import Took, timed
from benches.slurmdb import NAME, SlurmHistory
from pyslurm_budget.errors import SlurmOutputError
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


def measure(rows: int) -> list[dict[str, object]]:
    """Make the history, and time the first read of all of it into an empty ledger."""
    history = SlurmHistory(FOLDER, BASE_PORT)
    try:
        history.up()
        history.fill(rows, int(time.time()) - 600)
        return list(_rows(Place(history), rows))
    finally:
        history.down()


class Place:
    """Where the benchmark runs its commands, with a configuration file for each way of reading."""

    def __init__(self, history: SlurmHistory) -> None:
        """The cluster is up, and has its history."""
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
        """Seconds of the sacct that `sbudget sync` starts, writing to /dev/null."""
        asked = Asked(self.site.conf)
        now = int(time.time())
        with suppress(SlurmOutputError):  # that the answer is empty
            list(SacctAccounting(asked).runs(now - (DAYS + 2) * DAY, now + DAY))
        for _ in range(TRIES):
            failures = self._failures()
            began = time.monotonic()
            subprocess.run(asked.command, env=asked.environment(os.environ), stdout=subprocess.DEVNULL, check=True)
            seconds = time.monotonic() - began
            if self._failures() == failures:
                return seconds
        raise RuntimeError(f"slurmdbd failed to read its own table {TRIES} times; see {self._log()}")

    def first_sync(self, rows: int) -> Took:
        """Read everything into the empty ledger; raises RuntimeError if not about all of it came."""
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

    def lines(self, *command: str) -> Iterator[str]:
        """No lines."""
        self.command = command
        return iter(())


def _rows(place: Place, count: int) -> Iterator[dict[str, object]]:
    """Each thing that is measured."""
    place.sacct()  # the first one finds nothing in the caches
    before = place.sacct()
    place.configure("sacct")
    first = place.first_sync(count)
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
    second = place.first_sync(count)
    yield _row(f"first sync by SQL, {runs}, whole command", second.seconds, "s", None)
    yield _row("  part of sacct alone", second.seconds / alone, "x", SQL_PART)
    yield _row("  own CPU", second.cpu, "s", None)
    yield _row("  own peak memory", second.peak_mb, "MiB", PEAK_MB)


def _row(what: str, value: float, unit: str, target: float | None) -> dict[str, object]:
    return {"what": what, "value": value, "unit": unit, "target": target, "ok": target is None or value <= target}
