"""Steps of SiteFactor: Slurm's order is ours, for few updates, whatever the site's weights."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.steps import BACKED_BASE, CEILING, SPARE_BASE, STEPS, Ladder, ladder

WEIGHTS = st.one_of(st.integers(0, 10_000), st.integers(0, 999_999), st.sampled_from([6210, 6211, 333_332, 499_999]))


@settings(max_examples=300, deadline=None)
@given(WEIGHTS, st.data())
def test_a_step_can_be_read_back_from_the_priority(weights: int, data: st.DataObject) -> None:
    """For every priority that Slurm's own weights can give, in both classes; 0 alone is a held job's."""
    of = ladder(weights)
    step, natural = data.draw(st.integers(0, of.steps)), data.draw(st.integers(0, weights))
    for base in (BACKED_BASE, SPARE_BASE):
        priority = of.factor(base, step) + natural
        assert of.read(priority, base) == (step if priority else None)
        other = SPARE_BASE if base == BACKED_BASE else BACKED_BASE
        assert priority == 0 or of.read(priority, other) is None


@given(WEIGHTS)
def test_the_classes_never_meet_and_spare_work_can_be_preempted(weights: int) -> None:
    of = ladder(weights)
    assert of.factor(SPARE_BASE, of.steps) + weights < CEILING < BACKED_BASE
    assert of.own < STEPS
    assert weights > 6210 or (of.steps, of.own) == (STEPS, 96)


@given(WEIGHTS, st.integers(0, 20_000))
def test_steps_fall_along_an_unchanged_order(weights: int, place: int) -> None:
    of = ladder(weights)
    assert of.step_of(place) >= of.step_of(place + 1) >= (1 if of.steps else 0)
    assert place + 1 >= of.own or of.step_of(place) > of.step_of(place + 1) > of.coarse


def check(of: Ladder, current: list[int | None], wanted: list[int]) -> None:
    """The first strictly falling and above all behind them, who are at most one coarse step off."""
    first = of.own * 2 // 3
    assert len(wanted) == len(current)
    assert all(a > b for a, b in pairwise(wanted[: first + 1]))
    for place, step in enumerate(wanted[first:], first):
        assert (1 if of.steps else 0) <= step <= of.steps
        if place >= of.own:
            assert step <= of.coarse or not of.own
            assert abs(step - of.step_of(place)) <= 1
    own = [step for step in wanted if step > of.coarse]
    assert wanted[: len(own)] == own == sorted(set(own), reverse=True)
    assert of.wanted(wanted) == wanted


@settings(max_examples=400, deadline=None)
@given(WEIGHTS, st.data())
def test_wanted_steps_are_in_order_and_stable(weights: int, data: st.DataObject) -> None:
    of = ladder(weights)
    current = data.draw(st.lists(st.one_of(st.none(), st.integers(0, of.steps)), max_size=200))
    check(of, list(current), of.wanted(current))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 6210), st.integers(0, 2**32), st.integers(1, 5))
def test_jobs_that_come_and_go_move_few_others(weights: int, seed: int, each: int) -> None:
    """Over 100 cycles, at most six updates for each job that leaves and each that comes, the newcomer's included."""
    of, random = ladder(weights), Random(seed)
    queue: list[int | None] = list(of.wanted([None] * 300))
    changed = 0
    for _ in range(100):
        for _ in range(each):
            queue.pop(random.randrange(30))
            queue.insert(int(random.random() ** 2 * len(queue)), None)
        wanted = of.wanted(queue)
        check(of, queue, wanted)
        changed += sum(a != b for a, b in zip(wanted, queue, strict=True))
        queue = list(wanted)
    assert changed <= 6 * each * 100


def test_a_job_that_leaves_moves_nobody() -> None:
    of = ladder(1000)
    first = of.wanted([None] * 60)
    assert of.wanted(first[:10] + first[11:]) == first[:10] + first[11:]


def test_a_newcomer_among_the_first_finds_a_gap() -> None:
    of = ladder(1000)
    first = of.wanted([None] * 60)
    wanted = of.wanted([*first[:3], None, *first[3:]])
    assert sum(a != b for a, b in zip(wanted, [*first[:3], None, *first[3:]], strict=True)) <= 2
