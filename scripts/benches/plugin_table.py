"""A decision table with many accounts, for the plugin's benchmark and its fuzz test."""

from __future__ import annotations

from types import MappingProxyType

from pyslurm_budget.domain.books import horizons
from pyslurm_budget.domain.model import MILLI, Mode
from pyslurm_budget.domain.table import (
    AccountLine,
    ContractLine,
    DecisionTable,
    LimitLine,
    PartitionLine,
    ShapeLine,
    UserLine,
    render,
)

HOUR = 3600
CAP = 8 * HOUR
GROUPS = 20
POOLS = ("a100", "h100")
USERS = ("alice", "bob", "carol")
SITE = ("nlp", "vision", "bio")


def table(accounts: int, generation: int, now: int) -> str:
    """A decision table with room for everybody, of as many accounts."""
    grid = horizons(CAP)
    left = tuple(10**6 * MILLI * HOUR for _ in grid)
    names = [*(f"account{i:04d}" for i in range(accounts)), *SITE]
    groups = [f"group{i:02d}" for i in range(GROUPS)]
    limits = [
        LimitLine(name, pool, name, 10**6 * MILLI, left) for name in (*names, *groups, "root") for pool in POOLS
    ]
    lines = [
        AccountLine(name, pool, 2_000_000 + i, i, (name, groups[i % GROUPS], "root"))
        for i, name in enumerate(names)
        for pool in POOLS
    ]
    users = [UserLine(name, user, ("backed", "spare")) for name in names for user in (*USERS, f"of_{name}")]
    return render(
        DecisionTable(
            generation=generation,
            snapshot=now,
            stale_after=now + 24 * HOUR,
            cluster="demo",
            mode=Mode.ENFORCE,
            contract=ContractLine(CAP, HOUR, HOUR),
            ahead=50,
            backed_base=2_000_000,
            spare_base=0,
            horizons=grid,
            twins=MappingProxyType({"backed": "spare"}),
            adopt="backed",
            partitions=(PartitionLine("gpu", HOUR, True, None, (ShapeLine("a100", "a100", 4000, 16, 0),)),),
            limits=tuple(limits),
            accounts=tuple(lines),
            users=tuple(users),
        )
    )
