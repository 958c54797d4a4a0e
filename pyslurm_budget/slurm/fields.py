"""Reading the single values that Slurm's commands print. All raise ``ValueError`` for what they cannot read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from pyslurm_budget.domain.tres import parse_gres_gpus, parse_tres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyslurm_budget.domain.model import Tres

_NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "None assigned"})
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", re.ASCII)
_MOST_NUMBERS = 4_000_001  # MaxArraySize is at most 4,000,001 (slurm.conf(5))


def text_of(value: str) -> str:
    """The value, or an empty text where Slurm prints one of its words for nothing."""
    return "" if value in _NOTHING else value


def listed(value: str) -> tuple[str, ...]:
    """A comma list; nothing is an empty one."""
    return tuple(part for part in text_of(value).split(",") if part)


def epoch(value: str) -> int | None:
    """A time as seconds since the epoch (``None``: Slurm has none); a calendar time is UTC, as commands run in it."""
    if value.isdecimal():
        return int(value) or None
    if value in _NOTHING:
        return None
    return int(datetime.strptime(value, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp())


@lru_cache(maxsize=8192)
def node_names(value: str) -> tuple[str, ...]:
    """The nodes of a host list (``n[1-2,7],gpu3``), each by name, in order; the names are kept once."""
    if value in _NOTHING:
        return ()
    if "[" not in value and "," not in value:
        return (intern(value),)
    try:
        return tuple(map(intern, NodeSet(value, resolver=RESOLVER_NOGROUP)))
    except NodeSetException as error:
        raise ValueError(f"{value!r} is not a list of nodes") from error


@lru_cache(maxsize=2048)
def numbers(value: str) -> tuple[int, ...]:
    """The numbers of an array or CPU expression (``1,3-9``, ``0-8:2``, a ``%4`` at its end ignored), ascending."""
    found: set[int] = set()
    for part in value.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{value!r} is not a list of numbers (cut off?)")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or last > _MOST_NUMBERS or step == 0:
            raise ValueError(f"{value!r} is not a list of numbers")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def ranges(found: tuple[int, ...]) -> str:
    """Ascending numbers as scontrol takes them (``1,3-9``): it prints steps (``0-8:2``) but does not take them."""
    parts: list[str] = []
    first = 0
    for i, number in enumerate(found):
        if i + 1 == len(found) or found[i + 1] != number + 1:
            parts.append(str(number) if first == i else f"{found[first]}-{number}")
            first = i + 1
    return ",".join(parts)


@lru_cache(maxsize=8192)
def tres_of(value: str) -> Tres:
    """A TRES text, remembered: thousands of jobs share a few of them."""
    return parse_tres(value)


@lru_cache(maxsize=8192)
def gpus_of(value: str, name: str = "gpu") -> tuple[int, Mapping[str, int]]:
    """The GPUs (or other GRES of that name) of a GRES text, remembered."""
    return parse_gres_gpus(value, name)


def main_type(types: Mapping[str, int]) -> str | None:
    """The GPU type of which there are most (ties by name); ``None`` for none."""
    present = [kind for kind, count in types.items() if count > 0]
    return min(present, key=lambda kind: (-types[kind], kind), default=None)
