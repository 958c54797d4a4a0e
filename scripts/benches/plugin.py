"""The submit plugin inside a real slurmctld: a call of it beside an empty one, a new table, and whole submissions."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from place import Site

from benches.plugin_table import table
from pyslurm_budget.service.publish import replace_file

if TYPE_CHECKING:
    import argparse

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm_conf" / "job_submit.lua"
PER_SUBMISSION = 20
LOADS = 30
MEDIAN_US, P99_US, LOAD_MS, THROUGHPUT = 50.0, 200.0, 10.0, 0.97

# Each submission makes calls on its own job_desc, ours and an empty one in turn, and writes what they took. The calls
# of one submission are few, as what the plugin says to the user is added up by Slurm.
TIMED = """
SBUDGET_TABLE_PATH = "{table}"
SBUDGET_AS_MODULE = true
dofile("{module}")
local turn = 0
local function nothing() return slurm.SUCCESS end
function slurm_job_submit(job_desc, part_list, submit_uid)
    local out = assert(io.open("{out}", "a"))
    local clock, account, qos = os.clock, job_desc.account, job_desc.qos
    for _ = 1, {calls} do
        turn = turn + 1
        job_desc.account = string.format("account%04d", turn % {accounts})
        job_desc.qos = ""
        local a = clock()
        sbudget_job_submit(job_desc, part_list, submit_uid)
        local b = clock()
        nothing(job_desc, part_list, submit_uid)
        local c = clock()
        out:write(string.format("%.3f %.3f %s\\n", (b - a) * 1e6, (c - b) * 1e6, tostring(job_desc.qos)))
    end
    out:close()
    return slurm.ERROR
end
function slurm_job_modify() return slurm.SUCCESS end
"""
EMPTY = """
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where the cluster goes, and how much is measured."""
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp/sbudget-bench-plugin"), help="the cluster's folder"
    )
    parser.add_argument("--base-port", type=int, default=18900, help="its first port")
    parser.add_argument("--accounts", type=int, default=1000, help="accounts in the table")
    parser.add_argument("--calls", type=int, default=10_000, help="calls that are timed")
    parser.add_argument("--submissions", type=int, default=500, help="sbatch calls of each of the two plugins")


def measure(*, folder: Path, base_port: int, accounts: int, calls: int, submissions: int) -> list[dict[str, object]]:
    """Start a cluster and time calls, tables and submissions in it."""
    site = Site(folder, base_port)
    try:
        site.up()
        for qos in ("backed", "spare"):
            site.run(["sacctmgr", "-i", "add", "qos", qos], check=False)
        site.run(["sacctmgr", "-i", "modify", "account", "nlp", "set", "qos+=backed,spare"])
        bench = _Bench(site, folder / "bench", accounts)
        timed = bench.calls(calls)
        loads = bench.loads()
        ratios = bench.submissions(submissions)
    finally:
        site.down()
    ours, empty = ([call[i] for call in timed] for i in (0, 1))
    more = [a - b for a, b in timed]
    return [
        _row(f"{len(timed)} calls, {accounts} accounts: ours, median", statistics.median(ours), "us", None),
        _row("  an empty function, median", statistics.median(empty), "us", None),
        _row("  more than empty, median", statistics.median(more), "us", MEDIAN_US),
        _row("  more than empty, p99", statistics.quantiles(more, n=100)[98], "us", P99_US),
        _row("  more than empty, the longest", max(more), "us", None),
        _row("a call that loads a new table, median", statistics.median(loads) / 1e3, "ms", LOAD_MS),
        _row("  the longest", max(loads) / 1e3, "ms", None),
        _row("submissions a second, ours / empty, median", statistics.median(ratios), "", THROUGHPUT, least=True),
        _row("  the least of the rounds", min(ratios), "", None),
        _row("  the most", max(ratios), "", None),
    ]


class _Bench:
    """The cluster with our scripts in it."""

    def __init__(self, site: Site, folder: Path, accounts: int) -> None:
        """The folder is of the bench's files, readable by slurmctld."""
        folder.mkdir()
        self.site = site
        self.accounts = accounts
        self.table, self.module, self.out = (folder / name for name in ("table", "sbudget_submit.lua", "out"))
        self.path = Path(site.conf).parent / "job_submit.lua"
        self._moment = int(time.time())
        self._generation = 0
        shutil.copy(SCRIPT, self.module)
        self.publish()

    def publish(self) -> None:
        """A table of a new generation."""
        self._generation += 1
        replace_file(self.table, table(self.accounts, self._generation, int(time.time())))

    def install(self, text: str) -> None:
        """Put a script in: newer than the one before, as slurmctld compares whole seconds."""
        self._moment = max(self._moment, int(time.time())) + 2
        replace_file(self.path, text)
        os.utime(self.path, (self._moment, self._moment))

    def timed(self, calls: int) -> None:
        """The script that times calls."""
        self.install(
            TIMED.format(table=self.table, module=self.module, out=self.out, calls=calls, accounts=self.accounts)
        )

    def _one(self, calls: int) -> list[tuple[float, float]]:
        """One submission, which makes so many calls."""
        self.out.unlink(missing_ok=True)
        self.site.run(["sbatch", "-A", "nlp", "--gpus=1", "-t60", "--wrap=:"], user="alice", check=False)
        rows = [line.split() for line in self.out.read_text(encoding="utf-8").splitlines()]
        wrong = [row for row in rows if row[2] != "backed"]
        if wrong or len(rows) != calls:
            raise RuntimeError(f"{len(rows)} calls where {calls} were expected, {len(wrong)} of them not backed.")
        return [(float(ours), float(empty)) for ours, empty, _ in rows]

    def calls(self, count: int) -> list[tuple[float, float]]:
        """What calls of ours and of the empty one took, in microseconds."""
        self.timed(PER_SUBMISSION)
        self._one(PER_SUBMISSION)
        return [call for _ in range(count // PER_SUBMISSION) for call in self._one(PER_SUBMISSION)]

    def loads(self) -> list[float]:
        """Microseconds of the first call after a new table, again and again."""
        self.timed(1)
        found = []
        for _ in range(LOADS):
            self.publish()
            found.append(self._one(1)[0][0])
        return found

    def submissions(self, count: int) -> list[float]:
        """Our throughput by the empty plugin's, in rounds of 50, the order changing."""
        ours = SCRIPT.read_text(encoding="utf-8").replace("/etc/slurm/sbudget.table", str(self.table))
        ratios = []
        for turn in range(max(count // 50, 1)):
            pair = [("ours", ours), ("empty", EMPTY)]
            took = {name: self._round(text) for name, text in (pair if turn % 2 else reversed(pair))}
            ratios.append(took["empty"] / took["ours"])
        return ratios

    def _round(self, text: str) -> float:
        """Seconds of 50 submissions of held jobs."""
        self.install(text)
        submit = "sbatch -Q -A nlp --hold --gpus=1 -t 60 -o /dev/null --wrap true"
        self.site.run(["sh", "-c", f"{submit}; {submit}"], user="alice")
        began = time.monotonic()
        self.site.run(["sh", "-c", f"for i in $(seq 50); do {submit} || exit 1; done"], user="alice", timeout=300)
        took = time.monotonic() - began
        self.site.run(["scancel", "-u", "alice"])
        return took


def _row(what: str, value: float, unit: str, target: float | None, *, least: bool = False) -> dict[str, object]:
    ok = target is None or (value >= target if least else value <= target)
    return {"what": what, "value": value, "unit": unit, "target": target, "ok": ok}
