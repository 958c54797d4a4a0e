"""Evaluating and planning alone, without Slurm or a ledger: 20,000 pending and 5,000 running jobs on 1,000 nodes."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING

from pyslurm_budget.domain.books import History, marks
from pyslurm_budget.domain.budget import BEGINNING, Budget, BudgetTree, ShareSince
from pyslurm_budget.domain.capacity import fixed_capacity
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.model import (
    Controller,
    Job,
    JobState,
    Mode,
    Node,
    NodeShare,
    Partition,
    Request,
    RunKey,
    Snapshot,
    Tres,
    WorkClass,
)
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.situation import LiveRun, Situation
from pyslurm_budget.domain.steps import BACKED_BASE, SPARE_BASE

if TYPE_CHECKING:
    import argparse

NOW = 1_800_000_000
HOUR, DAY = 3600, 86_400
TYPES = ("a100", "h100", "l40s", "v100")
GPUS, CPUS, MEMORY = 8, 64, 512_000
PROGRAMMES, PROJECTS = 20, 9
USERS = 5
TASKS = 20
TARGET_SECONDS = 0.5
MOST_GROWTH = 1.25
REPEATS = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """How large; the targets are for the defaults."""
    parser.add_argument("--pending", type=int, default=20_000, help="pending jobs (tasks of arrays are jobs)")
    parser.add_argument("--running", type=int, default=5_000, help="running jobs")
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes of 8 GPUs in 4 pools")
    parser.add_argument("--profile", metavar="FILE", help="write what cProfile saw of one evaluation to FILE")


def measure(pending: int, running: int, nodes: int, profile: str | None) -> list[dict[str, object]]:
    """The best of some evaluations, of half the site and of the whole one."""
    of = site(pending, running, nodes)
    if profile is not None:
        _profile(of, profile)
    half, whole = _seconds(site(pending // 2, running // 2, nodes // 2)), _seconds(of)
    plan = evaluate(of).plan
    growth = whole / half / 2
    return [
        _row(f"evaluate and plan, {pending:,} pending", whole, "s", TARGET_SECONDS),
        _row("  half of everything", half, "s", None),
        _row("  time a job, whole against half", growth, "x", MOST_GROWTH),
        _row("  actions planned", len(plan.actions), "", None),
        _row("  of them requeues", sum(a.kind.is_requeue for a in plan.actions), "", None),
    ]


def _seconds(of: Situation) -> float:
    """CPU time of the quickest evaluation; each begins without what the last one remembered."""
    found = []
    for _ in range(REPEATS):
        fresh = Situation(**{name: getattr(of, name) for name in of.__dataclass_fields__})
        began = time.process_time()
        evaluate(fresh)
        found.append(time.process_time() - began)
    return min(found)


def _profile(of: Situation, file: str) -> None:
    import cProfile  # noqa: PLC0415 (only where it is asked for)

    with cProfile.Profile() as seen:
        evaluate(of)
    seen.dump_stats(file)


def site(pending: int, running: int, nodes: int, seed: int = 1) -> Situation:
    """A busy site: every node full, a queue in which 10 % want several nodes with a feature, 5 % are wide, and 20 %
    are tasks of arrays; half of the budgets are over what they may use."""
    random = Random(seed)
    tree, accounts = _tree(random)
    on = _nodes(nodes)
    runs = _runs(random, accounts, running, nodes)
    used = {}
    for run in runs:
        for s in run.job.allocation:
            g, c, m = used.get(s.node, (0, 0, 0))
            used[s.node] = g + s.gpus, c + s.cpus, m + s.memory_mb
    on = tuple(_used(n, *used.get(n.name, (0, 0, 0))) for n in on)
    partitions = tuple(Partition(t, tuple(n.name for n in on if n.gpu_type == t), default=t == "a100") for t in TYPES)
    waiting = _queue(random, accounts, pending)
    jobs = (*waiting, *(run.job for run in runs))
    policy = Policy()
    return Situation(
        snapshot=Snapshot(
            controller=Controller("bench", NOW, (24, 11, 5), NOW - DAY, weights=1000),
            jobs=jobs,
            nodes=on,
            partitions=partitions,
            allowed_qos={(j.account, j.user): frozenset({"backed", "spare"}) for j in jobs},
            parents=dict.fromkeys(accounts, "root") | {"root": None},
        ),
        policy=policy,
        mode=Mode.ENFORCE,
        tree=tree,
        uses=(),
        runs=runs,
        capacities={
            t: fixed_capacity(
                sum(n.gpus for n in on if n.gpu_type == t), now=NOW, window=policy.window, hour=policy.hour
            )
            for t in TYPES
        },
        history=tuple(_history(random, accounts, policy, nodes)),
    )


def _tree(random: Random) -> tuple[BudgetTree, list[str]]:
    budgets = {}
    for i in range(PROGRAMMES):
        name = f"p{i}"
        budgets[name] = Budget(name, None, (ShareSince(BEGINNING, Fraction(1, PROGRAMMES)),))
        for k in range(PROJECTS):
            below = f"p{i}_{k}"
            budgets[below] = Budget(below, name, (ShareSince(BEGINNING, Fraction(random.randint(5, 10), 100)),))
    return BudgetTree(budgets), sorted(budgets)


def _nodes(count: int) -> tuple[Node, ...]:
    return tuple(
        Node(
            f"n{i:04}",
            (TYPES[i % 4],),
            GPUS,
            TYPES[i % 4],
            CPUS,
            MEMORY,
            features=frozenset({"nvlink"}) if i % 8 < 4 else frozenset(),
        )
        for i in range(count)
    )


def _used(n: Node, gpus: int, cpus: int, memory: int) -> Node:
    return replace(n, gpus_used=gpus, cpus_used=cpus, memory_used_mb=memory)


def _runs(random: Random, accounts: list[str], count: int, nodes: int) -> tuple[LiveRun, ...]:
    free = [GPUS] * nodes
    found = []
    at = 0
    for i in range(count):
        gpus = random.choice((1, 1, 1, 2, 2))
        while free[at % nodes] < gpus and at < 20 * nodes:
            at += 1
        if free[at % nodes] < gpus:
            break
        free[at % nodes] -= gpus
        account = random.choice(accounts)
        start = NOW - random.randint(600, 20 * HOUR)
        share = NodeShare(f"n{at % nodes:04}", gpus, 8 * gpus, 60_000 * gpus)
        at += 1
        spare = random.random() < 0.3
        contract = 0 if spare else random.choice((HOUR, HOUR, 4 * HOUR, 8 * HOUR))
        job = Job(
            key=RunKey(i + 1, start - 60),
            ref=str(i + 1),
            name="run",
            user=f"{account}_u{random.randrange(USERS)}",
            account=account,
            qos="spare" if spare else "backed",
            partitions=(TYPES[(at - 1) % nodes % 4],),
            state=JobState.RUNNING,
            reason="",
            priority=SPARE_BASE + 500 if spare else BACKED_BASE + 500,
            time_limit=DAY,
            request=Request(gpus=gpus, gpus_per_node=gpus, nodes_max=1, cpus=8 * gpus, memory_mb=60_000 * gpus),
            eligible=start - 60,
            start=start,
            held_tres=Tres(8 * gpus, 60_000 * gpus, 1, gpus),
            allocation=(share,),
        )
        found.append(
            LiveRun(
                job=job,
                budget=account,
                pool=TYPES[(at - 1) % nodes % 4],
                rate=1000 * gpus,
                work_class=WorkClass.SPARE if spare else WorkClass.BACKED,
                start=start,
                minimum=contract,
                protected_until=start + contract,
                stoppable=True,
            )
        )
    return tuple(found)


def _queue(random: Random, accounts: list[str], count: int) -> list[Job]:
    found: list[Job] = []
    left, number = count, 100_000
    while left > 0:
        number += 1
        account = random.choice(accounts)
        submit = NOW - random.randint(0, 3 * DAY)
        kind = random.random()
        tasks: tuple[int, ...] = ()
        gpus, wide = random.choice((1, 1, 2, 4, 8)), 1
        if kind < 0.05:
            gpus, wide = 8, random.randint(8, 16)
        elif kind < 0.15:
            gpus, wide = 8, random.randint(2, 4)
        elif kind < 0.162:  # a record in 80 is an array of 20 tasks: a fifth of the jobs
            gpus, tasks = 1, tuple(range(min(TASKS, left)))
        left -= max(len(tasks), 1)
        found.append(
            Job(
                key=RunKey(number, submit),
                ref=f"{number}_[0-{len(tasks) - 1}]" if tasks else str(number),
                name="train",
                user=f"{account}_u{random.randrange(USERS)}",
                account=account,
                qos=random.choice(("backed", "spare")),
                partitions=(random.choice(TYPES),),
                state=JobState.PENDING,
                reason=random.choice(("Priority", "Priority", "Resources")),
                priority=1500 if random.random() < 0.5 else BACKED_BASE + 1500,
                time_limit=random.choice((HOUR, 8 * HOUR, DAY)),
                request=_request(gpus, wide, featured=0.05 <= kind < 0.15),
                array_job_id=number if tasks else None,
                tasks=tasks,
                eligible=submit,
                comment=random.choice(("", "", "min-runtime=4h", "min-runtime=8h", "min-runtime=0")),
            )
        )
    return found


def _request(gpus: int, wide: int, *, featured: bool) -> Request:
    return Request(
        nodes_min=wide,
        nodes_max=wide,
        gpus=gpus * wide,
        gpus_per_node=gpus,
        cpus=8 * gpus * wide,
        memory_mb=60_000 * gpus * wide,
        features=(frozenset({"nvlink"}),) if featured else (),
    )


def _history(random: Random, accounts: list[str], policy: Policy, nodes: int) -> list[History]:
    begins = marks(policy, NOW)
    found = []
    for account in accounts:
        for user in range(USERS):
            for pool in TYPES:
                for work_class in WorkClass:
                    most = random.randint(0, nodes * GPUS // 4 * 168 * HOUR * 1000 // len(accounts) // USERS * 2)
                    amounts = tuple(most - i * most // 40 for i in range(len(begins)))
                    found.append(History(account, f"{account}_u{user}", pool, work_class, False, amounts))
    return found


def _row(what: str, value: float, unit: str, target: float | None) -> dict[str, object]:
    return {"what": what, "value": value, "unit": unit, "target": target, "ok": target is None or value <= target}
