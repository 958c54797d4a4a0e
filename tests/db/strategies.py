"""Strategies for all that the ledger must keep exactly."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from pyslurm_budget.domain.budget import Budget, ShareSince
from pyslurm_budget.domain.model import JobState, RunKey, WorkClass
from pyslurm_budget.domain.plan import Action, ActionKind, Admission, Reason
from pyslurm_budget.service.ports import RunFacts, RunPart

T = TypeVar("T")

# Whatever a name may hold. Not NUL (PostgreSQL keeps none) and no spaces at the end (MariaDB compares without them);
# Slurm's names have neither.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30).map(
    lambda s: s.rstrip(" ") or "-"
)
NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TIMES = st.integers(min_value=0, max_value=2**40)
# Two months, on whole hours more often than chance would have it; and GPUs of which a run may have many.
MOMENTS = st.integers(0, 60 * 24).map(lambda hour: 1_700_000_000 - 800 + hour * 3600) | st.integers(
    1_700_000_000, 1_705_000_000
)
GPUS = st.integers(0, 10_000)
RATES = st.integers(0, 10_000_000)
PARTS = st.lists(
    st.builds(RunPart, st.sampled_from(["a100", "v100", None]), st.sampled_from(["a100", "v100", None]), GPUS, RATES),
    min_size=2,
    max_size=3,
).map(tuple)


def optional(values: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    """The values, or none."""
    return st.none() | values


CLASSES = st.sampled_from(WorkClass)
REASONS = st.builds(Reason, st.text("abc-", min_size=1, max_size=60), st.dictionaries(NAMES, NUMBERS | NAMES))
KEYS = st.builds(RunKey, NUMBERS, NUMBERS)
ACTIONS = st.builds(
    Action,
    kind=st.sampled_from(ActionKind),
    ref=NAMES,
    key=KEYS,
    reason=REASONS,
    expect_state=st.sampled_from(JobState),
    expect_qos=NAMES,
    qos=optional(NAMES),
    site_factor=optional(NUMBERS),
    time_limit=optional(NUMBERS),
    for_ref=optional(NAMES),
    nodes=st.lists(NAMES, max_size=3).map(tuple),
    until=optional(NUMBERS),
)
ADMISSIONS = st.builds(
    Admission,
    ref=NAMES,
    key=KEYS,
    budget=optional(NAMES),
    pool=NAMES,
    work_class=CLASSES,
    rate=NUMBERS,
    contract=NUMBERS,
    price_length=NUMBERS,
    signature=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=300),
    since=NUMBERS,
    sequence=NUMBERS,
    reason=REASONS,
)
SHARES = st.builds(ShareSince, TIMES, st.fractions(), NAMES)
BUDGETS = st.builds(
    Budget,
    account=NAMES,
    parent=optional(NAMES),
    shares=st.lists(SHARES, max_size=4, unique_by=lambda s: (s.since, s.pool)).map(
        lambda shares: tuple(sorted(shares, key=lambda s: (s.since, s.pool)))
    ),
)
TREES = st.lists(BUDGETS, max_size=4, unique_by=lambda b: b.account)


def facts(keys: st.SearchStrategy[RunKey]) -> st.SearchStrategy[RunFacts]:
    """Rows of runs: alive or over, with and without an end, as accounting may bring them."""
    return st.builds(
        RunFacts,
        key=keys,
        job_ref=NAMES,
        account=NAMES,
        user=NAMES,
        qos=NAMES,
        budget=optional(NAMES),
        pool=optional(NAMES),
        state=st.sampled_from(["PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "PREEMPTED", "CANCELLED"]),
        start=optional(MOMENTS),
        end=optional(MOMENTS),
        suspended=NUMBERS,
        gpus=optional(GPUS),
        rate=RATES,
        work_class=CLASSES,
        shadow=CLASSES,
        unknown=optional(NAMES),
        time_limit=optional(NUMBERS),
        nodes=st.lists(NAMES, max_size=3).map(tuple),
        gpu_type=optional(NAMES),
        partition=optional(NAMES),
        charged_as=CLASSES,
        parts=st.just(()) | PARTS,
    )
