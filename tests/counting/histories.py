"""Histories of accounting, as tests need them: what sacct shows of a cluster, read several times.

A *life* is what truly became of one run; a *sync* is what one reading shows of some of the lives at one time, in any
order and with rows that come twice. What a history says at its end is known from the lives alone
(:meth:`History.seen`), without merging anything.

Among the lives are requeued runs (same id, new submit), recycled ids, resized jobs (the next row begins, and is
submitted, where the last one ends, but its row shows the start of the first), suspended runs, arrays and parts of
heterogeneous jobs, runs that never started or lasted no second, typed and untyped GPUs, unknown GPUs and none, rows
without account or user, users that differ only by case, rows that come late, ends that are corrected, and runaway
rows, repaired (they end where they started) or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.counting.oracle import UNTYPED, Row

COLUMNS = (
    *("JobIDRaw", "JobID", "Account", "User", "QOS", "State", "Submit", "Start", "End", "ElapsedRaw", "Suspended"),
    *("TimelimitRaw", "AllocTRES", "ReqTRES"),
)
HEADER = "|".join(COLUMNS) + "\n"
ACCOUNTS = ("lab", "NLP", "nlp", "bio", "far", None)
USERS = ("joe", "Joe", "ann", None)
QOSES = ("normal", "backed", "spare")
TYPES = (UNTYPED, "a100", "h100")
SPARE = frozenset({"spare"})
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1000", "PREEMPTED", "REQUEUED", "NODE_FAIL", "OUT_OF_MEMORY")
LONG_AGO = 1_000_000_000


@dataclass(frozen=True)
class Life:
    """One run as it was; ``row`` is the truth at the end of all things.

    Until the reading ``right_from`` accounting showed ``wrong_end`` in place of the true end (``None``: as if it
    still ran), and before the reading ``late`` nothing at all. ``ref`` is the readable id, ``tres`` the two texts of
    allocated and requested TRES. ``first`` is the start that is printed, where that is not the true one.
    """

    row: Row
    ref: str
    state: str
    tres: tuple[str, str]
    late: int = 0
    right_from: int = 0
    wrong_end: int | None = None
    first: int | None = None

    def at(self, number: int, when: int) -> Row | None:
        """What the reading of this number, at this time, shows: ``None`` for nothing."""
        row = self.row
        if number < self.late or row.submit > when:
            return None
        if row.start is None or row.start > when:
            return replace(row, start=None, end=row.end if row.end is not None and row.end <= when else None)
        end = row.end if number >= self.right_from else self.wrong_end
        if end is not None and end > when and self.wrong_end is not None and self.wrong_end <= when:
            end = self.wrong_end  # what comes later cannot be known yet
        if end is None or end > when:
            return replace(row, end=None, suspended=min(row.suspended, when - row.start))
        return replace(row, end=end, suspended=min(row.suspended, end - row.start))


@dataclass(frozen=True)
class Sync:
    """One reading: its time, and which lives it shows, in its order; a number may come more than once."""

    when: int
    shown: tuple[int, ...]


@dataclass(frozen=True)
class History:
    """Lives and readings, the oldest first."""

    lives: tuple[Life, ...]
    syncs: tuple[Sync, ...]

    def seen(self) -> list[Row]:
        """Each run as it was last seen; one that still ran counts until then."""
        last: dict[int, Row] = {}
        for number, sync in enumerate(self.syncs):
            for at in sync.shown:
                row = self.lives[at].at(number, sync.when)
                if row is not None:
                    last[at] = counted(row, sync.when)
        return list(last.values())

    def text(self, number: int) -> str:
        """The reading as sacct -P prints it, with times as seconds since the epoch."""
        sync = self.syncs[number]
        return HEADER + "".join(
            sacct_line(row, self.lives[at], sync.when)
            for at in sync.shown
            if (row := self.lives[at].at(number, sync.when)) is not None
        )


def counted(row: Row, when: int) -> Row:
    """A row that was still open counts until it was read, and to its time limit (less what was suspended) at most."""
    if row.start is None or row.end is not None:
        return row
    most = when if row.limit is None else min(when, row.start + row.limit + row.suspended)
    return replace(row, end=most)


def sacct_line(row: Row, life: Life, when: int, zone: str | None = None) -> str:
    """One line of sacct -P at this time; calendar times in the zone if one is given."""
    start = row.start if row.start is None or life.first is None else life.first
    elapsed = 0 if start is None else (when if row.end is None else row.end) - start - row.suspended
    if row.start is None:
        state = "PENDING" if row.end is None else "CANCELLED by 1000"
    else:
        state = ("SUSPENDED" if row.suspended else "RUNNING") if row.end is None else life.state
    cells = (
        str(row.job_id), life.ref, row.account or "", row.user or "", row.qos, state,
        _time(row.submit, zone), "None" if start is None else _time(start, zone),
        "Unknown" if row.end is None else _time(row.end, zone), str(elapsed), _duration(row.suspended),
        "UNLIMITED" if row.limit is None else str(row.limit // 60), *life.tres,
    )  # fmt: skip
    return "|".join(cells) + "\n"


def open_line(row: Row) -> str:
    """A line of a run that still runs, from which nothing can be known about how long it has run."""
    kind, count = (row.gpus or ((UNTYPED, 0),))[0]
    whole, typed = f"gres/gpu={count}", f"gres/gpu:{kind}={count}"
    held = "" if not count else whole if kind == UNTYPED else f"{whole},{typed}"
    cells = (
        str(row.job_id), str(row.job_id), row.account or "", row.user or "", row.qos, "RUNNING", str(row.submit),
        str(row.start), "Unknown", "", _duration(row.suspended),
        "UNLIMITED" if row.limit is None else str(row.limit // 60), held, "gres/gpu=1" if row.gpus is None else "",
    )  # fmt: skip
    return "|".join(cells) + "\n"


def _time(moment: int, zone: str | None) -> str:
    if zone is None:
        return str(moment)
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


@st.composite
def holdings(draw: st.DrawFn) -> tuple[tuple[tuple[str, int], ...] | None, tuple[str, str]]:
    """What a run holds, and how accounting writes it; one type a run."""
    kind = draw(st.sampled_from(TYPES))
    count = draw(st.integers(1, 9))
    whole, typed = f"gres/gpu={count}", f"gres/gpu:{kind}={count}"
    around = draw(st.sampled_from(["billing=9,cpu=4,{}mem=512000M,node=1", "{}cpu=2,mem=1.50G", "cpu=1,node=1,{}"]))
    form = draw(st.sampled_from(["known", "known", "known", "known", "unknown", "marker", "none"]))
    if form == "none":
        return (), (_put(around, ""), "cpu=1")
    if form == "unknown":
        return None, (_put(around, ""), whole)
    if form == "marker":
        return None, (_put(around, "gres/gpu=18446744073709551614"), whole)
    if kind == UNTYPED:
        return ((kind, count),), (_put(around, whole), whole)
    spelled = draw(st.sampled_from([f"{whole},{typed}", f"{typed},{whole}", typed]))
    return ((kind, count),), (_put(around, spelled), "cpu=1")


def _put(around: str, gpus: str) -> str:
    return around.format(f"{gpus}," if gpus and not around.endswith("{}") else gpus).rstrip(",")


@st.composite
def jobs(draw: st.DrawFn, job_id: int, begin: int, span: int, syncs: int, *, exact: bool) -> list[Life]:
    """The runs of one job id, one after the other; ``exact`` leaves out what accounting ever says wrongly."""
    account, user = draw(st.sampled_from(ACCOUNTS)), draw(st.sampled_from(USERS))
    ref = draw(st.sampled_from([str(job_id), f"{job_id - 1}_7", f"{job_id - 1}+1"]))
    submit = begin + draw(st.integers(0, span))
    lives: list[Life] = []
    follows, first = "", 0
    for _ in range(draw(st.integers(1, 3))):
        gpus, tres = draw(holdings())
        resized = follows == "resized"
        start = submit + (0 if resized else draw(st.sampled_from([0, 0, 1]) | st.integers(0, span)))
        first = first if resized else start
        length = draw(st.sampled_from([0, 1]) | st.integers(0, span))
        how = draw(st.sampled_from(["ended"] * 12 + ["open", "never"][: 1 if resized else 2]))
        row = Row(
            job_id, submit, None if how == "never" else start, None if how == "open" else start + length, gpus,
            account, user, draw(st.sampled_from(QOSES)),
            suspended=draw(st.integers(0, length)) if how != "never" and draw(st.booleans()) else 0,
            limit=None if resized else draw(st.sampled_from([None, None, 60, 60 * (span // 60 + 1)])),
        )  # fmt: skip
        life = Life(row, ref, draw(st.sampled_from(ENDED)), tres, first=first if resized else None)
        lives.append(life if exact else draw(_misread(life, syncs)))
        if how == "open":
            break
        follows = draw(st.sampled_from(["requeued", "recycled", *(["resized"] if row.start is not None else [])]))
        if follows == "recycled":
            account, user = draw(st.sampled_from(ACCOUNTS)), draw(st.sampled_from(USERS))
            ref = str(job_id)
        gap = 0 if follows == "resized" else draw(st.integers(1, span))
        # slurmdbd makes one row of two that begin in one second
        follows = "requeued" if follows == "resized" and start + length <= submit else follows
        submit = max(start + length + gap, submit + 1)
    return lives


@st.composite
def _misread(draw: st.DrawFn, life: Life, syncs: int) -> Life:
    """A life that accounting showed late, or wrongly at first: another end, none, or a runaway row that was repaired
    (it ends where it began)."""
    row = life.row
    life = replace(life, late=draw(st.sampled_from([0, 0, 0]) | st.integers(0, syncs - 1)))
    if row.start is None or row.end is None or draw(st.booleans()):
        return life
    wrong = draw(st.none() | st.integers(row.start, row.start + 2 * (row.end - row.start) + 5))
    if draw(st.booleans()):
        life = replace(life, row=replace(row, end=row.start, suspended=0), state="FAILED")
    return replace(life, right_from=draw(st.integers(0, syncs - 1)), wrong_end=wrong)


@st.composite
def histories(
    draw: st.DrawFn, *, begin: int = LONG_AGO, span: int = 4000, exact: bool = False, most: int = 5
) -> History:
    """Jobs that begin in ``span`` seconds from ``begin`` on, and up to four readings while they run or far later.

    With ``exact`` every reading shows what is true at its time, so that their order does not matter.
    """
    count = draw(st.sampled_from([1, 2, 3, 3, 4]))
    ids = [7 * number for number in range(1, draw(st.integers(1, most)) + 1)]
    lives = [life for job_id in ids for life in draw(jobs(job_id, begin, span, count, exact=exact))]
    times = sorted(draw(st.lists(moments(lives), min_size=count, max_size=count)))
    syncs = []
    for when in times:
        shown = draw(st.permutations(range(len(lives))))
        if draw(st.integers(0, 3)) == 0:
            shown = shown[: draw(st.integers(0, len(shown)))]
        twice = draw(st.lists(st.sampled_from(shown), max_size=3)) if shown else []
        syncs.append(Sync(when, (*shown, *twice)))
    return History(tuple(lives), tuple(syncs))


def moments(lives: Iterable[Life]) -> st.SearchStrategy[int]:
    """Times about which something happens: the seconds in which a run begins or ends, those beside them, between."""
    edges = sorted({t for life in lives for t in (life.row.submit, life.row.start, life.row.end) if t is not None})
    between = [(a + b) // 2 for a, b in pairwise(edges)]
    return st.builds(int.__add__, st.sampled_from(edges), st.sampled_from([0, 0, -1, 1, 300])) | st.sampled_from(
        [*between, edges[-1] + 10_000]
    )


def windows(history: History) -> st.SearchStrategy[tuple[int, int]]:
    """[start, end), at least a second long, about the time of the history."""
    moment = moments(history.lives)
    pair = st.tuples(moment, moment).map(lambda pair: (min(pair), max(pair) + (pair[0] == pair[1])))
    edges = [t for life in history.lives for t in (life.row.submit, life.row.end) if t is not None]
    return pair | pair | st.just((min(edges), max(edges) + 1))


# Nights in which clocks change: the zone, and the second in which they do.
NIGHTS = (
    ("Europe/Berlin", 1_792_890_000),  # 2026-10-25 03:00 -> 02:00
    ("Europe/Berlin", 1_774_746_000),  # 2026-03-29 02:00 -> 03:00
    ("America/New_York", 1_793_512_800),  # 2026-11-01 02:00 -> 01:00
    ("America/Sao_Paulo", 1_541_300_400),  # 2018-11-04 00:00 -> 01:00: a day that begins at one
    ("Australia/Lord_Howe", 1_775_314_800),  # 2026-04-05 02:00 -> 01:30: half an hour
    ("Asia/Beirut", 1_792_875_600),  # 2026-10-25 00:00 -> 2026-10-24 23:00: the last hour of a day comes twice
)
