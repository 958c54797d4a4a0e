"""The decision at submit: the reference of ``slurm_conf/job_submit.lua``, number by number and word by word.

The simulated cluster uses it as its submit plugin; a test compares the two on the same tables and requests. Units as
in the table: mGPU-s, rates in thousandths of a GPU, seconds, MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain import slices
from pyslurm_budget.domain import submit_words as words
from pyslurm_budget.domain.comment import ContractKind, contract_of, declared_minimum, price_length
from pyslurm_budget.domain.model import Mode
from pyslurm_budget.domain.pool import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyslurm_budget.domain.carry import Carry
    from pyslurm_budget.domain.table import AccountLine, DecisionTable, PartitionLine, ShapeLine

OUR_RESERVATION = "sbudget_"
ASKED_SPARE = "sbudget:spare"


class Outcome(StrEnum):
    """What becomes of a submission; ``LEAVE``: we do not touch it."""

    BACKED = "backed"
    SPARE = "spare"
    LEAVE = "leave"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a submission asks for, as the plugin reads it.

    ``account`` is in lower case. ``qos`` is what was typed (may be a list), ``default_qos`` the association's;
    ``partition`` may be a list, ``None`` for the default one. ``gpus`` (all nodes) is ``None`` where only Slurm can
    know; ``shards`` are those of GPUs. ``cpus`` and ``memory_mb`` are totals of which 0 means "not said".
    ``all_memory`` is ``--mem=0``. ``time_limit`` is ``None`` if not given, and ``unlimited`` wins over it.
    ``requeue`` is ``None`` if not given. ``het``: a part of a heterogeneous job. ``immediate`` jobs are judged, but
    not remembered.
    """

    account: str
    user: str
    qos: str | None = None
    default_qos: str | None = None
    partition: str | None = None
    gpus: int | None = 0
    gpu_type: str | None = None
    shards: int = 0
    nodes: int = 1
    cpus: int = 0
    memory_mb: int = 0
    exclusive: bool = False
    all_memory: bool = False
    time_limit: int | None = None
    unlimited: bool = False
    array_tasks: int | None = None
    requeue: bool | None = None
    interactive: bool = False
    cron: bool = False
    het: bool = False
    immediate: bool = False
    comment: str = ""
    reservation: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and what to say.

    ``qos``, ``site_factor`` and ``marker`` (AdminComment) are to be set unless ``None``. ``judged`` is the class that
    the job would have in enforce; ``code`` and ``numbers`` say why. ``message`` is for the user, lines separated by
    newlines, empty for none. ``promised`` is what the plugin remembers: (limit, pool) pairs, with rate and length.
    """

    outcome: Outcome
    judged: Outcome
    code: str
    qos: str | None = None
    site_factor: int | None = None
    marker: str | None = None
    message: str = ""
    numbers: Mapping[str, int | str] = field(default_factory=lambda: MappingProxyType({}))
    promised: tuple[tuple[str, str], ...] = ()


# The QOS of an association without a default of its own; a site's other defaults are never overruled.
SLURMS_OWN = "normal"
# Seconds that a snapshot may be ahead of the clock: beyond, the clock was set back and nobody knows its age.
SKEW = 60
LEFT_ALONE = Decision(Outcome.LEAVE, Outcome.LEAVE, "not-managed")


def decide(table: DecisionTable, request: SubmitRequest, *, now: int, carry: Carry) -> Decision:
    """Judge one submission by the table; ``carry.add(request, decision, now)`` then makes it count for the next."""
    mode = table.mode_for(request.account, request.partition)
    if mode is Mode.OBSERVE:
        return LEFT_ALONE
    decision = _Judge(table, request, now, carry).judge()
    if mode is Mode.ENFORCE:
        return decision
    return replace(decision, outcome=Outcome.LEAVE, qos=None, site_factor=None, marker=None)


def managed_qos(table: DecisionTable, names: str | None) -> tuple[str, bool] | None:
    """The managed QOS that a text (one name or a list) comes to, and whether its spare twin was meant.

    One managed name in a list is enough; ``None`` if there is neither a managed QOS nor a twin.
    """
    listed = [name.lower() for name in (names or "").split(",")]
    for name in listed:
        if name in table.twins:
            return name, False
    for name in listed:
        for managed, twin in table.twins.items():
            if twin == name:
                return managed, True
    return None


def without_table(last: DecisionTable | None, request: SubmitRequest) -> Decision:
    """Judge without a table that can be used: a typed managed QOS becomes spare, all else is left alone (4.8)."""
    if last is None or last.mode_for(request.account, request.partition) is not Mode.ENFORCE:
        return LEFT_ALONE
    found = managed_qos(last, request.qos)
    if found is None or found[1]:
        return LEFT_ALONE
    twin = last.twins[found[0]]
    if twin not in last.by_user.get((request.account, request.user), frozenset()):
        return LEFT_ALONE
    return Decision(Outcome.SPARE, Outcome.SPARE, "no-table", twin, last.spare_base, None, words.NO_TABLE)


class _Judge:
    """One submission against one table; the stages of :meth:`judge` are those of the plugin."""

    def __init__(self, table: DecisionTable, request: SubmitRequest, now: int, carry: Carry) -> None:
        self.t = table
        self.r = request
        self.stale = now > table.stale_after or now < table.snapshot - SKEW
        self.carry = carry
        self.pair = (request.account, request.user)
        self.allowed = table.by_user.get(self.pair)
        self.managed, self.twin_meant = "", False
        self.partitions: tuple[PartitionLine, ...] = ()
        self.shapes: tuple[ShapeLine, ...] = ()
        self.limit: int | None = None
        self.requeueable = True

    def judge(self) -> Decision:
        """Refuse, leave, or find the class."""
        if any(name.startswith(OUR_RESERVATION) for name in (self.r.reservation or "").split(",")):
            return self._refuse("our-reservation", words.OUR_RESERVATION)
        if not self._is_ours():
            return LEFT_ALONE
        default = self._facts()
        cap = self.t.contract.cap
        try:
            declared = declared_minimum(self.r.comment)
        except ValueError as error:
            return self._refuse("unreadable-contract", str(error))
        contract = contract_of(
            declared, time_limit=self.limit, requeueable=self.requeueable, default=default, cap=cap
        )
        if contract.kind is ContractKind.ABOVE_CAP:
            return self._refuse("above-cap", words.too_long(contract.seconds, cap))
        return self._always_spare(contract.kind) or self._by_budget(contract.seconds)

    def _always_spare(self, kind: ContractKind) -> Decision | None:
        """Spare whatever the budget has left, if so."""
        typed = self.twin_meant and self.r.qos is not None
        if kind is ContractKind.ASKED_SPARE or typed:
            return self._spare("declared-spare", words.AS_ASKED, marker=ASKED_SPARE if typed else None)
        if self.r.cron:
            return self._spare("cron", words.CRON)
        if kind is ContractKind.CANNOT_REQUEUE:
            return self._spare("cannot-requeue-too-long", words.cannot_requeue(self.t.contract.cap))
        if self.r.het:
            return self._spare("undecided", words.HET)
        if self.r.gpus is None or not self.shapes:
            return self._spare("undecided", words.UNDECIDED)
        return None

    def _is_ours(self) -> bool:
        """Whether it is of a managed QOS, of an association that the table knows, and on a partition with GPUs."""
        default = self.r.default_qos or SLURMS_OWN
        found = managed_qos(self.t, default if self.r.qos is None else self.r.qos)
        if found is None and self.r.qos is None and self.t.adopt and default == SLURMS_OWN:
            found = self.t.adopt, False
        if found is None or self.allowed is None:
            return False
        self.managed, self.twin_meant = found
        if self.r.partition is None:
            self.partitions = tuple(p for p in self.t.partitions if p.is_default)[:1]
        else:
            names = self.r.partition.split(",")
            self.partitions = tuple(self.t.by_partition[n] for n in names if n in self.t.by_partition)
        self.partitions = tuple(p for p in self.partitions if p.shapes)
        return bool(self.partitions)

    def _facts(self) -> int:
        """Find the shapes that it may land on, its time limit, and whether it can be requeued; returns the default
        contract (of the first partition)."""
        self.shapes = tuple(
            s for p in self.partitions for s in p.shapes if self.r.gpu_type is None or s.gpu_type == self.r.gpu_type
        )
        limits = [p.time_limit for p in self.partitions]
        if self.r.unlimited:
            self.limit = None
        elif self.r.time_limit is not None:
            self.limit = self.r.time_limit
        else:
            self.limit = None if None in limits else max(limit for limit in limits if limit is not None)
        requeue = self.t.contract.requeue if self.r.requeue is None else self.r.requeue
        session = self.t.interactive.matches((p.name for p in self.partitions), self.managed, self.r.name)
        self.requeueable = requeue and not self.r.interactive and not session
        return self.partitions[0].default_contract

    def _pools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.pool for s in self.shapes))

    def _rate(self) -> int:
        """The dearest of the shapes, in thousandths."""
        rates = []
        for s in self.shapes:
            gpus = slices.asked(self.r.gpus or 0, self.r.shards, s.gpu_type, self.t.fractions)
            rate = Shape(s.rate, s.cpus, s.memory_mb).charge(gpus, self.r.cpus, self.r.memory_mb)
            if self.r.exclusive or (self.r.all_memory and s.memory_mb):
                rate = max(rate, s.rate * self.r.nodes)
            rates.append(rate)
        return max(rates)

    def _by_budget(self, contract: int) -> Decision:
        """Ask the budget in every pool that it may land on."""
        pools = self._pools()
        known = [line for pool in pools if (line := self.t.by_account.get((self.r.account, pool))) and line.limits]
        if len(known) < len(pools):
            return self._spare("no-budget", words.no_budget(self.r.account))
        tasks = 1 if self.r.array_tasks is None else self.r.array_tasks
        rate = self._rate() * tasks
        if self.r.array_tasks is not None and tasks > self.t.ahead:
            return self._spare("array-ahead", words.array_ahead(self.t.ahead))
        length = self._length(contract)
        price = {"rate": rate, "length": length, "contract": contract}
        lefts = [self._left_of(line) for line in known]
        for left in lefts:
            if rate > left[0][0]:
                return self._spare("ceiling", words.ceiling(rate, *left[0]), price)
            if not self._fits(rate, length, left):
                text = words.headroom(rate * length, *min(left[1:], key=lambda found: found[0]))
                if self.r.array_tasks is not None:
                    text += "\n" + words.ARRAY_LATER
                else:
                    text += words.shorter(self._shorter(rate, contract, lefts))
                return self._spare("headroom", text, price)
        promised = tuple((limit, line.pool) for line in known for limit in line.limits)
        return self._backed(contract, price, known[0].backed_factor, lefts[0][-1], promised)

    def _left_of(self, line: AccountLine) -> list[tuple[int, str]]:
        """What is left under all its limits, and whose limit that is: the ceiling first, then each horizon."""
        limits = [self.t.by_limit[limit, line.pool] for limit in line.limits]
        lefts = [self.carry.left_of(limit, self.t.horizons, self.pair) for limit in limits]
        named = ([(left, limit.name) for left in lefts[i]] for i, limit in enumerate(limits))
        return [min(at, key=lambda found: found[0]) for at in zip(*named, strict=True)]

    def _length(self, contract: int) -> int:
        """Seconds that it is priced at; by a stale table everything is priced at the floor."""
        return price_length(0 if self.stale else contract, self.t.contract.floor, self.limit)

    def _fits(self, rate: int, length: int, left: list[tuple[int, str]]) -> bool:
        return all(rate * min(h, length) <= rest for h, (rest, _) in zip(self.t.horizons, left[1:], strict=True))

    def _shorter(self, rate: int, contract: int, lefts: list[list[tuple[int, str]]]) -> int:
        """The longest contract below this one that would be backed now, of those worth naming; 0 for none."""
        if not self.requeueable or self.stale:
            return 0
        for shorter in sorted({*self.t.horizons, self.t.contract.floor}, reverse=True):
            length = self._length(shorter)
            if words.MINUTE <= shorter < contract and all(self._fits(rate, length, left) for left in lefts):
                return shorter
        return 0

    def _backed(
        self,
        contract: int,
        price: dict[str, int],
        factor: int,
        left: tuple[int, str],
        promised: tuple[tuple[str, str], ...],
    ) -> Decision:
        """Backed, unless the association may not use the QOS."""
        if self.managed not in (self.allowed or ()):
            return self._spare("no-qos", words.no_qos(self.managed), price)
        text = words.backed(contract, price["rate"] * price["length"], *left, self.requeueable)
        return Decision(
            Outcome.BACKED,
            Outcome.BACKED,
            "admitted",
            self.managed,
            factor,
            None,
            self._prefix() + text,
            price,
            promised,
        )

    def _spare(
        self, code: str, text: str, price: dict[str, int] | None = None, *, marker: str | None = None
    ) -> Decision:
        """Spare, unless the association may not use the twin: then the job keeps what it asked for, and is told."""
        twin = self.t.twins[self.managed]
        numbers: dict[str, int | str] = dict(price or {})
        if twin not in (self.allowed or ()):
            text = self._prefix() + words.SPARE + text + "\n" + words.no_twin(twin)
            return Decision(Outcome.LEAVE, Outcome.SPARE, code, message=text, numbers=numbers)
        pools = self._pools()
        line = self.t.by_account.get((self.r.account, pools[0])) if pools else None
        factor = self.t.spare_base if line is None else line.spare_factor
        text = self._prefix() + words.SPARE + text
        return Decision(Outcome.SPARE, Outcome.SPARE, code, twin, factor, marker, text, numbers)

    def _refuse(self, code: str, text: str) -> Decision:
        return Decision(Outcome.REFUSED, Outcome.REFUSED, code, message=text)

    def _prefix(self) -> str:
        return f"{self.r.account}, {self._pools()[0]}: " if self.shapes else f"{self.r.account}: "
