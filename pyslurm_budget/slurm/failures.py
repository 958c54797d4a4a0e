"""What a failed Slurm command means, by what it said.

The texts are those of Slurm 22.05 to 26.05 (``src/common/slurm_errno.c`` and what real daemons printed). They are
looked for in this order, as one answer may hold several (a refusal that names the job, after a warning).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyslurm_budget.errors import (
    SbudgetError,
    SlurmctldError,
    SlurmdbdError,
    SlurmMissingError,
    SlurmOutputError,
    SlurmPermissionError,
    SlurmRefusedError,
    SlurmSetupError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_DATABASE = frozenset({"sacct", "sacctmgr", "sreport"})
_NO_CONFIGURATION = (
    "could not establish a configuration source",
    "unable to process configuration file",
    "unable to status file",
    "could not open/read/parse slurm.conf",
    "failed to fetch remote configs",
    "fetch_config",
    "lookup failed: unknown host",
    "dns srv lookup failed",
)
_DATABASE_DOWN = (
    "unable to contact slurmdbd",
    "problem talking to the database",
    "sending persistinit msg",
    "failed to open persistent connection",
    "only the slurmdbd",
    "unable to connect to database",
    "lost connection to mysql",
    "database is busy or waiting for lock",
)
_CONTROLLER_DOWN = (
    "unable to contact slurm controller",
    "unexpected message received",
    "zero bytes were transmitted or received",
    "socket timed out on send/recv",
    "connection timed out",
    "communication connection failure",
    "slurm backup controller in standby",
    "protocol authentication error",
    "invalid authentication credential",
    "incompatible versions of client and server",
    "slurmctld is down",
)
_NO_RIGHT = (
    "access/permission denied",
    "invalid user id",
    "doesn't have privilege",
    "permission to perform this action",
    "only admins can",
    "job/step not owned",
)
_BAD_SETUP = ("accounting storage is disabled", "accounting_storage/none", "accounting_storage/slurmdbd")
_GONE = ("invalid job id specified", "job not found")
_WORDS = re.compile(r"^(?:\w+: )?(?:slurm_\w+ )?(?:error: )+|^(?:\w+: )?fatal: ", re.MULTILINE)


def failure(command: Sequence[str], said: str, status: int) -> SbudgetError:
    """The error to raise for a command that failed; ``said`` is its standard error (or output)."""
    lower = said.lower()
    program = command[0]
    words = sentence(said) or f"status {status} and no message"
    if any(text in lower for text in _NO_CONFIGURATION):
        return missing(program, words)
    if program in _DATABASE:
        return _database_failure(command, lower, words)
    if any(text in lower for text in (*_CONTROLLER_DOWN, "connection refused")):
        return SlurmctldError(f"slurmctld does not answer {_shown(command)}: {words}. Look at `scontrol ping`.")
    if any(text in lower for text in _NO_RIGHT):
        return _denied(command, words)
    if command[1:2] and command[1] in {"update", "requeue", "create", "delete", "release", "hold"}:
        return SlurmRefusedError(f"{_shown(command)}: {words}")
    return SlurmOutputError(f"{_shown(command)} failed: {words}")


def missing(program: str, words: str) -> SlurmMissingError:
    """The error for a program that is not there, or has no configuration."""
    return SlurmMissingError(f"Cannot run {program}: {words}. Install Slurm's commands and check SLURM_CONF.")


def silence(command: Sequence[str], timeout: float) -> SbudgetError:
    """The error for a command that did not answer in time: its daemon's."""
    if command[0] in _DATABASE:
        return SlurmdbdError(f"{_shown(command)} said nothing for {timeout:g} s; is slurmdbd running?")
    return SlurmctldError(f"{_shown(command)} said nothing for {timeout:g} s; is slurmctld running?")


def unknown_job(said: str) -> bool:
    """Whether Slurm says that it knows no such job."""
    return any(text in said.lower() for text in _GONE)


def sentence(said: str) -> str:
    """Slurm's own words as one line, without the names of its functions; the last two lines say most."""
    lines = [_WORDS.sub("", line).strip().rstrip(".") for line in said.splitlines()]
    return "; ".join([line for line in lines if line][-2:])


def _database_failure(command: Sequence[str], lower: str, words: str) -> SbudgetError:
    """The error of a client of slurmdbd."""
    if any(text in lower for text in _BAD_SETUP):
        return SlurmSetupError(f"Slurm keeps no accounting in slurmdbd: {words}. Set AccountingStorageType.")
    if any(text in lower for text in (*_DATABASE_DOWN, *_CONTROLLER_DOWN, "connection refused")):
        return SlurmdbdError(f"slurmdbd does not answer {_shown(command)}: {words}. Look at slurmdbd's log.")
    if any(text in lower for text in _NO_RIGHT):
        return _denied(command, words)
    return SlurmOutputError(f"{_shown(command)} failed: {words}")


def _denied(command: Sequence[str], words: str) -> SlurmPermissionError:
    """The error for a missing right."""
    return SlurmPermissionError(f"{_shown(command)}: {words}. The user needs AdminLevel=Operator in sacctmgr.")


def _shown(command: Sequence[str]) -> str:
    """The command as people would type it, cut to what tells it apart."""
    return "`" + " ".join(command[:4]) + ("...`" if len(command) > 4 else "`")
