"""The check of `sbudget setup`: what Slurm must say, point by point, and the line to write where it does not. Pure.

slurm.conf is never edited by us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyslurm_budget.domain.engine import AUTO
from pyslurm_budget.domain.steps import CEILING, STEPS, ladder
from pyslurm_budget.errors import SlurmSetupError
from pyslurm_budget.service import setup_claim
from pyslurm_budget.service.setup import SLURMS_OWN, LetUse, priority_below
from pyslurm_budget.service.setup_point import Point, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyslurm_budget.domain.policy import ClassMap
    from pyslurm_budget.service.setup import Change, PartitionRule, SlurmFacts

LEVELS = ("none", "operator", "administrator")
ENFORCE = "AccountingStorageEnforce=associations,limits,qos"
# The words of AccountingStorageEnforce that switch others on, as slurm.conf(5) says.
IMPLIED = {"limits": ("associations",), "qos": ("associations",), "safe": ("associations", "limits"),
           "wckeys": ("associations",), "all": ("associations", "limits", "qos")}  # fmt: skip


def check(
    facts: SlurmFacts,
    classes: ClassMap,
    bound: Collection[str] | None = None,
    made: Collection[str] = (),
    *,
    engine: str = AUTO,
) -> list[Point]:
    """Every point, in the order in which an operator would mend them."""
    return [
        *_preemption(facts),
        *_accounting(facts),
        *_submit(facts),
        *_weights(facts),
        *_twins(facts, classes),
        *setup_claim.points(facts, classes, engine),
        *_partitions(facts, classes, claims=setup_claim.are_set_up(facts, engine)),
        *_missing(facts, setup_claim.everything(facts, classes, bound, made, engine=engine)),
    ]


def refuse(points: Iterable[Point]) -> None:
    """Raise SlurmSetupError for the first point without which nothing would work."""
    wrong = [point for point in points if point.wrong and point.blocks]
    if wrong:
        first = wrong[0]
        more = f" ({len(wrong) - 1} more: sbudget setup check)" if len(wrong) > 1 else ""
        raise SlurmSetupError(f"{first.says}; write: {first.line}{more}")


def _point(name: str, held: bool, says: str, line: str, *, otherwise: Verdict = Verdict.MUST) -> Point:
    return Point(name, Verdict.OK if held else otherwise, says, "" if held else line)


def _words(facts: SlurmFacts, key: str) -> list[str]:
    return [word.strip().lower() for word in facts.settings.get(key, "").split(",") if word.strip()]


def _said(facts: SlurmFacts, key: str) -> str:
    return f"{key} is {facts.settings.get(key) or 'not set'}"


def _preemption(facts: SlurmFacts) -> Iterator[Point]:
    line = "PreemptType=preempt/qos"
    yield _point("preemption", _words(facts, "PreemptType") == ["preempt/qos"], _said(facts, "PreemptType"), line)
    modes = _words(facts, "PreemptMode")
    fits = "requeue" in modes and "within" not in modes
    yield _point("preempt mode", fits, _said(facts, "PreemptMode"), "PreemptMode=REQUEUE")
    requeue = _words(facts, "JobRequeue") == ["1"]
    yield _point("requeue", requeue, _said(facts, "JobRequeue"), "JobRequeue=1")


def _accounting(facts: SlurmFacts) -> Iterator[Point]:
    said = _said(facts, "AccountingStorageEnforce")
    words = _words(facts, "AccountingStorageEnforce")
    enforced = {*words, *(also for word in words for also in IMPLIED.get(word, ()))}
    for word in ("associations", "qos"):
        yield _point(f"enforce {word}", word in enforced, said, ENFORCE)
    says = "jobs are accounted" if "nojobs" not in words else said
    yield _point("jobs accounted", "nojobs" not in words, says, ENFORCE)
    yield _point("enforce limits", "limits" in enforced, said, ENFORCE, otherwise=Verdict.ADVISED)
    line = "AccountingStorageTRES=gres/gpu  (and each type, as gres/gpu:a100)"
    counted = "gres/gpu" in _words(facts, "AccountingStorageTRES")
    yield _point("GPUs accounted", counted, _said(facts, "AccountingStorageTRES"), line)
    kept = "job_comment" in _words(facts, "AccountingStoreFlags")
    says = "sacct keeps the jobs' comments" if kept else "sacct does not keep the jobs' comments with their contracts"
    line = "AccountingStoreFlags=job_comment"
    yield _point("comments kept", kept, says, line, otherwise=Verdict.ADVISED)
    held = LEVELS.index(facts.admin_level)
    says = f"this user's AdminLevel is {facts.admin_level}"
    yield _point("rights", held >= LEVELS.index("operator"), says,
                 "sacctmgr -i modify user where name=USER set adminlevel=operator")  # fmt: skip


def _submit(facts: SlurmFacts) -> Iterator[Point]:
    if "lua" in _words(facts, "JobSubmitPlugins"):
        yield Point("submit plugin", Verdict.OK, _said(facts, "JobSubmitPlugins"))
        return
    # Not a reason to refuse `apply`: slurmctld does not start with this line while there is no file.
    line = "JobSubmitPlugins=lua  (after sbudget setup apply; then restart slurmctld)"
    yield Point("submit plugin", Verdict.MUST, _said(facts, "JobSubmitPlugins"), line, blocks=False)


def _weights(facts: SlurmFacts) -> Iterator[Point]:
    held = _words(facts, "PriorityType") == ["priority/multifactor"]
    yield _point("priority", held, _said(facts, "PriorityType"), "PriorityType=priority/multifactor")
    most = (CEILING - 1) // (STEPS + 1) - 1
    says = f"the PriorityWeight settings add up to {facts.weights}"
    if facts.weights >= CEILING:
        line = f"lower the PriorityWeight settings until they add up to less than {CEILING}"
        yield Point("weights", Verdict.MUST, says, line)
    else:
        own = ladder(facts.weights).own
        line = f"only the first {own} jobs have places of their own in the order; more, the less the weights are"
        yield _point("weights", facts.weights <= most, says, line, otherwise=Verdict.ADVISED)


def _twins(facts: SlurmFacts, classes: ClassMap) -> Iterator[Point]:
    for name in dict.fromkeys((*classes.twins, *classes.twins.values())):
        qos = facts.qos.get(name)
        if qos is not None and qos.grace < 0:
            says = f"GraceTime of {name} is {qos.grace}: its jobs would never be preempted"
            yield Point("grace time", Verdict.MUST, says, f"sacctmgr -i modify qos {name} set gracetime=0")
    for managed, twin in classes.twins.items():
        if managed in facts.qos and twin in facts.qos:
            yield from _twin(facts, managed, twin)


def _twin(facts: SlurmFacts, managed: str, twin: str) -> Iterator[Point]:
    """A twin that was there before us: it must be requeued, rank below, and lose no limit."""
    ours, theirs = facts.qos[managed], facts.qos[twin]
    change = f"sacctmgr -i modify qos {twin} set"
    if theirs.preempt_mode.lower() not in ("cluster", "requeue", ""):
        says = f"PreemptMode of {twin} is {theirs.preempt_mode}: its jobs would not come back"
        yield Point("preempted jobs", Verdict.MUST, says, f"{change} preemptmode=requeue")
    if theirs.priority > ours.priority:
        says = f"Priority of {twin} is {theirs.priority}, above {managed}'s {ours.priority}"
        yield Point("rank", Verdict.MUST, says, f"{change} priority={priority_below(ours.priority)}")
    for limit, value in ours.limits.items():
        there = theirs.limits.get(limit)
        if limit == "flags":
            if lost := ",".join(sorted(set(value.split(",")) - set((there or "").split(",")))):
                says = f"a job that becomes {twin} would lose the flags {lost} of {managed}"
                yield Point("limits", Verdict.MUST, says, f"{change} flags+={lost}")
        elif there is None:
            says = f"a job that becomes {twin} would lose {limit}={value} of {managed}"
            yield Point("limits", Verdict.MUST, says, f"{change} {limit}={value}")
        elif there != value:
            says = f"{limit} is {value} in {managed} and {there} in {twin}"
            yield Point("limits", Verdict.ADVISED, says, f"{change} {limit}={value}")


def _partitions(facts: SlurmFacts, classes: ClassMap, *, claims: bool) -> Iterator[Point]:
    """A partition that takes jobs of one class must take the classes that they may get, too."""
    edges = [*([] if classes.adopt is None else [(SLURMS_OWN, classes.adopt)]), *classes.twins.items()]
    edges += [(managed, classes.claim) for managed in classes.twins if claims]
    for name, rule in sorted(facts.partitions.items()):
        arrive = {qos for qos, _ in edges if rule.takes(qos)}
        for qos, other in edges:
            if qos in arrive:
                arrive.add(other)
        if lacking := frozenset(qos for qos in arrive if not rule.takes(qos)):
            says = f"partition {name} takes jobs that may get the QOS {','.join(sorted(lacking))}, and not that QOS"
            line = f"PartitionName={name} ... {_partition_words(rule, lacking)}"
            yield Point("partitions", Verdict.MUST, says, line)


def _partition_words(rule: PartitionRule, lacking: frozenset[str]) -> str:
    """What the partition's line must say; DenyQos counts only where there is no AllowQos."""
    if rule.allow is not None:
        return f"AllowQos={','.join(sorted(rule.allow | lacking))}"
    return f"DenyQos={','.join(sorted(rule.deny - lacking))}"


def _missing(facts: SlurmFacts, changes: Sequence[Change]) -> Iterator[Point]:
    """What `apply` would make, in one point."""
    says = f"{len(changes)} changes are missing" if changes else "all are there, with their Preempt and QOS lists"
    verdict = Verdict.MUST if changes else Verdict.OK
    yield Point("QOS and lists", verdict, says, "sbudget setup apply" if changes else "", blocks=False)
    if facts.admin_level != "administrator" and not all(isinstance(change, LetUse) for change in changes):
        says = f"only an Administrator of slurmdbd may change QOS; this user's AdminLevel is {facts.admin_level}"
        yield Point("who applies", Verdict.ADVISED, says, "run sbudget setup apply as root or SlurmUser")
