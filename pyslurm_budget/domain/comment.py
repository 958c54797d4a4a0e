"""The contract that a job declares in its comment, and what it comes to (design 4.4).

The user owns the comment; we read one token of it, ``min-runtime=VALUE``, beside whatever else stands there. All
durations are whole seconds. ``slurm_conf/job_submit.lua`` reads comments by the same rules (a test compares them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from pyslurm_budget.domain.times import parse_duration
from pyslurm_budget.domain.wording import span

_SEPARATORS = re.compile(r"[ \t\n\v\f\r,;]+", re.ASCII)
_TOKEN = re.compile(r"min[-_]runtime(?:([=:])(.*))?", re.ASCII | re.IGNORECASE | re.DOTALL)


class ContractKind(StrEnum):
    """What a contract comes to, before any budget is asked."""

    MAY_BE_BACKED = "may-be-backed"
    ASKED_SPARE = "asked-spare"
    ABOVE_CAP = "above-cap"
    CANNOT_REQUEUE = "cannot-requeue"


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract of ``seconds`` (0 unless it may be backed, or is above the cap).

    ``ABOVE_CAP``: a declared minimum above the cap, refused at submit. ``CANNOT_REQUEUE``: the whole time limit would
    be the contract and is above the cap (or there is no limit): the run is spare.
    """

    kind: ContractKind
    seconds: int = 0


@lru_cache(maxsize=8192)
def declared_minimum(comment: str) -> int | None:
    """Seconds that the comment declares as ``min-runtime=VALUE``; ``None`` if it declares nothing, 0 for spare.

    Tokens are separated by blanks, commas or semicolons; VALUE is any time form of Slurm or 90m, 4h, 1d. Raises
    ``ValueError`` with one sentence if the token is there but cannot be read: it is never silently 0.
    """
    found = {value for token in _SEPARATORS.split(comment) if (value := _value(token)) is not None}
    if not found:
        return None
    if len(found) > 1:
        raise ValueError("min-runtime is declared more than once in the comment; keep one.")
    return found.pop()


def wants_spare(comment: str) -> bool:
    """Whether the comment says ``min-runtime=0``: no protection, at no cost. Unreadable says nothing."""
    try:
        return declared_minimum(comment) == 0
    except ValueError:
        return False


def contract_of(
    declared: int | None, *, time_limit: int | None, requeueable: bool, default: int, cap: int
) -> Contract:
    """The contract of a run (design 4.4): declared or the site's default, at most the time limit.

    ``time_limit`` is ``None`` for no limit. A run that cannot be requeued has its whole time limit as contract,
    unless it asks for spare. What was declared above the cap is refused even where the time limit is shorter.
    """
    if declared == 0:
        return Contract(ContractKind.ASKED_SPARE)
    if declared is not None and declared > cap:
        return Contract(ContractKind.ABOVE_CAP, declared)
    if not requeueable:
        if time_limit is None or time_limit > cap:
            return Contract(ContractKind.CANNOT_REQUEUE)
        return Contract(ContractKind.MAY_BE_BACKED, time_limit)
    wanted = min(default, cap) if declared is None else declared
    return Contract(ContractKind.MAY_BE_BACKED, wanted if time_limit is None else min(wanted, time_limit))


def price_length(contract: int, floor: int, time_limit: int | None) -> int:
    """Seconds that a contract is priced at: at least the floor, at most the time limit (design 4.3)."""
    length = max(contract, floor)
    return length if time_limit is None else min(length, time_limit)


def _value(token: str) -> int | None:
    """Seconds of one token if it is ours."""
    ours = _TOKEN.fullmatch(token)
    if ours is None:
        return None
    sign, value = ours.groups()
    if sign != "=" or not value:
        raise ValueError(f"{token!r} in the comment has no readable value; write min-runtime=4h.")
    try:
        if value.isascii() and value.isprintable():
            return parse_duration(value)
    except ValueError:
        pass
    raise ValueError(
        f"min-runtime={value} is not a duration; write 90m, 4h, 1d, or a time as Slurm takes it (1-12:00:00)."
    )


def too_long(declared: int, cap: int) -> str:
    """The sentence for a declared minimum above the cap."""
    return (
        f"min-runtime={span(declared)}: the longest contract here is {span(cap)}. "
        "Ask for the time to your first useful checkpoint; the job may run on after it."
    )
