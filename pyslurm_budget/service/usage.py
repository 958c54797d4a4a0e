"""What is asked of the ledger about who used what, and what it answers: exact integers, to the last step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyslurm_budget.service.ports import RunFacts

# What runs can be grouped by; a report adds the day and the month.
GROUPS = ("account", "user", "flavor", "qos", "class", "pool")
NONE = "(none)"
UNTYPED = "gpu"


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Sums of what runs held in [start, end), seconds since the epoch, for each combination of ``by`` (of GROUPS).

    Runs without an end hold until ``until``, runaway ones until where their charge ends; with ``to_limit`` no longer
    than their time limit (where no controller can say that they are alive). The class is the one that counts
    (``RunFacts.charged_as``). ``accounts`` (lower case) and ``users`` restrict it if they are not empty.
    """

    start: int
    end: int
    until: int
    by: tuple[str, ...] = ()
    to_limit: bool = False
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Sums of one group; ``keys`` are the values of the query's ``by``, in its order.

    ``gpu_seconds`` are raw GPUs times seconds, suspended ones included; ``charged`` is in thousandths of GPU-seconds;
    ``suspended``, in thousandths of raw GPU-seconds, is the suspended part, taken as spread evenly over a run. Of the
    ``runs`` that held something nobody knows how many GPUs ``unknown_runs`` held: they are 0 in the raw sums.
    """

    keys: tuple[str, ...]
    gpu_seconds: int
    charged: int
    suspended: int
    runs: int
    unknown_runs: int


class UsageLedger(Protocol):
    """The part of the ledger that reports are made of."""

    def usage(self, queries: Sequence[UsageQuery]) -> Iterator[tuple[int, UsageSum]]:
        """(number of the query, sum) of each group that held something, the queries in their order and the groups of
        each by their keys. All from one state of the ledger, read while it is asked for."""

    def unknown_runs(self, query: UsageQuery) -> Iterator[RunFacts]:
        """The runs whose GPUs nobody knows that held something in the period, and the runaway ones that began before
        its end, by start; ``by`` does not matter."""

    def usage_span(self) -> tuple[int, int | None] | None:
        """The first start and the last end of all runs; the end is ``None`` while one has none, and all of it where
        there are no runs."""
