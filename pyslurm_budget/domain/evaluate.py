"""From a situation to a plan: budgets, classes, order, displacement, drain. One pure function."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pyslurm_budget.domain import claim, grant, guard
from pyslurm_budget.domain.admission import Admitter, Classes
from pyslurm_budget.domain.books import Books, Price
from pyslurm_budget.domain.candidate import candidates
from pyslurm_budget.domain.capacity import allowances
from pyslurm_budget.domain.displace import Displacer
from pyslurm_budget.domain.drain import drained_runs, pools_of
from pyslurm_budget.domain.kept import begun, tend
from pyslurm_budget.domain.maintenance import maintained_runs
from pyslurm_budget.domain.making import make_room
from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.plan import Action, ActionKind, BudgetState, Plan, Reason, Taking
from pyslurm_budget.domain.steps import BACKED_BASE, SPARE_BASE, ladder
from pyslurm_budget.domain.sweep import exposed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyslurm_budget.domain.candidate import Candidate
    from pyslurm_budget.domain.displace import Displacement
    from pyslurm_budget.domain.model import Job
    from pyslurm_budget.domain.situation import LiveRun, Situation


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The plan and the books that it stands on (the decision table is made from both)."""

    plan: Plan
    books: Books
    classes: Classes


def open_books(situation: Situation) -> Books:
    """Books with the window's use and the contracts of everything that runs."""
    pools = situation.pools
    fixed = situation.policy.fixed
    sizes = {pool: Fraction(fixed[pool]) if pool in fixed else pools.in_service(pool) for pool in pools.members}
    books = Books(
        situation.tree,
        situation.policy,
        allowances(situation.tree, situation.capacities),
        sizes,
        situation.now,
    )
    books.enter(situation.history)
    books.charge(situation.uses)
    books.borrow(situation.borrowed)
    for run in situation.runs:
        if run.work_class is WorkClass.BACKED and run.budget is not None and (run.budget, run.pool) in books.books:
            rest = max(0, run.protected_until - situation.now, (run.exempt_until or 0) - situation.now)
            books.run_contract(run.budget, run.job.user, run.pool, Price(run.rate, rest))
    grant.enter(books, situation.grants)
    return books


def evaluate(situation: Situation, *, halted: Reason | None = None) -> Evaluation:
    """Decide everything. With ``halted`` (or right after a restart) classes are shown, and no action is planned."""
    books = open_books(situation)
    pending = candidates(situation)
    classes = Admitter(situation, books).decide(pending)
    halted = halted or guard.quiet(situation)
    actions: list[Action] = []
    takings: list[Taking] = []
    notes: list[Reason] = [halted] if halted else []
    if halted is None:
        actions, takings, notes = _actions(situation, books, classes)
    exempt = [p.reason("is-exempt") for p in situation.protections]
    plan = Plan(
        now=situation.now,
        actions=tuple(actions),
        admissions=tuple(classes.admissions[c.ref] for c in pending),
        budgets=tuple(_states(situation, books, classes)),
        notes=(*exempt, *notes),
        takings=tuple(takings),
    )
    return Evaluation(plan, books, classes)


def drains(situation: Situation) -> list[Action]:
    """Only what empties draining nodes, within the caps: all that may go on while accounting cannot be read."""
    if guard.quiet(situation) is not None:
        return []
    return guard.capped(situation, _repairs(situation)[0])[0]


def _repairs(situation: Situation) -> tuple[list[Action], list[Reason]]:
    """What makes way for repairs: on draining nodes, and on those of a maintenance that is near; each run once."""
    found: dict[str, Action] = {}
    notes: list[Reason] = []
    for pool in pools_of(situation):
        runs, limits = drained_runs(situation, pool)
        notes.extend(limits)
        for run, reason in runs:
            found.setdefault(run.job.ref, _requeue(situation, run, ActionKind.DRAIN, reason, None))
    for run, reason in maintained_runs(situation):
        found.setdefault(run.job.ref, _requeue(situation, run, ActionKind.DRAIN, reason, None))
    return list(found.values()), notes


def _actions(situation: Situation, books: Books, classes: Classes) -> tuple[list[Action], list[Taking], list[Reason]]:
    notes: list[Reason] = []
    requeues: list[Action] = []
    repairs, limits = _repairs(situation)
    notes.extend(limits)
    requeues.extend(repairs)
    gone = {action.ref for action in repairs}
    may_gain, others = (
        {pool: [c for c in order if not _withheld(situation, c)] for pool, order in orders.items()}
        for orders in (classes.backed, classes.spare)
    )
    tended = tend(situation)
    search = Displacer(situation, books).search(may_gain, begun(situation.snapshot))
    takings = [_taking(situation, displacement, gone) for displacement in search.displacements]
    requeues.extend(run for taking in takings for run in taking.first)
    gone.update(action.ref for action in requeues)
    made = make_room(situation, books, (may_gain, others), search, tended=tended, gone=gone)
    requeues += [_requeue(situation, stop.run, stop.kind, stop.reason, stop.for_ref) for stop in made.stops]
    notes.extend(made.notes)
    notes.extend(Reason(r.code, {**r.numbers, "job": ref}) for ref, r in made.about.items())
    requeues, cap = guard.capped(situation, requeues)
    if cap:
        notes.append(cap)
    kept = {action.ref for action in requeues}
    takings = [taking for taking in takings if all(run.ref in kept for run in taking.first)]
    takings, open_runs = _while_closed(situation, takings)
    notes.extend(open_runs)
    updates = [*_class_changes(situation, classes), *_started(situation)]
    stopped_for = {action.for_ref for action in requeues}
    places = [*made.places, *(action for action in made.with_stops if action.ref in stopped_for)]
    return [*places, *updates[: situation.policy.updates_per_cycle], *requeues], takings, notes


def _taking(situation: Situation, displacement: Displacement, gone: Collection[str]) -> Taking:
    """A beneficiary's claim, and the runs whose place it may take, but for those that are drained anyway."""
    c = displacement.candidate
    first, others = (
        tuple(
            _requeue(situation, run, ActionKind.DISPLACE, reason, c.ref)
            for run, reason in runs
            if run.job.ref not in gone
        )
        for runs in (displacement.victims, displacement.others)
    )
    job = Action(
        kind=ActionKind.CLAIM,
        ref=c.ref,
        key=c.job.key,
        reason=Reason("claims", {"gpus": c.job.request.gpus, "runs": len(first) + len(others)}),
        expect_state=JobState.PENDING,
        expect_qos=_wanted_qos(situation, c, WorkClass.BACKED),
        qos=situation.policy.classes.claim,
        site_factor=claim.TOP,
        time_limit=c.job.time_limit,
        until=situation.now + situation.start_within,
    )
    return Taking(job, first, others)


def _while_closed(situation: Situation, takings: list[Taking]) -> tuple[list[Taking], list[Reason]]:
    """No claim while a run inside its contract stands open, although the sweep has just shielded all."""
    if not situation.claims:
        return takings, []
    classes = situation.policy.classes
    inside = [r for r in situation.runs if situation.now < r.protected_until and exposed(r.job, classes)]
    if not inside:
        return takings, []
    return [], [Reason("stands-open", {"job": inside[0].job.ref, "user": inside[0].job.user, "runs": len(inside)})]


def _class_changes(situation: Situation, classes: Classes) -> list[Action]:
    """Moves between the classes first (they protect, or free, GPUs), then the order; best of all pools first."""
    steps = ladder(situation.snapshot.controller.weights)
    moves: list[tuple[tuple[bool, int], Action]] = []
    ranks: list[tuple[tuple[int, bool], Action]] = []
    for work_class, base, orders in (
        (WorkClass.BACKED, BACKED_BASE, classes.backed),
        (WorkClass.SPARE, SPARE_BASE, classes.spare),
    ):
        for waiting in orders.values():
            # A job that claims keeps its claim's rank until the round is over.
            order = [c for c in waiting if c.job.qos != situation.policy.classes.claim]
            ranked = _records(situation, order, work_class)
            current = [steps.read(c.job.priority, base) for c in ranked]
            changes = [
                _change(
                    c, _wanted_qos(situation, c, work_class), classes, steps.factor(base, step), ranked=step != had
                )
                for c, step, had in zip(ranked, steps.wanted(current), current, strict=True)
            ]
            later = [c for c in order if not c.eligible and not _withheld(situation, c)]
            changes += [_change(c, _wanted_qos(situation, c, work_class), classes, base, ranked=False) for c in later]
            spare = work_class is WorkClass.SPARE
            placed = [(place, a) for place, a in enumerate(changes) if a is not None]
            moves.extend(((spare, place), a) for place, a in placed if a.kind is ActionKind.SET_CLASS)
            ranks.extend(((place, spare), a) for place, a in placed if a.kind is ActionKind.SET_RANK)
    first = [action for _, action in sorted(moves, key=lambda move: move[0])]
    then = [action for _, action in sorted(ranks, key=lambda rank: rank[0])]
    # A record that is split now is ranked in the next cycle: its present name also means the tasks that leave it.
    splitting = {a.for_ref for a in first if a.for_ref is not None}
    return _merged(first) + _merged([a for a in then if a.for_ref not in splitting])


def _withheld(situation: Situation, c: Candidate) -> bool:
    """Whether its partition or budget stays behind the site's enforce: it is shown, and left alone."""
    return situation.withheld(c.job.partitions, c.budget)


def _records(situation: Situation, order: Sequence[Candidate], work_class: WorkClass) -> list[Candidate]:
    """The eligible candidates, of an unsplit array whose tasks are in their class already only the best task; without
    those that are left alone, which have no place in Slurm's order from us."""
    found: list[Candidate] = []
    seen: set[str] = set()
    for c in order:
        settled = _wanted_qos(situation, c, work_class) == c.job.qos
        if c.eligible and not _withheld(situation, c) and not (settled and c.job.ref in seen):
            found.append(c)
            if settled:
                seen.add(c.job.ref)
    return found


def _wanted_qos(situation: Situation, c: Candidate, work_class: WorkClass) -> str:
    """The QOS of the class; the present one, where the user may not have that: Slurm would refuse the update."""
    classes, job = situation.policy.classes, c.job
    if job.qos == classes.claim:
        return job.qos  # its room is being made
    wanted = classes.backed_of(job.qos) if work_class is WorkClass.BACKED else classes.spare_of(job.qos)
    known = wanted in situation.snapshot.allowed_qos.get((job.account, job.user), frozenset())
    return wanted if known or not situation.enforces(job.partitions, c.budget) else job.qos


def _change(c: Candidate, wanted: str, classes: Classes, site_factor: int, *, ranked: bool) -> Action | None:
    """What must be changed so that the candidate has its class and its rank, if anything."""
    if wanted != c.job.qos:
        return _update(c, ActionKind.SET_CLASS, classes.admissions[c.ref].reason, wanted, site_factor)
    return _update(c, ActionKind.SET_RANK, Reason("order"), None, site_factor) if ranked else None


def _update(c: Candidate, kind: ActionKind, reason: Reason, qos: str | None, site_factor: int) -> Action:
    return Action(
        kind=kind,
        ref=c.ref,
        key=c.job.key,
        reason=reason,
        expect_state=JobState.PENDING,
        expect_qos=c.job.qos,
        qos=qos,
        site_factor=site_factor,
        time_limit=c.job.time_limit,
        for_ref=c.job.ref if c.task is not None else None,
    )


def _merged(actions: list[Action]) -> list[Action]:
    """Tasks of one unsplit array record that all get the same are changed as the record: no needless splitting.

    A rank alone never splits an array: its remainder has the rank of its best task.
    """
    by_record: dict[str, list[Action]] = {}
    for action in actions:
        by_record.setdefault(action.for_ref or action.ref, []).append(action)
    merged: list[Action] = []
    for record, group in by_record.items():
        first = group[0]
        if first.for_ref is None:
            merged.extend(group)
        elif first.kind is ActionKind.SET_RANK or _covers(record, group):
            merged.append(_as_record(first, record))
        else:
            merged.extend(_as_record(a, a.ref) for a in group)
    return merged


def _covers(record: str, group: Sequence[Action]) -> bool:
    """Whether the actions are for every task of the record, or one is for the record as a whole."""
    if any(action.ref == record for action in group):
        return True
    inside = record.partition("[")[2].rstrip("]").partition("%")[0]
    tasks = 0
    for part in inside.split(","):
        low, _, high = part.partition("-")
        if not low.isdigit():
            return False
        tasks += (int(high.partition(":")[0]) - int(low) + 1) if high else 1
    return tasks == len(group)


def _as_record(action: Action, ref: str) -> Action:
    return Action(
        kind=action.kind,
        ref=ref,
        key=action.key,
        reason=action.reason,
        expect_state=action.expect_state,
        expect_qos=action.expect_qos,
        qos=action.qos,
        site_factor=action.site_factor,
        time_limit=action.time_limit,
    )


def _started(situation: Situation) -> list[Action]:
    """A run that starts gets the lowest step of its class, so that a requeue does not jump the queue."""
    steps = ladder(situation.snapshot.controller.weights)
    found: list[Action] = []
    for run in situation.runs:
        if run.withheld or not situation.policy.classes.is_managed(run.job.qos):
            continue
        base = SPARE_BASE if situation.policy.classes.is_spare(run.job.qos) else BACKED_BASE
        if run.job.priority > 0 and steps.read(run.job.priority, base) != 0:
            found.append(_run_action(run, ActionKind.RESET_RANK, Reason("run-started"), site_factor=base))
    return found


def _run_action(
    run: LiveRun,
    kind: ActionKind,
    reason: Reason,
    *,
    site_factor: int,
    qos: str | None = None,
    for_ref: str | None = None,
) -> Action:
    job: Job = run.job
    return Action(
        kind=kind,
        ref=job.ref,
        key=job.key,
        reason=reason,
        expect_state=job.state,
        expect_qos=job.qos,
        qos=qos,
        site_factor=site_factor,
        time_limit=job.time_limit,
        for_ref=for_ref,
        nodes=tuple(share.node for share in job.allocation),
    )


def _requeue(situation: Situation, run: LiveRun, kind: ActionKind, reason: Reason, for_ref: str | None) -> Action:
    """A requeue: the class of the job is decided anew in the next cycle, once it is pending again."""
    base = SPARE_BASE if situation.policy.classes.is_spare(run.job.qos) else BACKED_BASE
    numbers = {**reason.numbers, "gpus": run.job.held_tres.gpus or 0, "started": run.start}
    return _run_action(run, kind, Reason(reason.code, numbers), site_factor=base, for_ref=for_ref)


def _states(situation: Situation, books: Books, classes: Classes) -> list[BudgetState]:
    """What `show` prints: every budget in every pool."""
    now_backed: dict[tuple[str, str], int] = {}
    now_spare: dict[tuple[str, str], int] = {}
    waiting: dict[tuple[str, str], int] = {}
    for run in situation.runs:
        count = now_backed if run.work_class is WorkClass.BACKED else now_spare
        _add(books, count, run.budget, run.pool, run.rate)
    for orders in (classes.backed, classes.spare):
        for pool, order in orders.items():
            for c in order:
                if c.eligible:
                    _add(books, waiting, c.budget, pool, c.price.rate)
    found = []
    for (account, pool), book in sorted(books.books.items()):
        share = situation.tree.effective_share(account, pool, situation.now)
        found.append(
            BudgetState(
                budget=account,
                pool=pool,
                share=f"{share.numerator}/{share.denominator}",
                allowance=book.allowance,
                granted=book.granted,
                overdraft=book.line - book.allowance,
                charged=book.charged_now,
                outstanding=book.outstanding,
                headroom=book.headroom,
                backed_now=now_backed.get((account, pool), 0),
                spare_now=now_spare.get((account, pool), 0),
                waiting=waiting.get((account, pool), 0),
                lendable=max(0, min(left for _, room in books.borrowing.own(account, pool) for left in room)),
            )
        )
    return found


def _add(books: Books, count: dict[tuple[str, str], int], budget: str | None, pool: str, rate: int) -> None:
    """Add a rate to a budget and its ancestors."""
    if budget is not None:
        for name in books.path(budget):
            count[name, pool] = count.get((name, pool), 0) + rate
