"""Durations: Slurm's forms, ours, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.times import format_duration, parse_duration, parse_limit, slurm_minutes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("0", 0),
        ("1:30", 90),
        ("90:00", 5400),
        ("4:00:00", 14400),
        ("00:00:20", 20),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:30:15", 131415),
        ("1-00:00:00", 86400),
        ("90s", 90),
        ("90m", 5400),
        ("4h", 14400),
        ("1d", 86400),
        ("1h30m", 5400),
        ("15min", 900),
        ("1d2h3m4s", 93784),
        ("1 d 2 h", 93600),
        (" 4h ", 14400),
    ],
)
def test_reads_each_form(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "h", "4x", "-5", "-1", "1.5h", "4h4h", "30m1h", "1-", "-1:00", "1:2:3:4", "1-2:3:4:5",
        "UNLIMITED", "4 hours", "1:30m", "٤h", "1h-2", "9" * 30,
    ],
)  # fmt: skip
def test_refuses_what_is_no_duration_in_one_sentence_that_names_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=20))
def test_any_text_is_a_whole_number_of_seconds_or_a_value_error(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert "is not a duration" in str(error)


@given(st.integers(min_value=0, max_value=10**10))
def test_what_is_written_is_read_back(seconds: int) -> None:
    shown = format_duration(seconds)
    assert parse_duration(shown) == seconds
    assert parse_duration(shown.replace(" ", "")) == seconds


@given(st.integers(0, 999), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_slurms_own_form_is_read_as_it_is_written(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    assert parse_duration(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == total


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"), (45, "45 s"), (900, "15 min"), (14400, "4 h"), (93600, "1 d 2 h"), (5400, "1 h 30 min"),
        (-60, "-1 min"),
    ],
)  # fmt: skip
def test_shows_only_the_parts_that_count(seconds: int, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize("text", ["UNLIMITED", "Partition_Limit", "NONE", "INFINITE"])
def test_no_limit_is_none(text: str) -> None:
    assert parse_limit(text) is None


def test_a_limit_is_seconds() -> None:
    assert parse_limit("1-00:00:00") == 86400
    with pytest.raises(ValueError, match="'INVALID'"):
        parse_limit("INVALID")


@given(st.integers(min_value=0, max_value=10**9))
def test_minutes_never_cut_a_limit_short(seconds: int) -> None:
    assert 0 <= slurm_minutes(seconds) * 60 - seconds < 60
