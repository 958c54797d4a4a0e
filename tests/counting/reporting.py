"""``sbudget sync --dump`` and ``sbudget report usage`` as somebody calls them on a machine without Slurm."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.budgets import read_budget_file
from tests.cli.calling import Said, sbudget
from tests.counting.oracle import Total


class Site:
    """A configuration and a ledger."""

    def __init__(self, folder: Path, mode: str = "observe") -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/ledger.sqlite"
        self.config = folder / "sbudget.toml"
        self.config.write_text(f'mode = "{mode}"\n[ledger]\nurl = "{self.url}"\n')

    def run(self, *words: object, cluster: str = "alpha") -> Said:
        """Run sbudget with this site's configuration; it must succeed."""
        said = sbudget("--config", self.config, "-M", cluster, *words)
        assert said.status == 0, said.err
        return said

    def load(self, text: str, *words: object, cluster: str = "alpha") -> str:
        """``sbudget sync --dump`` of the text; what it told."""
        file = self.folder / "saved.txt"
        file.write_text(text)
        return self.run("sync", "--dump", file, *words, cluster=cluster).err

    def budgets(self, accounts: set[str]) -> None:
        """Give each of these accounts a budget of its own."""
        text = "".join(f'[budgets."{name}"]\nshare = "1%"\n' for name in sorted(accounts))
        ledger = SqlLedger(self.url, "alpha")
        ledger.save_budgets(read_budget_file(text, 0), 0, "root", "")
        ledger.close()

    def report(
        self, by: tuple[str, ...], start: int, end: int, zone: str = "UTC", *words: object, cluster: str = "alpha"
    ) -> dict[tuple[str, ...], dict[str, Any]]:
        """Rows of ``sbudget report usage --json`` by the names of their groups; every group comes once."""
        period = ("-S", f"uts{start}", "-E", f"uts{end}", "--tz", zone)
        said = self.run("report", "usage", "--by", ",".join(by), "--json", *period, *words, cluster=cluster)
        document = json.loads(said.out)
        assert (document["meta"]["start"], document["meta"]["end"]) == (start, end)
        found = {tuple(row[name] for name in by): row for row in document["rows"]}
        assert len(found) == len(document["rows"])
        return found


def hours(thousandths: int | Fraction) -> float:
    """GPU-hours to four decimals, of thousandths of GPU-seconds."""
    return round(Fraction(thousandths, 3_600_000) * 10**4) / 10**4


def differs(row: dict[str, Any] | None, total: Total | None) -> str:
    """What of a row of the report is not what was counted; empty if nothing."""
    if row is None or total is None:
        return "" if row is total else f"row {row}, counted {total}"
    wanted = {
        "gpu_hours": hours(1000 * total.gpu_seconds),
        "charged_gpu_hours": hours(total.charged),
        "runs": total.runs,
        "unknown_runs": total.unknown,
    }
    wrong = {name: (row[name], amount) for name, amount in wanted.items() if row[name] != amount}
    if abs(row["suspended_gpu_hours"] - float(total.suspended) / 3600) > 0.0001:
        wrong["suspended_gpu_hours"] = (row["suspended_gpu_hours"], float(total.suspended) / 3600)
    return str(wrong or "")
