"""A site's history, made: which jobs ran when, by whom, on what. The same seed makes the same history."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86400
ACCOUNTS = tuple(f"acct{i:03}" for i in range(200))
USERS = tuple(f"user{i:04}" for i in range(1000))
FIRST_UID = 20000
BACKED, SPARE = "backed", "spare"
LIMITS = (60, 240, 480, 720, 1440, 2880)  # minutes
COMMENTS = ("", "", "", "min-runtime=1h", "min-runtime=4h")
LONGEST = 7 * DAY

# Parts of all submissions; the rest are single jobs that ran once.
ARRAYS, LARGEST_ARRAY = 0.02, 60
REQUEUED, NEVER_STARTED, SUSPENDED = 0.04, 0.03, 0.01


class Flavor(NamedTuple):
    """The nodes of one GPU type, ``name-001`` and so on."""

    name: str
    nodes: int
    gpus: int
    cpus: int
    memory_mb: int


FLAVORS = (
    Flavor("a100", 60, 8, 128, 1_024_000),
    Flavor("h100", 40, 8, 192, 2_048_000),
    Flavor("l40s", 50, 4, 64, 512_000),
    Flavor("v100", 50, 4, 40, 384_000),
)


class Made(NamedTuple):
    """One run. ``array`` and ``task`` are set for an array task; ``start`` is 0 for a job that never started."""

    job: int
    array: int
    task: int | None
    account: str
    user: int
    qos: str
    submit: int
    start: int
    end: int
    suspended: int
    state: str
    flavor: Flavor
    nodes: str
    node_count: int
    gpus: int
    cpus: int
    memory_mb: int
    limit: int
    comment: str


def members() -> Iterator[tuple[str, str]]:
    """Every user with each of the two accounts."""
    for number, user in enumerate(USERS):
        for other in (0, 1):
            yield user, ACCOUNTS[(number + other) % len(ACCOUNTS)]


def runs(count: int, until: int, days: int = 60, seed: int = 1) -> Iterator[Made]:
    """``count`` runs in the order of their first submission, evenly over ``days``, all over by ``until``."""
    rng = random.Random(seed)
    job, made = 0, 0
    begin = until - days * DAY
    while made < count:
        first = job + 1
        tasks = rng.randint(2, LARGEST_ARRAY) if rng.random() < ARRAYS else 1
        submit = begin + made * (days * DAY - DAY // 2) // count
        submission = _submission(rng, submit)
        for task in range(tasks):
            job += 1
            one = submission._replace(job=job, array=first if tasks > 1 else 0, task=task if tasks > 1 else None)
            for run in _lives(rng, one, until):
                if made < count:
                    made += 1
                    yield run


def _submission(rng: random.Random, submit: int) -> Made:
    """What the tasks of one submission have in common."""
    user = rng.randrange(len(USERS))
    account = ACCOUNTS[(user + (rng.random() < 0.2)) % len(ACCOUNTS)]
    flavor = FLAVORS[rng.randrange(len(FLAVORS))]
    nodes = rng.choice((1, 1, 1, 1, 1, 1, 1, 2, 4))
    part = flavor.gpus if nodes > 1 else rng.choice((1, 1, 1, 2, 4, flavor.gpus))
    return Made(
        job=0,
        array=0,
        task=None,
        account=account,
        user=user,
        qos=BACKED if rng.random() < 0.6 else SPARE,
        submit=submit,
        start=0,
        end=0,
        suspended=0,
        state="COMPLETED",
        flavor=flavor,
        nodes="",
        node_count=nodes,
        gpus=nodes * part,
        cpus=nodes * part * flavor.cpus // flavor.gpus,
        memory_mb=nodes * part * flavor.memory_mb // flavor.gpus // rng.choice((1, 2, 4)),
        limit=rng.choice(LIMITS),
        comment=rng.choice(COMMENTS),
    )


def _lives(rng: random.Random, job: Made, until: int) -> Iterator[Made]:
    """The runs of one job: one, several if it was requeued, or one row that never started."""
    if rng.random() < NEVER_STARTED:
        end = min(job.submit + int(rng.expovariate(1 / 1800)), until)
        yield job._replace(end=end, state="CANCELLED", nodes="None assigned")
        return
    while True:
        run = _run(rng, job, until)
        if rng.random() >= REQUEUED or run.end >= until - DAY:
            yield run
            return
        yield run._replace(state="PREEMPTED")
        job = job._replace(submit=run.end)


def _run(rng: random.Random, job: Made, until: int) -> Made:
    """One run of a job: its wait, length (log-normal, median half an hour), nodes and end."""
    start = min(job.submit + int(rng.expovariate(1 / 3600)), until - 1)
    end = min(start + 1 + int(min(rng.lognormvariate(7.5, 1.5), LONGEST)), until)
    first = rng.randint(1, job.flavor.nodes - job.node_count + 1)
    last = first + job.node_count - 1
    numbers = f"{first:03}" if first == last else f"[{first:03}-{last:03}]"
    return job._replace(
        start=start,
        end=end,
        suspended=rng.randint(1, 600) if rng.random() < SUSPENDED else 0,
        state=rng.choices(("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"), (80, 9, 4, 6, 1))[0],
        nodes=f"{job.flavor.name}-{numbers}",
    )
