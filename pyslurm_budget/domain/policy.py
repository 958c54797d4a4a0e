"""The site's rules as numbers: one value, read once from the configuration, handed to every decision.

Fractions are exact. Durations are seconds. Every default is the one that the design proposes (section 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.modes import Modes

if TYPE_CHECKING:
    from collections.abc import Mapping

HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class PoolRule:
    """Which nodes form a pool: those of the flavors (GPU types), or of the partitions, that are named."""

    name: str
    flavors: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassMap:
    """The managed QOS and their spare twins (design section 3), e.g. ``{"backed": "spare"}``.

    ``adopt`` is the managed QOS of jobs that name none, where Slurm would give them its own ``normal``: on an empty
    site nobody needs to learn a new option. ``None``: such jobs are left alone. ``claim`` is the QOS that the
    controller gives to one waiting backed job for a moment (:mod:`pyslurm_budget.domain.claim`); it counts as backed.
    """

    twins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"backed": "spare"}))
    adopt: str | None = "backed"
    claim: str = "claim"

    @property
    def home(self) -> str:
        """The managed QOS that a claiming job goes back to where nothing else is known."""
        return next(iter(self.twins))

    def is_spare(self, qos: str) -> bool:
        """Whether the QOS is a spare twin."""
        return qos in self.twins.values()

    def is_managed(self, qos: str) -> bool:
        """Whether we decide about jobs of this QOS."""
        return qos in self.twins or self.is_spare(qos) or qos == self.claim

    def spare_of(self, qos: str) -> str:
        """The spare twin of a managed QOS (itself for a twin)."""
        return self.twins[self.home] if qos == self.claim else self.twins.get(qos, qos)

    def backed_of(self, qos: str) -> str:
        """The managed QOS of a spare twin (itself for a managed one); the first, where several share the twin."""
        if qos in self.twins:
            return qos
        if qos == self.claim:
            return self.home
        return next(name for name, twin in self.twins.items() if twin == qos)


@dataclass(frozen=True, slots=True)
class Policy:
    """All numbers of design section 4 that this release uses.

    ``breaker_part`` is 1: acting stops when more GPUs were displaced within ``breaker_window`` than run now (or than
    ``breaker_least_gpus``). Work that rightfully gives way does so once a contract, so even a Monday on which every
    run is past its contract comes to 1 and not above; on 64 simulated GPUs a mixed load came to 20 to 29 GPUs in 10
    minutes, such a Monday to 64. Above 1 the same places are emptied again and again, or nobody takes them.
    ``fixed``: GPUs that a pool counts as whatever is there (a cloud), by pool.
    ``fractions``: parts of a GPU, see :mod:`pyslurm_budget.domain.slices`. ``modes``: parts of the site that stay
    behind its mode.
    """

    window: int = 7 * DAY
    hour: int = HOUR
    classes: ClassMap = field(default_factory=ClassMap)
    pools: tuple[PoolRule, ...] = ()
    cap: int = 8 * HOUR
    default_contract: int = HOUR
    floor: int = HOUR
    overdraft: Fraction = Fraction(2, 100)
    ceiling_share: Fraction = Fraction(3)
    ceiling_part: Fraction = Fraction(1, 2)
    array_ahead: int = 50
    charge_largest: bool = True
    fixed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    fractions: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    modes: Modes = field(default_factory=Modes)
    interactive: Interactive = field(default_factory=Interactive)
    run_on_price: Fraction = Fraction(1)
    margin: Fraction = Fraction(5, 100)
    wide_wait: int = 10 * 60
    grown_wait: int = 15 * 60
    early_loss: int = 10 * 60
    early_wait: int = HOUR
    loss_cap: int = HOUR
    stuck_wait: int = 5 * 60
    engine: str = "auto"
    claim_step: int = 4
    start_deadline: int = 60
    back_off: int = 10 * 60
    moves_per_cycle: int = 2
    move_gpus: int = 4
    move_nodes: int = 4
    move_wait: int = 2 * 60
    move_loss: int = 30 * 60
    move_again: int = 4 * HOUR
    move_back_in: int = 5 * 60
    window_part: Fraction = Fraction(1, 2)
    window_above: int = HOUR
    keep_room: int = 10 * 60
    keep_idle: int = 5 * 60
    drain_after: int = 10 * 60
    drain_at_once: Fraction = Fraction(5, 100)
    drain_min_nodes: int = 2
    drain_reason: str = ".*"
    maintenance_before: int = 15 * 60
    updates_per_cycle: int = 500
    requeues_per_cycle: int = 20
    requeues_per_hour: int = 200
    requeues_per_job_day: int = 3
    breaker_part: Fraction = Fraction(1)
    breaker_window: int = 10 * 60
    breaker_least_gpus: int = 64
    breaker_lost: int = 3
    breaker_drained: int = 3
    lost_after: int = 30
    restart_quiet: int = 60
    clock_skew: int = 5
    stale_after: int = HOUR
    displace_old_runs: bool = False
    exempt_part: Fraction = Fraction(5, 100)
    exempt_least_gpus: int = 8
    exempt_longest: int = 30 * DAY
