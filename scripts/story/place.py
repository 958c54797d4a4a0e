"""The site of the story: its cluster, its users, its configuration, and Slurm's own commands to check with."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEVCLUSTER = ROOT / "scripts" / "devcluster"
BIN = Path(sys.executable).parent
USERS = {"nlp": "alice", "vision": "bob", "bio": "carol"}

CONFIG = """\
# A site on fast forward: the week is {window} s long, the longest contract {cap} s.
cluster = "{name}"
mode = "{mode}"
state_dir = "{state}"
operators = ["sbudget"]

[slurm]
conf = "{conf}"

[ledger]
url = "sqlite:///{state}/ledger.sqlite"
lease = "5s"

[publish]
table = "{public}/table"
state = "{public}/state.json"

[cycle]
interval = "2s"
restart_quiet = "0s"

[window]
length = "{window}s"
hour = "10s"

[contract]
cap = "{cap}s"
default = "20s"
floor = "20s"

[admission]
ceiling_part = "100%"

[drain]
after = "3s"
min_nodes = 1

[displace]
stuck_wait = "60s"

[breaker]
least_gpus = 1000
"""

BUDGETS = """\
[budgets.nlp]
share = "50%"

[budgets.vision]
share = "30%"

[budgets.bio]
share = "20%"
"""


@dataclass(frozen=True)
class Ran:
    """What a command said."""

    status: int
    out: str
    err: str


class Site:
    """A dev cluster with three groups, and a configuration for it."""

    def __init__(self, folder: Path, base_port: int, window: int = 240, cap: int = 60) -> None:
        """Nothing is started yet."""
        self.folder = folder
        self.base_port = base_port
        self.window = window
        self.cap = cap
        self.conf = ""
        self.config = folder / "site" / "sbudget.toml"
        self.budgets = folder / "site" / "budgets.toml"

    def up(self) -> None:
        """Start the cluster; returns when a test job has run."""
        self.devcluster("up", "--name", "demo", "--nodes", "4", "--gpus-per-node", "4", "--requeue-delay", "5")
        env = json.loads(self.devcluster("env", "--json").out)
        self.conf = env["SLURM_CONF"]

    def down(self) -> None:
        """Take the cluster down, with all that it made."""
        self.devcluster("down")

    def devcluster(self, command: str, *options: str) -> Ran:
        """Run scripts/devcluster for this cluster."""
        argv = [sys.executable, str(DEVCLUSTER), command, "--dir", str(self.folder)]
        if command == "up":
            argv += ["--base-port", str(self.base_port)]
        return self.run([*argv, *options], timeout=600)

    def configure(self, mode: str = "enforce") -> None:
        """Write the configuration and the budget file."""
        public = self.folder / "site" / "public"
        public.mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(
            name="demo", mode=mode, state=self.config.parent, conf=self.conf, public=public,
            window=self.window, cap=self.cap,
        )  # fmt: skip
        self.config.write_text(text, encoding="utf-8")
        self.budgets.write_text(BUDGETS, encoding="utf-8")

    def run(self, argv: list[str], *, user: str | None = None, timeout: float = 60, check: bool = True) -> Ran:
        """Run a command with the cluster's environment, as root or as a user."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SACCT_", "SQUEUE_"))}
        env |= {"SLURM_CONF": self.conf, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "SBUDGET_CONFIG": str(self.config)}
        if user is not None:
            pairs = [f"{k}={env[k]}" for k in ("SLURM_CONF", "SLURM_TIME_FORMAT", "TZ", "PATH", "SBUDGET_CONFIG")]
            argv = ["runuser", "-u", user, "--", "env", *pairs, *argv]
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, errors="replace", timeout=timeout, check=False, cwd="/",
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
        return Ran(done.returncode, done.stdout, done.stderr)

    def sbudget(self, *argv: str, check: bool = True) -> Ran:
        """Run our own command."""
        return self.run([str(BIN / "sbudget"), *argv], check=check)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start our own command in the background."""
        env = {**os.environ, "SLURM_CONF": self.conf, "SBUDGET_CONFIG": str(self.config)}
        log = (self.folder / "site" / "controller.log").open("a", encoding="utf-8")
        return subprocess.Popen(
            [str(BIN / "sbudget"), *argv], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip

    def submit(
        self, group: str, gpus: int, seconds: int, *options: str, contract: str | None = None
    ) -> tuple[str, str]:
        """Submit a sleeping job of a group; returns its id and what sbatch told the user."""
        comment = [f"--comment=min-runtime={contract}"] if contract else []
        argv = ["sbatch", "-A", group, f"--gres=gpu:{gpus}", "-N1", "-t", "30", "-o", "/dev/null", *comment, *options]
        done = self.run([*argv, f"--wrap=sleep {seconds}"], user=USERS[group])
        return done.out.strip().split()[-1], done.err.strip()

    def field(self, job: str, *names: str) -> tuple[str, ...]:
        """Fields of a job as `scontrol show job` prints them; empty texts if there is no such job."""
        done = self.run(["scontrol", "show", "job", "-o", job], check=False)
        words = dict(w.split("=", 1) for w in done.out.split() if "=" in w)
        return tuple(words.get(name, "") for name in names)

    def state(self, job: str) -> str:
        """JobState of a job."""
        return self.field(job, "JobState")[0]

    def qos(self, job: str) -> str:
        """QOS of a job."""
        return self.field(job, "QOS")[0]

    def sacct(self, *jobs: str) -> list[dict[str, str]]:
        """Accounting rows, requeued runs included; all jobs without a list."""
        names = "JobID,JobIDRaw,Submit,Start,End,State,QOS,Account,User,NodeList,AllocTRES,Comment"
        pick = ["-j", ",".join(jobs)] if jobs else ["-a"]
        argv = ["sacct", "-n", "-P", "-D", "-X", *pick, "-S", "uts1000000000", "-E", "now+1day", "-o", names]
        out = self.run(argv).out
        return [dict(zip(names.split(","), line.split("|", 11), strict=True)) for line in out.splitlines()]

    def cancel_all(self) -> None:
        """Cancel everything and wait until the nodes are empty."""
        for user in USERS.values():
            self.run(["scancel", "-u", user], check=False)
        for _ in range(60):
            if not self.run(["squeue", "-h", "-a"]).out.strip():
                return
            time.sleep(0.5)

    def slurm_settings(self) -> str:
        """Everything in Slurm that `setup` may change, as Slurm prints it."""
        qos = self.run(["sacctmgr", "-nP", "show", "qos", "format=name,priority,preempt,preemptmode,flags"]).out
        assoc = self.run(["sacctmgr", "-nP", "show", "assoc", "format=account,user,qos,defaultqos"]).out
        plugin = (Path(self.conf).parent / "job_submit.lua").read_text(encoding="utf-8")
        return f"{qos}\n{assoc}\n{plugin}"
