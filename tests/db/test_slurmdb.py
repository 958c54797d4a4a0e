"""Accounting from slurmdbd's database: rows as each release writes them, what is asked, and how it fails."""

from __future__ import annotations

import gc
import os
import pwd
import socket
import sys
import threading
import time
import warnings
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.errors import (
    ConfigError,
    SbudgetError,
    SlurmdbdError,
    SlurmOutputError,
    SlurmPermissionError,
    SlurmSetupError,
)
from pyslurm_budget.slurm.fields import numbers
from pyslurm_budget.slurm.slurmdb import DatabaseAccounting
from pyslurm_budget.slurm.slurmdb_failures import Login
from pyslurm_budget.slurm.slurmdb_rows import state_name, task_list, tres_text
from tests.db.servers import PASSWORD
from tests.db.slurmdb import CLUSTER, RELEASES, TRES, SlurmDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.db.servers import Server

SUBMIT, START, END = 1796101000, 1796101010, 1796101070
NO_VAL, INFINITE = 2**32 - 2, 2**32 - 1

pytestmark = pytest.mark.database


@pytest.fixture(scope="module")
def shared(mariadb: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmDatabase]:
    """One database for all tests that leave its tables as they are."""
    with SlurmDatabase(mariadb, tmp_path_factory.mktemp("slurmdb")) as made:
        yield made


@pytest.fixture
def database(shared: SlurmDatabase) -> SlurmDatabase:
    """A database of slurmdbd without jobs."""
    shared.empty()
    return shared


@pytest.fixture
def altered(mariadb: Server, tmp_path: Path) -> Iterator[SlurmDatabase]:
    """A database of slurmdbd that the test may alter."""
    with SlurmDatabase(mariadb, tmp_path) as made:
        yield made


@pytest.fixture
def one(database: SlurmDatabase) -> Callable[..., RunRecord]:
    """The record of a row with the given columns."""
    return partial(only, database)


def only(database: SlurmDatabase, **columns: object) -> RunRecord:
    database.forget_jobs()
    database.job(**columns)
    (found,) = all_of(database)
    return found


def all_of(database: SlurmDatabase, since: int = 0, until: int = SUBMIT + 86400) -> list[RunRecord]:
    return list(DatabaseAccounting(database.login, CLUSTER).runs(since, until))


def keys(runs: list[RunRecord]) -> set[int]:
    return {run.key.job_id for run in runs}


@pytest.mark.parametrize("release", RELEASES)
def test_a_run_in_the_schema_of_each_release(mariadb: Server, tmp_path: Path, release: str) -> None:
    with SlurmDatabase(mariadb, tmp_path, release) as database:
        database.assoc(7, "alice", "Physics")
        database.job(id_assoc=7, derived_es="min-runtime=2h")
    expected = RunRecord(
        key=RunKey(5, SUBMIT),
        job_ref="5",
        account="physics",
        user="alice",
        qos="normal",
        partition="gpu",
        state="COMPLETED",
        eligible=SUBMIT,
        start=START,
        end=END,
        suspended=0,
        time_limit=3600,
        tres=Tres(cpus=2, memory_mb=4096, nodes=2, gpus=2, gpus_by_type={"a100": 2}),
        requested_gpus=2,
        nodes=("n1", "n2"),
        comment="min-runtime=2h",
    )
    assert all_of(database) == [expected]
    assert list(DatabaseAccounting(database.login, CLUSTER).changed(0)) == [expected]


def test_people_and_accounts(database: SlurmDatabase, one: Callable[..., RunRecord]) -> None:
    me = pwd.getpwuid(os.getuid())
    database.assoc(8, "bob", "old", deleted=True)
    gone = one(id_assoc=8, account="ignored")
    assert (gone.user, gone.account) == ("bob", "old"), "slurmdbd keeps what it deletes"
    nobody = one(id_assoc=0, account=None, id_user=987654)
    assert (nobody.user, nobody.account) == ("uid:987654", "(none)")
    assert one(id_assoc=99, account="", id_user=me.pw_uid).user == me.pw_name, "this host knows the user"
    database.assoc(1, "", "root")
    assert one(id_assoc=1, id_user=me.pw_uid).user == f"uid:{me.pw_uid}", "an account's own association has no user"
    assert one(id_assoc=0, account="NLP").account == "nlp"
    assert one(id_assoc=0, id_user=NO_VAL).user == f"uid:{NO_VAL}"


@pytest.mark.parametrize(
    ("number", "name"), [(1, "normal"), (3, "Bücked"), (9, "Unknown"), (0, "Unknown"), (NO_VAL, "")]
)
def test_qos(one: Callable[..., RunRecord], number: int, name: str) -> None:
    assert one(id_qos=number).qos == name


@pytest.mark.parametrize(("limit", "seconds"), [(60, 3600), (1, 60), (0, None), (NO_VAL, None), (INFINITE, None)])
def test_time_limits_are_minutes(one: Callable[..., RunRecord], limit: int, seconds: int | None) -> None:
    assert one(timelimit=limit).time_limit == seconds


@pytest.mark.parametrize(
    ("state", "by", "name", "uid"),
    [
        (4, 1000, "CANCELLED", 1000),
        (4, 0, "CANCELLED", 0),
        (4, None, "CANCELLED", None),
        (4, INFINITE, "CANCELLED", None),
        (5, 1000, "FAILED", None),
        (8, 1000, "PREEMPTED", None),
        (0x2000, None, "RESIZING", None),
        (0x2004, 1000, "RESIZING by 1000", None),
        (0x400, None, "REQUEUED", None),
        (0x8001, None, "COMPLETING", None),
        (11, None, "OUT_OF_MEMORY", None),
        (77, None, "?", None),
    ],
)
def test_states(one: Callable[..., RunRecord], state: int, by: int | None, name: str, uid: int | None) -> None:
    found = one(state=state, kill_requid=by)
    assert (found.state, found.by_uid) == (name, uid)


def test_flags_are_looked_at_in_slurms_order() -> None:
    assert state_name(1 << 15 | 1 << 23 | 1 << 13) == "COMPLETING"
    assert state_name(1 << 18 | 1) == "RUNNING", "a flag without a name"


def test_times(one: Callable[..., RunRecord]) -> None:
    waiting = one(time_start=0, time_end=0, state=0, nodelist="None assigned")
    assert (waiting.start, waiting.end, waiting.nodes, waiting.tres) == (None, None, (), Tres())
    assert waiting.requested_gpus == 2
    assert one(time_start=START + 9, time_end=START).start == START, "slurmdbd shows the end for a start after it"
    never = one(time_start=END, time_end=END, state=4, nodelist="None assigned", tres_alloc="")
    assert (never.start, never.end, never.tres.gpus) == (None, END, 0), "cancelled before slurmdbd knew it"
    assert one(time_start=END, time_end=END).start == END, "a run of no length"
    assert one(nodelist=None).nodes == ()


def test_suspended_time(one: Callable[..., RunRecord]) -> None:
    assert one(time_suspended=7).suspended == 7
    # while a run is suspended the column holds the time of the suspension
    now = int(time.time())
    assert one(state=2, time_end=0, time_suspended=now - 100).suspended in range(100, 160)
    assert one(state=2, time_end=0, time_suspended=now + 1000).suspended == 0


@pytest.mark.parametrize(
    ("columns", "ref"),
    [
        ({}, "5"),
        ({"id_array_job": 0, "id_array_task": 0, "het_job_offset": 0}, "5"),
        ({"id_array_job": 4, "id_array_task": 7}, "4_7"),
        ({"id_array_job": 4, "id_array_task": 0}, "4_0"),
        ({"het_job_id": 3, "het_job_offset": 2}, "3+2"),
        ({"het_job_id": 3, "het_job_offset": 0}, "3+0"),
        ({"id_array_job": 5, "array_task_str": "0xE8"}, "5_[3,5-7]"),
        ({"id_array_job": 5, "array_task_str": "0x1F", "array_max_tasks": 2}, "5_[0-4%2]"),
        ({"id_array_job": 5, "array_task_str": "3-9%4", "array_max_tasks": 4}, "5_[3-9%4]"),
        ({"id_array_job": 5, "array_task_str": ""}, "5"),
    ],
)
def test_ids(one: Callable[..., RunRecord], columns: dict[str, object], ref: str) -> None:
    assert one(**columns).job_ref == ref


@given(st.sets(st.integers(0, 400), min_size=1))
def test_any_pending_tasks_are_told_in_full(tasks: set[int]) -> None:
    mask = f"0x{sum(1 << task for task in tasks):X}"
    assert numbers(task_list(mask, 3)) == tuple(sorted(tasks))


@given(st.integers(0, 50), st.integers(2, 9), st.integers(6, 40))
def test_steps(first: int, step: int, count: int) -> None:
    tasks = [first + step * i for i in range(count)]
    text = task_list(f"0x{sum(1 << task for task in tasks):x}", 0)
    assert numbers(text) == tuple(tasks)
    assert text == (f"{tasks[0]}-{tasks[-1]}:{step}" if tasks[-1] - tasks[0] > 10 else ",".join(map(str, tasks)))


def test_tres() -> None:
    assert tres_text("1=64,2=512000,4=1,5=64,1001=4", TRES) == "cpu=64,mem=512000M,node=1,billing=64,gres/gpu=4"
    assert tres_text("", TRES) == ""
    assert tres_text("1=1,77=3", TRES) == "cpu=1", "nobody knows 77"
    assert tres_text(f"1=1,3={2**64 - 2},1001={2**64 - 1}", TRES) == "cpu=1,gres/gpu=NONE"
    for broken in ("1=2,2=512M", "1=2,4", "1=2,4=", "cpu=2"):
        with pytest.raises(ValueError, match=r"cut or malformed|invalid literal"):
            tres_text(broken, TRES)


def test_gpus_asked_for_but_not_accounted_are_unknown(one: Callable[..., RunRecord]) -> None:
    assert one(tres_alloc="1=2,4=1").tres.gpus is None
    assert one(tres_alloc="1=2,4=1", tres_req="1=2").tres.gpus == 0
    assert one(tres_alloc="1=2,1003=4", tres_req="").tres == Tres(cpus=2, gpus=4, gpus_by_type={"h100": 4})


@pytest.mark.parametrize("text", ["a|b\nc\n", "\x1f/\x1f,'\"\\", "%s %(since)s", "né 🜁", "", "x" * 60000])
def test_free_text_is_kept_as_it_is(one: Callable[..., RunRecord], text: str) -> None:
    found = one(derived_es=text, account="a\x1fb|c\nd")
    assert (found.comment, found.account, found.nodes) == (text, "a\x1fb|c\nd", ("n1", "n2"))


def test_text_in_a_database_of_latin1(altered: SlurmDatabase) -> None:
    altered.assoc(7, "ulrich", "nlp")
    altered.run(f"ALTER TABLE {CLUSTER}_job_table MODIFY derived_es text CHARACTER SET latin1")
    one = partial(only, altered)
    assert one(derived_es="né € \x81").comment == "né € \x81", "a client of UTF-8 wrote it: the server translated"
    assert one(derived_es="né".encode()).comment == "né", "a client of latin1 wrote it: bytes as they came"
    odd = one(derived_es=b"caf\xe9 \xf0\x9f", id_assoc=7)
    assert (odd.comment, odd.user, odd.nodes) == ("café ðŸ", "ulrich", ("n1", "n2"))


def test_the_window(database: SlurmDatabase) -> None:
    database.job(id_job=1)
    database.job(id_job=2, time_end=0)
    database.job(id_job=3, time_eligible=0, time_start=0, time_end=0)  # held: sacct does not show it
    database.job(id_job=4, time_eligible=int(time.time()) + 3 * 86400, time_start=0, time_end=0)
    database.job(id_job=5, time_eligible=int(time.time()) + 80000, time_start=0, time_end=0)
    assert keys(all_of(database)) == {1, 2, 5}
    assert keys(all_of(database, since=END)) == {1, 2, 5}, "the end belongs to the window, as for sacct"
    assert keys(all_of(database, since=END + 1)) == {2, 5}
    assert keys(all_of(database, until=SUBMIT)) == set()
    assert keys(all_of(database, until=SUBMIT + 1)) == {1, 2, 5}


def test_runs_of_a_requeued_and_a_resized_job_are_told_apart(database: SlurmDatabase) -> None:
    for later, state in enumerate((8, 0x2000, 3)):
        database.job(time_submit=SUBMIT + later, state=state, deleted=later == 1)
    found = {run.key: run.state for run in all_of(database)}
    states = ("PREEMPTED", "RESIZING", "COMPLETED")
    assert found == {RunKey(5, SUBMIT + i): state for i, state in enumerate(states)}


def test_what_was_changed_since(database: SlurmDatabase) -> None:
    database.job(id_job=1, mod_time=END + 100)
    database.job(id_job=2, mod_time=END + 99)
    database.job(id_job=3, mod_time=START, time_end=0)  # suspended since: slurmdbd does not renew mod_time
    database.job(id_job=4, mod_time=START, time_end=END + 100)  # slurmdbd lost the cluster and ended its jobs
    database.job(id_job=5, mod_time=END + 200, time_eligible=0)
    accounting = DatabaseAccounting(database.login, CLUSTER)
    assert keys(list(accounting.changed(END + 100))) == {3, 4}
    assert keys(list(accounting.changed(END + 100, written=END + 100))) == {1, 3, 4}
    assert keys(list(accounting.changed(END + 100, [2, 9], END + 100))) == {1, 2, 3, 4}
    assert keys(list(accounting.changed(END + 100, (), END + 100, END + 50))) == {3, 4}, "1 ended before"
    assert keys(list(accounting.changed(END + 100, (1,), END + 100, END + 50))) == {1, 3, 4}
    assert keys(list(accounting.changed(0))) == {1, 2, 3, 4}


def test_a_read_sees_one_state_and_writes_nothing(database: SlurmDatabase) -> None:
    database.jobs(3000, derived_es="x" * 5000)  # more than the sockets hold: the server is not done when we delete
    runs = DatabaseAccounting(database.login, CLUSTER).runs(0, SUBMIT + 1)
    first = next(runs)
    database.forget_jobs()
    database.run("UPDATE qos_table SET name = 'other' WHERE id = 1")
    rest = list(runs)
    database.run("UPDATE qos_table SET name = 'normal' WHERE id = 1")
    assert len(rest) == 2999
    assert {run.qos for run in [first, *rest]} == {"normal"}


def test_a_reader_that_stops_early_ends_the_connection(database: SlurmDatabase) -> None:
    database.jobs(1199)
    runs = DatabaseAccounting(database.login, CLUSTER).runs(0, SUBMIT + 1)
    next(runs)
    runs.close()  # type: ignore[attr-defined]
    assert len(all_of(database)) == 1199


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"time_submit": 0}, "time_submit is 0"),
        ({"tres_alloc": "1=2,2="}, "cut or malformed"),
        ({"nodelist": "n[1-"}, "not a list of nodes"),
        ({"id_array_job": 5, "array_task_str": "0xZZ"}, "invalid literal"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_and_shown(
    one: Callable[..., RunRecord], columns: dict[str, object], words: str
) -> None:
    with pytest.raises(SlurmOutputError, match=r"cannot read the row '5\|") as refused:
        one(**columns)
    assert words in str(refused.value)


def refused(login: Login, cluster: str = CLUSTER) -> SbudgetError:
    """The error that a read raises; it holds no password and is one sentence of one line."""
    with pytest.raises(SbudgetError) as raised:
        list(DatabaseAccounting(login, cluster).runs(0, 100))
    said = f"{raised.value} {raised.value.__cause__!r} {login!r}"
    assert PASSWORD not in said
    assert "wrong-secret" not in said
    assert "\n" not in str(raised.value)
    return raised.value


def test_the_database_is_down(database: SlurmDatabase) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        error = refused(replace(database.login, port=free.getsockname()[1]))
    assert isinstance(error, SlurmdbdError)
    assert "does not answer" in str(error)
    assert isinstance(refused(replace(database.login, host="no.such.host.invalid")), SlurmdbdError)
    assert isinstance(refused(replace(database.login, host="x" * 70)), SlurmdbdError)


@pytest.mark.parametrize(
    "greeting", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\0\0\0\x0a5\0xy"]
)
def test_something_else_answers(database: SlurmDatabase, greeting: bytes) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=answer)
        thread.start()
        error = refused(replace(database.login, port=server.getsockname()[1], timeout=2))
        thread.join()
    assert isinstance(error, SlurmdbdError)


def test_a_socket(database: SlurmDatabase, tmp_path: Path) -> None:
    login = replace(database.login, socket=tmp_path / "sock", host="no.such.host.invalid", port=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PyMySQL leaves the socket to Python to close
        kind, said = (each(refused(login)) for each in (type, str))
        gc.collect()
    assert kind is SlurmdbdError
    assert f"{database.name} at {tmp_path}/sock does not answer" in said
    ((there,),) = database.run("SELECT @@socket")
    database.server.run("CREATE OR REPLACE USER near@localhost")
    database.server.run(f"GRANT SELECT ON {database.name}.* TO near@localhost")
    database.job()
    near = replace(login, socket=there, user="near", password_file=None)
    assert len(list(DatabaseAccounting(near, CLUSTER).runs(0, SUBMIT + 1))) == 1


def test_a_server_that_says_nothing(database: SlurmDatabase) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        began = time.monotonic()
        error = refused(replace(database.login, port=server.getsockname()[1], timeout=1))
    assert isinstance(error, SlurmdbdError)
    assert time.monotonic() - began < 5


def test_a_connection_that_is_lost_in_the_middle(database: SlurmDatabase) -> None:
    database.jobs(3000, derived_es="x" * 5000)
    runs = DatabaseAccounting(database.login, CLUSTER).runs(0, SUBMIT + 1)
    next(runs)
    database.kill_readers()
    with pytest.raises(SlurmdbdError, match="does not answer"):
        list(runs)


def test_the_password_is_wrong(database: SlurmDatabase, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong-secret\n")
    wrong.chmod(0o600)
    for login in (replace(database.login, password_file=wrong), replace(database.login, password_file=None)):
        error = refused(login)
        assert isinstance(error, SlurmPermissionError)
        assert "refuses user sbudget" in str(error)


def test_the_password_file(database: SlurmDatabase, tmp_path: Path) -> None:
    file = tmp_path / "other"
    assert "cannot be read (No such file" in str(refused(replace(database.login, password_file=file)))
    file.write_bytes(b"\xff\n")
    file.chmod(0o600)
    assert "not UTF-8" in str(refused(replace(database.login, password_file=file)))
    file.write_text(PASSWORD)
    file.chmod(0o644)
    error = refused(replace(database.login, password_file=file))
    assert isinstance(error, ConfigError)
    assert "everybody can read" in str(error)
    file.chmod(0o640)
    assert list(DatabaseAccounting(replace(database.login, password_file=file), CLUSTER).runs(0, 100)) == []


def test_names_that_are_wrong(database: SlurmDatabase) -> None:
    error = refused(replace(database.login, name="slurm_acct_bd"))
    assert isinstance(error, SlurmSetupError)
    assert "no database slurm_acct_bd" in str(error)
    for name in ("dmeo", "", "de`mo", "a%sb", "gone", "'", "Demo"):
        error = refused(database.login, name)
        assert isinstance(error, SlurmSetupError), name
        assert "only demo" in str(error)


def test_a_cluster_where_nobody_tells_which_there_are(altered: SlurmDatabase) -> None:
    altered.run("DROP TABLE cluster_table")
    assert "no table dmeo_assoc_table, dmeo_job_table" in str(refused(altered.login, "dmeo"))


def test_a_user_who_may_not_read(database: SlurmDatabase) -> None:
    database.server.run("CREATE OR REPLACE USER nothing@'127.0.0.1'")
    login = replace(database.login, user="nothing", password_file=None)
    assert isinstance(refused(login), SlurmPermissionError)
    database.server.run(f"GRANT SELECT ON {database.name}.qos_table TO nothing@'127.0.0.1'")
    error = refused(login)
    assert isinstance(error, SlurmSetupError)
    assert "demo_job_table" in str(error)
    for table in ("cluster_table", "tres_table", f"{CLUSTER}_assoc_table", f"{CLUSTER}_job_table"):
        database.server.run(f"GRANT SELECT ON {database.name}.{table} TO nothing@'127.0.0.1'")
    assert list(DatabaseAccounting(login, CLUSTER).runs(0, 100)) == [], "it needs to read, and nothing else"


@pytest.mark.parametrize("table", ["tres_table", "qos_table", f"{CLUSTER}_assoc_table", f"{CLUSTER}_job_table"])
def test_a_table_is_missing(altered: SlurmDatabase, table: str) -> None:
    altered.run(f"DROP TABLE {table}")
    error = refused(altered.login)
    assert isinstance(error, SlurmSetupError)
    assert f"no table {table} that" in str(error)


def test_a_schema_that_nobody_knows(altered: SlurmDatabase) -> None:
    altered.run(f"ALTER TABLE {CLUSTER}_job_table DROP COLUMN het_job_id, CHANGE derived_es comment text")
    error = refused(altered.login)
    assert isinstance(error, SlurmOutputError)
    assert f"without {CLUSTER}_job_table.derived_es, {CLUSTER}_job_table.het_job_id;" in str(error)


def test_the_driver_is_not_installed(database: SlurmDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    error = refused(database.login)
    assert isinstance(error, ConfigError)
    assert "pip install 'pyslurm_budget[mysql]'" in str(error)
