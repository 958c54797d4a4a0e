"""What Slurm needs, what is missing, and how it is put in and taken out again. Planning only: no command runs here.

Every step knows its undoing, which is written down before the step is made: so a setup that broke off in the middle
goes on at the next `apply`, and `remove` gives back exactly what was changed, newest first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyslurm_budget.domain.order import CEILING, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyslurm_budget.domain.policy import ClassMap

BACKED_PRIORITY = "100"
SPARE_PRIORITY = "1"
# Limits of a managed QOS that its twin must have too, or a job would lose (or escape) them by becoming spare.
LIMITS = (
    "grptres", "grptresmins", "grptresrunmin", "grpjobs", "grpsubmit", "grpwall", "maxtres", "maxtrespernode",
    "maxtresmins", "maxwall", "maxtrespu", "maxjobspu", "maxsubmitpu", "maxtrespa", "maxjobspa", "maxsubmitpa",
    "mintres", "usagefactor", "flags",
)  # fmt: skip


class Verdict(StrEnum):
    """What a point of the check says: fine, must change, or advised."""

    OK = "ok"
    MUST = "must change"
    ADVISED = "advised"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the check: ``says`` is a sentence, ``line`` what to write (empty if nothing is to do)."""

    name: str
    verdict: Verdict
    says: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Qos:
    """One QOS as sacctmgr shows it; ``limits`` maps sacctmgr's format names to non-empty values."""

    name: str
    priority: str = "0"
    preempt: frozenset[str] = frozenset()
    grace: str = "00:00:00"
    limits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Association:
    """An account's association (``user`` empty), or a user's; ``qos`` is the list in force, inherited or not."""

    account: str
    user: str
    qos: frozenset[str]


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What the planning needs to know of Slurm. Associations stand parents before children."""

    settings: Mapping[str, str]
    weights: int
    qos: Mapping[str, Qos]
    associations: tuple[Association, ...]
    operator: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One change: words for ``sacctmgr -i``, and the words that undo it (empty: nothing to undo)."""

    says: str
    do: tuple[str, ...]
    undo: tuple[str, ...]


def check(facts: SlurmFacts, classes: ClassMap) -> list[Point]:
    """Everything that Slurm must say, point by point, in the order in which an operator would mend it."""
    return [*_settings(facts), *_rights(facts), *_weights(facts), *_classes(facts, classes)]


def _settings(facts: SlurmFacts) -> Iterator[Point]:
    get = facts.settings.get

    def has(key: str, word: str) -> bool:
        return word in [w.strip().lower() for w in (get(key) or "").split(",")]

    yield _point("preemption", get("PreemptType") == "preempt/qos",
                 f"PreemptType is {get('PreemptType')}", "PreemptType=preempt/qos")  # fmt: skip
    mode = (get("PreemptMode") or "").upper()
    fits = "REQUEUE" in mode and "WITHIN" not in mode
    yield _point("preempt mode", fits, f"PreemptMode is {mode or 'not set'}", "PreemptMode=REQUEUE")
    requeue = get("JobRequeue") == "1"
    yield _point("requeue", requeue, f"JobRequeue is {get('JobRequeue')}", "JobRequeue=1")
    for word in ("associations", "qos"):
        held = has("AccountingStorageEnforce", word)
        says = f"AccountingStorageEnforce is {get('AccountingStorageEnforce')}"
        yield _point(f"enforce {word}", held, says, "AccountingStorageEnforce=associations,limits,qos")
    tres = f"AccountingStorageTRES is {get('AccountingStorageTRES')}"
    line = "AccountingStorageTRES=gres/gpu  (and each type, as gres/gpu:a100)"
    yield _point("GPUs accounted", has("AccountingStorageTRES", "gres/gpu"), tres, line)
    plugins = f"JobSubmitPlugins is {get('JobSubmitPlugins')}"
    yield _point("submit plugin", has("JobSubmitPlugins", "lua"), plugins, "JobSubmitPlugins=lua")
    priority = f"PriorityType is {get('PriorityType')}"
    multifactor = get("PriorityType") == "priority/multifactor"
    yield _point("priority", multifactor, priority, "PriorityType=priority/multifactor")
    comment = has("AccountingStoreFlags", "job_comment")
    says = "contracts can be checked from sacct" if comment else "sacct does not show the jobs' comments"
    verdict = Verdict.OK if comment else Verdict.ADVISED
    yield Point("comments kept", verdict, says, "" if comment else "AccountingStoreFlags=job_comment")


def _point(name: str, held: bool, says: str, line: str) -> Point:
    return Point(name, Verdict.OK if held else Verdict.MUST, says, "" if held else line)


def _rights(facts: SlurmFacts) -> Iterator[Point]:
    line = "sacctmgr -i modify user USER set adminlevel=operator"
    says = "this user may change jobs and QOS" if facts.operator else "this user is no operator in slurmdbd"
    yield _point("rights", facts.operator, says, line)


def _weights(facts: SlurmFacts) -> Iterator[Point]:
    most = (CEILING - 1) // (STEPS + 1) - 1
    says = f"the PriorityWeight settings add up to {facts.weights}"
    if facts.weights <= most:
        yield Point("weights", Verdict.OK, says)
    elif facts.weights < CEILING:
        line = f"the order of jobs is exact only if they add up to at most {most}"
        yield Point("weights", Verdict.ADVISED, says, line)
    else:
        yield Point("weights", Verdict.MUST, says, f"lower them until they add up to less than {CEILING}")


def _classes(facts: SlurmFacts, classes: ClassMap) -> Iterator[Point]:
    for name in (*classes.twins, *classes.twins.values()):
        qos = facts.qos.get(name)
        if qos is not None and qos.grace.startswith("-"):
            yield Point("grace time", Verdict.MUST, f"{name} has GraceTime {qos.grace}: it would never be preempted",
                        f"sacctmgr -i modify qos {name} set gracetime=0")  # fmt: skip
    for managed, twin in classes.twins.items():
        for limit, value in _lost_limits(facts, managed, twin):
            says = f"a job that becomes {twin} would lose {managed}'s {limit}={value}"
            yield Point("limits", Verdict.MUST, says, f"sacctmgr -i modify qos {twin} set {limit}={value}")
    missing = steps(facts, classes)
    says = f"{len(missing)} changes are missing" if missing else "all are there, with their Preempt and QOS lists"
    yield _point("QOS and twins", not missing, says, "sbudget setup apply")


def _lost_limits(facts: SlurmFacts, managed: str, twin: str) -> Iterator[tuple[str, str]]:
    """Limits that an existing twin does not have as its managed QOS has them (a missing twin gets copies)."""
    if managed in facts.qos and twin in facts.qos:
        ours = facts.qos[twin].limits
        for limit, value in facts.qos[managed].limits.items():
            if limit not in ours:
                yield limit, value


def steps(facts: SlurmFacts, classes: ClassMap) -> list[Step]:
    """What `apply` has to do, in order; empty if everything is there."""
    return [*_qos_steps(facts, classes), *_list_steps(facts, classes)]


def _qos_steps(facts: SlurmFacts, classes: ClassMap) -> Iterator[Step]:
    for managed, twin in classes.twins.items():
        known = facts.qos.get(managed)
        if twin not in facts.qos:
            limits = () if known is None else tuple(f"{k}={v}" for k, v in known.limits.items())
            priority = SPARE_PRIORITY if known is None else known.priority
            yield _new_qos(twin, priority, limits, f"spare twin of {managed}")
    for managed in classes.twins:
        if managed not in facts.qos:
            yield _new_qos(managed, BACKED_PRIORITY, (), "backed work")
        there = facts.qos[managed].preempt if managed in facts.qos else frozenset()
        lacking = [t for t in dict.fromkeys(classes.twins.values()) if t not in there]
        for twin in lacking:
            yield Step(
                f"let {managed} preempt {twin}",
                ("modify", "qos", managed, "set", f"preempt+={twin}"),
                ("modify", "qos", managed, "set", f"preempt-={twin}"),
            )


def _new_qos(name: str, priority: str, limits: tuple[str, ...], why: str) -> Step:
    words = ("add", "qos", name, f"priority={priority}", "preemptmode=requeue", *limits)
    return Step(f"make the QOS {name} ({why})", words, ("delete", "qos", f"name={name}"))


def _list_steps(facts: SlurmFacts, classes: ClassMap) -> Iterator[Step]:
    """QOS lists of accounts: a twin beside each managed QOS; where an account has none of them, all of them.

    Users inherit from their account; those with a list of their own are seen, and changed, once the accounts are
    done: `apply` plans again until nothing is missing.
    """
    accounts = [a for a in facts.associations if not a.user and a.account != "root"]
    changed = False
    for association in accounts:
        lacking = _lacking(association, classes)
        if lacking:
            changed = True
            yield _list_step(association, lacking)
    if changed:
        return
    for association in facts.associations:
        if association.user and association.account != "root" and (lacking := _lacking(association, classes)):
            yield _list_step(association, lacking)


def _lacking(association: Association, classes: ClassMap) -> list[str]:
    """QOS that an association needs and does not have."""
    managed = [m for m in classes.twins if m in association.qos]
    wanted = managed if managed else list(classes.twins)
    needed = dict.fromkeys([*([] if managed else wanted), *(classes.twins[m] for m in wanted)])
    return [name for name in needed if name not in association.qos]


def _list_step(association: Association, names: list[str]) -> Step:
    """Add QOS to one list."""
    joined = ",".join(names)
    who = ("user", association.user, "where", f"account={association.account}")
    whom = who if association.user else ("account", association.account)
    of = f"{association.user} in {association.account}" if association.user else association.account
    return Step(
        f"let {of} use {joined}",
        ("modify", *whom, "set", f"qos+={joined}"),
        ("modify", *whom, "set", f"qos-={joined}"),
    )


def record_text(done: list[Step]) -> str:
    """The record of steps that were begun, as JSON."""
    return json.dumps([asdict(step) for step in done])


def record_of(text: str | None) -> list[Step]:
    """The record from its JSON; empty where there is none."""
    return [Step(r["says"], tuple(r["do"]), tuple(r["undo"])) for r in json.loads(text or "[]")]
