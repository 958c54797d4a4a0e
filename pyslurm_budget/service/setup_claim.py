"""What claims need of Slurm (design 4.6): the QOS that no user has, and the settings that let runs be shielded. Pure.

Claims are *set up* where slurm.conf has ``min_exempt_priority`` and Slurm knows it (23.02 and later): without it a
job with the QOS could stop every backed run, so the QOS is made only then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyslurm_budget.domain.claim import EXEMPT
from pyslurm_budget.domain.engine import AUTO, CLAIM, FIRST_RELEASE, REQUEUE, youngest_first
from pyslurm_budget.service.setup import BACKED_PRIORITY, LetPreempt, MakeQos, of, plan
from pyslurm_budget.service.setup_point import Point, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyslurm_budget.domain.policy import ClassMap
    from pyslurm_budget.service.setup import Change, SlurmFacts

WORD = f"min_exempt_priority={EXEMPT}"
LAST_UNTIL = (25, 5, 0)  # up to 24.11.5 slurmctld reads on after the number, and takes what follows for part of it
MODE = ("requeue", "within")


def release_of(facts: SlurmFacts) -> tuple[int, int, int]:
    """Slurm's release; all zeros where it does not say."""
    found = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", facts.settings.get("SLURM_VERSION", ""))
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def _parameters(facts: SlurmFacts) -> list[str]:
    text = facts.settings.get("PreemptParameters", "")
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    return [] if words == ["(null)"] else words


def are_set_up(facts: SlurmFacts, engine: str) -> bool:
    """Whether the QOS of claims is to be there."""
    return engine != REQUEUE and release_of(facts) >= FIRST_RELEASE and WORD in _parameters(facts)


def everything(
    facts: SlurmFacts,
    classes: ClassMap,
    bound: Collection[str] | None = None,
    made: Collection[str] = (),
    *,
    engine: str = AUTO,
) -> list[Change]:
    """All that is missing, with what claims need; see :func:`pyslurm_budget.service.setup.plan`."""
    return [*plan(facts, classes, bound, made), *missing(facts, classes, engine)]


def missing(facts: SlurmFacts, classes: ClassMap, engine: str) -> Iterator[MakeQos | LetPreempt]:
    """The QOS of claims, with the limits of the first managed QOS, and whose place it may take: everybody's."""
    if not are_set_up(facts, engine):
        return
    backed = facts.qos.get(classes.home)
    if classes.claim not in facts.qos:
        priority = backed.priority if backed else BACKED_PRIORITY
        limits = backed.limits.items() if backed else ()
        settings = (("priority", str(priority)), ("preemptmode", "within,requeue"), *limits)
        yield MakeQos(classes.claim, settings, "given by the controller for a moment, and to nobody else")
    there = facts.qos[classes.claim].preempt if classes.claim in facts.qos else frozenset()
    wanted = dict.fromkeys([*classes.twins.values(), *classes.twins])
    if lacking := tuple(name for name in wanted if name not in there):
        yield LetPreempt(classes.claim, lacking)


def points(facts: SlurmFacts, classes: ClassMap, engine: str) -> Iterator[Point]:
    """The points of the check."""
    if engine == REQUEUE:
        return
    otherwise = Verdict.MUST if engine == CLAIM else Verdict.ADVISED
    if release_of(facts) < FIRST_RELEASE:
        if engine == CLAIM:
            says = f"Slurm is {facts.settings.get('SLURM_VERSION', 'of an unknown release')}: claims need 23.02"
            yield Point("claims", Verdict.MUST, says, '[displace] engine = "auto" in sbudget.toml')
        return
    words = _parameters(facts)
    line = f"PreemptParameters={','.join([*(w for w in words if not w.startswith('min_exempt')), WORD])}"
    if WORD not in words:
        says = f"PreemptParameters has no {WORD}: places are taken by requeues, not by claims"
        yield Point(
            "claims", otherwise, says, f"{line}  (then restart slurmctld: reconfigure may end it)", blocks=False
        )
        return
    yield Point("claims", Verdict.OK, "runs can be shielded, and opened for one job")
    if words[-1] != WORD and release_of(facts) < LAST_UNTIL:
        says = f"this slurmctld reads {WORD} only as the last of the PreemptParameters"
        yield Point("claims", Verdict.MUST, says, f"{line}  (then restart slurmctld)")
    if (setting := youngest_first(facts.settings)) is not None:
        says = f"{setting} makes Slurm take open backed runs, and leave older spare ones"
        yield Point("claims", Verdict.MUST, says, f"take {setting.partition('=')[2]} out, then restart slurmctld")
    yield from _qos(facts, classes)
    yield from _owners(facts, classes)


def _qos(facts: SlurmFacts, classes: ClassMap) -> Iterator[Point]:
    """A QOS that was there before us: its mode, grace and limits."""
    qos, backed = facts.qos.get(classes.claim), facts.qos.get(classes.home)
    if qos is None:
        return
    change = f"sacctmgr -i modify qos {qos.name} set"
    if tuple(sorted(qos.preempt_mode.lower().split(","))) != MODE:
        says = f"PreemptMode of {qos.name} is {qos.preempt_mode}: a run that started by a claim could not be claimed"
        yield Point("claims", Verdict.MUST, says, f"{change} preemptmode=within,requeue")
    if qos.grace < 0:
        says = f"GraceTime of {qos.name} is {qos.grace}: its jobs would never be preempted"
        yield Point("claims", Verdict.MUST, says, f"{change} gracetime=0")
    for limit, value in backed.limits.items() if backed else ():
        if limit not in qos.limits:
            says = f"a job that claims would lose {limit}={value} of {classes.home}"
            word = f"flags+={value}" if limit == "flags" else f"{limit}={value}"
            yield Point("claims", Verdict.MUST, says, f"{change} {word}")


def _owners(facts: SlurmFacts, classes: ClassMap) -> Iterator[Point]:
    """Nobody may have it: whoever has it takes the place of any run that is open."""
    for association in facts.associations:
        account, user, _ = association.key
        where = f"user {user} where account={account}" if user else f"account {account}"
        names = {name.lstrip("+") for name in association.own}
        if classes.claim in names or association.default == classes.claim:
            says = f"{of(association.key)} has the QOS {classes.claim}, which only the controller may give"
            yield Point("claims", Verdict.MUST, says, f"sacctmgr -i modify {where} set qos-={classes.claim}")
