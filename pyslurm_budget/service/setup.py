"""What Slurm needs for budgets and lacks: the facts, and the changes that `sbudget setup apply` makes. Pure.

A change is a value that knows what it found, so that :mod:`pyslurm_budget.service.setup_undo` can give it back, and
:func:`step_of` writes it as commands for sacctmgr. What sacctmgr does with them was measured on Slurm 22.05.8:

- A QOS list is either of plain names (they replace what is inherited) or of signed ones (they change it). ``qos+=x``
  on a list of its own adds ``x``, on an inherited one it stores ``+x``; ``qos-=x`` then stores ``-x``, it does not
  take the ``+x`` back. Only ``qos=`` (nothing) makes a list inherit again.
- ``partition=`` (nothing) picks a user's association without a partition; without it all of his are changed.
- The deletion of a QOS breaks the lists that still have it (``,3,2,`` becomes ``2,``, which nobody can read), and
  running jobs that have it are left with none. QOS belong to all clusters of a slurmdbd.
- QOS are changed by an Administrator only, lists by an Operator too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmOutputError, SlurmSetupError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyslurm_budget.domain.policy import ClassMap

Key = tuple[str, str, str]
BACKED_PRIORITY = 100
MADE_BY = "made by sbudget setup"
ROOT = "root"
SLURMS_OWN = "normal"  # the QOS that slurmdbd makes itself, and gives where nothing else is said
# What a twin must have of its managed QOS, or jobs would lose it (or escape it) by becoming spare. sacctmgr takes
# these names both after ``format=`` and after ``set`` (not so ``maxtresrunminsperuser``, which it only shows).
LIMITS = (
    "grptres", "grptresmins", "grptresrunmins", "grpjobs", "grpjobsaccrue", "grpsubmitjobs", "grpwall",
    "maxtresperjob", "maxtrespernode", "maxtresminsperjob", "maxwall", "maxtresperuser", "maxjobsperuser",
    "maxsubmitjobsperuser", "maxtresperaccount", "maxjobsperaccount", "maxsubmitjobsperaccount",
    "maxjobsaccrueperuser", "maxjobsaccrueperaccount", "maxtresrunminspu", "maxtresrunminspa",
    "mintresperjob", "minpriothres", "usagefactor", "usagethres", "limitfactor", "flags",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Qos:
    """One QOS. ``grace`` is in seconds, negative for what Slurm reads as "for ever"; ``limits`` maps names of
    :data:`LIMITS` to what is set, as sacctmgr writes it."""

    name: str
    priority: int = 0
    preempt: frozenset[str] = frozenset()
    preempt_mode: str = "cluster"
    grace: int = 0
    limits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Association:
    """An account's association (``user`` empty) or a user's. ``own`` is its own list, signs included, empty where it
    inherits; ``default`` its own DefaultQOS or empty. ``parent`` is an account's parent."""

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    own: frozenset[str] = frozenset()
    default: str = ""

    @property
    def key(self) -> Key:
        """What identifies it in one cluster."""
        return (self.account, self.user, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """The QOS that a partition takes: all of them where ``allow`` is ``None``, never those of ``deny``."""

    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()

    def takes(self, qos: str) -> bool:
        """Whether a job of this QOS may run there."""
        return qos not in self.deny and (self.allow is None or qos in self.allow)


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What `setup` needs to know of Slurm. ``settings`` is ``scontrol show config``; ``weights`` the sum of the
    priority weights; ``admin_level`` that of the calling user (``none``, ``operator``, ``administrator``);
    ``elsewhere`` the QOS in the lists of other clusters of the same slurmdbd."""

    cluster: str
    settings: Mapping[str, str]
    weights: int
    qos: Mapping[str, Qos]
    associations: tuple[Association, ...]
    admin_level: str
    partitions: Mapping[str, PartitionRule] = field(default_factory=lambda: MappingProxyType({}))
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MakeQos:
    """Make a QOS; ``settings`` are sacctmgr's names and values."""

    name: str
    settings: tuple[tuple[str, str], ...]
    why: str


@dataclass(frozen=True, slots=True)
class LetPreempt:
    """Add names to the Preempt list of a QOS that has none of them."""

    qos: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LetUse:
    """Add names to the QOS list of an association; ``before`` is its own list as it was."""

    account: str
    user: str
    partition: str
    names: tuple[str, ...]
    before: frozenset[str]

    @property
    def key(self) -> Key:
        """The association."""
        return (self.account, self.user, self.partition)


Change = MakeQos | LetPreempt | LetUse


@dataclass(frozen=True, slots=True)
class Step:
    """What is done for people (a sentence) and for sacctmgr (the words after ``sacctmgr -i``, a command each)."""

    says: str
    commands: tuple[tuple[str, ...], ...]


def plan(
    facts: SlurmFacts, classes: ClassMap, bound: Collection[str] | None = None, made: Collection[str] = ()
) -> list[Change]:
    """Everything that is missing, in the order in which it can be made; nothing if Slurm has all of it.

    ``bound`` are the accounts of the budgets (``None``: not known yet, then every account), ``made`` the QOS that an
    earlier apply made. Raises SlurmSetupError for a Preempt loop.
    """
    _refuse_loops(facts, classes)
    return [*_missing_qos(facts, classes), *_missing_preempts(facts, classes), *_lists(facts, classes, bound, made)]


def _refuse_loops(facts: SlurmFacts, classes: ClassMap) -> None:
    """A twin that may preempt a managed QOS, directly or through others, stands everything on its head."""
    for twin in dict.fromkeys(classes.twins.values()):
        seen: set[str] = set()
        todo = [twin]
        while todo:
            name = todo.pop()
            if name in classes.twins:
                raise SlurmSetupError(
                    f"the spare QOS {twin} may preempt {name} by its Preempt list, so that spare work would push "
                    f"backed work aside; take that out: sacctmgr -i modify qos {twin} set preempt-={name}"
                )
            if name not in seen:
                seen.add(name)
                todo.extend(facts.qos[name].preempt if name in facts.qos else ())


def _missing_qos(facts: SlurmFacts, classes: ClassMap) -> Iterator[MakeQos]:
    """Twins first: a Preempt list names only what is there."""
    for managed, twin in _first_of_each_twin(classes):
        if twin not in facts.qos:
            yield MakeQos(twin, _twin_settings(facts.qos.get(managed)), f"spare twin of {managed}")
    for managed in classes.twins:
        if managed not in facts.qos:
            settings = (("priority", str(BACKED_PRIORITY)), ("preemptmode", "requeue"))
            yield MakeQos(managed, settings, "work that a budget pays for")


def _first_of_each_twin(classes: ClassMap) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for managed, twin in classes.twins.items():
        if twin not in seen:
            seen.add(twin)
            yield managed, twin


def _twin_settings(managed: Qos | None) -> tuple[tuple[str, str], ...]:
    """The managed QOS's limits and grace, below its rank."""
    copied = managed or Qos("", priority=BACKED_PRIORITY)
    grace = (("gracetime", str(copied.grace)),) if copied.grace > 0 else ()
    priority = str(priority_below(copied.priority))
    return (("priority", priority), ("preemptmode", "requeue"), *grace, *copied.limits.items())


def priority_below(priority: int) -> int:
    """The Priority of a twin: 1 below any that leaves room for it, else 0, which is the least that Slurm knows."""
    return 1 if priority > 1 else 0


def _missing_preempts(facts: SlurmFacts, classes: ClassMap) -> Iterator[LetPreempt]:
    twins = list(dict.fromkeys(classes.twins.values()))
    for managed in classes.twins:
        there = facts.qos[managed].preempt if managed in facts.qos else frozenset()
        if lacking := tuple(twin for twin in twins if twin not in there):
            yield LetPreempt(managed, lacking)


def _lists(
    facts: SlurmFacts, classes: ClassMap, bound: Collection[str] | None, made: Collection[str]
) -> Iterator[LetUse]:
    """QOS lists, of each account by itself: slurmdbd 23.11.0 to 25.05.0 tells slurmctld of a new list only for the
    account, its users and the accounts right below it, not for their users, who would be refused until slurmctld is
    restarted. Children before parents: what an apply that broke off left out is then still missing in slurmdbd, too.

    Whoever has a managed QOS gets its twin. Accounts of budgets also get the managed QOS that jobs adopt, or that we
    make: nobody could have had it before.
    """
    given = [m for m in classes.twins if m == classes.adopt or m in made or m not in facts.qos]
    paying = _paying(facts, bound)
    inforce = in_force(facts.associations)
    ordered = parents_first(facts.associations)
    for association in [*(a for a in reversed(ordered) if not a.user), *(a for a in ordered if a.user)]:
        have = inforce[association.key]
        if association.user:
            have = applied(association.own, inforce.get(_above(association), frozenset()))
        managed = [m for m in classes.twins if m in have or (m in given and association.account in paying)]
        needed = dict.fromkeys([*managed, *(classes.twins[m] for m in managed)])
        lacking = tuple(name for name in needed if name not in have)
        inforce[association.key] = have.union(lacking)
        if lacking:
            yield LetUse(*association.key, lacking, association.own)


def _paying(facts: SlurmFacts, bound: Collection[str] | None) -> frozenset[str]:
    """Accounts that a budget pays for: its own account and those below it."""
    parents = {a.account: a.parent for a in facts.associations if not a.user}
    if bound is None:
        return frozenset(account for account in parents if account != ROOT)
    found = {account for account in parents if account in bound}
    for association in parents_first(facts.associations):
        if not association.user and association.parent in found:
            found.add(association.account)
    return frozenset(found)


def parents_first(associations: Iterable[Association]) -> list[Association]:
    """Accounts from the root down, then users. Raises SlurmOutputError where accounts are their own ancestors."""
    listed = sorted(associations, key=lambda a: a.key)
    waiting = {a.account: a for a in listed if not a.user}
    ordered: list[Association] = []
    while waiting:
        ready = [a for a in waiting.values() if a.parent not in waiting]
        if not ready:
            raise SlurmOutputError(f"sacctmgr show assoc: accounts are their own ancestors: {', '.join(waiting)}")
        ordered += ready
        for association in ready:
            del waiting[association.account]
    return ordered + [a for a in listed if a.user]


def _above(association: Association) -> Key:
    """The association that one inherits from."""
    return (association.account if association.user else association.parent, "", "")


def in_force(associations: Iterable[Association]) -> dict[Key, frozenset[str]]:
    """The QOS that each association may use."""
    found: dict[Key, frozenset[str]] = {}
    for association in parents_first(associations):
        found[association.key] = applied(association.own, found.get(_above(association), frozenset()))
    return found


def applied(own: frozenset[str], inherited: frozenset[str]) -> frozenset[str]:
    """A list on top of the inherited one: plain names replace it, signed ones change it."""
    plain = frozenset(name for name in own if name[0] not in "+-")
    added = frozenset(name[1:] for name in own if name[0] == "+")
    taken = frozenset(name[1:] for name in own if name[0] == "-")
    return ((plain or inherited) | added) - taken


def step_of(change: Change, cluster: str) -> Step:
    """The change in words, and its one command."""
    if isinstance(change, MakeQos):
        settings = (f"description={change.why}, {MADE_BY}", *(f"{name}={value}" for name, value in change.settings))
        return Step(f"make the QOS {change.name} ({change.why})", (("add", "qos", change.name, *settings),))
    names = ",".join(change.names)
    if isinstance(change, LetPreempt):
        command = ("modify", "qos", change.qos, "set", f"preempt+={names}")
        return Step(f"let {change.qos} preempt {names}", (command,))
    return Step(f"let {of(change.key)} use {names}", ((*chosen(change.key, cluster), "set", f"qos+={names}"),))


def chosen(key: Key, cluster: str) -> tuple[str, ...]:
    """The words that pick exactly this association for a change."""
    account, user, partition = key
    if user:
        return ("modify", "user", user, "where", f"account={account}", f"cluster={cluster}", f"partition={partition}")
    return ("modify", "account", account, "where", f"cluster={cluster}")


def of(key: Key) -> str:
    """An association for people."""
    account, user, partition = key
    if not user:
        return f"account {account}"
    return f"{user} in account {account}" + (f", partition {partition}" if partition else "")
