"""The story of a job over a real ledger: what happened, why, what next; exact to the second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import JobState, WorkClass
from pyslurm_budget.domain.plan import ActionKind, Reason
from pyslurm_budget.domain.reasons import sentence
from pyslurm_budget.errors import NotFoundError
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.render import story as pages
from pyslurm_budget.render.clock import Clock
from pyslurm_budget.service.credits import credits_of
from pyslurm_budget.service.explain import Story, story
from pyslurm_budget.service.ports import RunFacts, SyncState
from tests.unit import made

HOUR = made.HOUR
STATE = SyncState(watermark=0, as_of=0, complete=True)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    yield from made.open_ledger(tmp_path)


def codes(told: Story) -> list[str]:
    return [event.reason.code for event in told.events]


def test_the_whole_story(ledger: SqlLedger) -> None:
    submit = made.told_life(ledger)
    now = submit + 60
    told = story(ledger, made.job(submit, JobState.PENDING), "48107", now)
    assert pages.text(told, Clock(now, "Europe/Berlin")) == (
        '48107 "pretrain-7b" of alice, account olmo, 64 GPUs (a100), requeued once, waiting (times in CET)\n'
        "  Mon 08:12  submitted to backed\n"
        "  Mon 08:12  started on n[01-08], protected until 14:12 (contract 6 h, from the comment)\n"
        "  Mon 14:12  contract kept; ran on, charged\n"
        "  Mon 17:40  gives way to 48190 (bio, load 7 %): olmo was at load 105 %; contract of 6 h kept since 14:12\n"
        "  Mon 17:41  now spare: its contract needs 384 GPU-h, olmo has nothing left\n"
        "  next       spare: its contract needs 384 GPU-h, olmo has nothing left\n"
        "             as spare it starts when 64 GPUs are idle\n"
    )


def test_the_story_as_integers(ledger: SqlLedger) -> None:
    submit = made.told_life(ledger)
    told = pages.document(story(ledger, made.job(submit, JobState.PENDING), "48107", submit + 60), submit + 60)
    first, again = told["runs"]
    assert (first["start"], first["end"], first["gpus"]) == (made.MONDAY, submit, 64)
    assert first["gpu_seconds"] == 64 * (submit - made.MONDAY)
    assert (first["contract"], first["protected_until"], first["outcome"]) == (
        6 * HOUR,
        made.MONDAY + 6 * HOUR,
        "kept",
    )
    assert (again["start"], again["gpu_seconds"]) == (None, 0)
    actions = [(e["action"], e["code"], e["state"]) for e in told["events"] if e["action"]]
    assert actions == [("displace", "displaced-for", "done"), ("set-class", "not-admitted-headroom", "done")]


def test_a_job_that_nobody_knows_is_not_found(ledger: SqlLedger) -> None:
    with pytest.raises(NotFoundError, match="job 4711 is not known"):
        story(ledger, None, "4711", made.MONDAY)


def test_a_job_that_slurmctld_knows_and_the_ledger_does_not_yet(ledger: SqlLedger) -> None:
    told = story(ledger, made.job(made.MONDAY, JobState.PENDING), "48107", made.MONDAY + 1)
    assert codes(told) == ["submitted"]
    assert [reason.code for reason in told.next] == ["not-judged"]


def test_a_job_that_slurmctld_has_forgotten(ledger: SqlLedger) -> None:
    ended = made.run(made.MONDAY, made.MONDAY + 60, made.MONDAY + HOUR, "COMPLETED")
    ledger.save_runs([ended], STATE)
    ledger.save_contracts([made.contract(ended, 6 * HOUR, "ended")])
    told = story(ledger, None, "48107", made.MONDAY + 9 * HOUR)
    assert codes(told) == ["submitted", "started-backed", "ended"]
    assert (told.name, told.state, told.next) == (None, "completed", ())
    assert told.events[-1].reason.numbers["amount"] == 64 * 3540 * 1000


@pytest.mark.parametrize(
    ("state", "outcome", "expected"),
    [
        ("PREEMPTED", "broken:preempted-by-slurm", ["contract-broken", "not-by-us"]),
        ("NODE_FAIL", "broken:node-failure", ["contract-broken", "not-by-us"]),
        ("CANCELLED by 1000", "ended", ["ended"]),
    ],
)
def test_what_ended_a_run_and_not_us(ledger: SqlLedger, state: str, outcome: str, expected: list[str]) -> None:
    ended = made.run(made.MONDAY, made.MONDAY, made.MONDAY + HOUR, state)
    ledger.save_runs([ended], STATE)
    ledger.save_contracts([made.contract(ended, 6 * HOUR, outcome)])
    assert codes(story(ledger, None, "48107", made.MONDAY + 2 * HOUR))[2:] == expected


def test_a_credit_is_told_with_its_amount(ledger: SqlLedger) -> None:
    failed = made.run(made.MONDAY, made.MONDAY, made.MONDAY + 7 * HOUR, "NODE_FAIL")
    ledger.save_runs([failed], STATE)
    frozen = made.contract(failed, 6 * HOUR, "kept")
    ledger.save_contracts([frozen])
    ledger.add_entries(credits_of(failed, frozen, made.MONDAY + 7 * HOUR + 30))
    told = story(ledger, None, "48107", made.MONDAY + 8 * HOUR)
    assert codes(told)[-2:] == ["not-by-us", "credited"]
    assert sentence(told.events[-1].reason) == (
        "64 GPU-h credited to olmo: a node failure ended the run: the time since its last full contract (1 h)"
    )


@pytest.mark.parametrize(
    ("after", "changes", "minimum", "expected"),
    [
        (HOUR, {}, 6 * HOUR, "protected"),
        (6 * HOUR, {}, 6 * HOUR, "past-contract"),
        (HOUR, {"work_class": WorkClass.SPARE, "qos": "spare"}, 0, "spare-run"),
        (HOUR, {}, None, "not-judged"),
    ],
)
def test_what_comes_next_for_a_run(
    ledger: SqlLedger, after: int, changes: dict[str, object], minimum: int | None, expected: str
) -> None:
    running = made.run(made.MONDAY, made.MONDAY, None, "RUNNING", **changes)
    ledger.save_runs([running], STATE)
    if minimum is not None:
        ledger.save_contracts([made.contract(running, minimum)])
    told = story(ledger, made.job(made.MONDAY, JobState.RUNNING), "48107", made.MONDAY + after)
    assert [reason.code for reason in told.next] == [expected]
    assert told.state == "running"


def test_a_run_that_was_there_before_says_so(ledger: SqlLedger) -> None:
    old = made.run(made.MONDAY, made.MONDAY, None, "RUNNING")
    ledger.save_runs([old], STATE)
    ledger.save_contracts([made.contract(old, 0, source="before-switch-on", stoppable=False)])
    told = story(ledger, made.job(made.MONDAY, JobState.RUNNING), "48107", made.MONDAY + HOUR)
    assert [reason.code for reason in told.next] == ["before-switch-on"]


def test_what_was_not_done_says_why(ledger: SqlLedger) -> None:
    running = made.run(made.MONDAY, made.MONDAY, None, "RUNNING")
    ledger.save_runs([running], STATE)
    ledger.save_contracts([made.contract(running, HOUR)])
    (skipped,) = ledger.write_intents(
        1, made.MONDAY + 2 * HOUR, [made.action(ActionKind.DRAIN, made.MONDAY, Reason("drain"))]
    )
    ledger.move_intent(skipped.id, "skipped", "the job is completing", made.MONDAY + 2 * HOUR)
    (lost,) = ledger.write_intents(
        2, made.MONDAY + 3 * HOUR, [made.action(ActionKind.DRAIN, made.MONDAY, Reason("drain", {"node": "n17"}))]
    )
    ledger.move_intent(lost.id, "lost", "", made.MONDAY + 3 * HOUR)
    told = story(ledger, made.job(made.MONDAY, JobState.RUNNING), "48107", made.MONDAY + 4 * HOUR)
    text = pages.text(told, Clock(made.MONDAY + 4 * HOUR, "UTC"))
    assert "not done: makes way for a repair" in text
    assert "(the job is completing)" in text
    assert "the repair of n17" in text
    assert "the job is lost" in text


def test_gpus_that_are_not_known_are_not_nought(ledger: SqlLedger) -> None:
    ledger.save_runs([made.run(made.MONDAY, made.MONDAY, made.MONDAY + HOUR, "COMPLETED", gpus=None, rate=0)], STATE)
    told = story(ledger, None, "48107", made.MONDAY + 2 * HOUR)
    assert told.runs[0].gpu_seconds is None
    assert "GPUs unknown" in pages.text(told, Clock(made.MONDAY, "UTC"))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 500), st.integers(1, 5000), st.integers(0, 64), st.sampled_from(["PREEMPTED", "REQUEUED"])
        ),
        min_size=1,
        max_size=6,
    )
)
def test_gpu_seconds_are_those_of_the_rows(lives: list[tuple[int, int, int, str]]) -> None:
    """An oracle on plain tuples: rows in, the same seconds out, in the order of time."""
    rows: list[RunFacts] = []
    at = made.MONDAY
    for wait, length, gpus, state in lives:
        rows.append(made.run(at, at + wait, at + wait + length, state, gpus=gpus, rate=gpus * 1000))
        at += wait + length
    ledger = SqlLedger("sqlite://", "alpha")
    try:
        ledger.save_runs(rows, STATE)
        told = story(ledger, None, "48107", at)
    finally:
        ledger.close()
    assert [entry.gpu_seconds for entry in told.runs] == [length * gpus for _, length, gpus, _ in lives]
    assert told.requeues == len(lives)
    times = [event.at for event in told.events]
    assert times == sorted(times)
    assert all(made.MONDAY <= when <= at for when in times)
