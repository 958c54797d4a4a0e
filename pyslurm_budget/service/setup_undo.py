"""What `sbudget setup apply` changed, as it is written down, and how `remove` gives it back. Pure.

The record is written before anything is done, so it may name changes that were never made; giving back looks at what
is there now, and takes out only what the record says that we put in. What the site changed since is left alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyslurm_budget.errors import LedgerError
from pyslurm_budget.service.setup import (
    SLURMS_OWN,
    Association,
    Change,
    Key,
    LetPreempt,
    LetUse,
    MakeQos,
    SlurmFacts,
    Step,
    chosen,
    in_force,
    of,
    parents_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    from pyslurm_budget.domain.policy import ClassMap

VERSION = 1


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """The plugin's file before us: ``digest`` (SHA-256) of the site's own file, ``None`` if there was none, and where
    it is kept; ``module`` is the file that we put beside a plugin of the site, or empty."""

    path: str
    digest: str | None
    kept: str
    module: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """All that was begun, oldest first."""

    changes: tuple[Change, ...] = ()
    plugin: PluginRecord | None = None

    @property
    def made(self) -> frozenset[str]:
        """The QOS that are ours."""
        return frozenset(c.name for c in self.changes if isinstance(c, MakeQos))

    def with_changes(self, changes: Iterable[Change]) -> Record:
        """The record with further changes."""
        return Record((*self.changes, *(c for c in changes if c not in self.changes)), self.plugin)


def record_text(record: Record) -> str | None:
    """The record as JSON, ``None`` if there is nothing to remember."""
    if not record.changes and record.plugin is None:
        return None
    changes = [{"kind": type(change).__name__, **_plain(asdict(change))} for change in record.changes]
    plugin = None if record.plugin is None else asdict(record.plugin)
    return json.dumps({"version": VERSION, "changes": changes, "plugin": plugin}, sort_keys=True)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in values.items()}


def record_of(text: str | None) -> Record:
    """The record from its JSON, empty where there is none; raises LedgerError if it cannot be read."""
    if text is None:
        return Record()
    try:
        document = json.loads(text)
        {VERSION: None}[document["version"]]
        changes = tuple(_change(dict(entry)) for entry in document["changes"])
        plugin = document["plugin"]
        return Record(changes, None if plugin is None else PluginRecord(**plugin))
    except (ValueError, KeyError, TypeError) as wrong:
        raise LedgerError(
            f"the ledger's record of what setup changed cannot be read ({wrong}); nothing was changed: use the "
            "release that wrote it"
        ) from wrong


def _change(entry: dict[str, Any]) -> Change:
    kind = entry.pop("kind")
    if kind == "MakeQos":
        settings = tuple((name, value) for name, value in entry.pop("settings"))
        return MakeQos(settings=settings, **entry)
    names = tuple(entry.pop("names"))
    if kind == "LetPreempt":
        return LetPreempt(names=names, **entry)
    if kind == "LetUse":
        return LetUse(names=names, before=frozenset(entry.pop("before")), **entry)
    raise ValueError(f"unknown change {kind}")


def undo(record: Record, facts: SlurmFacts) -> list[Step]:
    """Lists and Preempt lists as they were before us; nothing if nothing of ours is left in them."""
    return [*_preempts(record, facts), *_lists(record, facts)]


def _preempts(record: Record, facts: SlurmFacts) -> list[Step]:
    """What we put into Preempt lists, and our QOS in any of them."""
    added: dict[str, set[str]] = {}
    for change in record.changes:
        if isinstance(change, LetPreempt):
            added.setdefault(change.qos, set()).update(change.names)
    steps = []
    for qos in facts.qos.values():
        if names := ",".join(sorted(qos.preempt & (added.get(qos.name, set()) | record.made))):
            command = ("modify", "qos", qos.name, "set", f"preempt-={names}")
            steps.append(Step(f"{qos.name} may no longer preempt {names}", (command,)))
    return steps


def _lists(record: Record, facts: SlurmFacts) -> list[Step]:
    """The lists that have something of ours, parents first; then what that took from others in slurmctld's memory."""
    steps, rewritten = [], set()
    for association in parents_first(facts.associations):
        wanted = list_before(association, record)
        if wanted != association.own:
            words = ",".join(sorted(wanted)) or "that of its parent"
            where = chosen(association.key, facts.cluster)
            steps.append(Step(f"QOS list of {of(association.key)}: {words}", _set_list(where, wanted)))
            rewritten.add(association.key)
    return [*steps, *_again(record, facts, rewritten)]


def _again(record: Record, facts: SlurmFacts, rewritten: Set[Key]) -> Iterator[Step]:
    """Signed lists below the accounts whose list was set, as they are: slurmctld then copies that list over all below
    it, and forgets their own names, which slurmdbd keeps (seen on 24.11.5)."""
    touched: set[str] = {account for account, user, _ in rewritten if not user}
    for association in parents_first(facts.associations):
        above = association.account if association.user else association.parent
        if above not in touched:
            continue
        if not association.user:
            touched.add(association.account)
        own = list_before(association, record)
        if association.key not in rewritten and own and not _plain_names(own):
            where = chosen(association.key, facts.cluster)
            steps = _signed(where, own)
            yield Step(f"QOS list of {of(association.key)}: {','.join(sorted(own))}, as before", steps)


def list_before(association: Association, record: Record) -> frozenset[str]:
    """The association's own list without what the record says that we added, newest first, and without our QOS,
    whoever put them there: their deletion would break the list."""
    own = association.own
    for change in reversed(record.changes):
        if isinstance(change, LetUse) and change.key == association.key:
            own = _without(own, change)
    return frozenset(name for name in own if name.lstrip("+-") not in record.made)


def _without(own: frozenset[str], change: LetUse) -> frozenset[str]:
    if any(name[0] not in "+-" for name in own):
        return own.difference(change.names) or change.before
    added = [name for name in change.names if f"+{name}" in own]
    again = {f"-{name}" for name in added} & change.before
    return own.difference(f"+{name}" for name in added) | again


def _set_list(where: tuple[str, ...], wanted: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """The commands that make a list exactly this one: signed names need an empty list to stand on."""
    return ((*where, "set", f"qos={','.join(_plain_names(wanted))}"), *_signed(where, wanted))


def _plain_names(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name[0] not in "+-")


def _signed(where: tuple[str, ...], wanted: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """The commands that add signed names to a list without plain ones."""
    commands = []
    for sign in "+-":
        if names := sorted(name[1:] for name in wanted if name[0] == sign):
            commands.append((*where, "set", f"qos{sign}={','.join(names)}"))
    return tuple(commands)


def drop_qos(record: Record, facts: SlurmFacts, used: Mapping[str, str]) -> tuple[list[Step], dict[str, str]]:
    """The deletion of our QOS, and those that must stay with the reason.

    ``used`` says by QOS which jobs still have it: sacctmgr deletes a QOS under a running job without a word, and the
    job then has none (measured on 22.05.8).
    """
    steps, stay = [], {}
    for change in reversed(record.changes):
        if not isinstance(change, MakeQos) or change.name not in facts.qos:
            continue
        defaults = [of(a.key) for a in facts.associations if a.default == change.name]
        if change.name in used:
            stay[change.name] = used[change.name]
        elif change.name in facts.elsewhere:
            stay[change.name] = "another cluster of this slurmdbd has it in its lists"
        elif defaults:
            stay[change.name] = f"it is the DefaultQOS of {', '.join(defaults[:3])}"
        else:
            words = ("delete", "qos", f"name={change.name}")
            steps.append(Step(f"delete the QOS {change.name}", (words,)))
    return steps, stay


def home_of(record: Record, facts: SlurmFacts, classes: ClassMap) -> Callable[[str, str, str], str | None]:
    """Where a pending job of (account, user, QOS) goes when our QOS go; ``None``: nowhere that this user may be.

    Its managed QOS if that stays; where we made that too: the user's DefaultQOS, Slurm's own, or the first that he
    may use.
    """
    gone = record.made
    before = [_as_before(a, record) for a in facts.associations]
    lists = in_force(before)
    defaults = {a.key: a.default for a in before if a.default and a.default not in gone}
    parents = {a.account: a.parent for a in before if not a.user}

    def home(account: str, user: str, qos: str) -> str | None:
        managed = classes.backed_of(qos)
        if managed not in gone:
            return managed
        if qos not in gone:
            return qos
        may = (lists.get((account, user, "")) or lists.get((account, "", ""), frozenset())) - gone
        wanted = (_default(defaults, parents, account, user), SLURMS_OWN, *sorted(may))
        return next((name for name in wanted if name in may), None)

    return home


def _as_before(association: Association, record: Record) -> Association:
    a = association
    return Association(a.account, a.user, a.partition, a.parent, list_before(a, record), a.default)


def _default(defaults: Mapping[Key, str], parents: Mapping[str, str], account: str, user: str) -> str | None:
    """The DefaultQOS that is in force: the user's, else his account's, else its parents'."""
    if found := defaults.get((account, user, "")):
        return found
    at: str | None = account
    for _ in range(len(parents) + 1):
        if at is None:
            break
        if found := defaults.get((at, "", "")):
            return found
        at = parents.get(at)
    return None


def left_in(record: Record, facts: SlurmFacts, stay: Sequence[str]) -> Record:
    """What is to be remembered after a removal: the QOS that had to stay."""
    kept = tuple(c for c in record.changes if isinstance(c, MakeQos) and c.name in stay and c.name in facts.qos)
    return Record(kept)
