"""The decision table: what the submit plugin knows, as text (``docs/reference/table.md``) and as values.

:func:`parse` accepts exactly what :func:`render` writes: a text that is cut anywhere, of another version or
inconsistent is refused. The plugin reads the same text with the same checks.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.model import MILLI, Mode
from pyslurm_budget.domain.slices import MOST_PARTS
from pyslurm_budget.domain.table_lines import (
    AccountLine,
    ContractLine,
    DecisionTable,
    PartitionLine,
    ShapeLine,
    UserLine,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

__all__ = [
    "AccountLine",
    "ContractLine",
    "DecisionTable",
    "PartitionLine",
    "ShapeLine",
    "UserLine",
    "parse",
    "render",
]

KIND = "sbudget-table"
# Without parts of GPUs a table is written in version 1, which plugins of before them read too.
VERSIONS = ("1", "2")
NONE = "-"
# Lua 5.1 has only doubles: above this whole numbers are no longer exact.
LARGEST = 2**53 - 1
ONCE = (KIND, "contract", "array", "scale", "horizons")
MANY = ("qos", "adopt", "operator", "fraction", "mode", "partition", "shape", "account", "user")


def render(table: DecisionTable) -> str:
    """The table's text. Raises ``ValueError`` for a value that the format cannot hold."""
    lines = ["\t".join(_checked(line)) for line in _records(table)]
    lines.append(f"end\t{len(lines)}")
    text = "\n".join(lines) + "\n"
    if parse(text) != table:
        raise ValueError("The decision table has a name that its text cannot hold ('-', or a comma in a QOS).")
    return text


def _checked(fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields, if none of them is empty or breaks the line."""
    for value in fields:
        if not value or any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise ValueError(f"The decision table cannot hold the field {value!r} of its {fields[0]} line.")
    return fields


def _records(t: DecisionTable) -> Iterator[tuple[str, ...]]:
    """All lines but the last, as fields."""
    version = VERSIONS[bool(t.fractions)]
    yield (KIND, version, str(t.generation), str(t.snapshot), str(t.stale_after), t.cluster, str(t.mode))
    c = t.contract
    yield ("contract", str(c.cap), str(c.default), str(c.floor), _flag(c.requeue))
    yield ("array", str(t.ahead))
    yield ("scale", str(t.backed_base), str(t.spare_base))
    yield ("horizons", *map(str, t.horizons))
    for managed, twin in t.twins.items():
        yield ("qos", managed, twin)
    if t.adopt is not None:
        yield ("adopt", t.adopt)
    for name, uid in t.operators:
        yield ("operator", name, str(uid))
    for kind, part in t.fractions.items():
        yield ("fraction", kind, str(part.numerator), str(part.denominator))
    yield from (("mode", "partition", name, str(mode)) for name, mode in t.partition_modes.items())
    yield from (("mode", "account", name, str(mode)) for name, mode in t.account_modes.items())
    for p in t.partitions:
        yield ("partition", p.name, str(p.default_contract), _flag(p.is_default), _number(p.time_limit))
        for s in p.shapes:
            yield ("shape", p.name, s.pool, s.gpu_type or NONE, _gpus(s.rate, version), str(s.cpus), str(s.memory_mb))
    for a in t.accounts:
        factors = (str(a.backed_factor), str(a.spare_factor), str(a.ceiling_left))
        yield ("account", a.account, a.pool, a.budget or NONE, *factors, a.limit or NONE, *map(str, a.left))
    for u in t.users:
        yield ("user", u.account, u.user, ",".join(u.qos) or NONE)


def _gpus(rate: int, version: str) -> str:
    """GPUs of a node as the version has them: whole ones in the first, thousandths in the second."""
    if version == "2":
        return str(rate)
    if rate % MILLI:
        raise ValueError("The decision table has a node of parts of GPUs, and no fraction that says so.")
    return str(rate // MILLI)


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _number(value: int | None) -> str:
    return NONE if value is None else str(value)


def parse(text: str) -> DecisionTable:
    """Read a table. Raises ``ValueError`` naming the line and the fault; a cut text is always refused."""
    lines = text.split("\n")
    if lines.pop() or not lines or lines[-1] != f"end\t{len(lines) - 1}":
        raise ValueError(f"Line {len(lines)} of the decision table: the text is cut (no fitting end line).")
    reader = _Reader()
    for number, line in enumerate(lines[:-1], 1):
        try:
            reader.take(number, line.split("\t"))
        except ValueError as error:
            raise ValueError(f"Line {number} of the decision table: {error}") from None
    return reader.table()


class _Reader:
    """Builds a table from its lines; each method takes the fields of one kind of line."""

    def __init__(self) -> None:
        self._once: dict[str, list[str]] = {}
        self._horizons: tuple[int, ...] = ()
        self._twins: dict[str, str] = {}
        self._adopt: str | None = None
        self._operators: dict[int, str] = {}
        self._fractions: dict[str, Fraction] = {}
        self._partitions: dict[str, PartitionLine] = {}
        self._modes: dict[str, dict[str, Mode]] = {"partition": {}, "account": {}}
        self._accounts: dict[tuple[str, str], AccountLine] = {}
        self._users: dict[tuple[str, str], UserLine] = {}

    def take(self, number: int, fields: list[str]) -> None:
        """Read one line. Raises ``ValueError`` with the fault."""
        kind, *rest = fields
        if not all(rest):
            raise ValueError("a field is empty")
        if (number == 1) != (kind == KIND):
            raise ValueError(f"{kind!r} where {'the first line' if number == 1 else 'a record'} is expected")
        if kind in ONCE:
            if kind in self._once:
                raise ValueError(f"{kind} comes twice")
            self._once[kind] = rest
        elif kind not in MANY:
            raise ValueError(f"unknown record {kind!r}")
        read: Callable[[list[str]], None] = getattr(self, f"read_{kind.replace('-', '_')}")
        read(rest)

    def table(self) -> DecisionTable:
        """The table, if no part of it is missing."""
        for kind in ONCE:
            if kind not in self._once:
                raise ValueError(f"The decision table has no {kind} line.")
        *seconds, requeue = self._once["contract"]
        if self._has_parts() != bool(self._fractions):
            raise ValueError("The decision table has fractions in version 1, or none in version 2.")
        cap, default, floor = map(int, seconds)
        contract = ContractLine(cap, default, floor, requeue == "1")
        if self._horizons[-1] != contract.cap:
            raise ValueError("The decision table's last horizon is not the cap.")
        if set(self._twins) & set(self._twins.values()):
            raise ValueError("The decision table has a QOS that is both managed and a spare twin.")
        _, generation, snapshot, stale_after, cluster, mode = self._once[KIND]
        return DecisionTable(
            generation=int(generation),
            snapshot=int(snapshot),
            stale_after=int(stale_after),
            cluster=cluster,
            mode=Mode(mode),
            contract=contract,
            ahead=int(self._once["array"][0]),
            backed_base=int(self._once["scale"][0]),
            spare_base=int(self._once["scale"][1]),
            horizons=self._horizons,
            twins=MappingProxyType(self._twins),
            adopt=self._adopt,
            operators=tuple((name, uid) for uid, name in self._operators.items()),
            partitions=tuple(self._partitions.values()),
            accounts=tuple(self._accounts.values()),
            users=tuple(self._users.values()),
            fractions=MappingProxyType(self._fractions),
            partition_modes=MappingProxyType(self._modes["partition"]),
            account_modes=MappingProxyType(self._modes["account"]),
        )

    def _has_parts(self) -> bool:
        """Whether the table is of the second version."""
        return self._once[KIND][0] == VERSIONS[1]

    def read_sbudget_table(self, rest: list[str]) -> None:
        """The first line."""
        version, generation, snapshot, stale_after, _, mode = _fields(rest, 6)
        if version not in VERSIONS:
            raise ValueError(f"version {version}, this release reads versions {' and '.join(VERSIONS)}")
        for value in (generation, snapshot, stale_after):
            _natural(value)
        Mode(mode)

    def read_contract(self, rest: list[str]) -> None:
        """Cap, default, floor, and whether jobs are requeued by default."""
        *seconds, requeue = _fields(rest, 4)
        for value in seconds:
            _natural(value)
        _truth(requeue)

    def read_array(self, rest: list[str]) -> None:
        """Tasks ahead."""
        _natural(_fields(rest, 1)[0])

    def read_scale(self, rest: list[str]) -> None:
        """The two bases."""
        for value in _fields(rest, 2):
            _natural(value)

    def read_horizons(self, rest: list[str]) -> None:
        """Ends of the segments."""
        self._horizons = tuple(map(_natural, rest))
        if not rest or any(b <= a for a, b in zip((0, *self._horizons), self._horizons, strict=False)):
            raise ValueError("the horizons do not ascend from above 0")

    def read_qos(self, rest: list[str]) -> None:
        """A managed QOS and its twin."""
        managed, twin = _fields(rest, 2)
        _new(self._twins, managed)
        self._twins[managed] = twin

    def read_adopt(self, rest: list[str]) -> None:
        """The managed QOS of jobs that name none."""
        (managed,) = _fields(rest, 1)
        if managed not in self._twins or self._adopt is not None:
            raise ValueError(f"{managed!r} is no managed QOS named before, or a second one")
        self._adopt = managed

    def read_operator(self, rest: list[str]) -> None:
        """A name and its uid."""
        name, uid = _fields(rest, 2)
        _new(self._operators, _natural(uid))
        self._operators[int(uid)] = name

    def read_fraction(self, rest: list[str]) -> None:
        """How much of a GPU a device of a type, or a shard, is."""
        kind, part, of = _fields(rest, 3)
        _new(self._fractions, kind)
        if not 0 < _natural(part) <= _natural(of) <= MOST_PARTS:
            raise ValueError(f"{part}/{of} is no part of a GPU of at most {MOST_PARTS}")
        self._fractions[kind] = Fraction(int(part), int(of))

    def read_mode(self, rest: list[str]) -> None:
        """The mode of a partition or of an account that stays behind the cluster's."""
        what, name, mode = _fields(rest, 3)
        if what not in self._modes:
            raise ValueError(f"{what!r} where partition or account is expected")
        _new(self._modes[what], name)
        self._modes[what][name] = Mode(mode)

    def read_partition(self, rest: list[str]) -> None:
        """A partition."""
        name, contract, default, limit = _fields(rest, 4)
        _new(self._partitions, name)
        time_limit = None if limit == NONE else _natural(limit)
        self._partitions[name] = PartitionLine(name, _natural(contract), _truth(default), time_limit)

    def read_shape(self, rest: list[str]) -> None:
        """A kind of node of a partition named before."""
        name, pool, gpu_type, *size = _fields(rest, 6)
        if name not in self._partitions:
            raise ValueError(f"the shape's partition {name!r} is not known")
        known = self._partitions[name]
        gpus, cpus, memory = map(_natural, size)
        rate = gpus if self._has_parts() else gpus * MILLI
        shape = ShapeLine(pool, None if gpu_type == NONE else gpu_type, rate, cpus, memory)
        self._partitions[name] = replace(known, shapes=(*known.shapes, shape))

    def read_account(self, rest: list[str]) -> None:
        """An account in a pool."""
        if not self._horizons:
            raise ValueError("an account before the horizons")
        account, pool, budget, backed, spare, ceiling, limit, *left = _fields(rest, 7 + len(self._horizons))
        _new(self._accounts, (account, pool))
        self._accounts[account, pool] = AccountLine(
            account,
            pool,
            None if budget == NONE else budget,
            _natural(backed),
            _natural(spare),
            _whole(ceiling),
            None if limit == NONE else limit,
            tuple(map(_whole, left)),
        )

    def read_user(self, rest: list[str]) -> None:
        """An association."""
        account, user, qos = _fields(rest, 3)
        _new(self._users, (account, user))
        self._users[account, user] = UserLine(account, user, () if qos == NONE else tuple(qos.split(",")))


def _fields(rest: list[str], count: int) -> list[str]:
    if len(rest) != count:
        raise ValueError(f"{len(rest)} fields where {count} are expected")
    return rest


def _new(known: Container[object], key: object) -> None:
    if key in known:
        raise ValueError(f"{key!r} comes twice")


def _truth(text: str) -> bool:
    """A flag."""
    if text not in ("0", "1"):
        raise ValueError(f"{text!r} where 0 or 1 is expected")
    return text == "1"


def _natural(text: str) -> int:
    """A number of at least 0."""
    digits = text.isascii() and text.isdigit() and len(text) <= 16
    if not digits or int(text) > LARGEST or text != str(int(text)):
        raise ValueError(f"{text!r} where a whole number is expected")
    return int(text)


def _whole(text: str) -> int:
    """A number with or without a minus sign."""
    if not text.startswith("-"):
        return _natural(text)
    if text == "-0":
        raise ValueError(f"{text!r} where a whole number is expected")
    return -_natural(text[1:])
