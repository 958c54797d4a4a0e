"""Every example of docs/explanation/policy.md, worked out by the code that decides and compared with the page."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyslurm_budget.domain import comment
from pyslurm_budget.domain.books import Books, Price
from pyslurm_budget.domain.candidate import contract_of
from pyslurm_budget.domain.capacity import Outage, allowances, pool_capacity
from pyslurm_budget.domain.credit import lost_time
from pyslurm_budget.domain.drain import emptied
from pyslurm_budget.domain.evaluate import evaluate
from pyslurm_budget.domain.order import FairOrder, Waiting
from pyslurm_budget.domain.plan import ActionKind
from pyslurm_budget.domain.policy import Policy
from tests.build import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    POOL,
    books,
    held,
    live,
    node,
    nodes,
    pending,
    pool_map,
    request,
    running,
    situation,
    tree,
    use,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "policy.md"
POLICY = Policy()
GPU_HOUR = 1000 * HOUR


def told(seconds: int) -> str:
    """A duration as the page writes it."""
    if seconds % DAY == 0:
        return f"{seconds // DAY} d"
    if seconds % HOUR == 0:
        return f"{seconds // HOUR} h"
    return f"{seconds // MINUTE} min"


def long(seconds: int) -> str:
    """Hours and minutes."""
    return f"{seconds // HOUR} h {seconds % HOUR // MINUTE:02d} min"


def allowance() -> Iterator[str]:
    of = tree(nlp="35/100", olmo=("nlp", "60/100"))
    yield f"{'pool':>28}{'nlp':>8}{'olmo':>8}"
    for what, out in (("all in service", ()), ("2 nodes out for 24 h", (Outage(NOW - 2 * DAY, NOW - DAY, 16),))):
        size = 60 * 8
        capacity = pool_capacity(
            [], sampled=[], outages=out, now=NOW, window=POLICY.window, hour=HOUR, size=size, in_service=size
        )
        found = allowances(of, {POOL: capacity})
        numbers = [capacity.total / HOUR, *(found[name, POOL] / GPU_HOUR for name in ("nlp", "olmo"))]
        unit = "" if out else "   GPU-hours in 7 days"
        yield f"{what:<20}" + "".join(f"{n:>8,.0f}" for n in numbers) + unit


def charge() -> Iterator[str]:
    pools = pool_map(nodes(1))
    for gpus, cpus, memory in ((1, 8, 64_000), (2, 32, 128_000), (1, 8, 512_000)):
        wanted = request(gpus, cpus=cpus, memory_mb=memory)
        rate = pools.price(wanted, [POOL], ["gpu"], largest=True)
        asked = f"{gpus} GPU{'s' if gpus > 1 else ''},"
        yield f"{asked:<7}{cpus:>3} CPUs, {memory:>7,} MB   {rate / 1000:g} GPU{'s' if rate > 1000 else ''}"


def credit() -> Iterator[str]:
    for after in (3 * HOUR, 5 * HOUR + 30 * MINUTE, 8 * HOUR):
        lost = lost_time(0, after, 4 * HOUR)
        back = "nothing back" if lost is None else f"{8 * (lost[1] - lost[0]) / HOUR:g} GPU-hours back"
        yield f"fails after {long(after)}   {back}"


def contract() -> Iterator[str]:
    yield "asked for     time limit   can be requeued   protected for   priced as"
    for asked, limit, again in (
        ("nothing", 2 * DAY, True), ("4h", 2 * DAY, True), ("10m", 2 * DAY, True), ("10m", 30 * MINUTE, True),
        ("4h", 2 * HOUR, True), ("nothing", 6 * HOUR, False), ("nothing", 2 * DAY, False), ("0", 2 * DAY, True),
        ("12h", 2 * DAY, True),
    ):  # fmt: skip
        declared = None if asked == "nothing" else comment.declared_minimum(f"min-runtime={asked}")
        found = comment.contract_of(
            declared, time_limit=limit, requeueable=again, default=POLICY.default_contract, cap=POLICY.cap
        )
        backed = found.kind is comment.ContractKind.MAY_BE_BACKED
        price = told(comment.price_length(found.seconds, POLICY.floor, limit)) if backed else "-"
        kind = "refused" if found.kind is comment.ContractKind.ABOVE_CAP else "spare"
        protected = told(found.seconds) if backed else kind
        yield f"{asked:<14}{told(limit):<13}{'yes' if again else 'no':<18}{protected:<16}{price}"


def _used_up(ago: int) -> Books:
    """Books of red, whose allowance 840 GPUs for 8 h have used up, so many seconds ago."""
    found = books(allowances={"red": 6720 * GPU_HOUR, "blue": 0})
    found.charge([use("red", 0, rate=840_000, start=NOW - ago - 8 * HOUR, end=NOW - ago)])
    return found


def admission() -> Iterator[str]:
    yield f"{'price':>23}   just now   a week ago, 4 h of it still in the window"
    for gpus, hours in ((8, 8), (32, 4), (32, 8), (80, 8)):
        price = Price(gpus * 1000, hours * HOUR)
        told = ["spare" if _used_up(ago).refusal("red", POOL, price) else "backed" for ago in (0, 7 * DAY - 4 * HOUR)]
        yield f"{gpus:>2} GPUs for {hours} h{gpus * hours:>8}   {told[0]:<11}{told[1]}"


def order() -> Iterator[str]:
    of = books(allowances={"red": 672 * GPU_HOUR, "blue": 672 * GPU_HOUR})
    of.charge([use("red", 100 * HOUR), use("blue", 60 * HOUR)])
    waiting = [Waiting(f"{who} {i}", who, who, POOL, (i,)) for who in ("red", "blue") for i in (1, 2, 3, 4)]
    for job in FairOrder(of, POOL, waiting):
        used, allowed = of.standing(job.budget, POOL)
        yield f"{job.ref:<6}{used // GPU_HOUR:>5} of {allowed // GPU_HOUR}"
        of.add_load(job.budget, job.user, POOL, 16 * GPU_HOUR)


def displacement() -> Iterator[str]:
    for minutes in (252, 253):
        ago = minutes * MINUTE
        run = live(running(101, held("n1", 8), start=NOW - ago))
        at = situation(
            [pending(1, 8, submit=NOW - 2 * HOUR)], [run], uses=[use("blue", 0, rate=8000, start=NOW - ago, end=NOW)]
        )
        stopped = [a for a in evaluate(at).plan.actions if a.kind is ActionKind.DISPLACE]
        yield (
            f"blue has held the node for {long(ago)}   {100 * 8 * ago / HOUR / 672:.1f} %   "
            f"{'is requeued' if stopped else 'goes on'}"
        )


def loss() -> Iterator[str]:
    start = NOW - 2 * HOUR - 20 * MINUTE
    run = live(running(101, held("n1", 8), start=start), minimum=HOUR)
    for what, ago in (("no report", None), ("5", 5), ("50", 50)):
        reported = None if ago is None else NOW - ago * MINUTE
        lost = replace(run, reported=reported).loss(NOW, POLICY.loss_cap)
        said = what if ago is None else f"checkpoint reported {what} min ago"
        yield f"{said:<33}{8 * lost / HOUR:.1f} GPU-hours lost"


def moving() -> Iterator[str]:
    on = {"n1": 2, "n2": 3, "n3": 4}
    runs = [
        live(running(100 + gpus, held(name, gpus), qos="spare", start=NOW - 10 * MINUTE), minimum=0)
        for name, gpus in on.items()
    ]
    at = situation([pending(1, 8, qos="spare", comment="min-runtime=0")], runs, nodes(3))
    moved = {n for a in evaluate(at).plan.actions if a.kind is ActionKind.MOVE for n in on if a.ref == f"10{on[n]}"}
    for name, gpus in on.items():
        yield f"{name}   {gpus} GPUs in use   {'is moved' if name in moved else 'stays'}"


def doubled() -> Iterator[str]:
    for times in (2, 3):
        seconds, _ = contract_of(POLICY, pending(1), times)
        yield f"requeued {times} times in 24 h   {told(seconds)}"


def drain() -> Iterator[str]:
    for size, count in ((60, 3), (60, 4), (20, 2), (20, 3)):
        on = [
            node(f"n{i}", draining=i < count, reason="fan", reason_since=NOW - HOUR, gpus_used=8)
            for i in range(size)
        ]
        found, _ = emptied(situation(on=on), POOL)
        yield f"{size} nodes, {count} draining   {'emptied' if len(found) == count else 'left alone'}"


EXAMPLES: dict[str, Callable[[], Iterator[str]]] = {
    f.__name__: f
    for f in (
        allowance, charge, credit, contract, admission, order, displacement, loss, moving, doubled, drain,
    )
}  # fmt: skip


def on_page() -> dict[str, str]:
    """The examples as they stand on the page, by name."""
    return dict(re.findall(r"^```text (\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S))


def test_every_example_of_the_page_is_worked_out() -> None:
    assert set(on_page()) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_says_what_the_code_does(name: str) -> None:
    assert on_page()[name] == "".join(f"{line}\n" for line in EXAMPLES[name]())


def test_the_defaults_that_the_text_names() -> None:
    assert (POLICY.window, POLICY.cap, POLICY.floor, POLICY.overdraft) == (7 * DAY, 8 * HOUR, HOUR, Fraction(2, 100))
    assert (POLICY.margin, POLICY.grown_wait, POLICY.early_wait) == (Fraction(5, 100), 15 * MINUTE, HOUR)
    assert (POLICY.early_loss, POLICY.move_loss) == (10 * MINUTE, 30 * MINUTE)
    assert (POLICY.drain_after, POLICY.drain_at_once, POLICY.drain_min_nodes) == (10 * MINUTE, Fraction(5, 100), 2)
    assert (POLICY.requeues_per_cycle, POLICY.requeues_per_hour, POLICY.restart_quiet) == (20, 200, MINUTE)
