"""A throw-away Slurm of which slurmdbd has a long history: written into its database, not run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from place import Site

from benches.history import ACCOUNTS, BACKED, DAY, FIRST_UID, FLAVORS, SPARE, USERS, Made, members, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = "bench"
# Slurm's job states (slurm.h).
STATES = {"COMPLETED": 3, "CANCELLED": 4, "FAILED": 5, "TIMEOUT": 6, "NODE_FAIL": 7, "PREEMPTED": 8}
NO_VAL = 4294967294
LATER_JOBS = 50_000_000
COLUMNS = (
    "account", "cpus_req", "derived_es", "job_name", "id_assoc", "id_array_job", "id_array_task", "id_job", "id_qos",
    "id_resv", "id_wckey", "id_user", "id_group", "het_job_id", "het_job_offset", "kill_requid", "state_reason_prev",
    "mem_req", "nodelist", "nodes_alloc", "partition", "priority", "state", "timelimit", "time_submit",
    "time_eligible", "time_start", "time_end", "time_suspended", "tres_alloc", "tres_req", "mod_time",
)  # fmt: skip


class SlurmHistory:
    """A cluster in a folder, with its fake nodes, accounts and users, and the database of its slurmdbd."""

    def __init__(self, folder: Path, base_port: int) -> None:
        """Nothing is started yet. The fake nodes have ports 200 above ``base_port`` and more."""
        self.site = Site(folder, base_port)
        self._port = base_port + 200

    def up(self) -> None:
        """Start the cluster, and make its accounts and users."""
        types = ",".join(f"gres/gpu:{flavor.name}" for flavor in FLAVORS)
        tres = ("--conf", f"AccountingStorageTRES=gres/gpu,{types}")
        self.site.devcluster("up", "--name", NAME, "--nodes", "1", "--qos", f"{SPARE},{BACKED}", *tres)
        self.site.conf = json.loads(self.site.devcluster("env", "--json").out)["SLURM_CONF"]
        # Afterwards: `up` waits for every node that it knows.
        with Path(self.site.conf).open("a", encoding="utf-8") as conf:
            conf.writelines(f"{line}\n" for line in self._fake_nodes())
        self.site.devcluster("restart", "slurmctld")
        self.site.run(["sacctmgr", "-i", "add", "account", ",".join(ACCOUNTS), f"cluster={NAME}"], timeout=300)
        # By SQL, as sacctmgr needs minutes for so many; sacct takes account and user of a job from here.
        made = (f"(0, 0, '{user}', '{account}', 0, 0)" for user, account in members())
        columns = "creation_time, mod_time, user, acct, lft, rgt"
        self.sql(f"INSERT INTO {NAME}_assoc_table ({columns}) VALUES {','.join(made)}")

    def down(self) -> None:
        """Take it down, with all that it made."""
        self.site.down()

    def _fake_nodes(self) -> Iterator[str]:
        """Lines for slurm.conf: nodes that nobody starts."""
        port, names = self._port, []
        for flavor in FLAVORS:
            name = f"{flavor.name}-[001-{flavor.nodes:03}]"
            ports = f"[{port}-{port + flavor.nodes - 1}]"
            port += flavor.nodes
            names.append(name)
            yield (
                f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports} CPUs={flavor.cpus} "
                f"RealMemory={flavor.memory_mb} Gres=gpu:{flavor.name}:{flavor.gpus} State=DOWN"
            )
        yield f"PartitionName=fake Nodes={','.join(names)} State=UP"

    def fill(self, count: int, until: int) -> None:
        """Put ``count`` runs into slurmdbd's job table, as it would have them."""
        self._load(runs(count, until))

    def add(self, count: int, until: int) -> None:
        """Put ``count`` more runs there that ended in the minute before ``until``, with job ids that come after."""
        made: list[Made] = []
        for i, run in enumerate(runs(count, until, seed=2)):
            end = until - i % 60
            start = end - min(run.end - (run.start or run.submit), DAY)
            alone = run._replace(job=run.job + LATER_JOBS, array=0, task=None)
            made.append(alone._replace(submit=start, start=start, end=end))
        self._load(made)

    def _load(self, made: Iterable[Made]) -> None:
        rows = Rows(self)
        file = self.site.folder / "rows.tsv"
        with file.open("w", encoding="utf-8") as out:
            out.writelines(map(rows.line, made))
        load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {NAME}_job_table ({','.join(f'`{c}`' for c in COLUMNS)})"
        self.sql(f"SET unique_checks = 0; {load}")
        self.sql(f"ANALYZE TABLE {NAME}_job_table")
        file.unlink()

    def sql(self, statement: str) -> list[list[str]]:
        """Run SQL in slurmdbd's database; rows of texts."""
        socket = self.site.folder / "db" / "sock"
        argv = ["mariadb", "--no-defaults", "--local-infile=1", "-u", "root", f"--socket={socket}", "-BN"]
        done = subprocess.run(
            [*argv, "slurm_acct_db"], input=statement, capture_output=True, text=True, timeout=1800, check=False
        )
        if done.returncode:
            raise RuntimeError(f"MariaDB refused: {done.stderr.strip()}")
        return [line.split("\t") for line in done.stdout.splitlines()]


class Rows:
    """Lines of the job table: knows the numbers that slurmdbd has given to users, QOS and TRES."""

    def __init__(self, history: SlurmHistory) -> None:
        """Reads them."""
        ask = f"SELECT user, acct, id_assoc FROM {NAME}_assoc_table WHERE user <> ''"
        self._assoc = {(user, account): number for user, account, number in history.sql(ask)}
        ask = "SELECT name, id FROM qos_table WHERE deleted = 0"
        self._qos = {name: number for name, number in history.sql(ask)}  # noqa: C416 (rows are lists)
        ask = "SELECT CONCAT(type, ':', name), id FROM tres_table WHERE type = 'gres'"
        self._tres = {name.removeprefix("gres:"): number for name, number in history.sql(ask)}

    def line(self, run: Made) -> str:
        """A run as a line for LOAD DATA, in the order of ``COLUMNS``."""
        uid = FIRST_UID + run.user
        req = f"1={run.cpus},2={run.memory_mb},4={run.node_count},5={run.cpus},{self._tres['gpu']}={run.gpus}"
        alloc = f"{req},{self._tres['gpu:' + run.flavor.name]}={run.gpus}" if run.start else ""
        cells = (
            run.account, run.cpus, run.comment, "train", self._assoc[USERS[run.user], run.account], run.array,
            NO_VAL if run.task is None else run.task, run.job, self._qos[run.qos], 0, 0, uid, uid, 0, NO_VAL,
            uid if run.state == "CANCELLED" else "\\N", 0, run.memory_mb // run.node_count, run.nodes,
            run.node_count if run.start else 0, "fake", 1000, STATES[run.state], run.limit, run.submit, run.submit,
            run.start, run.end, run.suspended, alloc, req, run.end,
        )  # fmt: skip
        return "\t".join(map(str, cells)) + "\n"
