"""Every failure that people see: one clear sentence, and an exit status of its own.

The message says what failed, where, and what to do. The exit statuses are part of the interface and are listed
in ``docs/reference/exit-status.md`` (checked by a test).
"""

from __future__ import annotations

from typing import ClassVar


class SbudgetError(Exception):
    """Base of all failures that are reported to the user; never raised itself."""

    exit_status: ClassVar[int] = 1
    summary: ClassVar[str] = "unexpected failure"


class UsageError(SbudgetError):
    """A command line or an argument that cannot be understood."""

    exit_status = 2
    summary = "wrong use of the command"


class ConfigError(SbudgetError):
    """The configuration file is missing, unreadable or contradicts itself."""

    exit_status = 10
    summary = "the configuration cannot be used"


class BudgetFileError(SbudgetError):
    """The budget file is wrong: shares above 1, a cycle, an unknown account."""

    exit_status = 11
    summary = "the budget file cannot be used"


class NotFoundError(SbudgetError):
    """The job, account or budget that was asked for is not known."""

    exit_status = 12
    summary = "no such job, account or budget"


class ProtectionError(SbudgetError):
    """A job cannot be protected, or would be one too many."""

    exit_status = 14
    summary = "the job cannot be protected"


class CheckpointError(SbudgetError):
    """A checkpoint cannot be reported."""

    exit_status = 15
    summary = "the checkpoint cannot be reported"


class SlurmMissingError(SbudgetError):
    """A Slurm command is not installed, or finds no slurm.conf."""

    exit_status = 20
    summary = "Slurm's commands are missing or have no configuration"


class SlurmctldError(SbudgetError):
    """slurmctld does not answer."""

    exit_status = 21
    summary = "slurmctld does not answer"


class SlurmPermissionError(SbudgetError):
    """Slurm refused an operation to this user."""

    exit_status = 22
    summary = "Slurm refused it to this user"


class SlurmSetupError(SbudgetError):
    """Slurm is configured in a way that the budgets cannot work with."""

    exit_status = 23
    summary = "Slurm's configuration does not fit"


class SlurmdbdError(SbudgetError):
    """slurmdbd, or the database behind it, does not answer."""

    exit_status = 24
    summary = "slurmdbd does not answer"


class SlurmOutputError(SbudgetError):
    """A Slurm command answered something that cannot be read."""

    exit_status = 25
    summary = "Slurm's answer cannot be read"


class SlurmRefusedError(SbudgetError):
    """Slurm refused one operation on one job (ended, no longer pending, not requeueable...)."""

    exit_status = 26
    summary = "Slurm refused the operation on the job"


class UnfinishedError(SbudgetError):
    """`sbudget setup remove` gave back all but what jobs still use."""

    exit_status = 27
    summary = "setup remove must be run again when jobs have ended"


class LedgerError(SbudgetError):
    """The ledger's database cannot be reached or used, or has another schema than this release."""

    exit_status = 30
    summary = "the ledger cannot be used"


class LeaseHeldError(SbudgetError):
    """Another controller holds the lease."""

    exit_status = 31
    summary = "another controller is at work"


class StaleDataError(SbudgetError):
    """Data are too old or incomplete to act on."""

    exit_status = 32
    summary = "the data are too old or incomplete to act on"


class PublishError(SbudgetError):
    """The decision table or the public state cannot be written."""

    exit_status = 33
    summary = "the decision table or the public state cannot be written"


class StoppedError(SbudgetError):
    """Acting is stopped by the kill switch or by the breaker."""

    exit_status = 34
    summary = "acting is stopped by the kill switch or the breaker"


class InconsistentError(SbudgetError):
    """`sbudget db verify` found something in the ledger that is not as it must be."""

    exit_status = 35
    summary = "the ledger contradicts itself"


class ArchiveError(SbudgetError):
    """An archived file cannot be written or read, or holds other runs than the ledger."""

    exit_status = 36
    summary = "runs cannot be archived as asked"


class UnhealthyError(SbudgetError):
    """`sbudget health` found something that needs a person."""

    exit_status = 40
    summary = "something needs a person"
