"""What a user reads at submit. ``slurm_conf/job_submit.lua`` says the same words (a test compares them)."""

from __future__ import annotations

from pyslurm_budget.domain.comment import too_long
from pyslurm_budget.domain.wording import gpu_hours, gpus, span

MINUTE = 60

SPARE = "spare, may be preempted at any time: "
AS_ASKED = "as asked."
CRON = "scrontab jobs are always spare."
HET = "the parts of a heterogeneous job are judged together; decided before its start."
UNDECIDED = "how many GPUs it gets is known only to Slurm; decided before its start."
ARRAY_LATER = "As many of its tasks as the budget allows are backed before their start."
OUR_RESERVATION = "Reservations named sbudget_* are made and filled by the budget controller; submit without it."
NO_TABLE = "spare until the budget controller decides: its table cannot be read just now."


def backed(contract: int, price: int, left: int, limit: str, requeueable: bool) -> str:
    """Backed: how long it is protected, and what it takes of what is left."""
    then = ", then it may be requeued." if requeueable else ": its time limit, as it cannot be requeued."
    return (
        f"backed. Protected for {span(contract)} from its start "
        f"({gpu_hours(price)} of {gpu_hours(left)} GPU-h left: {limit}'s limit){then}"
    )


def headroom(price: int, left: int, limit: str) -> str:
    """The contract does not fit: the amounts, and whose limit it is."""
    needs = f"its contract needs {gpu_hours(price)} GPU-h"
    if left < 0:
        return f"{limit} is {gpu_hours(-left)} GPU-h over its budget ({needs})."
    return f"{needs}, {limit} has {gpu_hours(left)} left."


def ceiling(rate: int, left: int, budget: str) -> str:
    """Too many GPUs of the budget would be inside contracts at one time."""
    return (
        f"it asks for {gpus(rate)} GPUs, {budget} may have {gpus(max(left, 0))} more under contract at one time. "
        "It is backed before its start when contracts have ended."
    )


def shorter(seconds: int) -> str:
    """The line that names a contract that would be backed; empty for none."""
    if not seconds:
        return ""
    minutes = seconds // MINUTE
    return f"\nA contract of {span(minutes * MINUTE)} would be backed: --comment=min-runtime={minutes}m"


def array_ahead(ahead: int) -> str:
    """Longer than the number of tasks that are backed at a time."""
    return f"{ahead} tasks of an array at a time are backed while the budget allows; the rest runs on idle GPUs."


def cannot_requeue(cap: int) -> str:
    """An interactive or --no-requeue run above the cap."""
    return (
        f"it cannot be requeued, so its whole time limit would be protected; the longest contract is {span(cap)}. "
        f"Ask for --time of at most {span(cap)}, or submit it with sbatch --requeue."
    )


def no_budget(account: str) -> str:
    """The account has none."""
    return f"account {account} has no budget here."


def no_qos(qos: str) -> str:
    """The association may not use the backed QOS."""
    return f"you may not use QOS {qos} in this account."


def no_twin(twin: str) -> str:
    """The association may not use the spare twin."""
    return f"It keeps its QOS for now: you may not use QOS {twin} in this account; ask your administrator."


__all__ = [
    "ARRAY_LATER",
    "AS_ASKED",
    "CRON",
    "HET",
    "MINUTE",
    "NO_TABLE",
    "OUR_RESERVATION",
    "SPARE",
    "UNDECIDED",
    "array_ahead",
    "backed",
    "cannot_requeue",
    "ceiling",
    "headroom",
    "no_budget",
    "no_qos",
    "no_twin",
    "shorter",
    "too_long",
]
