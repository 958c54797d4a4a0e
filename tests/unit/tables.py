"""Decision tables for tests: one that a person can calculate with, and any at all."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import MILLI, Mode
from pyslurm_budget.domain.table import (
    AccountLine,
    ContractLine,
    DecisionTable,
    LimitLine,
    PartitionLine,
    ShapeLine,
    UserLine,
)

HOUR = 3600
GPU_H = MILLI * HOUR
NOW = 1_000_000
A100 = ShapeLine("a100", "a100", 8000, 128, 1_024_000)

# 8 h cap in two segments; lab has 100 GPU-h left in 4 h and 150 in 8 h, for pa and pb together; pb is over by 489.
TABLE = DecisionTable(
    generation=7,
    snapshot=NOW,
    stale_after=NOW + HOUR,
    cluster="alpha",
    mode=Mode.ENFORCE,
    contract=ContractLine(8 * HOUR, HOUR, HOUR),
    ahead=50,
    backed_base=2_000_000,
    spare_base=0,
    horizons=(4 * HOUR, 8 * HOUR),
    twins=MappingProxyType({"backed": "spare"}),
    claim=("claim", "backed"),
    operators=(("slurm", 64),),
    partitions=(
        PartitionLine("gpu", HOUR, True, 24 * HOUR, (A100,)),
        PartitionLine("mixed", HOUR, False, None, (A100, ShapeLine("h100", "h100", 4000, 64, 2_048_000))),
        PartitionLine("cpu", HOUR, False, None),
    ),
    limits=(
        LimitLine("lab", "a100", "lab", 900 * MILLI, (100 * GPU_H, 150 * GPU_H)),
        LimitLine("pa", "a100", "pa", 64 * MILLI, (900 * GPU_H, 900 * GPU_H)),
        LimitLine("pa", "h100", "pa", 8 * MILLI, (10 * GPU_H, 10 * GPU_H)),
        LimitLine("pb", "a100", "pb", 64 * MILLI, (-489 * GPU_H, -100 * GPU_H)),
        LimitLine("pc", "a100", "pc", 64 * MILLI, (900 * GPU_H, 900 * GPU_H)),
    ),
    accounts=(
        AccountLine("none", "a100", 2_000_000, 0),
        AccountLine("pa", "a100", 2_000_010, 5, ("pa", "lab")),
        AccountLine("pa", "h100", 2_000_020, 6, ("pa",)),
        AccountLine("pb", "a100", 2_000_001, 1, ("pb", "lab")),
        AccountLine("pc", "a100", 2_000_002, 2, ("pc", "lab")),
    ),
    users=(
        UserLine("none", "alice", ("backed", "spare")),
        UserLine("pa", "alice", ("backed", "spare")),
        UserLine("pa", "bob", ("backed", "spare")),
        UserLine("pa", "carol", ("backed",)),
        UserLine("pa", "dora", ("spare",)),
        UserLine("pb", "alice", ("backed", "spare")),
        UserLine("pc", "alice", ("backed", "spare")),
    ),
)


def changed(**fields: object) -> DecisionTable:
    """The table with some fields replaced."""
    return replace(TABLE, **fields)  # type: ignore[arg-type]


_AMOUNTS = st.integers(-600 * GPU_H, 600 * GPU_H)
_ENOUGH = st.sampled_from([40 * GPU_H, 90 * GPU_H + 1, 400 * GPU_H])
_PARTS = st.builds(lambda a, b: Fraction(min(a, b), max(a, b)), st.integers(1, 8), st.integers(1, 1000))
_FRACTIONS = st.dictionaries(st.sampled_from(["a100", "1g.5gb", "shard"]), _PARTS, min_size=1)


def _shapes(rates: st.SearchStrategy[int]) -> st.SearchStrategy[ShapeLine]:
    return st.builds(
        ShapeLine,
        pool=st.sampled_from(["a100", "a100", "h100"]),
        gpu_type=st.sampled_from(["a100", "a100", "h100", "1g.5gb", None]),
        rate=rates,
        cpus=st.sampled_from([0, 64, 127]),
        memory_mb=st.sampled_from([0, 512_000, 1_000_003]),
    )


_WHOLE = _shapes(st.integers(1, 8).map(lambda gpus: gpus * MILLI))
_IN_PARTS = _shapes(st.integers(1, 8000))


@st.composite
def tables(draw: st.DrawFn) -> DecisionTable:
    """Tables as a controller could publish them, small enough that names meet. Half of them are quite ordinary."""
    odd = draw(st.booleans())

    def pick(usual: Any, *others: Any) -> Any:
        return draw(st.sampled_from([usual, *others])) if odd else usual

    fractions = draw(st.just({}) | _FRACTIONS)
    shapes = _IN_PARTS if fractions else _WHOLE
    cap = pick(8 * HOUR, 60, 4 * HOUR)
    horizons = (*sorted(draw(st.sets(st.integers(1, cap - 1), max_size=3))), cap)
    factors = st.integers(0, 3_000_000)
    every = ("backed", "high", "low", "spare")
    pools = pick(("a100", "h100"), ("a100",))
    limits = [
        LimitLine(
            limit,
            pool,
            limit.removesuffix(" (direct)"),
            pick(900, 64, 16, 0, -1) * MILLI,
            tuple(draw(_AMOUNTS if odd else _ENOUGH) for _ in horizons),
        )
        for limit in ("lab", "pa", "pa (direct)", "pb")
        for pool in pools
    ]
    paths = [("pa", "lab"), ("pa (direct)", "pa", "lab"), ("lab",), ()]
    accounts = [
        AccountLine(account, pool, draw(factors), draw(factors), pick((account, "lab"), *paths))
        for account in ("pa", "pb")
        for pool in pools
    ]
    return DecisionTable(
        generation=draw(st.integers(0, 2**53 - 1)),
        snapshot=NOW + draw(st.integers(-5, 5)),
        stale_after=pick(NOW + HOUR, NOW - 1, NOW, NOW + HOUR),
        cluster="alpha",
        mode=pick(Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.ADVISE, Mode.OBSERVE),
        contract=ContractLine(cap, draw(st.integers(0, 2 * cap)), pick(HOUR, 0, 60, cap), pick(True, False)),
        ahead=pick(50, 0, 7),
        backed_base=2_000_000,
        spare_base=draw(factors),
        horizons=horizons,
        twins=MappingProxyType(pick({"backed": "spare"}, {"backed": "spare", "high": "spare"}, {"backed": "low"})),
        adopt=pick(None, None, "backed", "backed"),
        claim=pick(None, ("claim", "backed")),
        operators=pick((("slurm", 64), ("root", 0)), ()),
        partitions=tuple(
            PartitionLine(
                name,
                pick(HOUR, 0, 60, 2 * cap),
                name == "gpu",
                pick(4 * HOUR, None, 60, 3 * cap),
                tuple(draw(st.lists(shapes, min_size=0 if name == "cpu" else 1, max_size=3))),
            )
            for name in ("cpu", "gpu", "owners")
        ),
        limits=tuple(limits),
        accounts=tuple(accounts),
        users=tuple(
            UserLine(account, user, pick(every, every, every, ("backed", "spare"), ("spare",), ("backed",), ()))
            for account in ("pa", "pb")
            for user in pick(("alice", "bob"), ("alice",))
        ),
        fractions=MappingProxyType(fractions),
        partition_modes=MappingProxyType(
            pick({}, {"gpu": Mode.ADVISE}, {"gpu": Mode.ENFORCE, "owners": Mode.OBSERVE})
        ),
        interactive=pick(Interactive(), Interactive(("owners",), ("high",)), Interactive(names=("ood*", "a-?.%b"))),
        account_modes=MappingProxyType(pick({}, {"pa": Mode.OBSERVE}, {"pa": Mode.ADVISE, "pb": Mode.ENFORCE})),
    )


def ended(body: str) -> str:
    """The lines of a table with a fitting end line."""
    return body + f"end\t{len(body.encode())}\n"


def measured(text: str) -> str:
    """The text of a table with the blocks' lengths put right, and a fitting end line."""
    lines, at = text.split("\n")[:-2], 0
    for i in reversed(range(len(lines))):
        at += len(lines[i].encode()) + 1
        if lines[i].startswith("block\t") and lines[i].count("\t") == 3:
            lines[i] = lines[i].rpartition("\t")[0] + f"\t{at - len(lines[i].encode()) - 1}"
            at = 0
    return ended("\n".join([*lines, ""]))
