"""Every key of the configuration file: how it is read, what it sets, what it says. The one table of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pyslurm_budget import values
from pyslurm_budget.domain.engine import ENGINES
from pyslurm_budget.domain.model import Mode

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Key:
    """``path`` is the place in the file (``section.key``); ``sets`` the field that it sets, of the Policy where it
    begins with ``policy.``; ``read`` turns the found value into the field's or raises ``ValueError``."""

    path: str
    sets: str
    read: Callable[[object], object]
    says: str


def mode(value: object) -> Mode:
    try:
        return Mode(str(value))
    except ValueError:
        raise ValueError(f"found {values.shown(value)}; accepted are {', '.join(Mode)}") from None


def ledger_url(value: object) -> str:
    """A URL; SQLite's has a path: a ledger in memory would be lost at the end of each command."""
    url = values.text(value)
    scheme, _, rest = url.partition("://")
    path = rest.partition("?")[0].lstrip("/")
    if scheme.partition("+")[0] == "sqlite" and path in ("", ":memory:"):
        raise ValueError(
            f'found {url!r}, which is lost when a command ends; write a path: "sqlite:////path/ledger.sqlite"'
        )
    return url


def _largest(value: object) -> bool:
    if value not in ("largest", "gpu"):
        raise ValueError(f'found {values.shown(value)}; accepted are "largest" and "gpu"')
    return value == "largest"


def _accounting(value: object) -> str:
    if value not in ("sacct", "sql"):
        raise ValueError(f'found {values.shown(value)}; accepted are "sacct" and "sql"')
    return str(value)


def _engine(value: object) -> str:
    if value not in ENGINES:
        raise ValueError(f"found {values.shown(value)}; accepted are {', '.join(ENGINES)}")
    return str(value)


def _port(value: object) -> int:
    number = values.whole(value)
    if not 0 < number < 65536:
        raise ValueError(f"found {number}; accepted is a port, 1 to 65535")
    return number


def _pattern(value: object) -> str:
    pattern = values.text(value)
    try:
        re.compile(pattern)
    except re.error as broken:
        raise ValueError(f"found {pattern!r}, which is no regular expression ({broken})") from None
    return pattern


def _zone(value: object) -> str:
    name = values.text(value)
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f'found {name!r}; accepted is a time zone known here, such as "Europe/Berlin"') from None
    return name


def _positive(value: object) -> int:
    seconds = values.duration(value)
    if seconds <= 0:
        raise ValueError(f"found {values.shown(value)}; accepted is a time longer than 0")
    return seconds


KEYS: tuple[Key, ...] = (
    Key("cluster", "cluster", values.text, "Slurm's ClusterName; checked against what slurmctld says"),
    Key("mode", "mode", mode, "observe: nothing is changed; advise: messages at submission only; enforce: act"),
    Key("adopt", "adopt", values.text, "managed QOS of jobs that name none and have no default but Slurm's normal"),
    Key("state_dir", "state_dir", values.text, "folder of the service's own files"),
    Key("kill_switch", "kill_switch", values.text, "while this file exists nothing is changed"),
    Key("operators", "operators", values.texts, "users who may set QOS themselves, besides root and SlurmUser"),
    Key(
        "ledger.url",
        "ledger_url",
        ledger_url,
        "SQLAlchemy URL of the ledger: sqlite, mysql+pymysql or postgresql+psycopg",
    ),
    Key("ledger.lease", "lease_seconds", _positive, "how long a controller that fell silent keeps others out"),
    Key(
        "slurm.conf", "slurm_conf", values.text, "slurm.conf for Slurm's commands, where it is not at its usual place"
    ),
    Key("slurm.timeout", "slurm_timeout", _positive, "longest wait for one Slurm command"),
    Key(
        "slurm.accounting",
        "accounting",
        _accounting,
        '"sacct": runs by Slurm\'s command; "sql": straight from slurmdbd\'s MariaDB database, which is quicker',
    ),
    Key(
        "slurm.database.host",
        "database_host",
        values.text,
        'StorageHost of slurmdbd.conf; for "sql", as are the next',
    ),
    Key("slurm.database.port", "database_port", _port, "StoragePort"),
    Key("slurm.database.socket", "database_socket", values.text, "MariaDB's socket, in place of host and port"),
    Key("slurm.database.name", "database_name", values.text, "StorageLoc"),
    Key(
        "slurm.database.user",
        "database_user",
        values.text,
        "user of MariaDB; make one that has GRANT SELECT on the database and no more",
    ),
    Key(
        "slurm.database.password_file",
        "database_password_file",
        values.text,
        "file with the password as its first line, which only the service's user and group can read",
    ),
    Key("publish.table", "table_path", values.text, "decision table; every slurmctld host must see this file"),
    Key("publish.state", "state_path", values.text, "public state that `show` and `health` read"),
    Key(
        "checkpoints.folder",
        "checkpoints",
        values.text,
        "folder on all nodes, of mode 1777, where jobs report checkpoints (`sbudget checkpoint`); without it none do",
    ),
    Key("reports.timezone", "timezone", _zone, "zone of the times that people see; the system's without it"),
    Key(
        "privacy.pseudonymise_after",
        "pseudonymise_after",
        _positive,
        "age of runs whose users get pseudonyms, by `sbudget db pseudonymise` and `db archive`; never without it",
    ),
    Key(
        "cycle.interval",
        "interval",
        _positive,
        "time between cycles; health expects one at least every three intervals",
    ),
    Key("cycle.updates", "policy.updates_per_cycle", values.whole, "most job updates a cycle"),
    Key("cycle.stale_after", "policy.stale_after", _positive, "age at which the decision table is no longer used"),
    Key(
        "cycle.clock_skew",
        "policy.clock_skew",
        values.duration,
        "largest difference to slurmctld's clock that is acted on",
    ),
    Key(
        "cycle.restart_quiet",
        "policy.restart_quiet",
        values.duration,
        "after a start of slurmctld, plan nothing for so long",
    ),
    Key("window.length", "policy.window", _positive, "the sliding window of the budgets"),
    Key("window.hour", "policy.hour", _positive, "grain of capacity and allowance; shorter only for trials"),
    Key(
        "charge.by",
        "policy.charge_largest",
        _largest,
        '"largest": the largest part of a node that a job takes; "gpu": GPUs alone',
    ),
    Key("charge.run_on", "policy.run_on_price", values.fraction, "price of what a run uses after its contract"),
    Key("contract.cap", "policy.cap", _positive, "longest contract"),
    Key("contract.default", "policy.default_contract", values.duration, "contract of a job that names none"),
    Key("contract.floor", "policy.floor", values.duration, "shorter contracts are not cheaper than this"),
    Key("admission.overdraft", "policy.overdraft", values.fraction, "part of the allowance that may be overdrawn"),
    Key(
        "admission.ceiling_share",
        "policy.ceiling_share",
        values.fraction,
        "GPUs under contract at one time, in shares",
    ),
    Key(
        "admission.ceiling_part",
        "policy.ceiling_part",
        values.fraction,
        "the same as a part of the pool; the larger counts",
    ),
    Key("admission.array_ahead", "policy.array_ahead", values.whole, "tasks of an array that are backed at a time"),
    Key(
        "displace.engine",
        "policy.engine",
        _engine,
        "claim: Slurm's preemption takes runs opened for it (23.02 and later); requeue: our placement judges;"
        " auto: claim where `sbudget setup check` finds all that it needs",
    ),
    Key(
        "displace.claim_step",
        "policy.claim_step",
        _positive,
        "how long Slurm is given to take a run before more are opened; 2s where bf_interval is short",
    ),
    Key(
        "displace.margin",
        "policy.margin",
        values.fraction,
        "difference of loads that one budget must have to another",
    ),
    Key(
        "displace.wide_wait",
        "policy.wide_wait",
        values.duration,
        "wait of a job over several nodes before loads are not compared",
    ),
    Key(
        "displace.grown_wait",
        "policy.grown_wait",
        values.duration,
        "wait of a job before larger runs may give way to it",
    ),
    Key(
        "displace.early_loss",
        "policy.early_loss",
        values.duration,
        "most work that a run may lose to a job that waits shorter than early_wait",
    ),
    Key("displace.early_wait", "policy.early_wait", values.duration, "see early_loss"),
    Key("displace.loss_cap", "policy.loss_cap", values.duration, "work lost by one requeue counts at most so much"),
    Key("displace.start_deadline", "policy.start_deadline", values.duration, "time to start once room was made"),
    Key("displace.back_off", "policy.back_off", values.duration, "wait of a job that then did not start"),
    Key(
        "displace.stuck_wait",
        "policy.stuck_wait",
        values.duration,
        "time that Slurm has to start a job that could start",
    ),
    Key(
        "displace.old_runs",
        "policy.displace_old_runs",
        values.yes_no,
        "whether runs that ran at the switch-on may be displaced",
    ),
    Key("moving.per_cycle", "policy.moves_per_cycle", values.whole, "most runs that are moved in a cycle; 0: none"),
    Key("moving.gpus", "policy.move_gpus", values.whole, "GPUs on a node that a job must need for runs to be moved"),
    Key("moving.nodes", "policy.move_nodes", values.whole, "most nodes of such a job"),
    Key("moving.wait", "policy.move_wait", values.duration, "wait of such a job before runs are moved"),
    Key("moving.loss", "policy.move_loss", values.duration, "most work that a moved run may lose"),
    Key("moving.again", "policy.move_again", values.duration, "a moved run is not moved again for so long"),
    Key(
        "moving.back_in",
        "policy.move_back_in",
        values.duration,
        "a moved run that takes longer to start again was moved for nothing: moving waits (displace.back_off)",
    ),
    Key(
        "windows.part",
        "policy.window_part",
        values.fraction,
        "part of a pool that collecting windows for wide jobs may take together; 0: none are opened",
    ),
    Key(
        "windows.above", "policy.window_above", values.duration, "none are opened where contract.cap is at most this"
    ),
    Key(
        "keep.room",
        "policy.keep_room",
        _positive,
        "time that a job has to start in the place that is kept for it",
    ),
    Key(
        "keep.idle",
        "policy.keep_idle",
        _positive,
        "Slurm itself gives a kept place back when no job has been in it for so long",
    ),
    Key(
        "drain.after",
        "policy.drain_after",
        values.duration,
        "a node is emptied when it has been draining for so long",
    ),
    Key("drain.at_once", "policy.drain_at_once", values.fraction, "part of a pool that is emptied at one time"),
    Key(
        "drain.min_nodes",
        "policy.drain_min_nodes",
        values.whole,
        "nodes that are emptied at one time in a small pool",
    ),
    Key(
        "drain.maintenance_before",
        "policy.maintenance_before",
        values.duration,
        "so long before a reservation with the MAINT flag begins, its nodes are emptied",
    ),
    Key(
        "drain.reason",
        "policy.drain_reason",
        _pattern,
        "regular expression: reasons of drains that nodes are emptied for",
    ),
    Key(
        "interactive.partitions",
        "policy.interactive.partitions",
        values.texts,
        "partitions of interactive jobs: never requeued by us, so their time limit is their contract",
    ),
    Key("interactive.qos", "policy.interactive.qos", values.texts, "managed QOS of such jobs"),
    Key(
        "interactive.names",
        "policy.interactive.names",
        values.texts,
        'names of such jobs, "*" for any text and "?" for any character: "ood-*"',
    ),
    Key("exempt.part", "policy.exempt_part", values.fraction, "part of a pool's GPUs that may be protected jobs'"),
    Key(
        "exempt.least_gpus",
        "policy.exempt_least_gpus",
        values.whole,
        "GPUs that may be protected jobs' in a small pool",
    ),
    Key("exempt.longest", "policy.exempt_longest", _positive, "longest time that a job can be protected for at once"),
    Key("requeues.per_cycle", "policy.requeues_per_cycle", values.whole, "most requeues a cycle"),
    Key("requeues.per_hour", "policy.requeues_per_hour", values.whole, "most requeues an hour"),
    Key(
        "requeues.per_job_day",
        "policy.requeues_per_job_day",
        values.whole,
        "requeues of one job in 24 h before it goes last",
    ),
    Key(
        "requeues.lost_after",
        "policy.lost_after",
        _positive,
        "a requeued job that is not pending after this time is lost",
    ),
    Key(
        "breaker.part",
        "policy.breaker_part",
        values.fraction,
        "part of the running GPUs whose requeue stops all acting",
    ),
    Key("breaker.least_gpus", "policy.breaker_least_gpus", values.whole, "where fewer GPUs run, the part of so many"),
    Key("breaker.window", "policy.breaker_window", _positive, "time over which that part is counted"),
    Key("breaker.lost", "policy.breaker_lost", values.whole, "lost jobs that stop all acting"),
    Key(
        "breaker.drained",
        "policy.breaker_drained",
        values.whole,
        "nodes drained just after our requeue that stop all acting",
    ),
)

TIMES = (values.duration, _positive)
BY_PATH = {key.path: key for key in KEYS}
# Sections whose keys are the site's own names; what stands there is read by `pyslurm_budget.config`.
FRACTIONS = "gpus.fractions"
FIXED = "capacity.fixed"
MODES = {"partitions": "modes.partitions", "budgets": "modes.budgets"}
FREE_SECTIONS = ("classes", "pools", FRACTIONS, FIXED, *MODES.values())
SECTIONS = frozenset(key.path.rpartition(".")[0] for key in KEYS if "." in key.path) | {
    *FREE_SECTIONS,
    "gpus",
    "capacity",
    "modes",
}
