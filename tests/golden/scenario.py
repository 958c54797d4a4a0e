"""What is done in a cluster before its answers are recorded, and all that is asked then.

Jobs have names; each release's ids of them are in its ``index.json``. What must be read of them stands in
``test_releases.py``, written from what is done here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SbudgetError
from pyslurm_budget.service.ports import JobUpdate
from pyslurm_budget.slurm.admin import SlurmAdmin
from pyslurm_budget.slurm.commands import SlurmCommands
from pyslurm_budget.slurm.events import SlurmHistory
from pyslurm_budget.slurm.queue import SlurmQueue
from pyslurm_budget.slurm.sacct import SacctAccounting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyslurm_budget.domain.holding import Holding, NodeEvent
    from pyslurm_budget.domain.model import Job, RunRecord, Snapshot
    from pyslurm_budget.service.setup import SlurmFacts
    from pyslurm_budget.slurm.run import Runner
    from tests.cluster.devcluster import DevCluster

OPTIONS: dict[str, str | int] = {"flavors": "a100:3,h100:1", "requeue_delay": 5, "qos": "backed,spare"}
ODD = "pipe|and\nnewline \udce9\udcff é ☃"  # sbatch gets the bytes E9 and FF, which are no UTF-8
REASON = "swap | board=1"
NO_JOB = "99999999"
OWNERS = {"nlp": "alice", "vision": "bob", "bio": "carol"}
SOON = 60


@dataclass
class Scenario:
    """The jobs of the scenario by name."""

    cluster: DevCluster
    began: int = field(default_factory=lambda: int(time.time()))
    jobs: dict[str, str] = field(default_factory=dict)

    def submit(self, name: str, account: str, *words: str, run: str = "sleep 3600", job_name: str = "") -> str:
        """Submit a job of an account."""
        argv = ["sbatch", "--parsable", "-o", "/dev/null", f"--job-name={job_name or name}", f"--account={account}"]
        limit = [] if any(word.startswith("--time") for word in words) else ["--time=30"]
        made = self.cluster.run([*argv, *limit, *words, f"--wrap={run}"], user=OWNERS[account])
        self.jobs[name] = made.out.strip()
        return self.jobs[name]

    def scontrol(self, *words: str) -> None:
        """Change something."""
        self.cluster.run(["scontrol", *words])

    def until(self, state: str, *names: str) -> None:
        """Wait until the jobs are in a state."""
        for name in names:
            self.cluster.wait(
                f"{name} is {state}", lambda name=name: self.cluster.job(self.jobs[name], "JobState") == state, SOON
            )

    def until_row(self, name: str, *states: str) -> None:
        """Wait until slurmdbd has these runs of a job; the rest of an array that waits may be another."""
        argv = ["sacct", "-n", "-P", "-X", "-D", "-j", self.jobs[name], "-o", "State"]

        def known() -> bool:
            rows = [row.split()[0] for row in self.cluster.run(argv).out.split("\n") if row]
            return sorted(rows) == sorted(states) or sorted(rows) == sorted([*states, "PENDING"])

        self.cluster.wait(f"the rows of {name}: {', '.join(states)}", known, SOON)

    def act(self) -> None:
        """All of it."""
        self.cluster.run(["sacctmgr", "-i", "modify", "qos", "backed", "set", "preempt=spare", "priority=10"])
        self._over()
        self._put_back()
        self._running()
        self._waiting()
        self._places()

    def _over(self) -> None:
        # It is idle: of a node that works the end of a drain was not seen in slurmdbd.
        self.scontrol("update", "nodename=n3", "state=drain", f"reason={REASON}")
        time.sleep(2)
        self.scontrol("update", "nodename=n3", "state=resume")
        self.submit("done", "nlp", "--qos=backed", "--gres=gpu:2", "--comment=min-runtime=2h", run="true")
        self.submit("failed", "vision", "--qos=spare", "-n2", "--gres=gpu:a100:1", run="exit 3")
        self.submit("odd", "nlp", f"--comment={ODD}", run="true", job_name=ODD)
        self.submit("never", "vision", "--begin=now+2hours", "--gres=gpu:2")
        self.submit("stopped", "nlp", "--qos=spare", "--gres=gpu:1")
        self.until("RUNNING", "stopped")
        self.cluster.run(["scancel", self.jobs["never"]], user="bob")
        self.cluster.run(["scancel", self.jobs["stopped"]])
        self.until("COMPLETED", "done", "odd")
        self.until("FAILED", "failed")
        self.until("CANCELLED", "never", "stopped")

    def _put_back(self) -> None:
        self.submit("victim", "bio", "--qos=spare", "--gres=gpu:4", "-w", "n1", "--requeue")
        self.submit("put-back", "vision", "--qos=spare", "--gres=gpu:a100:2", "-w", "n2", "--requeue")
        self.until("RUNNING", "victim", "put-back")
        self.scontrol("requeue", "Incomplete", self.jobs["put-back"])
        self.submit("preemptor", "nlp", "--qos=backed", "--gres=gpu:4", "-w", "n1")
        self.until("RUNNING", "preemptor", "put-back")
        self.until("PENDING", "victim")

    def _running(self) -> None:
        self.submit("suspended", "vision", "--qos=backed", "-n1", "-w", "n2")
        self.submit("resized", "bio", "--qos=backed", "-N2", "-w", "n[2-3]", "--gres=gpu:1", "--mem=100")
        self.submit("array", "nlp", "--qos=spare", "--array=0-40:4%2", "-n1", "-w", "n3")
        self.submit("unlimited", "vision", "--qos=backed", "--time=UNLIMITED", "-w", "n3", "--no-requeue")
        self.submit("pair", "bio", "--qos=backed", "-n1", "-w", "n3", "--gres=gpu:1", ":", "-n2", "-w", "n2")
        self.submit("other-type", "bio", "--qos=spare", "--gres=gpu:h100:2", "-w", "n4", "--comment=min-runtime=90m")
        self.until("RUNNING", "suspended", "resized", "unlimited", "pair", "other-type")
        self.scontrol("suspend", self.jobs["suspended"])
        time.sleep(2)  # a change in the second of the start leaves one row for both, which looks ended
        self.scontrol("update", f"jobid={self.jobs['resized']}", "NumNodes=1")
        self.until("SUSPENDED", "suspended")

    def _waiting(self) -> None:
        self.submit("tasks", "nlp", "--qos=spare", "--array=1-3,7", "--begin=now+1hour")
        self.submit("held", "vision", "--qos=spare", "--hold", "--gpus=3")
        self.submit("after", "nlp", "--qos=backed", f"--dependency=afterok:{self.jobs['preemptor']}")
        self.submit("wide", "nlp", "--qos=spare", "-N3", "--gres=gpu:4")
        self.until("PENDING", "held", "after", "wide")

    def _places(self) -> None:
        self.scontrol("update", "nodename=n4", "state=drain", f"reason={REASON}")
        when = ("starttime=now", "duration=60", "flags=ignore_jobs")
        self.scontrol("create", "reservation=bought", *when, "nodes=n2", "accounts=nlp,vision")
        self.scontrol("create", "reservation=work", *when[:2], "nodes=n4", "user=root", "flags=ignore_jobs,maint")
        self.submit("inside", "nlp", "--qos=backed", "--gres=gpu:1", "--reservation=bought")
        self.until("RUNNING", "inside")
        self.until_row("inside", "RUNNING")
        self.until_row("put-back", "REQUEUED", "RUNNING")
        self.until_row("suspended", "SUSPENDED")
        self.until_row("array", "RUNNING", "RUNNING")
        self.until_row("victim", "PREEMPTED")
        self.until_row("stopped", "CANCELLED")
        events = ["sacctmgr", "-nP", "show", "event", "event=node", "format=nodename", f"start=uts{self.began}"]
        both = ["n3", "n4"]
        self.cluster.wait("slurmdbd's events", lambda: sorted(self.cluster.run(events).out.split()) == both, SOON)


@dataclass(frozen=True)
class Looks:
    """All that the product asks of a cluster, by what was asked."""

    snapshot: Snapshot
    single: Mapping[str, Job | None]
    runs: tuple[RunRecord, ...]
    events: tuple[NodeEvent, ...]
    holdings: tuple[Holding, ...]
    setup: SlurmFacts
    refused: Mapping[str, str]


def look(runner: Runner, jobs: Mapping[str, str], began: int, until: int) -> Looks:
    """Ask all of it: the same commands when it is recorded and when it is read."""
    queue = SlurmQueue(runner)
    history = SlurmHistory(runner, "demo")
    return Looks(
        queue.snapshot(),
        {name: queue.job(ref) for name, ref in {**jobs, "no job": NO_JOB}.items()},
        tuple(SacctAccounting(runner, clock=lambda: until).runs(began, until)),
        history.node_events(began, until),
        history.reservations(began, until),
        SlurmAdmin(runner, queue).facts(),
        dict(_refusals(SlurmCommands(runner), jobs)),
    )


def _refusals(commands: SlurmCommands, jobs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Changes that Slurm refuses: nothing is changed by asking."""
    running = jobs["preemptor"]
    tries: dict[str, Callable[[], object]] = {
        "another QOS while it runs": lambda: commands.update_job(running, qos="spare"),
        "no job": lambda: commands.update_job(NO_JOB, site_factor=1),
        "no such QOS": lambda: commands.update_job(jobs["held"], qos="nosuch"),
        "no job to put back": lambda: commands.requeue(NO_JOB),
        "no such node": lambda: commands.reserve(
            "sbudget_no", nodes=["nosuch"], start=4_000_000_000, end=4_000_000_060, accounts=["nlp"]
        ),
        "no such account": lambda: commands.reserve(
            "sbudget_no", nodes=["n1"], start=4_000_000_000, end=4_000_000_060, accounts=["nosuch"]
        ),
        "no reservation": lambda: commands.release("sbudget_no"),
        "several": lambda: commands.update_many([JobUpdate(running, qos="spare"), JobUpdate(NO_JOB, qos="spare")]),
    }
    for what, attempt in tries.items():
        yield what, said(attempt)


def said(attempt: Callable[[], object]) -> str:
    """What came of it: the class of the failure and its words, or what was returned."""
    try:
        return repr(attempt())
    except SbudgetError as error:
        return f"{type(error).__name__}: {error}"


def silent(runner: Runner, phase: str, until: int) -> str:
    """What is said when a daemon is down."""
    if phase == "no-slurmctld":
        return said(SlurmQueue(runner).controller)
    return said(lambda: list(SacctAccounting(runner, clock=lambda: until).runs(until - 60, until)))
