"""A model of what sacctmgr stores and answers, by the words of its commands alone.

Made after what slurmdbd 22.05.8 was seen to do; tests/cluster/test_setup.py compares it with the real one. It shares
no code with the planning: it is told nothing but command lines.

``slurmctld`` is what slurmctld knows by what slurmdbd 24.11.5 was seen to tell it of each command: the account, and
what is right below it. ``deep``: 22.05.8, which tells of all users below, and of no account but the one named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyslurm_budget.errors import SlurmdbdError
from pyslurm_budget.service.setup import Association, PartitionRule, Qos, SlurmFacts, Step

GOOD = {
    "PreemptType": "preempt/qos",
    "PreemptMode": "REQUEUE",
    "JobRequeue": "1",
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu,gres/gpu:a100",
    "AccountingStoreFlags": "job_comment",
    "JobSubmitPlugins": "lua",
    "PriorityType": "priority/multifactor",
}


@dataclass
class StoredQos:
    settings: dict[str, str] = field(default_factory=dict)
    preempt: set[str] = field(default_factory=set)


@dataclass
class StoredAssociation:
    parent: str = ""
    qos: list[str] = field(default_factory=list)
    delta: list[str] = field(default_factory=list)
    default: str = ""


class Slurmdbd:
    """State, and ``sacctmgr -i`` on it. ``fail_at`` counts the commands after which slurmdbd is gone."""

    def __init__(self) -> None:
        self.qos: dict[str, StoredQos] = {"normal": StoredQos({"priority": "0"})}
        self.associations: dict[tuple[str, str, str], StoredAssociation] = {}
        self.commands: list[tuple[str, ...]] = []
        self.fail_at: int | None = None
        self.settings = dict(GOOD)
        self.level = "administrator"
        self.slurmctld: dict[tuple[str, str, str], set[str]] = {}
        self.deaf = False
        self.deep = False

    def restart_slurmctld(self) -> None:
        """slurmctld reads all lists anew."""
        self.slurmctld = {key: self.may(*key) for key in self.associations}

    def accepts(self, account: str, user: str, qos: str, partition: str) -> bool | None:
        """What slurmctld says to a job; nothing is known of a user whom this host does not know."""
        if user.startswith("gone"):
            return None
        return qos in self.slurmctld[(account, user, "")]

    def account(self, name: str, parent: str = "", qos: str = "", default: str = "") -> None:
        self.associations[(name, "", "")] = _stored(parent, qos, default)
        self.slurmctld[(name, "", "")] = self.may(name)

    def user(self, name: str, account: str, qos: str = "", partition: str = "", default: str = "") -> None:
        self.associations[(account, name, partition)] = _stored("", qos, default)
        self.slurmctld[(account, name, partition)] = self.may(account, name, partition)

    def picture(self) -> object:
        """All that `show qos` and `show assoc withrawqoslevel woplimits` would say."""
        return (
            {name: (sorted(q.settings.items()), sorted(q.preempt)) for name, q in self.qos.items()},
            {key: (a.parent, sorted(a.qos), sorted(a.delta), a.default) for key, a in self.associations.items()},
        )

    def may(self, account: str, user: str = "", partition: str = "") -> set[str]:
        """The QOS of an association, walked from it upwards."""
        stored = self.associations[(account, user, partition)]
        if stored.qos:
            return set(stored.qos)
        above = account if user else stored.parent
        have = self.may(above) if (above, "", "") in self.associations else set()
        for signed in stored.delta:
            (have.add if signed[0] == "+" else have.discard)(signed[1:])
        return have

    def facts(self) -> SlurmFacts:
        qos = {name: _as_read(name, stored) for name, stored in self.qos.items()}
        associations = tuple(
            Association(*key, a.parent, frozenset(a.qos or a.delta), a.default)
            for key, a in self.associations.items()
        )
        return SlurmFacts("demo", self.settings, 1000, qos, associations, self.level, {"gpu": PartitionRule()})

    def do(self, step: Step) -> None:
        for words in step.commands:
            if self.fail_at is not None and len(self.commands) >= self.fail_at:
                raise SlurmdbdError("slurmdbd does not answer")
            self.commands.append(words)
            self._command(list(words))

    def _command(self, words: list[str]) -> None:
        verb, what, *rest = words
        if (verb, what) == ("add", "qos"):
            assert rest[0] not in self.qos, "Nothing new added."
            self.qos[rest[0]] = StoredQos(dict(w.split("=", 1) for w in rest[1:]))
        elif (verb, what) == ("delete", "qos"):
            self._delete(rest[0].removeprefix("name="))
        elif (verb, what) == ("modify", "qos"):
            self._preempt(rest[0], rest[2])
        else:
            self._list(what, rest)

    def _delete(self, name: str) -> None:
        del self.qos[name]
        for other, stored in self.qos.items():
            assert name not in stored.preempt, f"the Preempt list of {other} still has it"
        for key, association in self.associations.items():
            assert name not in association.qos, f"slurmdbd breaks the list of {key}"
            association.delta = [q for q in association.delta if q[1:] != name]

    def _preempt(self, name: str, change: str) -> None:
        sign = change[len("preempt")]
        names = change.split("=", 1)[1].split(",")
        assert set(names) <= set(self.qos), "You gave a bad qos"
        if sign == "+":
            self.qos[name].preempt |= set(names)
        else:
            self.qos[name].preempt -= set(names)

    def _list(self, what: str, rest: list[str]) -> None:
        name, where = rest[0], dict(w.split("=", 1) for w in rest[2 : rest.index("set")])
        change = rest[rest.index("set") + 1]
        assert where["cluster"] == "demo"
        key = (name, "", "") if what == "account" else (where["account"], name, where["partition"])
        stored = self.associations[key]
        operator, names = change.removeprefix("qos").split("=", 1)
        listed = [n for n in names.split(",") if n]
        assert set(listed) <= set(self.qos), "You gave a bad qos"
        if not self.deaf:
            self._tell(key, operator, listed)
            self._hear(key, operator, listed)
        if not operator:
            stored.qos, stored.delta = listed, []
            return
        for each in listed:
            if stored.qos:
                stored.qos = [q for q in stored.qos if q != each] + ([each] if operator == "+" else [])
            else:
                stored.delta = [q for q in stored.delta if q[1:] != each] + [operator + each]

    def _tell(self, key: tuple[str, str, str], operator: str, names: list[str]) -> None:
        """What is below an account hears of it first, unless it has a list of plain names or the opposite sign."""
        opposite = {"+": "-", "-": "+"}.get(operator, "")
        for child, stored in self.associations.items():
            below = not key[1] and (child[0] == key[0] if child[1] else stored.parent == key[0])
            told = [name for name in names if not operator or opposite + name not in stored.delta]
            if not below or stored.qos or (names and not told):
                continue
            if child[1] or not self.deep:
                self._hear(child, operator, told)
            else:
                self._tell(child, operator, told)

    def _hear(self, key: tuple[str, str, str], operator: str, names: list[str]) -> None:
        """An empty list makes slurmctld copy what it knows of the association above."""
        known = self.slurmctld[key]
        if operator == "+":
            known |= set(names)
        elif operator == "-":
            known -= set(names)
        elif names:
            self.slurmctld[key] = set(names)
        else:
            above = (key[0] if key[1] else self.associations[key].parent, "", "")
            self.slurmctld[key] = set(self.slurmctld.get(above, ()))


def _as_read(name: str, stored: StoredQos) -> Qos:
    s = dict(stored.settings)
    priority, mode, grace = s.pop("priority", "0"), s.pop("preemptmode", "cluster"), s.pop("gracetime", "0")
    s.pop("description", None)
    return Qos(name, int(priority), frozenset(stored.preempt), mode, int(grace), s)


def _stored(parent: str, qos: str, default: str) -> StoredAssociation:
    names = [n for n in qos.split(",") if n]
    signed = [n for n in names if n[0] in "+-"]
    return StoredAssociation(parent, [] if signed else names, signed, default)


def site() -> Slurmdbd:
    """An empty site as Slurm makes it: the root has normal, all others inherit."""
    made = Slurmdbd()
    made.account("root", "", "normal")
    made.user("root", "root")
    for account, parent in (("lab", "root"), ("nlp", "lab"), ("bio", "root")):
        made.account(account, parent)
    made.user("alice", "nlp")
    made.user("bob", "bio")
    return made
