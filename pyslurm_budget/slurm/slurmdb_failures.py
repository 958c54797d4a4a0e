"""What a failed read of slurmdbd's database means: one sentence each, with sacct's exit statuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.errors import (
    ConfigError,
    SbudgetError,
    SlurmdbdError,
    SlurmOutputError,
    SlurmPermissionError,
    SlurmSetupError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# https://mariadb.com/kb/en/mariadb-error-codes/
_NO_RIGHT = frozenset({1044, 1045, 1130, 1142, 1143, 1227, 1370, 1698})
_NO_DATABASE = 1049
_NO_TABLE = 1146
_NO_COLUMN = 1054


@dataclass(frozen=True, slots=True)
class Login:
    """How to reach slurmdbd's database. With a ``socket``, host and port are not used; the password is the first line
    of ``password_file`` (``None``: no password), read at each connection. ``timeout`` is in seconds."""

    host: str = "localhost"
    port: int = 3306
    user: str = "slurm"
    name: str = "slurm_acct_db"
    password_file: Path | None = None
    socket: Path | None = None
    timeout: int = 60

    @property
    def shown(self) -> str:
        """The database for people."""
        return f"{self.name} at {self.socket or f'{self.host}:{self.port}'}"


def password_of(login: Login) -> str:
    """The password; raises ConfigError where it cannot be read or others can read it too."""
    path = login.password_file
    if path is None:
        return ""
    try:
        with path.open(encoding="utf-8") as file:
            everybody = path.stat().st_mode & 0o004
            word = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"slurm.database.password_file: {path} cannot be read ({why})") from None
    if everybody:
        raise ConfigError(f"slurm.database.password_file: everybody can read {path}; run: chmod 640 {path}")
    return word


def failure(login: Login, error: Exception) -> SbudgetError:
    """The error to raise for one of PyMySQL's."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    words = str(error.args[-1] if error.args else error).strip().partition("\n")[0] or type(error).__name__
    if code in _NO_RIGHT:
        return SlurmPermissionError(
            f"slurmdbd's database {login.shown} refuses user {login.user}: {words}. Check user and password_file in "
            f"[slurm.database]; the user needs GRANT SELECT ON {login.name}.*"
        )
    if code == _NO_DATABASE:
        return SlurmSetupError(
            f"there is no database {login.name} at {login.shown.partition(' at ')[2]}; correct name in "
            "[slurm.database] (StorageLoc in slurmdbd.conf)"
        )
    if code in (_NO_TABLE, _NO_COLUMN):
        return SlurmOutputError(f"slurmdbd's database {login.shown} changed while it was read: {words}. Try again.")
    return SlurmdbdError(
        f"slurmdbd's database {login.shown} does not answer: {words}. Look at MariaDB, and at "
        "[slurm.database] in the configuration"
    )


def no_driver() -> ConfigError:
    """The error where PyMySQL is not installed."""
    return ConfigError(
        "slurm.accounting = \"sql\" needs PyMySQL, which is not installed; run: pip install 'pyslurm_budget[mysql]'"
    )


def no_cluster(login: Login, cluster: str, known: Iterable[str]) -> SlurmSetupError:
    """The error for a cluster whose tables are not there."""
    names = ", ".join(sorted(known)) or "none"
    return SlurmSetupError(
        f"slurmdbd's database {login.shown} has no cluster {cluster} that {login.user} may read, only {names}; "
        "correct cluster in the configuration or name in [slurm.database]"
    )


def no_table(login: Login, tables: Iterable[str]) -> SlurmSetupError:
    """The error for tables that are missing although others of slurmdbd are there."""
    return SlurmSetupError(
        f"slurmdbd's database {login.shown} has no table {', '.join(sorted(tables))} that {login.user} may read; "
        f"GRANT SELECT ON {login.name}.*, or let slurmdbd make its tables"
    )


def unknown_schema(login: Login, columns: Iterable[str]) -> SlurmOutputError:
    """The error for tables without columns that every release from 22.05 to 26.05 has."""
    return SlurmOutputError(
        f"slurmdbd's database {login.shown} has a schema that this release does not know, without "
        f'{", ".join(sorted(columns))}; set slurm.accounting = "sacct"'
    )


def unreadable(row: str, error: Exception) -> SlurmOutputError:
    """The error for one row."""
    return SlurmOutputError(f"slurmdbd's database: cannot read the row {row[:200]!r}: {error}")
