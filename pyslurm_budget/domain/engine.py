"""Which engine takes places: claims wherever Slurm can do them, else requeues (design 4.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.claim import EXEMPT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyslurm_budget.domain.model import Controller
    from pyslurm_budget.domain.policy import ClassMap, Policy

FIRST_RELEASE = (23, 2, 0)
AUTO, CLAIM, REQUEUE = ENGINES = ("auto", "claim", "requeue")


def obstacle(controller: Controller, qos: Collection[str], classes: ClassMap) -> str | None:
    """Why this Slurm cannot be claimed from, in a few words; ``None`` if it can."""
    parameters = [word.strip().lower() for word in controller.settings.get("PreemptParameters", "").split(",")]
    modes = [word.strip().lower() for word in controller.preempt_mode.split(",")]
    wrong = (
        (controller.release < FIRST_RELEASE, "Slurm is older than 23.02"),
        (f"min_exempt_priority={EXEMPT}" not in parameters, f"PreemptParameters has no min_exempt_priority={EXEMPT}"),
        (youngest_first(controller.settings) is not None, "preemption takes the youngest first"),
        (controller.preempt_type != "preempt/qos", "PreemptType is not preempt/qos"),
        ("requeue" not in modes or "within" in modes, "PreemptMode is not REQUEUE alone"),
        (controller.weights >= EXEMPT, f"the PriorityWeight settings add up to {EXEMPT} or more"),
        (classes.claim not in qos, f"there is no QOS {classes.claim}"),
    )
    return next((words for applies, words in wrong if applies), None)


def youngest_first(settings: Mapping[str, str]) -> str | None:
    """The setting that makes Slurm stop the youngest run first, in either spelling: it would spare older spare runs,
    and take open backed ones instead."""
    for key, word in (("PreemptParameters", "youngest_first"), ("SchedulerParameters", "preempt_youngest_first")):
        if word in (part.strip().lower() for part in settings.get(key, "").split(",")):
            return f"{key}={word}"
    return None


def engine(policy: Policy, controller: Controller, qos: Collection[str]) -> str:
    """``claim`` or ``requeue``: what the site says, else claims wherever Slurm's settings allow them."""
    if policy.engine != AUTO:
        return policy.engine
    return CLAIM if obstacle(controller, qos, policy.classes) is None else REQUEUE
