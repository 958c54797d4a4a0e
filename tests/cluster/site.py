"""A site for the cluster tests: short windows, three groups, and Slurm's own commands to look with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyslurm_budget.ledger.store import SqlLedger
from tests.cluster.devcluster import BIN, DevCluster, Ran

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = {"nlp": "alice", "vision": "bob", "bio": "carol"}
CONFIG = """\
cluster = "demo"
mode = "{mode}"
state_dir = "{state}"
{extra}
[slurm]
conf = "{conf}"
timeout = "30s"
[ledger]
url = "sqlite:///{state}/ledger.sqlite"
lease = "{lease}"
[publish]
table = "{table}"
state = "{state}/state.json"
[cycle]
interval = "2s"
restart_quiet = "0s"
[window]
length = "{window}s"
hour = "10s"
[contract]
cap = "60s"
default = "10s"
floor = "10s"
[admission]
ceiling_part = "100%"
[drain]
after = "1s"
min_nodes = 2
[requeues]
lost_after = "15s"
[breaker]
least_gpus = 1000
{sections}
"""
BUDGETS = """\
[budgets.nlp]
share = "50%"
[budgets.vision]
share = "30%"
[budgets.bio]
share = "20%"
"""
GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
FIELDS = "JobID,JobIDRaw,Submit,Start,End,State,QOS,Account,AllocTRES,Comment"


@dataclass
class Site:
    """One cluster with a configuration of its own in a temporary folder."""

    cluster: DevCluster
    folder: Path
    window: int = 240
    table: Path = Path()
    state: Path = field(init=False)
    config: Path = field(init=False)

    def __post_init__(self) -> None:
        # slurmctld (root) and the controller read it; users need not
        self.state = self.folder / "state"
        self.config = self.folder / "sbudget.toml"
        # the plugin has one path: sites of one cluster share it
        self.table = self.table if self.table.name else self.state / "table"

    def configure(self, mode: str = "enforce", extra: str = "", sections: str = "", lease: str = "2s") -> None:
        """Write the configuration and the budget file."""
        self.state.mkdir(exist_ok=True)
        text = CONFIG.format(
            mode=mode,
            state=self.state,
            table=self.table,
            conf=self.cluster.conf,
            window=self.window,
            extra=extra,
            sections=sections,
            lease=lease,
        )
        self.config.write_text(text)
        (self.folder / "budgets.toml").write_text(BUDGETS)

    def install(self) -> None:
        """Set Slurm up, apply the budgets, publish a first table."""
        self.sbudget("setup", "apply")
        self.begin()

    def begin(self) -> None:
        """Apply the budgets, publish a first table."""
        self.sbudget("budget", "apply", str(self.folder / "budgets.toml"))
        self.sbudget("reconcile", "--apply")

    def sbudget(self, *words: str, check: bool = True, env: dict[str, str] | None = None) -> Ran:
        """Our own command."""
        argv = [str(BIN / "sbudget"), "--config", str(self.config), *words]
        return self.cluster.run(argv, check=check, env=env, timeout=120)

    @contextmanager
    def controller(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """`reconcile --apply --every 1s` in the background, ended politely."""
        argv = [str(BIN / "sbudget"), "--config", str(self.config), "reconcile", *(words or ("--apply",))]
        env = dict(os.environ) | dict(self.cluster.env)
        with (
            (self.folder / "controller.log").open("ab") as log,
            subprocess.Popen([*argv, "--every", "1s"], env=env, stdout=log, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)

    def submit(
        self, group: str, gpus: int, *options: str, contract: str | None = None, run: str = "sleep 600"
    ) -> str:
        """Submit a job of a group; returns its id."""
        ran = self.try_submit(group, gpus, *options, contract=contract, run=run)
        assert ran.status == 0, ran
        return ran.out.strip()

    def try_submit(self, group: str, gpus: int, *options: str, contract: str | None, run: str) -> Ran:
        """Submit a job of a group; what sbatch said."""
        comment = [f"--comment=min-runtime={contract}"] if contract else []
        argv = ["sbatch", "--parsable", "-A", group, f"--gres=gpu:{gpus}", "-N1", "-t", "30", "-o", "/dev/null"]
        return self.cluster.run([*argv, *comment, *options, "--wrap", run], user=USERS[group], check=False)

    def fields(self, job: str) -> dict[str, str]:
        """All fields of a job as `scontrol show job` prints them; empty if there is no such job."""
        ran = self.cluster.run(["scontrol", "show", "job", "-o", job], check=False)
        return dict(w.split("=", 1) for w in ran.out.split() if "=" in w) if ran.status == 0 else {}

    def state_of(self, job: str) -> str:
        """JobState."""
        return self.fields(job).get("JobState", "")

    def qos(self, job: str) -> str:
        """QOS."""
        return self.fields(job).get("QOS", "")

    def wait(self, job: str, *states: str, seconds: float = 90) -> None:
        """Wait until the job is in one of the states."""
        self.cluster.wait(f"job {job} is {' or '.join(states)}", lambda: self.state_of(job) in states, seconds)

    def sacct(self) -> list[dict[str, str]]:
        """All rows of all jobs, requeued runs included; times in epoch seconds."""
        argv = ["sacct", "-a", "-n", "-P", "-D", "-X", "-S", "uts1000000000", "-E", "now+1day", "-o", FIELDS]
        out = self.cluster.run(argv, env={"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}).out
        return [dict(zip(FIELDS.split(","), line.split("|", 9), strict=True)) for line in out.splitlines()]

    def charged(self, account: str, begin: int, end: int) -> int:
        """GPU-seconds of the account's backed runs inside [begin, end), from sacct alone."""
        total = 0
        for row in self.sacct():
            if row["Account"] != account or row["QOS"] != "backed" or not row["Start"].isdigit():
                continue
            found = GPUS.search(row["AllocTRES"])
            ended = int(row["End"]) if row["End"].isdigit() else end
            total += (int(found.group(1)) if found else 0) * max(0, min(ended, end) - max(int(row["Start"]), begin))
        return total

    def jobs(self) -> str:
        """Each job's state, QOS and priority, as squeue prints them."""
        return self.cluster.run(["squeue", "-h", "-a", "-r", "-O", "JobID,State,QOS,PriorityLong"]).out

    def clean(self) -> None:
        """Cancel all jobs, wait until the nodes are empty, and put the nodes back to work."""
        for user in USERS.values():
            self.cluster.run(["scancel", "-u", user], check=False)
        self.cluster.wait("an empty queue", lambda: not self.cluster.run(["squeue", "-h", "-a"]).out.strip(), 120)
        nodes = self.cluster.run(["sinfo", "-h", "-N", "-o", "%N|%T"]).out.split()
        for name, _, node_state in (n.partition("|") for n in dict.fromkeys(nodes)):
            if node_state.startswith(("drain", "down")):
                self.cluster.run(["scontrol", "update", f"nodename={name}", "state=resume"], check=False)

    def forget_history(self) -> None:
        """Empty accounting's job table: what earlier tests used would be charged to this one's budgets."""
        text = (self.cluster.folder / "etc" / "slurmdbd.conf").read_text()
        conf = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        login = ["-h", "127.0.0.1", "-P", conf["StoragePort"], "-u", conf["StorageUser"], f"-p{conf['StoragePass']}"]
        sql = f"DELETE FROM {conf['StorageLoc']}.demo_job_table"
        self.cluster.run(["mariadb", "--no-defaults", *login, "-e", sql])

    def open_intents(self) -> list[str]:
        """Intents that the ledger has open, by ref."""
        with ledger_of(self) as ledger:
            return [f"{i.action.kind} {i.action.ref} {i.state}" for i in ledger.open_intents()]

    def settled(self, seconds: float = 90) -> None:
        """Normal cycles until no intent is open."""
        end = time.monotonic() + seconds
        while True:
            self.sbudget("reconcile", "--apply")
            left = self.open_intents()
            if not left:
                return
            assert time.monotonic() < end, f"still open: {left}"
            time.sleep(1)


@contextmanager
def ledger_of(site: Site) -> Iterator[SqlLedger]:
    """The site's ledger, to look into."""
    ledger = SqlLedger(f"sqlite:///{site.state}/ledger.sqlite", "demo")
    try:
        yield ledger
    finally:
        ledger.close()
