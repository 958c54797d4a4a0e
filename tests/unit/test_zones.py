"""Moments, days and months of a zone, and Slurm's time forms."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.service.zones import Zone, known_zone, read_moments

BERLIN = Zone("Europe/Berlin")
NOW = 1796281295  # Thu 2026-12-03 08:01:35 in Berlin
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Beirut", "Pacific/Apia")


def shown(text: str, zone: Zone = BERLIN) -> list[str]:
    return [f"{zone.local(when):%Y-%m-%d %H:%M:%S}" for when in read_moments(text, NOW, zone)]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2026-12-01", "2026-12-01 00:00:00"),
        ("2026-12-01T08:30", "2026-12-01 08:30:00"),
        ("2026-12-01 08:30:15", "2026-12-01 08:30:15"),
        ("2026-12-01T08:30:00Z", "2026-12-01 09:30:00"),
        ("2026-12-01T08:30:00-05:00", "2026-12-01 14:30:00"),
        ("12/01", "2026-12-01 00:00:00"),
        ("1201", "2026-12-01 00:00:00"),
        ("12.31", "2026-12-31 00:00:00"),
        ("12/01/25-08:30", "2025-12-01 08:30:00"),
        ("120125", "2025-12-01 00:00:00"),
        ("08:30", "2026-12-03 08:30:00"),
        ("8:30 PM", "2026-12-03 20:30:00"),
        ("12:30am", "2026-12-03 00:30:00"),
        ("12:30pm", "2026-12-03 12:30:00"),
        ("today", "2026-12-03 00:00:00"),
        ("Tomorrow-noon", "2026-12-04 12:00:00"),
        ("teatime", "2026-12-03 16:00:00"),
        ("midnight", "2026-12-03 00:00:00"),
        ("now", "2026-12-03 08:01:35"),
        ("now-7days", "2026-11-26 08:01:35"),
        ("now - 2 hours", "2026-12-03 06:01:35"),
        ("now+1week", "2026-12-10 08:01:35"),
        ("now-5", "2026-12-03 08:01:30"),
        ("uts1796281295", "2026-12-03 08:01:35"),
        ("1796281295", "2026-12-03 08:01:35"),
    ],
)
def test_the_time_forms_of_slurm(text: str, means: str) -> None:
    assert shown(text) == [means]


def test_a_date_without_a_year_is_of_the_past_by_its_month() -> None:
    january = int(datetime(2027, 1, 15, tzinfo=UTC).timestamp())
    utc = Zone("UTC")
    moments = [utc.local(read_moments(text, january, utc)[0]) for text in ("12/01", "01/31")]
    assert [f"{moment:%Y-%m}" for moment in moments] == ["2026-12", "2027-01"]


@pytest.mark.parametrize(
    "text",
    ["", "T", "yesterday", "12345", "2026-13-01", "2026-02-30", "25:00", "13:00pm", "now-", "now-3years"],
)
def test_what_is_no_time_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time.*write 2026-12-01"):
        read_moments(text, NOW, BERLIN)


def test_the_hour_that_comes_twice_and_the_one_that_is_left_out() -> None:
    first, second = read_moments("2026-10-25T02:30", NOW, BERLIN)
    assert second - first == 3600
    with pytest.raises(ValueError, match="put forward"):
        read_moments("2026-03-29T02:30", NOW, BERLIN)


@given(zone=st.sampled_from(ZONES), start=st.integers(13 * 10**8, 18 * 10**8), length=st.integers(1, 90 * 86400))
def test_days_and_months_cover_a_period_and_are_named_as_the_clocks_show(zone: str, start: int, length: int) -> None:
    where, info, end = Zone(zone), ZoneInfo(zone), start + length
    for cut, form in ((where.days, "%Y-%m-%d"), (where.months, "%Y-%m")):
        found = list(cut(start, end))
        assert (found[0][1], found[-1][2]) == (start, end)
        assert all(before[2] == after[1] for before, after in pairwise(found))
        for name, begin, until in found:
            inside = (begin, until - 1, (begin + until) // 2)
            assert {f"{datetime.fromtimestamp(t, info):{form}}" for t in inside} == {name}


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", 25),
        ("Europe/Berlin", "2026-03-29", 23),
        ("America/Sao_Paulo", "2018-11-04", 23),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
    ],
)
def test_days_on_which_the_clocks_change(zone: str, day: str, hours: float) -> None:
    where = Zone(zone)
    begin = read_moments(day, NOW, where)[0]
    name, first, last = next(iter(where.days(begin, begin + 3 * 86400)))
    assert (name, (last - first) / 3600) == (day, hours)


def test_the_zone_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        span = (read_moments("2026-10-24", NOW, Zone())[0], NOW)
        assert list(Zone().days(*span)) == list(BERLIN.days(*span))
        assert read_moments("2026-10-25T02:30", NOW, Zone()) == read_moments("2026-10-25T02:30", NOW, BERLIN)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_zone_that_is_not_known() -> None:
    assert known_zone("UTC") == Zone("UTC")
    for name in ("Mars/Phobos", "", "../etc/passwd"):
        with pytest.raises(ValueError, match="no time zone"):
            known_zone(name)
