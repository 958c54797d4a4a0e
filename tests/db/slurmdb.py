"""slurmdbd's tables as each release makes them, in a bare MariaDB: the columns of all, and what each added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pymysql

from pyslurm_budget.slurm.slurmdb_failures import Login
from tests.db.servers import PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.db.servers import Server

CLUSTER = "demo"
TRES = {
    **{1: "cpu", 2: "mem", 3: "energy", 4: "node", 5: "billing", 6: "fs/disk", 7: "vmem", 8: "pages"},
    **{1001: "gres/gpu", 1002: "gres/gpu:a100", 1003: "gres/gpu:h100", 1004: "license/matlab"},
}
_ID, _TIME, _TEXT = "int unsigned not null", "bigint unsigned default 0 not null", "text"
_EMPTY = "text not null default ''"
JOB: dict[str, str] = {
    "job_db_inx": "bigint unsigned not null auto_increment",
    "mod_time": _TIME,
    "deleted": "tinyint default 0 not null",
    "account": "tinytext",
    "admin_comment": _TEXT,
    "array_task_str": _TEXT,
    "array_max_tasks": "int unsigned default 0 not null",
    "array_task_pending": "int unsigned default 0 not null",
    "constraints": "text default ''",
    "cpus_req": _ID,
    "derived_ec": "int unsigned default 0 not null",
    "derived_es": _TEXT,
    "exit_code": "int unsigned default 0 not null",
    "flags": "int unsigned default 0 not null",
    "job_name": "tinytext not null",
    "id_assoc": _ID,
    "id_array_job": "int unsigned default 0 not null",
    "id_array_task": "int unsigned default 0xfffffffe not null",
    "id_job": _ID,
    "id_qos": "int unsigned default 0 not null",
    "id_resv": _ID,
    "id_wckey": _ID,
    "id_user": _ID,
    "id_group": _ID,
    "het_job_id": _ID,
    "het_job_offset": _ID,
    "kill_requid": "int unsigned default null",
    "state_reason_prev": _ID,
    "nodelist": _TEXT,
    "nodes_alloc": _ID,
    "node_inx": _TEXT,
    "partition": "tinytext not null",
    "priority": _ID,
    "state": _ID,
    "timelimit": "int unsigned default 0 not null",
    "time_submit": _TIME,
    "time_eligible": _TIME,
    "time_start": _TIME,
    "time_end": _TIME,
    "time_suspended": _TIME,
    "wckey": "tinytext not null default ''",
    "work_dir": _EMPTY,
    "submit_line": _TEXT,
    "system_comment": _TEXT,
    "tres_alloc": _EMPTY,
    "tres_req": _EMPTY,
}
ASSOC: dict[str, str] = {
    "creation_time": _TIME,
    "mod_time": _TIME,
    "deleted": "tinyint default 0 not null",
    "id_assoc": "int unsigned not null auto_increment",
    "user": "tinytext not null default ''",
    "acct": "tinytext not null",
    "partition": "tinytext not null default ''",
    "parent_acct": "tinytext not null default ''",
}
_LFT = {"lft": "int not null default 0", "rgt": "int not null default 0"}
_LINEAGE = {"id_parent": "int unsigned default 0 not null", "lineage": _TEXT}
_23_02 = {"extra": _TEXT, "failed_node": "tinytext", "licenses": _TEXT}
_24_05 = {"std_err": _EMPTY, "std_in": _EMPTY, "std_out": _EMPTY}
_24_11 = {"qos_req": _TEXT, "restart_cnt": "smallint unsigned default 0"}
_25_05 = {"resv_req": _TEXT, "segment_size": "smallint unsigned default 0 not null"}
_26_05 = {"exclusive": "tinytext", "oversubscribe": "tinytext", "sluid": _TIME}
RELEASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "22.05": (JOB, ASSOC | _LFT),
    "23.02": (JOB | _23_02, ASSOC | {"comment": _TEXT} | _LFT),
    "23.11": (JOB | _23_02, ASSOC | _LINEAGE | _LFT),
    "24.05": (JOB | _23_02 | _24_05, ASSOC | _LINEAGE | _LFT),
    "24.11": (JOB | _23_02 | _24_05 | _24_11, ASSOC | _LINEAGE | _LFT),
    "25.05": (JOB | _23_02 | _24_05 | _24_11 | _25_05, ASSOC | _LINEAGE),
    "25.11": (JOB | _23_02 | _24_05 | _24_11 | _25_05, ASSOC | _LINEAGE),
    "26.05": (JOB | _23_02 | _24_05 | _24_11 | _25_05 | _26_05, ASSOC | _LINEAGE),
}
_KEYS = (
    "primary key (job_db_inx), unique index (id_job, time_submit), key rollup (time_eligible, time_end), "
    "key rollup2 (time_end, time_eligible), key association (id_assoc), "
    "key sacct_def2 (id_user, time_end, time_eligible)"
)


class SlurmDatabase:
    """One database as slurmdbd leaves it, with a cluster in it; the file with its password is put into ``folder``."""

    def __init__(self, server: Server, folder: Path, release: str = "22.05") -> None:
        server.made += 1
        self.name = f"slurm{server.made}"
        self.server = server
        file = folder / "password"
        file.write_text(f"{PASSWORD}\n", encoding="ascii")
        file.chmod(0o600)
        self.login = Login("127.0.0.1", server.port, server.user, self.name, file, timeout=20)
        # As slurmdbd's client has it on Debian; the server's own default of these tests is latin1.
        server.run(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")
        login = {"user": server.user, "password": PASSWORD, "database": self.name, "autocommit": True}
        self._connection = pymysql.connect(host="127.0.0.1", port=server.port, charset="utf8mb4", **login)
        job, assoc = RELEASES[release]
        self.run(f"CREATE TABLE {CLUSTER}_job_table ({_columns(job)}, {_KEYS})")
        self.run(f"CREATE TABLE {CLUSTER}_assoc_table ({_columns(assoc)}, primary key (id_assoc))")
        self.run("CREATE TABLE qos_table (deleted tinyint, id int primary key, name tinytext not null)")
        self.run("CREATE TABLE cluster_table (deleted tinyint, name tinytext not null)")
        self.run(
            "CREATE TABLE tres_table (deleted tinyint, id int primary key, type tinytext not null, "
            "name tinytext not null default '')"
        )
        self.run("INSERT INTO cluster_table VALUES (0, %s), (1, 'gone')", CLUSTER)
        for number, name in TRES.items():
            kind, _, rest = name.partition("/")
            self.run("INSERT INTO tres_table VALUES (%s, %s, %s, %s)", number == 1003, number, kind, rest)
        for number, name in enumerate(("normal", "spare", "Bücked"), 1):
            self.run("INSERT INTO qos_table VALUES (%s, %s, %s)", number == 3, number, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run one statement."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def forget_jobs(self) -> None:
        """Empty the table of jobs."""
        self.run(f"DELETE FROM {CLUSTER}_job_table")

    def empty(self) -> None:
        """Forget jobs and associations."""
        self.forget_jobs()
        self.run(f"DELETE FROM {CLUSTER}_assoc_table")

    def assoc(self, number: int, user: str, account: str, deleted: bool = False) -> None:
        """Add an association."""
        self.run(
            f"INSERT INTO {CLUSTER}_assoc_table (id_assoc, user, acct, deleted) VALUES (%s, %s, %s, %s)",
            *(number, user, account, deleted),
        )

    def job(self, **columns: object) -> None:
        """Add a row: a run of 60 s on two nodes, but for the given columns."""
        row: dict[str, object] = dict.fromkeys(
            (
                "cpus_req",
                "id_assoc",
                "id_resv",
                "id_wckey",
                "id_group",
                "state_reason_prev",
                "nodes_alloc",
                "priority",
            ),
            0,
        )
        row |= {"id_user": 4000, "het_job_id": 0, "het_job_offset": 0xFFFFFFFE, "job_name": "j", "partition": "gpu"}
        row |= {"id_job": 5, "id_qos": 1, "state": 3, "account": "nlp", "nodelist": "n[1-2]", "timelimit": 60}
        row |= {"time_submit": 1796101000, "time_eligible": 1796101000, "time_start": 1796101010}
        row |= {"time_end": 1796101070, "mod_time": 1796101071, "tres_req": "1=2,1001=2"}
        row |= {"tres_alloc": "1=2,2=4096,4=2,5=2,1001=2,1002=2"} | columns
        names = ", ".join(f"`{name}`" for name in row)
        marks = ", ".join(["%s"] * len(row))
        self.run(f"INSERT INTO {CLUSTER}_job_table ({names}) VALUES ({marks})", *row.values())

    def jobs(self, count: int, **columns: object) -> None:
        """Add so many rows, with the ids from 1 on."""
        self.job(id_job=1, **columns)
        names = [
            name
            for (name,) in self.run(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
                "AND table_name = %s AND column_name NOT IN ('job_db_inx', 'id_job')",
                f"{CLUSTER}_job_table",
            )
        ]
        listed = ", ".join(f"`{name}`" for name in names)
        self.run(
            f"INSERT INTO {CLUSTER}_job_table (id_job, {listed}) "
            f"SELECT seq, {listed} FROM {CLUSTER}_job_table, seq_2_to_{count} WHERE id_job = 1"
        )

    def kill_readers(self) -> None:
        """End every connection to this database but our own."""
        query = "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()"
        for (number,) in self.run(query, self.name):
            self.server.run(f"KILL CONNECTION {number}")


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
