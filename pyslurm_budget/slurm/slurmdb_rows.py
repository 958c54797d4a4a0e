"""Rows of slurmdbd's database as run records: the query, the columns that it needs, and what each means.

What sacct prints of a row is made in three places (slurmdbd's ``as_mysql_jobacct_process.c``, libslurm, and sacct's
``print.c``), and all that happens there to the columns that we read happens here. They have the same names and
meanings from 22.05 to 26.05; what each release added is not read.
"""

from __future__ import annotations

import pwd
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import RunKey, RunRecord, Tres
from pyslurm_budget.domain.times import MINUTE
from pyslurm_budget.slurm.dump_run import NOBODY, held
from pyslurm_budget.slurm.fields import node_names, ranges, tres_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NO_VAL, INFINITE = 0xFFFFFFFE, 0xFFFFFFFF
NO_VAL64, INFINITE64 = str(2**64 - 2), str(2**64 - 1)
_MANY = 16384
_LOOK_UP = "?"  # then a uid: no association, so sacct asks the host for the name
# MySQL's latin1 is Windows' but for the five characters that this has not.
_WINDOWS = {code: char for code in range(0x80, 0xA0) if (char := bytes([code]).decode("cp1252", "ignore"))}
_MEMORY = 2  # TRES_MEM, in MiB; all TRES below 1000 have the same id everywhere
_SUSPENDED, _CANCELLED, _BASE = 2, 4, 0xFF
# slurm.h, in the order in which job_state_string() looks at them.
_FLAGS = (
    *((1 << 15, "COMPLETING"), (1 << 23, "STAGE_OUT"), (1 << 14, "CONFIGURING"), (1 << 24, "EXPEDITING")),
    *((1 << 13, "RESIZING"), (1 << 10, "REQUEUED"), (1 << 20, "REQUEUE_FED"), (1 << 11, "REQUEUE_HOLD")),
    *((1 << 12, "SPECIAL_EXIT"), (1 << 16, "STOPPED"), (1 << 19, "REVOKED"), (1 << 21, "RESV_DEL_HOLD")),
    (1 << 22, "SIGNALING"),
)
_STATES = (
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
)

COLUMNS = (
    *("id_assoc", "mod_time", "id_job", "time_submit", "time_eligible", "time_start", "time_end", "time_suspended"),
    *("state", "kill_requid", "timelimit", "id_qos", "id_array_job", "id_array_task", "array_task_str"),
    *("array_max_tasks", "het_job_id", "het_job_offset", "id_user", "account", "partition", "nodelist"),
    *("tres_alloc", "tres_req", "derived_es"),
)
NEEDED: Mapping[str, tuple[str, ...]] = {
    "tres_table": ("id", "type", "name"),
    "qos_table": ("id", "name"),
    "{cluster}_assoc_table": ("id_assoc", "acct", "user"),
    "{cluster}_job_table": COLUMNS,
}

# All of a row is one column of bytes: PyMySQL takes its time for each column, and nobody's character sets matter so
# (one binary part makes the whole binary). What repeats from row to row lies together, to be read once. Nothing is
# NULL, since CONCAT_WS leaves that out.
_FIELDS = (
    *("j.id_job", "j.time_submit", "j.time_eligible", "j.time_start", "j.time_end", "j.time_suspended"),
    f"CONCAT_WS('/', j.state, IFNULL(j.kill_requid, {INFINITE}), j.timelimit, j.id_qos)",
    "IF(j.id_array_job OR j.het_job_id OR j.array_task_str <> '', CONCAT_WS('/', j.id_array_job, j.id_array_task, "
    "j.array_max_tasks, j.het_job_id, j.het_job_offset, IFNULL(j.array_task_str, '')), '')",
    f"IFNULL(IF(a.user = '', CONCAT('uid:', j.id_user), a.user), CONCAT('{_LOOK_UP}', j.id_user))",
    "IF(IFNULL(a.acct, '') = '', IFNULL(j.account, ''), a.acct)",
    *("j.`partition`", "IFNULL(j.nodelist, '')", "j.tres_alloc", "j.tres_req"),
    "CAST(IFNULL(j.derived_es, '') AS BINARY)",
)


def select(job_table: str, assoc_table: str, mark: bytes, where: str) -> str:
    """The query for rows that :func:`reader` reads; both tables quoted, ``mark`` a text that no column holds."""
    return (
        f"SELECT CONCAT_WS(x'{mark.hex()}', {', '.join(_FIELDS)}) "  # noqa: S608 (holds no values)
        f"FROM {job_table} AS j LEFT JOIN {assoc_table} AS a ON a.id_assoc = j.id_assoc WHERE {where}"
    )


def reader(
    mark: str, now: int, tres_names: Mapping[int, str], qos_names: Mapping[int, str]
) -> Callable[[bytes], RunRecord]:
    """What makes a record of one row of :func:`select`; it raises ``ValueError`` for a row that cannot be read.

    ``now`` is the database's time, up to which a suspended run's suspension is counted. The other two name the ids
    of ``tres_table`` and ``qos_table``, deleted ones included.
    """
    nothing = Tres()

    @lru_cache(maxsize=_MANY)
    def tres(started: bool, alloc: str, requested: str) -> tuple[Tres, int]:
        """What a run holds, and the GPUs that it asked for."""
        gpus = tres_of(tres_text(requested, tres_names)).gpus or 0
        return held(tres_of(tres_text(alloc, tres_names)), gpus) if started else nothing, gpus

    @lru_cache(maxsize=_MANY)
    def kind(numbers: str) -> tuple[str, int | None, bool, int | None, str]:
        """State, who cancelled, whether suspended, time limit and QOS."""
        state, by, limit, qos = map(int, numbers.split("/"))
        name, by_uid = _ended_by(state, by)
        seconds = limit * MINUTE if 0 < limit < NO_VAL else None
        return name, by_uid, state == _SUSPENDED, seconds, "" if qos == NO_VAL else qos_names.get(qos, "Unknown")

    def record(row: bytes) -> RunRecord:
        (
            job, submitted, eligible, started, ended, suspension, numbers, part, user, account, partition, nodelist,
            alloc, asked, comment,
        ) = _text(row, mark).split(mark)  # fmt: skip
        submit, start, end, suspended = int(submitted), int(started), int(ended), int(suspension)
        if not submit:
            raise ValueError("time_submit is 0")
        nodes = node_names(nodelist)
        if end and start >= end:
            # A job cancelled before slurmdbd knew it has its end for a start, and was nowhere.
            start = end if nodes else 0
        state, by_uid, is_suspended, limit, qos = kind(numbers)
        holds, gpus = tres(start > 0, alloc, asked)
        return RunRecord(
            RunKey(int(job), submit),
            _ref(part, job) if part else job,
            intern(account.lower() or NOBODY),
            _known(user) if user.startswith(_LOOK_UP) else intern(user),
            qos,
            intern(partition),
            state,
            submit if eligible == submitted else int(eligible) or None,
            start or None,
            end or None,
            max(now - suspended, 0) if is_suspended else suspended,
            limit,
            holds,
            gpus,
            nodes,
            comment,
            by_uid,
        )

    return record


def _text(row: bytes, mark: str) -> str:
    """A row as text. In a database of latin1 (MariaDB's old default) a column has UTF-8 if slurmdbd's client took it
    for latin1, else what latin1 has of the text."""
    try:
        return row.decode()
    except UnicodeDecodeError:
        return mark.join(map(_one_text, row.split(mark.encode())))


def _one_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").translate(_WINDOWS)


def _ref(part: str, job: str) -> str:
    """The readable id of what is part of an array or of a heterogeneous job (``slurmdb_get_job_id_str``)."""
    *numbers, tasks = part.split("/", 5)
    array_job, array_task, most, het_job, het_offset = map(int, numbers)
    if tasks:
        return f"{array_job}_[{task_list(tasks, most)}]"
    # Old rows have 0 and 0 for "no array".
    if array_task != NO_VAL and (array_job or array_task):
        return f"{array_job}_{array_task}"
    return f"{het_job}+{het_offset}" if het_job else job


@lru_cache(maxsize=256)
def state_name(state: int) -> str:
    """A state as ``job_state_string`` names it: by its first flag, else by its base."""
    for flag, name in _FLAGS:
        if state & flag:
            return name
    base = state & _BASE
    return _STATES[base] if base < len(_STATES) else "?"


def _ended_by(state: int, by: int) -> tuple[str, int | None]:
    """The state, and who ended the job: sacct says that of cancelled ones alone."""
    name = state_name(state)
    if by == INFINITE or state & _BASE != _CANCELLED:
        return name, None
    return (name, by) if name == "CANCELLED" else (f"{name} by {by}", None)


@lru_cache(maxsize=_MANY)
def _known(user: str) -> str:
    """The name that this host knows for a uid, else ``uid:1000``."""
    uid = user.removeprefix(_LOOK_UP)
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, OverflowError):
        return f"uid:{uid}"


def tres_text(simple: str, names: Mapping[int, str]) -> str:
    """A TRES text by ids (``1=64,2=512000,1001=4``) as sacct prints it with ``--noconvert``.

    As ``slurmdb_make_tres_string_from_simple``: ids that nobody knows and counts that are not set are left out.
    Raises ``ValueError`` for a text that is cut or malformed, where Slurm would leave out the rest.
    """
    parts = []
    for item in simple.split(","):
        number, _, count = item.partition("=")
        if not item:
            continue
        if not count.isdecimal():
            raise ValueError(f"the TRES {simple!r} are cut or malformed at {item!r}")
        name = names.get(int(number))
        if name is not None and count != NO_VAL64:
            unit = "M" if int(number) == _MEMORY else ""
            parts.append(f"{name}=NONE" if count == INFINITE64 else f"{name}={count}{unit}")
    return ",".join(parts)


@lru_cache(maxsize=1024)
def task_list(tasks: str, most: int) -> str:
    """The pending tasks of an array, a hexadecimal mask in the database, as ``xlate_array_task_str`` writes them."""
    if len(tasks) < len("0x0") or tasks[1] != "x":
        return tasks
    bits = tuple(i for i, bit in enumerate(reversed(f"{int(tasks, 16):b}")) if bit == "1")
    step = bits[1] - bits[0] if len(bits) > 5 and bits[-1] - bits[0] > 10 else 1
    if step > 1 and bits == tuple(range(bits[0], bits[-1] + 1, step)):
        text = f"{bits[0]}-{bits[-1]}:{step}"
    else:
        text = ranges(bits)
    return f"{text}%{most}" if most else text
