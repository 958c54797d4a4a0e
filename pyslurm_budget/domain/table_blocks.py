"""The second part of the decision table's text: blocks of limits, accounts and users, each with its length in bytes.

The plugin finds its way from block to block by the lengths, and reads a block when a job first needs it. Here every
line is read, by the same rules.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from pyslurm_budget.domain.table_lines import AccountLine, LimitLine, UserLine

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from pyslurm_budget.domain.table_lines import DecisionTable

_Line = TypeVar("_Line")
NONE = "-"
# Lua 5.1 has only doubles: above this whole numbers are no longer exact.
LARGEST = 2**53 - 1
# What the lines of a block are called.
LINES = {"limit": "limit", "account": "account", "users": "user"}
# Up to sixteen digits, with no zero in front.
MOST_DIGITS = 16


def blocks(t: DecisionTable) -> Iterator[tuple[str, str, list[tuple[str, ...]]]]:
    """Kind, name and lines of every block of a sorted table."""
    for limit, limits in groupby(t.limits, lambda line: line.limit):
        rows = [("limit", line.pool, line.name, str(line.ceiling_left), *map(str, line.left)) for line in limits]
        yield "limit", limit, rows
    for account, accounts in groupby(t.accounts, lambda line: line.account):
        yield "account", account, [_account(line) for line in accounts]
    for account, users in groupby(t.users, lambda line: line.account):
        yield "users", account, [("user", line.user, ",".join(line.qos) or NONE) for line in users]


def _account(line: AccountLine) -> tuple[str, ...]:
    return ("account", line.pool, str(line.backed_factor), str(line.spare_factor), *(line.limits or (NONE,)))


class BlockReader:
    """Reads the blocks, line by line; raises ``ValueError`` with the fault."""

    def __init__(self, horizons: int) -> None:
        """``horizons``: how many numbers a limit has beside its ceiling."""
        self._horizons = horizons
        self._kind, self._name, self._left = "", "", 0
        self._seen: set[tuple[str, str]] = set()
        self._limits: dict[tuple[str, str], LimitLine] = {}
        self._accounts: dict[tuple[str, str], AccountLine] = {}
        self._users: dict[tuple[str, str], UserLine] = {}

    def take(self, line: str, kind: str, rest: list[str]) -> None:
        """One line, whole and as its kind and the fields after it."""
        if not all(rest):
            raise ValueError("a field is empty")
        if self._left <= 0:
            self._begin(kind, rest)
            return
        if kind != LINES[self._kind]:
            raise ValueError(f"{kind!r} where {LINES[self._kind]!r} is expected")
        self._left -= len(line.encode()) + 1
        key = self._name, rest[0]
        match kind:
            case "limit":
                new(self._limits, key)
                self._limits[key] = self._limit(rest)
            case "account":
                new(self._accounts, key)
                self._accounts[key] = self._account(rest)
            case _:
                new(self._users, key)
                user, qos = fields(rest, 2)
                self._users[key] = UserLine(self._name, user, () if qos == NONE else tuple(qos.split(",")))

    def _begin(self, kind: str, rest: list[str]) -> None:
        """The first line of a block."""
        if kind != "block" or self._left < 0:
            raise ValueError(f"{kind!r} where a block is expected, or a block of another length")
        of, name, size = fields(rest, 3)
        if of not in LINES:
            raise ValueError(f"unknown block {of!r}")
        new(self._seen, (of, name))
        self._seen.add((of, name))
        self._kind, self._name, self._left = of, name, natural(size)

    def _limit(self, rest: list[str]) -> LimitLine:
        pool, name, ceiling, *left = fields(rest, 3 + self._horizons)
        return LimitLine(self._name, pool, name, whole(ceiling), tuple(map(whole, left)))

    def _account(self, rest: list[str]) -> AccountLine:
        pool, backed, spare, *limits = rest if len(rest) > 3 else fields(rest, 4)
        if NONE in limits and len(limits) > 1:
            raise ValueError("'-' among limits")
        known = () if limits == [NONE] else tuple(limits)
        return AccountLine(self._name, pool, natural(backed), natural(spare), known)

    def lines(self) -> tuple[tuple[LimitLine, ...], tuple[AccountLine, ...], tuple[UserLine, ...]]:
        """All of them, sorted; raises ``ValueError`` where a block is cut or an account names an unknown limit."""
        if self._left:
            raise ValueError(f"The decision table's block of {self._name!r} has another length.")
        for line in self._accounts.values():
            missing = next((limit for limit in line.limits if (limit, line.pool) not in self._limits), None)
            if missing is not None:
                raise ValueError(f"The decision table has no limit {missing!r} in pool {line.pool!r}.")
        return _in_order(self._limits), _in_order(self._accounts), _in_order(self._users)


def _in_order(known: dict[tuple[str, str], _Line]) -> tuple[_Line, ...]:
    return tuple(known[key] for key in sorted(known))


def fields(rest: list[str], count: int) -> list[str]:
    """The fields, if they are so many."""
    if len(rest) != count:
        raise ValueError(f"{len(rest)} fields where {count} are expected")
    return rest


def new(known: Container[object], key: object) -> None:
    """Raise ``ValueError`` if the key is known."""
    if key in known:
        raise ValueError(f"{key!r} comes twice")


def natural(text: str) -> int:
    """A number of at least 0."""
    digits = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not digits or int(text) > LARGEST or text != str(int(text)):
        raise ValueError(f"{text!r} where a whole number is expected")
    return int(text)


def whole(text: str) -> int:
    """A number with or without a minus sign."""
    if not text.startswith("-"):
        return natural(text)
    if text == "-0":
        raise ValueError(f"{text!r} where a whole number is expected")
    return -natural(text[1:])
