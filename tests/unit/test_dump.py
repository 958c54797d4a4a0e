"""Saved sacct text: columns, delimiters, broken records and times; a test a row of the list of known bugs."""

from __future__ import annotations

import io
import random
import string
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.dump import DumpAccounting
from pyslurm_budget.slurm.dump_fields import KNOWN
from pyslurm_budget.slurm.dump_lines import Columns, delimiter_of, rows_of
from pyslurm_budget.slurm.dump_summary import RowError, Summary

EVER = 1 << 40
T = 1_796_000_000
BASE = {
    "Cluster": "alpha", "JobIDRaw": "5", "JobID": "5", "Account": "lab", "User": "alice", "UID": "1000",
    "QOS": "normal",
    "Partition": "gpu", "State": "COMPLETED", "Submit": str(T - 5), "Eligible": str(T - 4), "Start": str(T),
    "End": str(T + 60), "ElapsedRaw": "60", "Suspended": "00:00:00", "TimelimitRaw": "60",
    "AllocTRES": "billing=1,cpu=1,gres/gpu=2,node=1", "ReqTRES": "cpu=1,gres/gpu=2", "NodeList": "n1",
    "JobName": "job",
    "WorkDir": "/home/alice", "Comment": "",
}  # fmt: skip


def table(*rows: dict[str, str], names: tuple[str, ...] = tuple(BASE), delimiter: str = "|", end: str = "") -> str:
    lines = [names, *([row.get(name, BASE.get(name, "?")) for name in names] for row in rows)]
    return "".join(delimiter.join(cells) + end + "\n" for cells in lines)


def read(text: str | bytes, **options: object) -> tuple[list[RunRecord], Summary]:
    dump = DumpAccounting(text if isinstance(text, str) else io.BytesIO(text), **options)  # type: ignore[arg-type]
    return list(dump.runs(0, EVER)), dump.summary


def one(options: dict[str, object] | None = None, /, **changes: str) -> RunRecord:
    (run,), summary = read(table(changes), **(options or {}))
    assert summary.lost == 0
    return run


def rejected(**changes: str) -> str:
    """The reason for which a single row is rejected."""
    runs, summary = read(table(changes))
    assert runs == []
    (kind,) = summary.rejected
    return kind


# Counting GPUs


def test_bug_1_typed_and_untyped_entries_are_not_added() -> None:
    assert one(AllocTRES="gres/gpu:a100=1,gres/gpu=1").tres.gpus == 1


def test_bug_2_typed_entries_alone_are_added_up() -> None:
    assert one(AllocTRES="gres/gpu:nvidia_geforce_rtx_2080_ti=1").tres.gpus == 1
    assert one(AllocTRES="gres/gpu:a100=1,gres/gpu:h100=2").tres.gpus == 3


@pytest.mark.parametrize(
    "line",
    [
        "sbatch --gpus 4 x.sh",
        "sbatch --gpus=a100:4 x",
        "srun -G4 x",
        "sbatch --gres=gpu:4 x",
        "srun --gpus-per-node=4",
    ],
)
def test_bug_4_gpus_asked_for_and_not_accounted_are_unknown(line: str) -> None:
    assert one(AllocTRES="cpu=1,node=1", ReqTRES="gres/gpu=1").tres.gpus is None
    names = (*BASE, "SubmitLine")
    (run,), summary = read(table({"AllocTRES": "cpu=1", "ReqTRES": "cpu=1", "SubmitLine": line}, names=names))
    assert run.tres.gpus is None
    assert summary.unknown_gpus == 1


def test_bug_4_a_command_line_without_gpus_is_none() -> None:
    rows = {"AllocTRES": "cpu=1", "ReqTRES": "cpu=1", "SubmitLine": "sbatch --gpus 0 --gpu-bind=none -p gpu x.sh"}
    (run,), _ = read(table(rows, names=(*BASE, "SubmitLine")))
    assert run.tres.gpus == 0


def test_bug_6_the_allocated_tres_are_the_total_of_all_nodes() -> None:
    assert one(AllocTRES="cpu=10,mem=100G,node=2,gres/gpu=1,gres/gpu:a100=1", NodeList="n[1-2]").tres.gpus == 1


def test_bug_7_a_cut_tres_is_rejected_not_zero() -> None:
    assert rejected(AllocTRES="cpu=2,mem=512M,node=") == "AllocTRES cannot be read"


def test_bug_10_what_is_allocated_counts_not_what_was_asked() -> None:
    asked, got = "billing=2,cpu=1,mem=5G,node=1", "billing=112,cpu=36,gres/gpu:rtx2080ti=4,gres/gpu=4"
    assert one(AllocTRES=got, ReqTRES=asked).tres.gpus == 4


@pytest.mark.parametrize(("gres", "gpus"), [("gpu:volta:8(S:0-1)", 8), ("gpu:8", 8), ("", None)])
def test_bug_11_old_columns_are_read(gres: str, gpus: int | None) -> None:
    names = (*(name for name in BASE if name not in ("AllocTRES", "ReqTRES")), "AllocGRES", "ReqGRES", "NNodes")
    (run,), _ = read(table({"AllocGRES": gres, "ReqGRES": "PER_NODE:gpu:8", "NNodes": "4"}, names=names))
    assert (run.tres.gpus, run.requested_gpus) == (gpus, 32)


# Parsing records


@pytest.mark.parametrize("name", ["crazy|name", "|", "a|b|c|", "||||||||"])
def test_bug_14_a_pipe_in_a_name_or_a_directory_is_kept(name: str) -> None:
    plain, odd = one(), {"JobName": name, "JobIDRaw": "6", "JobID": "6"}
    runs, summary = read(table({}, odd, {"JobIDRaw": "7", "JobID": "7"}))
    assert [run.key.job_id for run in runs] == [5, 6, 7]
    assert summary.lost == 0
    assert (runs[1].tres, runs[1].account, runs[1].end) == (plain.tres, plain.account, plain.end)


def test_bug_14_free_text_last() -> None:
    assert one(Comment="a|b|c").comment == "a|b|c"
    assert one(Comment="a\nb").comment == "a\nb"


def test_bug_14_a_line_of_text_after_a_record_without_free_text_is_rejected() -> None:
    names = tuple(name for name in BASE if name not in ("JobName", "WorkDir", "Comment"))
    runs, summary = read(table({}, {"JobIDRaw": "6"}, names=names).replace("|n1\n", "|n1\nrubbish\n", 1))
    assert ([run.key.job_id for run in runs], summary.lost) == ([5, 6], 1)
    assert runs[0].nodes == ("n1",)


def test_bug_14_text_that_may_be_two_things_is_rejected_and_reported() -> None:
    names = ("JobID", "Submit", "Start", "End", "State", "AllocTRES", "JobName", "Account", "Comment")
    runs, summary = read(table({"JobName": "x|rich"}, {}, names=names))
    assert [run.account for run in runs] == ["lab"]
    assert dict(summary.rejected) == {"free text imitates columns": 1}
    assert summary.examples[0].line == 2


@pytest.mark.parametrize("name", ["line1\nline2", "\n", "a\n\n\nb", "x\n5|y", "a|b\nc|d"])
def test_bug_15_a_newline_in_a_name_breaks_nothing(name: str) -> None:
    other = {"JobIDRaw": "6", "JobID": "6", "JobName": name}
    runs, summary = read(table({}, other, {"JobIDRaw": "7", "JobID": "7"}))
    assert ([run.key.job_id for run in runs], summary.lost) == ([5, 6, 7], 0)
    assert runs[1].nodes == ("n1",)


def test_bug_15_a_record_written_into_a_name_is_not_believed() -> None:
    names = ("JobName", *(name for name in BASE if name != "JobName"))
    names = ("JobIDRaw", "JobName", *(name for name in BASE if name not in ("JobIDRaw", "JobName")))
    forged = "|".join("77" if n == "JobIDRaw" else BASE[n] for n in names)
    runs, summary = read(table({"JobName": f"x\n{forged}\nz"}, {"JobIDRaw": "6", "JobID": "6"}, names=names))
    assert [run.key.job_id for run in runs] == [6]
    assert summary.lost >= 1


@pytest.mark.parametrize("name", ["x\ny\nz", "x\n\ny|z", "\n"])
def test_bug_15_a_name_in_the_first_column(name: str) -> None:
    names = ("JobName", *(column for column in BASE if column not in ("JobName", "Comment", "WorkDir")))
    rows = [{"JobIDRaw": str(i), "JobName": name} for i in (6, 7)]
    runs, summary = read(table({}, *rows, names=names))
    assert ([run.key.job_id for run in runs], summary.lost) == ([5, 6, 7], 0)


def test_bug_15_a_torn_line_does_not_take_the_broken_record_after_it() -> None:
    text = table({}, {"JobIDRaw": "6", "JobName": "x\ny"}).split("\n")
    torn = text[1][: text[1].index("COMPLETED") + 3]
    runs, summary = read("\n".join([text[0], torn, *text[2:]]))
    assert ([run.key.job_id for run in runs], summary.lost) == ([6], 1)


def test_bug_15_a_torn_record_before_a_whole_one_is_not_taken_for_its_name() -> None:
    names = ("JobName", *(column for column in BASE if column not in ("JobName", "Comment", "WorkDir")))
    header, row, *_ = table({}, names=names).split("\n")
    runs, summary = read("\n".join([header, "job|alpha|6|6|lab|al", row, row]))
    assert [run.key.job_id for run in runs] == [5]
    assert dict(summary.rejected) == {"free text imitates columns": 1}


def test_cells_that_fit_only_where_the_rest_fits_too() -> None:
    columns = Columns("JobName|State|Comment|JobID|WorkDir")
    assert columns.fitted(["a", "x y", "DONE", "RUN", "5", "x", "y"]) == ["a|x y", "DONE", "RUN", "5", "x|y"]
    assert columns.fitted(["a", "DONE", "RUN", "x", "y"]) is None


def test_bug_15_a_torn_line_takes_only_itself() -> None:
    text = table({}, {"JobIDRaw": "6", "JobID": "6"}, {"JobIDRaw": "7", "JobID": "7"}).split("\n")
    text[2] = text[2][: text[2].index("COMPLETED") + 3]
    runs, summary = read("\n".join(text))
    assert [run.key.job_id for run in runs] == [5, 7]
    assert (dict(summary.rejected), summary.examples[0].line) == ({"not the shape of a record": 1}, 3)


def test_bug_15_long_text_and_much_rubbish_stay_bounded() -> None:
    long = "\n".join(["word"] * 5000)
    assert one(Comment=long).comment == long
    rubbish = "a|b|c\n" * 3000
    runs, summary = read(table({}) + rubbish + table({"JobIDRaw": "6"}).partition("\n")[2])
    assert [run.key.job_id for run in runs] == [5, 6]
    assert 1 <= summary.lost <= 3000
    assert len(summary.examples) <= 20


def test_bug_15_a_file_cut_off_at_its_end_says_so() -> None:
    runs, summary = read(table({}, {"JobIDRaw": "6", "JobID": "6"})[:-90])
    assert ([run.key.job_id for run in runs], summary.lost) == ([5], 1)


def test_bug_16_bytes_that_do_not_decode_are_replaced() -> None:
    text = table({"JobName": "NAME"}, {"JobIDRaw": "6", "JobID": "6"}).encode().replace(b"NAME", b"\xffn\xe9\x85x")
    runs, summary = read(text)
    assert ([run.key.job_id for run in runs], summary.lost) == ([5, 6], 0)
    assert len(read(table({"JobName": "a\u2028b\x85c\x0bd\re"}))[0]) == 1


@pytest.mark.parametrize("ref", ["123456_[9201-10000%500]", "5_[60-89,91-94,96-98]", "5_[9-11,20]", "5_[0-8:2]"])
def test_bugs_17_and_18_pending_arrays_are_read_and_held_nothing(ref: str) -> None:
    run = one(JobID=ref, State="PENDING", Start="Unknown", End="Unknown", AllocTRES="", NodeList="None assigned")
    assert (run.job_ref, run.start, run.tres.gpus) == (ref, None, 0)


def test_bug_20_the_raw_id_is_the_key_and_the_array_id_is_shown() -> None:
    run = one(JobID="1043074_91", JobIDRaw="1043166")
    assert (run.key.job_id, run.job_ref) == (1043166, "1043074_91")


def test_bug_20_without_the_raw_id_a_task_is_rejected_not_mixed_up() -> None:
    names = tuple(name for name in BASE if name != "JobIDRaw")
    runs, summary = read(table({"JobID": "100_7"}, {"JobID": "100_8"}, {"JobID": "9"}, names=names))
    assert [run.key.job_id for run in runs] == [9]
    assert dict(summary.rejected) == {"task of an array without JobIDRaw": 2}


def test_bug_21_every_part_of_a_heterogeneous_job_counts() -> None:
    runs, _ = read(table({"JobID": "123+0", "JobIDRaw": "123"}, {"JobID": "123+1", "JobIDRaw": "124"}))
    assert [(run.key.job_id, run.job_ref) for run in runs] == [(123, "123+0"), (124, "123+1")]
    names = tuple(name for name in BASE if name != "JobIDRaw")
    runs, _ = read(table({"JobID": "123+0"}, {"JobID": "123+1"}, names=names))
    assert [run.key.job_id for run in runs] == [123, 124]


def test_bug_22_who_cancelled_is_told_from_the_state() -> None:
    run = one(State="CANCELLED by 1000")
    assert (run.state, run.by_uid, run.end) == ("CANCELLED", 1000, T + 60)
    assert (one(State="CANCELLED").state, one(State="CANCELLED").by_uid) == ("CANCELLED", None)


@pytest.mark.parametrize("start", ["Unknown", "None", "", str(T + 60)])
def test_bug_24_cancelled_before_the_start_held_nothing(start: str) -> None:
    run = one(State="CANCELLED by 32874", Start=start, ElapsedRaw="0", NodeList="None assigned")
    assert (run.start, run.tres.gpus, run.nodes) == (None, 0, ())


def test_bug_25_cancelled_after_days_is_charged() -> None:
    ran, waited = {"State": "CANCELLED by 5"}, {"State": "CANCELLED by 5", "Start": "None", "ElapsedRaw": "0"}
    runs, _ = read(table(ran, waited))
    assert [(run.start, run.tres.gpus) for run in runs] == [(T, 2), (None, 0)]


def test_bug_27_memory_that_was_asked_for_is_not_looked_at() -> None:
    (run,), summary = read(table({"ReqMem": "2147486648Mn"}, names=(*BASE, "ReqMem")))
    assert (run.tres.memory_mb, summary.lost) == (0, 0)


def test_bug_35_every_requeued_run_is_a_run() -> None:
    lengths = [3889, 4473, 6122, 2153]
    rows = [
        {"State": "REQUEUED", "Submit": str(T + i), "End": str(T + length), "ElapsedRaw": str(length)}
        for i, length in enumerate(lengths)
    ]
    runs, _ = read(table(*rows))
    assert sum((run.end or 0) - (run.start or 0) for run in runs) == 16637
    assert len({run.key for run in runs}) == 4


def test_bug_39_a_row_that_runs_for_ever_counts_to_its_limit() -> None:
    row = {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "9999999"}
    (run,), summary = read(table(row), as_of=T + 9_999_999)
    assert (run.end, summary.capped) == (T + 3600, 1)
    (run,), summary = read(table({**row, "TimelimitRaw": "UNLIMITED"}), as_of=T + 9_999_999)
    assert (run.end, summary.capped) == (T + 9_999_999, 0)


def test_bug_40_suspended_time_is_part_of_the_run() -> None:
    (run,), summary = read(table({"End": str(T + 36000), "ElapsedRaw": "21600", "Suspended": "04:00:00"}))
    assert ((run.end or 0) - (run.start or 0), run.suspended, summary.elapsed_differs) == (36000, 14400, 0)


def test_bug_42_nobody_is_somebody() -> None:
    run = one(Account="", User="")
    assert (run.account, run.user) == ("(none)", "uid:1000")
    assert one(Account="(null)", User="", UID="").user == "(none)"


def test_bug_43_accounts_compare_without_case_and_users_do_not() -> None:
    run = one(Account="LAB", User="Joe")
    assert (run.account, run.user) == ("lab", "Joe")


# Times. Berlin, 2026-10-25: 03:00 summer time is 02:00 winter time, so 02:00 to 03:00 comes twice.

NIGHT = "2026-10-25T"


def berlin(start: str, end: str, elapsed: int | None, submit: str = "01:00:00") -> tuple[RunRecord, Summary]:
    changes = {"Submit": NIGHT + submit, "Eligible": "", "Start": NIGHT + start, "End": NIGHT + end}
    names = tuple(name for name in BASE if name != "ElapsedRaw" or elapsed is not None)
    (run,), summary = read(table({**changes, "ElapsedRaw": str(elapsed)}, names=names), timezone="Europe/Berlin")
    return run, summary


@pytest.mark.parametrize(("elapsed", "length", "differs"), [(3600, 3600, 0), (7200, 7200, 0), (5400, 3600, 1)])
def test_bug_41_elapsed_says_which_of_two_hours_was_meant(elapsed: int, length: int, differs: int) -> None:
    run, summary = berlin("01:30:00", "02:30:00", elapsed)
    assert ((run.end or 0) - (run.start or 0), summary.elapsed_differs) == (length, differs)


def test_bug_41_without_elapsed_the_first_is_taken_and_told() -> None:
    run, summary = berlin("01:30:00", "02:30:00", None)
    assert ((run.end or 0) - (run.start or 0), summary.ambiguous) == (3600, 1)
    run, summary = berlin("02:40:00", "02:20:00", None)
    assert ((run.end or 0) - (run.start or 0), summary.ambiguous) == (2400, 0)


def test_bug_41_a_time_that_no_clock_has_shown_is_rejected() -> None:
    text = table({"Submit": "2026-03-29T02:30:00"})
    runs, summary = read(text, timezone="Europe/Berlin")
    assert (runs, dict(summary.rejected)) == ([], {"Submit cannot be read": 1})
    assert len(read(text, timezone="UTC")[0]) == 1


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe", "Asia/Kolkata"])
def test_bug_41_against_every_reading_tried_out(zone: str) -> None:
    from zoneinfo import ZoneInfo

    def local(moment: int) -> str:
        return datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")

    dice = random.Random(zone)
    nights = [datetime(2026, *day, tzinfo=UTC) for day in ((3, 29), (10, 25), (11, 1), (3, 8), (4, 4), (10, 3))]
    for night, _ in product(nights, range(40)):
        submit = int(night.timestamp()) + dice.randrange(-43200, 43200)
        start = submit + dice.randrange(7200)
        end = start + dice.randrange(7200)
        row = {"Submit": local(submit), "Eligible": "", "Start": local(start), "End": local(end)}
        (run,), summary = read(table({**row, "ElapsedRaw": str(end - start)}), timezone=zone)
        assert (run.end or 0) - (run.start or 0) == end - start
        assert summary.elapsed_differs == 0
        assert summary.ambiguous or (run.key.submit, run.start, run.end) == (submit, start, end)


def test_times_with_a_zone_and_without_one() -> None:
    assert one(Start="2026-12-01T10:00:00+01:00", End="2026-12-01T09:00:10Z", ElapsedRaw="10").start == 1796115600
    assert (
        one({"timezone": "Europe/Berlin"}, Start="2026-12-01T10:00:00", End="2026-12-01T10:00:10").start == 1796115600
    )
    assert one({"timezone": "UTC"}, Start="2026-12-01T10:00:00", End="2026-12-01T10:00:10").start == 1796119200


# Running rows


def test_running_rows_count_until_the_dump_was_taken() -> None:
    row = {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "30"}
    assert one({"as_of": T + 50}, **row).end == T + 50
    assert one(**row).end == T + 30
    assert one(**row, Suspended="00:00:10").end == T + 40
    names = tuple(name for name in BASE if name != "ElapsedRaw")
    (run,), summary = read(table(row, names=names))
    assert (run.end, summary.open) == (None, 1)
    (run,), _ = read(table({**row, "Elapsed": "00:00:20"}, names=(*names, "Elapsed")))
    assert run.end == T + 20
    _, summary = read(table(row), as_of=T - 1)
    assert dict(summary.rejected) == {"started after the time of the dump": 1}


def test_only_what_was_alive_in_the_window() -> None:
    dump = DumpAccounting(table({}))
    assert len(list(dump.runs(T + 60, EVER))) == 1
    assert list(dump.runs(T + 61, EVER)) == []
    assert list(dump.runs(0, T - 5)) == []
    assert len(list(dump.runs(0, T - 4))) == 1


def test_rows_of_another_cluster_are_rejected() -> None:
    runs, summary = read(table({}, {"Cluster": "beta"}), cluster="alpha")
    assert (len(runs), dict(summary.rejected)) == (1, {"of another cluster": 1})


def test_steps_are_counted_and_skipped() -> None:
    steps = ["5.0", "5.batch", "5.extern", "5.interactive", "5_4.batch", "5+1.0"]
    runs, summary = read(table({}, *({"JobID": step, "JobIDRaw": "5.0", "Account": "x"} for step in steps)))
    assert (len(runs), summary.steps, summary.lost) == (1, len(steps), 0)


# Header and delimiter


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("hello\n", "does not begin with a header"),
        ("5|5|lab|COMPLETED\n", "does not begin with a header"),
        ("User|State\n", "names JobID"),
        ("JobID|State\n5|RUNNING\n", "lacks the columns Account, Submit, Start, End, AllocTRES"),
        ("       JobID    JobName\n------------ ----------\n5            x\n", "set by blanks"),
    ],
)
def test_what_is_no_dump_fails_loudly(text: str, says: str) -> None:
    with pytest.raises(SlurmOutputError, match=says):
        read(text)


@pytest.mark.parametrize(
    "delimiter", ["|", "|#", ",", ";", "\t", "\x1f", "||", "^^", "xx", "<->", "\x1f3f2a\x1f", "é", " "]
)
def test_every_delimiter_is_found(delimiter: str) -> None:
    names = ("User", "JobID", "State", "Foo")
    assert delimiter_of(delimiter.join(names)) == delimiter
    assert delimiter_of("JobID" + delimiter + "State" + delimiter) == delimiter
    assert delimiter_of("JobID" + delimiter) == delimiter
    assert delimiter_of("JobID") == ""


def test_line_ends_of_other_systems_and_a_byte_order_mark() -> None:
    assert len(read(("\ufeff" + table({})).replace("\n", "\r\n"))[0]) == 1
    assert len(read(table({}).rstrip("\n"))[0]) == 1


COLUMNS = st.permutations(sorted(BASE))
DELIMITERS = st.text(st.sampled_from("|#;^~\t\x1f\u00a7@!"), min_size=1, max_size=4)
TEXTS = st.text(st.sampled_from("abc /.-é"), max_size=8).map(str.strip)


@st.composite
def jobs(draw: st.DrawFn) -> list[dict[str, str]]:
    found = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        length = draw(st.integers(0, 10**6))
        found.append({
            "JobIDRaw": str(number), "JobID": draw(st.sampled_from([f"{number}", f"100_{number}", f"9+{number}"])),
            "End": str(T + length), "ElapsedRaw": str(length), "JobName": draw(TEXTS), "Comment": draw(TEXTS),
            "AllocTRES": draw(st.sampled_from(["", "cpu=1", "cpu=1,gres/gpu=4", "gres/gpu:a100=2"])),
        })  # fmt: skip
    return found


@settings(deadline=None, max_examples=150)
@given(
    jobs(), COLUMNS, DELIMITERS, st.booleans(), st.booleans(), st.lists(st.sampled_from(["Foo", "ReqMem", "Group"]))
)
def test_any_columns_and_any_delimiter_give_the_same_runs(
    rows: list[dict[str, str]], names: list[str], delimiter: str, trailing: bool, lower: bool, more: list[str]
) -> None:
    expected, _ = read(table(*rows))
    text = table(*rows, names=(*more, *names), delimiter=delimiter, end=delimiter if trailing else "")
    if lower:
        header, _, rest = text.partition("\n")
        text = header.lower() + "\n" + rest
    found, summary = read(text)
    assert (found, summary.lost) == (expected, 0)


@settings(deadline=None, max_examples=100)
@given(jobs(), st.randoms())
def test_any_order_of_rows_gives_the_same_runs(rows: list[dict[str, str]], dice: random.Random) -> None:
    expected, _ = read(table(*rows))
    dice.shuffle(rows)
    assert sorted(read(table(*rows))[0], key=lambda r: r.key) == sorted(expected, key=lambda r: r.key)


def _fits(columns: Columns, cells: list[str]) -> Iterator[tuple[str, ...]]:
    """Oracle: every way to join neighbouring cells so that each column has one, tried out."""
    from pyslurm_budget.slurm.dump_fields import shape_of

    shapes = [shape_of(name) for name in columns.names]

    def ways(at: int, rest: list[str]) -> Iterator[tuple[str, ...]]:
        if at == len(shapes):
            if not rest:
                yield ()
            return
        shape = shapes[at]
        for take in range(1, len(rest) + 1 if shape is None else min(len(rest), 1) + 1):
            cell = columns.delimiter.join(rest[:take])
            if shape is None or shape.fullmatch(cell):
                yield from ((cell, *way) for way in ways(at + 1, rest[take:]))

    return ways(0, cells)


@settings(deadline=None, max_examples=300)
@given(
    st.permutations(["JobID", "JobName", "State", "Comment", "Account", "Start", "WorkDir"]),
    st.lists(st.sampled_from(["5", "6", "RUNNING", "x y", "lab", "", "7_1"]), min_size=5, max_size=11),
)
def test_cells_are_joined_as_when_every_way_is_tried(names: list[str], cells: list[str]) -> None:
    columns = Columns("|".join(names))
    used = [at for at, name in enumerate(names) if name in ("JobID", "State", "Account", "Start")]
    ways = list(_fits(columns, cells))
    meanings = {tuple(way[at] for at in used) for way in ways}
    single = [len({way[at] for way in ways}) == 1 for at in used]
    try:
        found = columns.fitted(cells)
    except RowError:
        assert not all(single)
        return
    assert (found is None) == (not ways)
    if found is not None:
        assert tuple(found) in ways
        assert meanings == {tuple(found[at] for at in used)}


@settings(deadline=None, max_examples=150)
@given(st.lists(st.text(string.ascii_letters + "|\n 5", max_size=12), min_size=1, max_size=4))
def test_no_name_changes_what_is_read_of_others(names: list[str]) -> None:
    rows = [{"JobIDRaw": str(i), "JobID": str(i), "JobName": name} for i, name in enumerate(names, 10)]
    runs, summary = read(table({"JobIDRaw": "1"}, *rows, {"JobIDRaw": "2"}))
    ids = [run.key.job_id for run in runs]
    assert {1, 2} <= set(ids) <= {1, 2, *range(10, 10 + len(names))}
    assert len(runs) + summary.lost >= len(names) + 2
    assert {(run.account, run.end, run.tres.gpus) for run in runs} == {("lab", T + 60, 2)}


def test_text_is_read_line_by_line() -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        header, row = table({}).splitlines(keepends=True)
        yield header
        for _ in range(1000):
            taken += 1
            yield row

    rows = rows_of(lines(), Summary())
    next(rows)
    assert taken <= 2
    assert sum(1 for _ in rows) == 999


def test_known_names_hold_those_of_every_release() -> None:
    from tests.golden.recorded import RELEASES, recorded

    for release in RELEASES:
        names = {name.lower() for name in recorded(release, "sacct_helpformat").split()}
        assert len(names) > 90
        assert names <= KNOWN
