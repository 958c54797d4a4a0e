"""Parts of a GPU: MIG slices and shards count by the fraction of a GPU that the site gives them.

``[gpus.fractions]`` says how much of a GPU one device of a type is (``"a100_1g.5gb" = "1/7"``), and how much one
shard is (``shard = "1/8"``). A type that is not named is a whole GPU. Slurm's own counts (``gres/gpu=7`` of seven
slices) are devices: they stay as they are where raw GPUs are shown; charge, price and capacity are in GPUs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyslurm_budget.domain.model import Node, Tres

    Fractions = Mapping[str, Fraction]

SHARD = "shard"
WHOLE = Fraction(1)
# No finer parts: the submit plugin's numbers are doubles, and its products of counts and parts must stay exact.
MOST_PARTS = 1000


def thousandths(gpus: Fraction) -> int:
    """Thousandths of a GPU, rounded up: what is charged is never less than what is held."""
    return -(-gpus.numerator * MILLI // gpus.denominator)


def part(fractions: Fractions, kind: str | None) -> Fraction:
    """How much of a GPU one device of this type is."""
    return WHOLE if kind is None else fractions.get(kind, WHOLE)


def held(tres: Tres, fractions: Fractions, kinds: Iterable[str | None] = ()) -> int:
    """What a run holds, in thousandths of a GPU, rounded up once. ``kinds`` are the types of the nodes that it is on:
    a device whose type the TRES do not say counts as the dearest of them. Shards count where no GPU is held."""
    if not tres.gpus:
        return thousandths(tres.shards * fractions.get(SHARD, Fraction(0)))
    if not fractions:
        return tres.gpus * MILLI
    typed = tres.gpus_by_type
    rest = tres.gpus - sum(typed.values())
    if rest < 0:  # a breakdown that is more than its total says nothing but the types
        typed, rest, kinds = {}, tres.gpus, typed
    dearest = max((part(fractions, kind) for kind in kinds), default=WHOLE)
    return thousandths(sum((n * part(fractions, kind) for kind, n in typed.items()), rest * dearest))


def asked(gpus: int, shards: int, kind: str | None, fractions: Fractions) -> int:
    """What a request comes to on GPUs of one type, in thousandths, rounded up; shards count where it names no GPU."""
    if gpus:
        return thousandths(gpus * part(fractions, kind))
    return thousandths(shards * fractions.get(SHARD, Fraction(0)))


def of_node(node: Node, fractions: Fractions) -> Fraction:
    """GPUs of a node: the sum of its devices, each as its part. Shards are shares of these, and add nothing."""
    return sum((count * part(fractions, kind) for kind, count in node.types.items()), Fraction(0))
