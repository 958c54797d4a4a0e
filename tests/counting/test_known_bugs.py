"""What went wrong elsewhere in time windows, duplicates and whom to charge: each once through saved accounting, the
ledger and ``sbudget report``. The numbers are those of the list of public bug reports; counting GPUs from TRES and
reading broken records are looked at in ``tests/unit/test_dump.py``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyslurm_budget.cli import report as report_command
from pyslurm_budget.domain.budget import BudgetTree
from pyslurm_budget.domain.model import Job, JobState, RunKey, RunRecord, Tres
from pyslurm_budget.domain.policy import Policy
from pyslurm_budget.domain.pool import PoolMap
from pyslurm_budget.ledger.store import SqlLedger
from pyslurm_budget.service.facts import FactMaker
from pyslurm_budget.service.report import RUNAWAY
from pyslurm_budget.service.sync import Sync
from pyslurm_budget.slurm.run import Runner
from pyslurm_budget.slurm.sacct import FIELDS, SacctAccounting
from pyslurm_budget.slurm.slurmdb_rows import task_list
from tests.build import nodes, pending, snapshot
from tests.counting.reporting import Site, hours
from tests.shared_data import shared
from tests.unit.slurm_fakes import make
from tests.unit.test_slurm_records import line, one

HOUR = 3600
T = 1_790_000_000  # 2026-09-21 14:13:20 UTC
EARLY, EVER = 1_000_000_000, 1 << 32
BERLIN = "Europe/Berlin"
HEAD = (
    *(
        "JobIDRaw",
        "JobID",
        "JobName",
        "Account",
        "User",
        "UID",
        "QOS",
        "State",
        "Submit",
        "Start",
        "End",
        "ElapsedRaw",
    ),
    *("Suspended", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList"),
)
BASE = {
    "JobIDRaw": "5", "JobID": "5", "JobName": "job", "Account": "lab", "User": "alice", "UID": "1000",
    "QOS": "normal", "State": "COMPLETED", "Submit": str(T - 5), "Start": str(T), "End": str(T + HOUR),
    "ElapsedRaw": "", "Suspended": "00:00:00", "TimelimitRaw": "UNLIMITED", "AllocTRES": "gres/gpu=1",
    "ReqTRES": "gres/gpu=1", "NodeList": "n1",
}  # fmt: skip
_numbers = count(1)
quick = settings(
    deadline=None, derandomize=True, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Used(NamedTuple):
    """What a report shows of one group, in hours."""

    gpus: float
    charged: float
    suspended: float
    runs: int


class Books:
    """A site that loads one dump after the other, each for a cluster of its own."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        self.cluster = ""

    def load(self, *rows: dict[str, str], **options: Any) -> str:
        """Load rows for a new cluster; returns what was told."""
        self.cluster = f"c{next(_numbers)}"
        return self.more(*rows, **options)

    def more(
        self,
        *rows: dict[str, str],
        zone: str = "UTC",
        names: tuple[str, ...] = HEAD,
        also: tuple[object, ...] = (),
    ) -> str:
        """Load further rows, of a site in the zone."""
        self.site.config.write_text(f'[ledger]\nurl = "{self.site.url}"\n[reports]\ntimezone = "{zone}"\n')
        cells = [names, *([row.get(name, BASE.get(name, "")) for name in names] for row in rows)]
        text = "".join("|".join(line) + "\n" for line in cells)
        return self.site.load(text, *also, cluster=self.cluster)

    def used(
        self, by: str = "account", start: int = EARLY, end: int = EVER, zone: str = "UTC", *words: object
    ) -> dict[str, Used]:
        """What a report shows, by the names of the groups (joined by commas)."""
        found = self.site.report(tuple(by.split(",")), start, end, zone, *words, cluster=self.cluster)
        fields = ("gpu_hours", "charged_gpu_hours", "suspended_gpu_hours", "runs")
        return {",".join(keys): Used(*(row[name] for name in fields)) for keys, row in found.items()}

    def all(self, start: int = EARLY, end: int = EVER) -> Used:
        """The total of everything loaded."""
        return self.used("account", start, end).get("lab", Used(0, 0, 0, 0))

    def listed(self) -> list[dict[str, Any]]:
        """``sbudget report unknown``."""
        words = ("report", "unknown", "--json", "-S", f"uts{EARLY}", "-E", f"uts{EVER}")
        found: list[dict[str, Any]] = json.loads(self.site.run(*words, cluster=self.cluster).out)["rows"]
        return found


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.devnull)
        yield Books(tmp_path_factory.mktemp("bugs"))


def held(begin: int, end: int | None, **changes: str) -> dict[str, str]:
    """A run of one GPU."""
    given = {"Submit": str(begin), "Start": str(begin), "End": "Unknown" if end is None else str(end)}
    return {**given, "State": "RUNNING" if end is None else "COMPLETED", **changes}


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def local(text: str, zone: str = BERLIN, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


# Pending arrays


def spelled(tasks: list[int]) -> str:
    """Tasks as ranges and single numbers, in their order."""
    groups: list[list[int]] = []
    for task in tasks:
        if groups and groups[-1][-1] == task - 1:
            groups[-1].append(task)
        else:
            groups.append([task])
    return ",".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)


def waits(books: Books, text: str, tasks: list[int], throttle: int | None) -> None:
    """The pending remainder of an array, live and in saved accounting."""
    limit = "" if throttle is None else f"ArrayTaskThrottle={throttle} "
    job = one(line(9, head=f"ArrayJobId=9 ArrayTaskId={text} {limit}"))
    expected = () if len(tasks) == 1 else tuple(tasks)
    assert (job.tasks, job.throttle) == (expected, throttle)
    row = {"JobIDRaw": "9", "JobID": f"9_[{text}]", "State": "PENDING", "Start": "Unknown", "End": "Unknown",
           "AllocTRES": "", "NodeList": "None assigned"}  # fmt: skip
    told = books.load(row, held(T, T + HOUR))
    assert "2 runs and 0 steps read" in told
    assert "1 never started" in told
    assert books.all() == Used(1, 1, 0, 1)


@quick
@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=12), st.integers(1, 500))
@example(set(range(9201, 10_001)), 500)
def test_bug_17_the_end_of_an_array_with_a_throttle(books: Books, tasks: set[int], throttle: int) -> None:
    waits(books, f"{spelled(sorted(tasks))}%{throttle}", sorted(tasks), throttle)


@quick
@given(st.sets(st.integers(0, 400), min_size=1, max_size=40))
@example({*range(60, 90), *range(91, 95), *range(96, 99)})
@example({9, 10, 11, 20})
@example(set(range(0, 81, 8)))
def test_bug_18_arrays_with_gaps(books: Books, tasks: set[int]) -> None:
    waits(books, spelled(sorted(tasks)), sorted(tasks), None)
    by_steps = task_list(hex(sum(1 << task for task in tasks)), 0)  # as sacct writes what slurmdbd has
    job = one(line(9, head=f"ArrayJobId=9 ArrayTaskId={by_steps} "))
    assert job.tasks == (() if len(tasks) == 1 else tuple(sorted(tasks)))


# Time windows

LIVES = st.lists(st.tuples(st.integers(0, 90 * 24), st.integers(0, 40 * 24)), min_size=1, max_size=6)


@quick
@given(LIVES, st.lists(st.integers(-10, 140 * 24), min_size=2, max_size=5, unique=True).map(sorted))
def test_bug_32_runs_are_cut_to_the_window(books: Books, lives: list[tuple[int, int]], edges: list[int]) -> None:
    """Windows that meet share what overlaps them, and nothing is in two of them."""
    runs = [(T + HOUR * begin, T + HOUR * (begin + length)) for begin, length in lives]
    books.load(*(held(*run, JobIDRaw=str(i)) for i, run in enumerate(runs, 1)))
    for low, high in pairwise(T + HOUR * edge for edge in edges):
        inside = [min(end, high) - max(begin, low) for begin, end in runs]
        seconds = [length for length in inside if length > 0]
        assert books.all(low, high)[:2] == (hours(1000 * sum(seconds)),) * 2
        assert books.all(low, high).runs == len(seconds)


def test_bug_32_by_month_a_run_is_in_each_month_with_its_part(books: Books) -> None:
    books.load(held(utc("2026-08-31T20:00:00"), utc("2026-10-01T02:00:00")))
    found = books.used("month")
    assert {month: used.gpus for month, used in found.items()} == {"2026-08": 4, "2026-09": 720, "2026-10": 2}


@pytest.mark.parametrize(("since", "until"), [(T, T + HOUR), (0, 1), (T, T), (T + 9 * HOUR, T)])
def test_bug_34_sacct_is_always_given_both_ends_and_no_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, until: int
) -> None:
    fakes = make(tmp_path, monkeypatch)
    fakes.answer("sacct", "")
    with pytest.raises(Exception, match="without even the header"):
        list(SacctAccounting(Runner(), clock=lambda: T).runs(since, until))
    ((_, words, _, _),) = fakes.calls()
    starts, ends = (
        [int(b.removeprefix("uts")) for a, b in pairwise(words) if a == option] for option in ("-S", "-E")
    )
    assert len(starts) == len(ends) == 1
    assert starts[0] <= max(since, 1_000_000_000)
    assert ends[0] >= max(until, T)
    assert not [word for word in words if word in ("-s", "-t") or word.startswith(("--state", "--time"))]
    assert {"-a", "-X", "-D"} <= set(words)
    assert words[words.index("-o") + 1] == ",".join(FIELDS)


def test_bug_34_nothing_else_asks_sacct() -> None:
    package = Path(__file__).resolve().parents[2] / "pyslurm_budget"
    call = re.compile(r'(?:read|lines|run|started)\(\s*"sacct"')
    asks = [path.name for path in package.rglob("*.py") if call.search(path.read_text(encoding="utf-8"))]
    assert asks == ["sacct.py"]


def test_bug_34_a_report_without_times_reaches_over_midnight(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = utc("2026-09-22T00:00:00")
    monkeypatch.setattr(report_command, "host_now", lambda: midnight + HOUR)
    books.load(
        held(midnight - 2 * HOUR, midnight + HOUR), held(midnight - 6 * 86400, midnight - 5 * 86400, JobIDRaw="6")
    )
    said = books.site.run("report", "usage", "-P", "-n", "--tz", "UTC", cluster=books.cluster)
    assert said.out == "lab|27.0000|27.0000|0.0000|2|0\n"


# Duplicates


def test_bug_35_every_requeued_run_is_charged(books: Books) -> None:
    lengths = ["01:04:49", "01:14:33", "01:42:02", "00:35:53", "00:10:00"]
    seconds = [sum(int(n) * f for n, f in zip(text.split(":"), (3600, 60, 1), strict=True)) for text in lengths]
    assert sum(seconds[:-1]) == 16637
    rows, at = [], T
    for length in seconds:
        rows.append(held(at, at + length, State="REQUEUED"))
        at += length + 120
    books.load(*rows[:-1], {**rows[-1], "State": "COMPLETED"})
    assert books.all() == Used(hours(1000 * (16637 + 600)), hours(1000 * (16637 + 600)), 0, 5)


@quick
@given(st.lists(st.integers(0, 5 * HOUR), min_size=1, max_size=5), st.randoms(use_true_random=False), st.data())
def test_bug_36_one_row_a_run_whatever_came_twice(
    books: Books, lengths: list[int], dice: Any, data: st.DataObject
) -> None:
    """A run is its id and submit time: rows of other runs of the job add up, rows of the same run never do."""
    rows, at, total, runs = [], T, 0, 0
    for length in lengths:
        row = held(
            at, at + length, State=data.draw(st.sampled_from(["REQUEUED", "COMPLETED", "NODE_FAIL", "PREEMPTED"]))
        )
        rows += [row] * data.draw(st.integers(1, 3))
        if data.draw(st.booleans()):  # of a double requeue: a run that never began
            rows.append(
                {**row, "Submit": str(at + length), "Start": "Unknown", "End": str(at + length), "ElapsedRaw": "0"}
            )
        total, runs, at = total + length, runs + (length > 0), at + length + 1
    dice.shuffle(rows)
    books.load(*rows)
    assert books.all() == Used(hours(1000 * total), hours(1000 * total), 0, runs)
    books.more(*rows)
    assert books.all() == Used(hours(1000 * total), hours(1000 * total), 0, runs)


def test_bug_36_a_damaged_row_is_told_and_the_others_count(books: Books) -> None:
    """Requeued while completing, the old row got the start of the new run: it would have ended before it began."""
    damaged = {**held(T, T + HOUR, State="REQUEUED"), "Start": str(T + 2 * HOUR)}
    told = books.load(damaged, held(T + 2 * HOUR, T + 5 * HOUR))
    assert "1 rows rejected: End before Start" in told
    assert books.all() == Used(3, 3, 0, 1)
    books.more({**damaged, "Start": str(T)})  # what slurmdbd has once it is repaired
    assert books.all() == Used(4, 4, 0, 2)


def test_bug_36_the_same_id_in_two_clusters_is_two_runs(books: Books) -> None:
    books.load(held(T, T + HOUR))
    first = books.cluster
    books.load(held(T, T + 2 * HOUR))
    assert books.all().gpus == 2
    books.cluster = first
    assert books.all().gpus == 1


# Runaway rows


class Answers:
    """An ``Accounting`` that answers what it was told."""

    def __init__(self, *rows: RunRecord) -> None:
        self.rows = rows

    def runs(self, _since: int, _until: int) -> Iterator[RunRecord]:
        return iter(self.rows)


def accounted(job_id: int, end: int | None = None, limit: int | None = None) -> RunRecord:
    return RunRecord(
        RunKey(job_id, T), str(job_id), "red", "ann", "backed", "gpu", "RUNNING" if end is None else "COMPLETED", T,
        T, end, 0, limit, Tres(gpus=1), 1, ("n1",),
    )  # fmt: skip


def synced(books: Books, at: int, rows: tuple[RunRecord, ...], jobs: tuple[Job, ...]) -> None:
    """One sync of the cluster with slurmctld at ``at``."""
    ledger = SqlLedger(books.site.url, books.cluster)
    shot = snapshot(jobs, nodes(1), at)
    maker = FactMaker(Policy(), BudgetTree({}), shot, PoolMap((), shot.nodes, shot.partitions))
    Sync(Answers(*rows), ledger, maker, lambda _: False, {}, EVER, at).run(lambda: pytest.fail("nobody waited"))
    ledger.close()


def test_bug_39_runaway_rows_are_capped_and_listed(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    books.load(held(T - 5 * HOUR, T - 4 * HOUR, JobIDRaw="99", Account="other"))
    alive = pending(3, state=JobState.RUNNING, submit=T, start=T)
    requeued = pending(4, submit=T + 5 * HOUR)  # its old row has no end yet
    rows = (accounted(1, limit=HOUR), accounted(2), accounted(3), accounted(4))
    monkeypatch.setattr(report_command, "host_now", lambda: T + 10 * HOUR)
    synced(books, T + 5 * HOUR, rows, (alive, requeued))
    assert books.listed() == []  # once may be the order in which things were read
    ended = (*rows[:3], accounted(4, end=T + 5 * HOUR))
    synced(books, T + 6 * HOUR, ended, (alive, requeued))
    assert [(row["job_id"], row["counted_until"], row["why"]) for row in books.listed()] == [
        ("1", T + HOUR, RUNAWAY),
        ("2", T + 5 * HOUR, RUNAWAY),
    ]
    used = books.used("account", T, T + 10 * HOUR)
    assert used["red"] == Used(1 + 5 + 10 + 5, 21, 0, 4)  # to its limit, when missed, still there, ended
    assert books.used("account", T + 5 * HOUR, T + 10 * HOUR)["red"].gpus == 5
    said = books.site.run(
        "report", "unknown", "-S", f"uts{T}", "-E", f"uts{EVER}", "--tz", "UTC", cluster=books.cluster
    )
    assert f"{RUNAWAY}; it counts until 2026-09-21T19:13:20" in said.out
    there = pending(2, state=JobState.RUNNING, submit=T, start=T)
    synced(books, T + 7 * HOUR, (accounted(1, end=T + 60), *ended[1:]), (alive, there))
    assert books.listed() == []  # the one is repaired, the other is there after all
    assert books.used("account", T, T + 10 * HOUR)["red"].gpus == hours(1000 * 60 + 25 * HOUR * 1000)


# Times


@quick
@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 40))
@example(10, 4, 5)
def test_bug_40_wall_clock_is_charged_and_suspended_time_shown_apart(
    books: Books, length: int, suspended: int, cut: int
) -> None:
    """The answer is 10 h where 4 of 10 were suspended: Slurm keeps the GPUs. Cut, they are spread evenly."""
    suspended = min(suspended, length)
    elapsed, clock = str(HOUR * (length - suspended)), f"{suspended // 24}-{suspended % 24:02}:00:00"
    told = books.load(held(T, T + HOUR * length, ElapsedRaw=elapsed, Suspended=clock))
    assert "Elapsed" not in told
    assert books.all() == Used(length, length, suspended, 1)
    part = min(cut, length)
    first, rest = books.all(T, T + HOUR * part), books.all(T + HOUR * part, EVER)
    assert (first.gpus, rest.gpus) == (part, length - part)
    assert first.suspended == pytest.approx(suspended * part / length, abs=0.0001)
    assert first.suspended + rest.suspended == pytest.approx(suspended, abs=0.0002)


AUTUMN, SPRING = "2026-10-25T", "2026-03-29T"


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "length"),
    [
        (AUTUMN + "01:30:00", AUTUMN + "02:30:00", HOUR, HOUR),
        (AUTUMN + "01:30:00", AUTUMN + "02:30:00", 2 * HOUR, 2 * HOUR),
        (AUTUMN + "02:30:00", AUTUMN + "02:30:00", 0, 0),
        (AUTUMN + "02:30:00", AUTUMN + "02:30:00", HOUR, HOUR),
        (AUTUMN + "02:40:00", AUTUMN + "02:20:00", 2400, 2400),
        (SPRING + "01:30:00", SPRING + "03:30:00", HOUR, HOUR),
        (SPRING + "01:59:59", SPRING + "03:00:00", 1, 1),
        ("2026-07-01T12:00:00", "2026-07-01T13:00:00", HOUR, HOUR),  # an old date, in the other half of the year
    ],
)
def test_bug_41_the_zone_is_the_sites_and_elapsed_the_check(
    books: Books, start: str, end: str, elapsed: int, length: int
) -> None:
    row = {"Submit": start[:11] + "00:10:00", "Start": start, "End": end, "ElapsedRaw": str(elapsed)}
    assert "Elapsed" not in books.load(row, zone=BERLIN)
    assert books.all().gpus == hours(1000 * length)
    begin = min(local(start), local(start, fold=1) if length == 0 or elapsed == 2400 else EVER)
    if length:
        assert books.all(begin, begin + length).gpus == books.all().gpus  # in its own place, not an offset away


def test_bug_41_a_wrong_zone_is_told(books: Books) -> None:
    row = {
        "Submit": SPRING + "00:00:00",
        "Start": SPRING + "01:30:00",
        "End": SPRING + "03:30:00",
        "ElapsedRaw": "3600",
    }
    assert "1 rows have an Elapsed that is not End - Start: wrong [reports] timezone?" in books.load(row, zone="UTC")


# Who is charged


@pytest.mark.parametrize("nothing", ["", "(null)", "N/A"])
def test_bug_42_nobody_is_a_group_of_its_own(books: Books, nothing: str) -> None:
    rows = [{"Account": nothing, "User": user, "UID": uid, "JobIDRaw": str(i)} for i, (user, uid) in
            enumerate([("", ""), ("", "1000"), ("alice", "7")], 1)]  # fmt: skip
    books.load(*rows, {"JobIDRaw": "4", "User": nothing, "UID": ""})
    assert {keys: used.runs for keys, used in books.used("account,user").items()} == {
        "(none),(none)": 1, "(none),alice": 1, "(none),uid:1000": 1, "lab,(none)": 1,
    }  # fmt: skip
    assert books.used("account", EARLY, EVER, "UTC", "-A", "(none)") == {"(none)": Used(3, 3, 0, 3)}


def test_bug_42_in_json_nobody_is_null_or_missing(books: Books, tmp_path: Path) -> None:
    times = {"submission": T, "eligible": T, "start": T, "end": T + HOUR, "elapsed": HOUR, "suspended": 0}
    limit = {"set": False, "infinite": True, "number": 0}
    gpu = {"type": "gres", "name": "gpu", "id": 1001, "count": 1}
    job = {"job_id": 1, "state": {"current": ["COMPLETED"]}, "time": {**times, "limit": limit}, "nodes": "n1",
           "tres": {"allocated": [gpu], "requested": [gpu]}, "account": None, "user": None}  # fmt: skip
    missing = {**{k: v for k, v in job.items() if k not in ("account", "user")}, "job_id": 2}
    books.cluster = f"c{next(_numbers)}"
    document = {"meta": {"plugin": {"data_parser": "data_parser/v0.0.42"}}, "jobs": [job, missing], "errors": []}
    books.site.load(json.dumps(document), cluster=books.cluster)
    assert books.used("account,user") == {"(none),(none)": Used(2, 2, 0, 2)}


@quick
@given(
    st.lists(st.tuples(st.sampled_from(["Lab", "LAB", "lab", "lAB"]), st.sampled_from(["Joe", "joe"])), min_size=1)
)
def test_bug_43_accounts_compare_without_case_and_users_as_stored(books: Books, who: list[tuple[str, str]]) -> None:
    books.load(*({"Account": a, "User": u, "JobIDRaw": str(i)} for i, (a, u) in enumerate(who, 1)))
    expected = {f"lab,{user}": [u for _, u in who].count(user) for user in {u for _, u in who}}
    assert {keys: used.runs for keys, used in books.used("account,user").items()} == expected
    assert {k: u.runs for k, u in books.used("account,user", EARLY, EVER, "UTC", "-A", "LaB").items()} == expected
    joes = books.used("user", EARLY, EVER, "UTC", "-u", "Joe")
    joe = expected.get("lab,Joe")
    assert {user: used.runs for user, used in joes.items()} == ({"Joe": joe} if joe else {})


def test_bug_43_budgets_are_found_whatever_the_case(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "budgets.toml").write_text('[budgets.Lab]\nshare = "100%"\n')
    site.budgets({"lab"})
    told = site.load("JobID|Account|User|State|Submit|Start|End|AllocTRES\n"
                     f"1|LAB|joe|COMPLETED|{T}|{T}|{T + HOUR}|gres/gpu=1\n")  # fmt: skip
    assert "without a budget" not in told


# Which number is shown


@quick
@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 23), st.integers(1, 24), st.booleans()), min_size=1, max_size=4),
)
def test_bug_45_reports_show_jobs_only(books: Books, reserved: int, jobs: list[tuple[int, int, bool]]) -> None:
    """Of a reservation for a whole day jobs use a part: the report is the sum of the cut runs, inside and outside of
    it alike. sreport adds the hours of the reservation that nobody used; that is the difference to it."""
    runs = [(begin, min(begin + length, 24), inside) for begin, length, inside in jobs]
    rows = [
        held(T + HOUR * begin, T + HOUR * end, JobIDRaw=str(i), Reservation="course" if inside else "")
        for i, (begin, end, inside) in enumerate(runs, 1)
    ]
    books.load(*rows, names=(*HEAD, "Reservation"))
    inside, outside = (
        sum(max(0, min(end, 20) - max(begin, 4)) for begin, end, reserved in runs if reserved is which)
        for which in (True, False)
    )
    shown = books.all(T + 4 * HOUR, T + 20 * HOUR).gpus
    assert shown == inside + outside
    idle = max(0, 16 * reserved - inside)
    sreport = max(16 * reserved, inside) + outside
    assert sreport - shown == idle


def test_bug_45_the_guide_says_which_number_it_is() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs/howto/reports.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Why sreport .*?(?=^## )", guide, re.MULTILINE | re.DOTALL)
    assert "jobs only" in section
    for word in ("idle", "reservation", "duplicate", "suspended", "tres"):
        assert word in section.lower()


@pytest.mark.parametrize(
    ("zone", "months"),
    [
        (BERLIN, {"2026-08": 0.5, "2026-09": 0.5}),
        ("UTC", {"2026-08": 1.0}),
        ("America/New_York", {"2026-08": 1.0}),
        ("Asia/Tokyo", {"2026-09": 1.0}),
    ],
)
def test_bug_46_usage_belongs_to_the_sites_month(books: Books, zone: str, months: dict[str, float]) -> None:
    late = {"Submit": "2026-08-31T23:00:00", "Start": "2026-08-31T23:30:00", "End": "2026-09-01T00:30:00"}
    books.load(late, zone=BERLIN)
    assert {month: used.gpus for month, used in books.used("month", zone=zone).items()} == months


def test_bug_46_of_a_life_only_this_months_part_is_this_months(books: Books) -> None:
    books.load(held(local("2026-01-01T00:00:00"), local("2026-09-01T00:00:00") + HOUR))
    words = ("report", "usage", "-P", "-n", "-S", "2026-09-01", "-E", "2026-10-01", "--tz", BERLIN)
    said = books.site.run(*words, "--format=gpu_hours", cluster=books.cluster)
    assert said.out == "1.0000\n"


# Small inputs with their answers

Check = Callable[[Books, Any, Any], None]


def _tres(books: Books, given: Any, expected: Any) -> None:
    told = books.load({"AllocTRES": given, "ReqTRES": ""}, held(T, T + 1, JobIDRaw="6", Account="other"))
    assert ("AllocTRES cannot be read" in told) == (expected == "error")
    assert books.all().gpus == (0 if expected == "error" else expected)
    assert books.all().runs == bool(expected not in ("error", 0))


def _gres(books: Books, given: Any, expected: Any) -> None:
    names = tuple(name for name in HEAD if name not in ("AllocTRES", "ReqTRES"))
    books.load({"AllocGRES": given}, names=(*names, "AllocGRES"))
    assert books.all().gpus == expected


def _array(books: Books, given: Any, expected: Any) -> None:
    array, _, tasks = given.rstrip("]").partition("_[")
    throttle = expected.get("throttle")
    limit = "" if throttle is None else f"ArrayTaskThrottle={throttle} "
    job = one(line(int(array), head=f"ArrayJobId={array} ArrayTaskId={tasks} {limit}"))
    assert (len(job.tasks), job.throttle) == (expected["tasks"], throttle)
    books.load({"JobIDRaw": array, "JobID": given, "State": "PENDING", "Start": "Unknown", "End": "Unknown",
                "AllocTRES": ""}, held(T, T + HOUR))  # fmt: skip
    assert books.all().runs == 1


def _ids(books: Books, given: Any, expected: Any) -> None:
    shown, raw = given
    names = HEAD if raw else HEAD[1:]
    told = books.load({"JobIDRaw": raw or "", "JobID": shown}, names=names)
    if "step" in expected:
        assert "0 runs and 1 steps read" in told
        return
    ledger = SqlLedger(books.site.url, books.cluster)
    (run,) = ledger.runs_of_job(shown)
    ledger.close()
    assert run.key.job_id == (expected.get("raw") or expected["het_job_id"] + expected["offset"])


def _state(books: Books, given: Any, expected: Any) -> None:
    books.load({"State": given})
    ledger = SqlLedger(books.site.url, books.cluster)
    (run,) = ledger.runs_of_job("5")
    ledger.close()
    assert run.state == expected["state"]
    assert books.all().gpus == 1  # how it ended does not matter


def _row(books: Books, given: Any, expected: Any) -> None:
    names = re.findall(
        r"\w+",
        """State JobID ReqCPUS ReqMem ReqNodes Constraints Submit Eligible Start Elapsed Suspended End ExitCode
        DerivedExitCode AllocNodes NCPUS MaxDiskRead MaxDiskWrite MaxPages MaxRSS MaxVMSize CPUTime UserCPU SystemCPU
        TotalCPU Partition""",
    )
    row = {**dict(zip(names, given.split("|"), strict=True)), "Account": "lab", "AllocTRES": "gres/gpu=1"}
    ran = {"State": "COMPLETED", "JobID": "6", "Start": row["Submit"], "Elapsed": "00:02:01", "Account": "other"}
    told = books.load(row, {**row, **ran}, names=(*names, "Account", "AllocTRES"))
    assert ("1 never started" in told) == (not expected["started"])
    assert books.all().gpus == hours(1000 * expected["gpu_seconds"])


def _memory(books: Books, given: Any, expected: Any) -> None:
    """What is charged is by what was allocated; what was asked for, in any spelling, changes nothing."""
    told = books.load(
        {"ReqMem": given["reqmem"], "AllocTRES": f"gres/gpu=1,mem={expected}M"}, names=(*HEAD, "ReqMem")
    )
    assert "rejected" not in told
    assert books.all() == Used(1, 1, 0, 1)


def _requeued(books: Books, given: Any, expected: Any) -> None:
    at, rows = T, []
    for job, state, text in given:
        length = sum(int(n) * f for n, f in zip(text.split(":"), (3600, 60, 1), strict=True))
        rows.append(held(at, at + length, JobIDRaw=job, JobID=job, State=state))
        at += length + 60
    books.load(*rows, held(at, at + 600, JobIDRaw=given[0][0], JobID=given[0][0]))
    assert books.all().gpus == hours(1000 * (expected["seconds"] + 600))


def _name(books: Books, given: Any, expected: Any) -> None:
    assert expected == "kept"
    told = books.load({"JobIDRaw": "4", "JobID": "4"}, {"JobName": given}, {"JobIDRaw": "6", "JobID": "6"})
    assert "rejected" not in told
    assert books.all() == Used(3, 3, 0, 3)


def _clip(books: Books, given: Any, expected: Any) -> None:
    row = {"Submit": given["start"], "Start": given["start"], "End": given["end"] or "Unknown"}
    low, high = map(utc, given["window"])
    state = {"State": "COMPLETED" if given["end"] else "RUNNING"}
    books.load({**row, **state}, also=() if given["end"] else ("--as-of", f"{high + HOUR}"))
    assert books.all(low, high).gpus == hours(1000 * expected)


def _suspended(books: Books, given: Any, expected: Any) -> None:
    clock = f"{given['suspended'] // HOUR:02}:00:00"
    start, end = T + given["start"], T + given["end"]
    told = books.load(held(start, end, Suspended=clock, ElapsedRaw=str(expected["elapsed"])))
    assert "Elapsed" not in told
    used = books.all()
    assert used.gpus == hours(1000 * (end - start))  # wall clock
    assert used.gpus - used.suspended == hours(1000 * expected["elapsed"])


CHECKS: dict[str, Check] = {
    "gpu_count_from_alloctres": _tres,
    "gpu_count_from_gres": _gres,
    "array_pending": _array,
    "jobid_pair": _ids,
    "state": _state,
    "sacct_row": _row,
    "reqmem_mb": _memory,
    "requeued_runs": _requeued,
    "job_name": _name,
    "clip": _clip,
    "suspended": _suspended,
}
ELSEWHERE = {"scontrol_error"}  # what Slurm refuses: tests/unit/test_slurm_run.py


def test_every_small_input_has_its_answer(books: Books) -> None:
    vectors = json.loads(shared("data/vectors.json").read_text())
    assert {v["kind"] for v in vectors} == set(CHECKS) | ELSEWHERE
    done = [v for v in vectors if v["kind"] in CHECKS]
    assert len(done) == 36
    for v in done:
        CHECKS[v["kind"]](books, v["input"], v["expected"])
