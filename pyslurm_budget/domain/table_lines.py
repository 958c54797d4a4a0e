"""The decision table as values; :mod:`pyslurm_budget.domain.table` reads and writes its text.

Times are seconds since the epoch by slurmctld's clock, amounts mGPU-s, rates thousandths of a GPU, memory MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.modes import least

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction


@dataclass(frozen=True, slots=True)
class ContractLine:
    """The site's contract rules, in seconds. ``requeue``: whether a job that does not say can be (JobRequeue)."""

    cap: int
    default: int
    floor: int
    requeue: bool = True


@dataclass(frozen=True, slots=True)
class ShapeLine:
    """One GPU type of one kind of node of a partition: its pool, and the size of the whole node, GPUs in thousandths.

    ``cpus`` or ``memory_mb`` of 0: that part is not charged (``[charge] by = "gpu"``).
    """

    pool: str
    gpu_type: str | None
    rate: int
    cpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition: ``time_limit`` is what a job without ``--time`` gets (``None``: no limit). No shapes: no GPUs."""

    name: str
    default_contract: int
    is_default: bool = False
    time_limit: int | None = None
    shapes: tuple[ShapeLine, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A budget, an ancestor of one, or what a budget with children has not handed out, in one pool.

    ``limit`` is its own name in the table, ``name`` what people read. ``left[i]`` is what new contracts may use until
    ``horizons[i]``; ``ceiling_left`` is the rate that may still come under contract. Both may be below 0.
    """

    limit: str
    pool: str
    name: str
    ceiling_left: int
    left: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One Slurm account in one pool: the limits that its contracts must fit, its own first; none: no budget."""

    account: str
    pool: str
    backed_factor: int
    spare_factor: int
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserLine:
    """An association, and the managed QOS and twins that it may use."""

    account: str
    user: str
    qos: tuple[str, ...]


@dataclass(frozen=True)
class DecisionTable:
    """The whole table. ``twins`` maps each managed QOS to its spare twin; ``operators`` are (name, uid) pairs.
    ``adopt`` is the managed QOS of jobs that name none, where Slurm would give them its own ``normal``. ``claim`` is
    the QOS that only the controller gives, and the managed one that a job in it is of.
    ``fractions``: parts of a GPU by type, and of a shard (:mod:`pyslurm_budget.domain.slices`).
    ``partition_modes`` and ``account_modes`` name those that stay behind ``mode``. ``interactive``: jobs that
    are treated as if they could not be requeued.

    Accounts and QOS are lower case, as in Slurm's database. ``ahead``: so many tasks of an array are backed at a
    time. ``backed_base`` and ``spare_base`` are the SiteFactors of the lowest step of each class. ``limits``,
    ``accounts`` and ``users`` are sorted by their keys where they come from a text.
    """

    generation: int
    snapshot: int
    stale_after: int
    cluster: str
    mode: Mode
    contract: ContractLine
    ahead: int
    backed_base: int
    spare_base: int
    horizons: tuple[int, ...]
    twins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    adopt: str | None = None
    claim: tuple[str, str] | None = None
    operators: tuple[tuple[str, int], ...] = ()
    partitions: tuple[PartitionLine, ...] = ()
    limits: tuple[LimitLine, ...] = ()
    accounts: tuple[AccountLine, ...] = ()
    users: tuple[UserLine, ...] = ()
    fractions: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    partition_modes: Mapping[str, Mode] = field(default_factory=lambda: MappingProxyType({}))
    account_modes: Mapping[str, Mode] = field(default_factory=lambda: MappingProxyType({}))
    interactive: Interactive = field(default_factory=Interactive)

    @cached_property
    def by_partition(self) -> Mapping[str, PartitionLine]:
        """Partitions by name."""
        return {line.name: line for line in self.partitions}

    @cached_property
    def by_limit(self) -> Mapping[tuple[str, str], LimitLine]:
        """Limits by (limit, pool)."""
        return {(line.limit, line.pool): line for line in self.limits}

    @cached_property
    def by_account(self) -> Mapping[tuple[str, str], AccountLine]:
        """Account lines by (account, pool)."""
        return {(line.account, line.pool): line for line in self.accounts}

    @cached_property
    def by_user(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """QOS names by (account, user)."""
        return {(line.account, line.user): frozenset(line.qos) for line in self.users}

    def mode_for(self, account: str, partition: str | None) -> Mode:
        """The mode for a job of this account in these partitions (a list as Slurm has it, ``None``: the default)."""
        default = [p.name for p in self.partitions if p.is_default][:1]
        names = default if partition is None else partition.split(",")
        of_partitions = [self.partition_modes[name] for name in names if name in self.partition_modes]
        return least((self.mode, self.account_modes.get(account, self.mode), *of_partitions))
