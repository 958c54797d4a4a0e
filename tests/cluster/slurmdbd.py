"""A cluster's accounting by both ways, and rows written into its database, as no job of a few seconds can be made."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pymysql

from pyslurm_budget.slurm.run import Runner
from pyslurm_budget.slurm.sacct import SacctAccounting
from pyslurm_budget.slurm.slurmdb import DatabaseAccounting
from pyslurm_budget.slurm.slurmdb_failures import Login

if TYPE_CHECKING:
    from pathlib import Path

    from pyslurm_budget.domain.model import RunKey, RunRecord
    from tests.cluster.devcluster import DevCluster

CLUSTER = "demo"
DAY = 86400
NO_VAL, INFINITE, NO_VAL64, INFINITE64 = 2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1
FLAGS = [0, 0, 0, 0, 0, *(1 << bit for bit in (10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23))]
COMMENTS = [None, "", "min-runtime=2h", "a|b\nc\n\nd", "né |\x1f", "€ž\x81", "\n", " x\t", "n/a", "(null)", "Unknown"]
TRES = ["1=2,2=1000,4=1,5=2", "1=2,1001=2", "1=2,1001=2,1002=2", "1002=4", "", "1=1,77=2", f"1=1,1001={NO_VAL64}"]
TRES += [f"1=1,2=64000,3={NO_VAL64},4=1,1001=1", f"1=1,2={INFINITE64},4=2,1001=3", "1001=0,1002=0,2=0", "6=5,7=1,1=9"]
TASKS = [None, None, "", "0x1", "0x6", "0xFF0", "0x5555555555", "0x249249249", "0xf00000000000000000f", "3-9%2", "7"]
NODES = ["None assigned", "n1", "n[1-2]", "n[1-3,4]", "", "n[01-03],m7", "login1,n3"]


class Accounts:
    """Both readers of one cluster's accounting, and its database."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        text = (cluster.folder / "etc" / "slurmdbd.conf").read_text()
        self.conf = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        secret = folder / "secret"
        secret.write_text(self.conf["StoragePass"])
        secret.chmod(0o600)
        where = (self.conf["StorageHost"], int(self.conf["StoragePort"]), self.conf["StorageUser"])
        self.login = Login(*where, self.conf["StorageLoc"], secret)
        self.sacct = SacctAccounting(Runner(cluster.conf))
        self.sql = DatabaseAccounting(self.login, CLUSTER)

    def both(
        self, since: int = 0, until: int | None = None
    ) -> tuple[dict[RunKey, RunRecord], dict[RunKey, RunRecord]]:
        """The runs of a window by sacct and by SQL, of one state of the database."""
        end = int(time.time()) + 1 if until is None else until
        for _ in range(50):
            before = _by_key(self.sql.runs(since, end))
            theirs = _by_key(self.sacct.runs(since, end))
            ours = _by_key(self.sql.runs(since, end))
            # what is suspended grows each second
            if _still(before) == _still(ours):
                return theirs, ours
            time.sleep(0.2)
        raise AssertionError("the accounting does not come to rest")

    def compare(self, since: int = 0, until: int | None = None) -> dict[RunKey, RunRecord]:
        """The runs of a window, which must be the same by both, but for a second or two of a suspended one."""
        theirs, ours = self.both(since, until)
        assert set(theirs) == set(ours), f"sacct or the database alone has {set(theirs) ^ set(ours)}"
        for key, found in ours.items():
            expected = theirs[key]
            if found.state == "SUSPENDED" and abs(found.suspended - expected.suspended) <= 3:
                expected = replace(expected, suspended=found.suspended)
            assert found == expected, f"\nsacct:    {expected}\ndatabase: {found}"
        return ours

    def run(self, statement: str, values: Any = None) -> list[Any]:
        """Run one statement in slurmdbd's database, with each of the given rows of values."""
        user, word, port = self.login.user, self.conf["StoragePass"], self.login.port
        with closing(
            pymysql.connect(
                host=self.login.host, port=port, user=user, password=word, database=self.login.name, charset="utf8mb4"
            )
        ) as connection:
            with connection.cursor() as cursor:
                cursor.executemany(statement, values) if values else cursor.execute(statement)
                found = list(cursor.fetchall())
            connection.commit()
            return found

    def write(self, rows: list[dict[str, object]]) -> None:
        """Write rows into the table of jobs."""
        names = ", ".join(f"`{name}`" for name in rows[0])
        marks = ", ".join(["%s"] * len(rows[0]))
        statement = f"INSERT INTO {CLUSTER}_job_table ({names}) VALUES ({marks})"
        self.run(statement, [tuple(row.values()) for row in rows])


def odd_rows(count: int, now: int, assocs: list[int], qos: list[int], uids: list[int]) -> list[dict[str, object]]:
    """Rows as slurmdbd may come to have them, and a few that it should not; the same ones at each call."""
    made = random.Random(20)
    rows = []
    for number in range(1, count + 1):
        submit = now - made.randrange(2 * DAY)
        start = made.choice([0, submit, submit + made.randrange(9000)])
        end = made.choice([0, submit, start, start + made.randrange(9000), start + made.randrange(9000)])
        state = made.choice([0, 1, *range(3, 13)]) | made.choice(FLAGS)
        part = made.choice([(0, NO_VAL), (0, NO_VAL), (0, 0), (number, 0), (number, 7)])
        rows.append(
            {
                **{"id_job": 900000 + number // 2, "time_submit": submit + number % 2 * 3 * DAY - DAY},
                **{"time_eligible": made.choice([submit, submit, submit, 0, now + 3 * DAY, submit + 60, INFINITE])},
                **{"time_start": start, "time_end": end, "time_suspended": made.choice([0, 0, 1, 59, 3600, 200000])},
                **{"state": state, "kill_requid": made.choice([None, None, 0, 1000, INFINITE, NO_VAL])},
                **{"timelimit": made.choice([0, 1, 60, 1440, 525600, NO_VAL, INFINITE])},
                **{"id_array_job": part[0], "id_array_task": part[1], "array_task_str": made.choice(TASKS)},
                **{"array_max_tasks": made.choice([0, 0, 4])},
                **{"het_job_id": made.choice([0, 0, number]), "het_job_offset": made.choice([NO_VAL, 0, 3])},
                **{"id_user": made.choice(uids), "id_assoc": made.choice([0, 999999, *assocs])},
                **{"id_qos": made.choice([0, 999, *qos]), "account": made.choice([None, "", "NLP", "gone"])},
                **{"partition": made.choice(["gpu", "gpu,cpu", "", "Gpu"]), "nodelist": made.choice(NODES)},
                **{"tres_alloc": made.choice(TRES), "tres_req": made.choice(TRES)},
                **{
                    "derived_es": made.choice(COMMENTS),
                    "flags": made.choice([0, 1, 2, 4, 8, 9]),
                    "job_name": "odd|\n",
                },
                **dict.fromkeys(("cpus_req", "id_resv", "id_wckey", "id_group", "state_reason_prev"), 0),
                **{"nodes_alloc": 1, "priority": 1, "mod_time": now, "deleted": number % 7 == 0},
            }
        )
    return rows


def _by_key(runs: Any) -> dict[RunKey, RunRecord]:
    found = list(runs)
    by_key = {run.key: run for run in found}
    assert len(by_key) == len(found), "a run came twice"
    return by_key


def _still(runs: dict[RunKey, RunRecord]) -> dict[RunKey, RunRecord]:
    return {key: replace(run, suspended=0) if run.state == "SUSPENDED" else run for key, run in runs.items()}
