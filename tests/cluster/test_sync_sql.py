"""Whole cycles and syncs that read slurmdbd's database: the same ledger as by sacct, from first row to last."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cluster.site import Site, ledger_of
from tests.cluster.slurmdbd import Accounts

pytestmark = pytest.mark.cluster
BY = "account,user,flavor,qos,class,day"


def by_sql(site: Site, folder: Path) -> Site:
    """The site with a second ledger, filled from the database."""
    folder.mkdir()
    login = Accounts(site.cluster, folder).login
    made = Site(site.cluster, folder, table=site.table)
    database = "\n".join(
        [
            "[slurm.database]",
            f'host = "{login.host}"',
            f"port = {login.port}",
            f'name = "{login.name}"',
            f'user = "{login.user}"',
            f'password_file = "{login.password_file}"',
        ]
    )
    made.configure(sections=database)
    text = made.config.read_text()
    made.config.write_text(text.replace("[slurm]\n", '[slurm]\naccounting = "sql"\n'))
    return made


def usage(site: Site, end: int) -> list[dict[str, object]]:
    """Every group's hours until ``end``, as its people are told. Not those of a job from before the test, whose row
    without an end slurmdbd may write after the history was emptied: it counts until each ledger misses it."""
    words = ["report", "usage", "--by", BY, "-S", str(end - 3600), "-E", str(end), "--json"]
    rows: list[dict[str, object]] = json.loads(site.sbudget(*words).out)["rows"]
    return sorted((row for row in rows if row["qos"] != "normal"), key=lambda row: json.dumps(row, sort_keys=True))


def facts(site: Site) -> dict[object, object]:
    """What the ledger has of each run that is over."""
    with ledger_of(site) as ledger:
        found = ledger.runs_between(0, int(time.time()) + 3600)
    return {run.key: (run.account, run.qos, run.gpus, run.start, run.end, run.state) for run in found if run.end}


def test_cycles_on_the_database_keep_the_ledger_that_sacct_gives(site: Site, tmp_path: Path) -> None:
    other = by_sql(site, tmp_path / "sql")
    other.begin()
    kept = site.submit("nlp", 2, contract="5s")
    put_back = site.submit("vision", 1, "--requeue", contract="5s")
    ended = site.submit("bio", 1, run="true")
    other.sbudget("reconcile", "--apply")
    for job in (kept, put_back):
        site.wait(job, "RUNNING")
    site.cluster.run(["scontrol", "requeue", put_back])
    site.wait(put_back, "RUNNING", "PENDING")
    other.sbudget("reconcile", "--apply")
    site.wait(put_back, "RUNNING")
    array = site.submit("nlp", 1, "--array=1-3", run="sleep 1")
    site.cluster.wait("the array is over", lambda: site.state_of(f"{array}_3") == "COMPLETED")
    for job in (kept, put_back):
        site.cluster.run(["scancel", job])
    site.wait(kept, "CANCELLED")
    site.wait(ended, "COMPLETED")
    end = int(time.time()) + 60

    def same() -> bool:
        for each in (site, other):
            each.sbudget("sync")
        return len(facts(other)) == 7 and facts(site) == facts(other)

    site.cluster.wait("both ledgers have all seven runs", same, 60)
    assert usage(site, end) == usage(other, end)
    assert sum(float(str(row["gpu_hours"])) for row in usage(other, end)) > 0
    other.sbudget("db", "verify")
    assert not other.open_intents()
