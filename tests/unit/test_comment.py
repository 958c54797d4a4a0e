"""What a comment declares, and the contract that comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.comment import ContractKind, contract_of, declared_minimum, price_length, wants_spare

HOUR = 3600
CAP = 8 * HOUR


@pytest.mark.parametrize(
    ("comment", "seconds"),
    [
        ("min-runtime=4h", 4 * HOUR),
        ("min-runtime=90m", 90 * 60),
        ("min-runtime=90", 90 * 60),
        ("min-runtime=1d", 86400),
        ("min-runtime=4:00:00", 4 * HOUR),
        ("min-runtime=1-12", 36 * HOUR),
        ("min-runtime=1-12:00:01", 36 * HOUR + 1),
        ("min-runtime=0", 0),
        ("paper v2, min-runtime=2h; seed=7", 2 * HOUR),
        ("a\tMIN-RUNTIME=2h\nb", 2 * HOUR),
        ("min_runtime=2h", 2 * HOUR),
        ("min-runtime=2h,min-runtime=120", 2 * HOUR),
        ("xmin-runtime=2h", None),
        ("the min-runtimes=3", None),
        ("", None),
        ("min=3 runtime=4", None),
    ],
)
def test_reads_the_token_beside_other_text(comment: str, seconds: int | None) -> None:
    assert declared_minimum(comment) == seconds


@pytest.mark.parametrize(
    "comment",
    [
        "min-runtime=",
        "min-runtime",
        "min-runtime:4h",
        "min-runtime=soon",
        "min-runtime=-4h",
        "min-runtime=UNLIMITED",
        "min-runtime=4h=5",
        "min-runtime=1h min-runtime=2h",
        "min-runtime=4\u0664h",
        "min-runtime= 4h",
        "min-runtime=\u00a04h",
        "min-runtime=\x1c4h",
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_never_nothing(comment: str) -> None:
    with pytest.raises(ValueError, match="min-runtime") as caught:
        declared_minimum(comment)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert not wants_spare(comment)


def test_zero_asks_for_spare() -> None:
    assert wants_spare("x min-runtime=0s")
    assert not wants_spare("min-runtime=1s")
    assert not wants_spare("nothing")


@given(
    declared=st.none() | st.integers(0, 3 * CAP),
    limit=st.none() | st.integers(1, 3 * CAP),
    requeueable=st.booleans(),
    default=st.integers(0, 2 * CAP),
)
def test_a_contract_is_within_the_cap_and_the_time_limit(
    declared: int | None, limit: int | None, requeueable: bool, default: int
) -> None:
    found = contract_of(declared, time_limit=limit, requeueable=requeueable, default=default, cap=CAP)
    if declared == 0:
        assert found.kind is ContractKind.ASKED_SPARE
    elif declared is not None and declared > CAP:
        assert found.kind is ContractKind.ABOVE_CAP
        assert found.seconds == declared
    elif not requeueable and (limit is None or limit > CAP):
        assert found.kind is ContractKind.CANNOT_REQUEUE
    else:
        assert found.kind is ContractKind.MAY_BE_BACKED
        assert found.seconds <= CAP
        assert limit is None or found.seconds <= limit
        if not requeueable:
            assert found.seconds == limit
        elif declared is not None:
            assert found.seconds == (declared if limit is None else min(declared, limit))


@pytest.mark.parametrize(
    ("contract", "floor", "limit", "length"),
    [(1, HOUR, None, HOUR), (1, HOUR, 60, 60), (2 * HOUR, HOUR, None, 2 * HOUR), (0, HOUR, 7 * HOUR, HOUR)],
)
def test_short_contracts_are_not_cheaper(contract: int, floor: int, limit: int | None, length: int) -> None:
    assert price_length(contract, floor, limit) == length
