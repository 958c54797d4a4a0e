"""The decision table: what the submit plugin knows, as text (``docs/reference/table.md``) and as values.

:func:`parse` accepts exactly what :func:`render` writes: a text that is cut anywhere, of another version or
inconsistent is refused. The plugin reads the same text with the same checks.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.interactive import Interactive
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.slices import MOST_PARTS
from pyslurm_budget.domain.table_blocks import NONE, BlockReader, blocks, fields, natural, new
from pyslurm_budget.domain.table_lines import (
    AccountLine,
    ContractLine,
    DecisionTable,
    LimitLine,
    PartitionLine,
    ShapeLine,
    UserLine,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "AccountLine",
    "ContractLine",
    "DecisionTable",
    "LimitLine",
    "PartitionLine",
    "ShapeLine",
    "UserLine",
    "parse",
    "render",
]

KIND = "sbudget-table"
VERSION = "3"
ONCE = (KIND, "contract", "array", "scale", "horizons")
MANY = ("qos", "adopt", "claim", "operator", "fraction", "mode", "interactive", "partition", "shape")


def render(table: DecisionTable) -> str:
    """The table's text. Raises ``ValueError`` for a value that the format cannot hold."""
    table = _sorted(table)
    head = "".join("\t".join(_checked(line)) + "\n" for line in _records(table))
    parts = [head]
    for kind, name, lines in blocks(table):
        body = "".join("\t".join(_checked(line)) + "\n" for line in lines)
        parts += ["\t".join(_checked(("block", kind, name, str(len(body.encode()))))) + "\n", body]
    text = "".join(parts)
    text += f"end\t{len(text.encode())}\n"
    if parse(text) != table:
        raise ValueError("The decision table has a name that its text cannot hold ('-', or a comma in a QOS).")
    return text


def _sorted(table: DecisionTable) -> DecisionTable:
    """The table in the order that its text has."""
    return replace(
        table,
        limits=tuple(sorted(table.limits, key=lambda line: (line.limit, line.pool))),
        accounts=tuple(sorted(table.accounts, key=lambda line: (line.account, line.pool))),
        users=tuple(sorted(table.users, key=lambda line: (line.account, line.user))),
    )


def _checked(line: tuple[str, ...]) -> tuple[str, ...]:
    """The fields, if none of them is empty or breaks the line."""
    for value in line:
        if not value or any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise ValueError(f"The decision table cannot hold the field {value!r} of its {line[0]} line.")
    return line


def _records(t: DecisionTable) -> Iterator[tuple[str, ...]]:
    """The lines of the head, as fields."""
    yield (KIND, VERSION, str(t.generation), str(t.snapshot), str(t.stale_after), t.cluster, str(t.mode))
    c = t.contract
    yield ("contract", str(c.cap), str(c.default), str(c.floor), _flag(c.requeue))
    yield ("array", str(t.ahead))
    yield ("scale", str(t.backed_base), str(t.spare_base))
    yield ("horizons", *map(str, t.horizons))
    for managed, twin in t.twins.items():
        yield ("qos", managed, twin)
    if t.adopt is not None:
        yield ("adopt", t.adopt)
    if t.claim is not None:
        yield ("claim", *t.claim)
    for name, uid in t.operators:
        yield ("operator", name, str(uid))
    for kind, part in t.fractions.items():
        yield ("fraction", kind, str(part.numerator), str(part.denominator))
    yield from (("interactive", what, name) for what, names in _interactive(t) for name in names)
    yield from (("mode", "partition", name, str(mode)) for name, mode in t.partition_modes.items())
    yield from (("mode", "account", name, str(mode)) for name, mode in t.account_modes.items())
    for p in t.partitions:
        yield ("partition", p.name, str(p.default_contract), _flag(p.is_default), _number(p.time_limit))
        for s in p.shapes:
            yield ("shape", p.name, s.pool, s.gpu_type or NONE, str(s.rate), str(s.cpus), str(s.memory_mb))


def _interactive(t: DecisionTable) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("partition", t.interactive.partitions), ("qos", t.interactive.qos), ("name", t.interactive.names)


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _number(value: int | None) -> str:
    return NONE if value is None else str(value)


def parse(text: str) -> DecisionTable:
    """Read a table. Raises ``ValueError`` naming the line and the fault; a cut text is always refused."""
    lines = text.split("\n")
    before = len(text.encode("utf-8", "surrogatepass")) - len(lines[-2].encode()) - 1 if len(lines) > 2 else 0
    if lines.pop() or not lines or lines.pop() != f"end\t{before}":
        raise ValueError(f"Line {len(lines)} of the decision table: the text is cut (no fitting end line).")
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            reader.take(number, line)
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
        self._claim: tuple[str, str] | None = None
        self._operators: dict[int, str] = {}
        self._fractions: dict[str, Fraction] = {}
        self._partitions: dict[str, PartitionLine] = {}
        self._interactive: dict[str, list[str]] = {"partition": [], "qos": [], "name": []}
        self._modes: dict[str, dict[str, Mode]] = {"partition": {}, "account": {}}
        self._blocks: BlockReader | None = None

    def take(self, number: int, line: str) -> None:
        """Read one line. Raises ``ValueError`` with the fault."""
        kind, *rest = line.split("\t")
        if kind == "block" and self._blocks is None and number > 1:
            self._blocks = BlockReader(len(self._horizons))
        if self._blocks is not None:
            self._blocks.take(line, kind, rest)
            return
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
        cap, default, floor = map(int, seconds)
        contract = ContractLine(cap, default, floor, requeue == "1")
        if self._horizons[-1] != contract.cap:
            raise ValueError("The decision table's last horizon is not the cap.")
        if set(self._twins) & set(self._twins.values()):
            raise ValueError("The decision table has a QOS that is both managed and a spare twin.")
        limits, accounts, users = self._blocks.lines() if self._blocks is not None else ((), (), ())
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
            claim=self._claim,
            operators=tuple((name, uid) for uid, name in self._operators.items()),
            partitions=tuple(self._partitions.values()),
            limits=limits,
            accounts=accounts,
            users=users,
            fractions=MappingProxyType(self._fractions),
            partition_modes=MappingProxyType(self._modes["partition"]),
            account_modes=MappingProxyType(self._modes["account"]),
            interactive=Interactive(*(tuple(names) for names in self._interactive.values())),
        )

    def read_sbudget_table(self, rest: list[str]) -> None:
        """The first line."""
        version, generation, snapshot, stale_after, _, mode = fields(rest, 6)
        if version != VERSION:
            raise ValueError(f"version {version}, this release reads version {VERSION}")
        for value in (generation, snapshot, stale_after):
            natural(value)
        Mode(mode)

    def read_contract(self, rest: list[str]) -> None:
        """Cap, default, floor, and whether jobs are requeued by default."""
        *seconds, requeue = fields(rest, 4)
        for value in seconds:
            natural(value)
        _truth(requeue)

    def read_array(self, rest: list[str]) -> None:
        """Tasks ahead."""
        natural(fields(rest, 1)[0])

    def read_scale(self, rest: list[str]) -> None:
        """The two bases."""
        for value in fields(rest, 2):
            natural(value)

    def read_horizons(self, rest: list[str]) -> None:
        """Ends of the segments."""
        self._horizons = tuple(map(natural, rest))
        if not rest or any(b <= a for a, b in zip((0, *self._horizons), self._horizons, strict=False)):
            raise ValueError("the horizons do not ascend from above 0")

    def read_qos(self, rest: list[str]) -> None:
        """A managed QOS and its twin."""
        managed, twin = fields(rest, 2)
        new(self._twins, managed)
        self._twins[managed] = twin

    def read_adopt(self, rest: list[str]) -> None:
        """The managed QOS of jobs that name none."""
        (managed,) = fields(rest, 1)
        if managed not in self._twins or self._adopt is not None:
            raise ValueError(f"{managed!r} is no managed QOS named before, or a second one")
        self._adopt = managed

    def read_claim(self, rest: list[str]) -> None:
        """The QOS that only the controller gives, and its home."""
        claim, home = fields(rest, 2)
        if self._claim is not None or claim in self._twins or home not in self._twins:
            raise ValueError(f"{claim!r} is a second claim QOS, or one without a managed home")
        self._claim = claim, home

    def read_operator(self, rest: list[str]) -> None:
        """A name and its uid."""
        name, uid = fields(rest, 2)
        new(self._operators, natural(uid))
        self._operators[int(uid)] = name

    def read_fraction(self, rest: list[str]) -> None:
        """How much of a GPU a device of a type, or a shard, is."""
        kind, part, of = fields(rest, 3)
        new(self._fractions, kind)
        if not 0 < natural(part) <= natural(of) <= MOST_PARTS:
            raise ValueError(f"{part}/{of} is no part of a GPU of at most {MOST_PARTS}")
        self._fractions[kind] = Fraction(int(part), int(of))

    def read_interactive(self, rest: list[str]) -> None:
        """What makes a job interactive."""
        what, name = fields(rest, 2)
        if what not in self._interactive:
            raise ValueError(f"{what!r} where partition, qos or name is expected")
        new(self._interactive[what], name)
        self._interactive[what].append(name)

    def read_mode(self, rest: list[str]) -> None:
        """The mode of a partition or of an account that stays behind the cluster's."""
        what, name, mode = fields(rest, 3)
        if what not in self._modes:
            raise ValueError(f"{what!r} where partition or account is expected")
        new(self._modes[what], name)
        self._modes[what][name] = Mode(mode)

    def read_partition(self, rest: list[str]) -> None:
        """A partition."""
        name, contract, default, limit = fields(rest, 4)
        new(self._partitions, name)
        time_limit = None if limit == NONE else natural(limit)
        self._partitions[name] = PartitionLine(name, natural(contract), _truth(default), time_limit)

    def read_shape(self, rest: list[str]) -> None:
        """A kind of node of a partition named before."""
        name, pool, gpu_type, *size = fields(rest, 6)
        if name not in self._partitions:
            raise ValueError(f"the shape's partition {name!r} is not known")
        known = self._partitions[name]
        rate, cpus, memory = map(natural, size)
        shape = ShapeLine(pool, None if gpu_type == NONE else gpu_type, rate, cpus, memory)
        self._partitions[name] = replace(known, shapes=(*known.shapes, shape))


def _truth(text: str) -> bool:
    """A flag."""
    if text not in ("0", "1"):
        raise ValueError(f"{text!r} where 0 or 1 is expected")
    return text == "1"
