"""Modes of parts of a site (design 2): a partition or a budget may stay behind the cluster, never go ahead of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The name of all that are not named.
OTHERS = "*"
_ORDER = (Mode.OBSERVE, Mode.ADVISE, Mode.ENFORCE)


def least(modes: Iterable[Mode]) -> Mode:
    """The most careful of the modes; enforce, if there are none."""
    return min(modes, key=_ORDER.index, default=Mode.ENFORCE)


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes by partition and by budget; ``*`` stands for those that are not named."""

    partitions: Mapping[str, Mode] = field(default_factory=lambda: MappingProxyType({}))
    budgets: Mapping[str, Mode] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        """Whether any part has a mode of its own."""
        return bool(self.partitions or self.budgets)

    def of(self, site: Mode, partitions: Iterable[str], path: Iterable[str]) -> Mode:
        """The mode for work in these partitions whose budget has this path (itself first, then its ancestors).

        The most careful of the cluster's mode, of every partition's, and of the nearest budget's on the path that
        is named. Work without a budget (an empty path) is as the budgets that are not named.
        """
        return least((self.of_budget(site, path), *(self.of_partition(site, name) for name in partitions)))

    def of_partition(self, site: Mode, name: str) -> Mode:
        """The mode of one partition, at most the cluster's."""
        return least((site, self.partitions.get(name, self.partitions.get(OTHERS, site))))

    def of_budget(self, site: Mode, path: Iterable[str]) -> Mode:
        """The mode of the budget with this path, at most the cluster's."""
        others = self.budgets.get(OTHERS, site)
        return least((site, next((self.budgets[name] for name in path if name in self.budgets), others)))
