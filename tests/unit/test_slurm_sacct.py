"""Accounting rows: what is asked, what a row becomes, and free text that cannot become a row."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmdbdError, SlurmOutputError
from pyslurm_budget.slurm.run import Runner
from pyslurm_budget.slurm.sacct import FIELDS, SacctAccounting, runs_of
from tests.unit.slurm_fakes import Fakes, make

HEADER = "\x1f".join(FIELDS)


def row(**changes: str) -> str:
    cells = {
        "Cluster": "lv", "JobIDRaw": "5", "JobID": "5", "Account": "pa", "User": "alice", "UID": "1000",
        "QOS": "spare", "Partition": "gpu", "State": "COMPLETED", "Submit": "1796101958", "Eligible": "1796101958",
        "Start": "1796101960", "End": "1796101970", "Suspended": "00:00:00", "TimelimitRaw": "60",
        "AllocTRES": "billing=1,cpu=1,gres/gpu=2,node=1", "ReqTRES": "cpu=1,gres/gpu=2", "NodeList": "n1",
        "Comment": "",
    }  # fmt: skip
    return "\x1f".join((cells | changes)[name] for name in FIELDS)


def one(**changes: str) -> RunRecord:
    (found,) = runs_of([HEADER, *row(**changes).split("\n")], "\x1f")
    return found


@pytest.mark.parametrize("word", ["Unknown", "None", "", "1796101970"])
def test_a_job_that_never_started_holds_nothing(word: str) -> None:
    found = one(Start=word, State="CANCELLED by 32874", NodeList="None assigned", End="1796101970")
    assert (found.start, found.tres.gpus, found.tres.cpus, found.nodes) == (None, 0, 0, ())
    assert (found.state, found.by_uid, found.requested_gpus) == ("CANCELLED", 32874, 2)


def test_a_run_that_ended_in_its_first_second_did_start() -> None:
    found = one(Start="1796101970", End="1796101970", State="FAILED")
    assert (found.start, found.end, found.tres.gpus, found.nodes) == (1796101970, 1796101970, 2, ("n1",))


def test_gpus_asked_for_but_not_accounted_are_unknown() -> None:
    assert one(AllocTRES="cpu=1,node=1").tres.gpus is None
    assert one(AllocTRES="").tres.gpus is None
    assert one(AllocTRES="cpu=1,node=1", ReqTRES="cpu=1").tres.gpus == 0
    assert one(AllocTRES="cpu=1,gres/gpu:tesla=4").tres.gpus == 4


def test_people_and_accounts_that_are_gone_are_kept() -> None:
    found = one(User="", Account="")
    assert (found.user, found.account) == ("uid:1000", "(none)")
    assert one(Account="PhysicsA").account == "physicsa"
    assert one(User="Joe").user == "Joe"


@pytest.mark.parametrize(("raw", "limit"), [("60", 3600), ("UNLIMITED", None), ("Partition_Limit", None), ("", None)])
def test_time_limits(raw: str, limit: int | None) -> None:
    assert one(TimelimitRaw=raw).time_limit == limit


def test_suspended_time() -> None:
    assert one(Suspended="1-00:00:04").suspended == 86404


@pytest.mark.parametrize(
    "changes",
    [
        {"Submit": "Unknown"}, {"JobIDRaw": "5.batch"}, {"TimelimitRaw": "soon"}, {"Suspended": "INVALID"},
        {"AllocTRES": "cpu=2,mem=512M,node="}, {"End": "yesterday"}, {"NodeList": "n[1-"},
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_refused_and_shown(changes: dict[str, str]) -> None:
    with pytest.raises(SlurmOutputError, match=r"cannot read the row 'lv\|5"):
        one(**changes)


@given(st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"]), max_size=80))
def test_a_comment_is_kept_whatever_its_lines_look_like(comment: str) -> None:
    lines = [HEADER, *row(Comment=comment).split("\n"), row(JobIDRaw="6", JobID="6")]
    first, second = runs_of(lines, "\x1f")
    assert (first.comment, second.key.job_id) == (comment, 6)


@given(st.lists(st.text("ab\x1f|", max_size=60), max_size=6))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    with pytest.raises(SlurmOutputError):
        list(runs_of(lines, "\x1f"))


@given(st.integers(0, 300), st.text("\x1f\nx", max_size=3))
def test_a_damaged_row_is_read_or_refused(at: int, text: str) -> None:
    damaged = row()[:at] + text + row()[at:]
    try:
        list(runs_of([HEADER, *damaged.split("\n")], "\x1f"))
    except SlurmOutputError as error:
        assert "sacct:" in str(error)


def test_a_row_with_other_columns_is_refused() -> None:
    with pytest.raises(SlurmOutputError, match="18 columns, not 19"):
        list(runs_of([HEADER, row(), row().rpartition("\x1f")[0]], "\x1f"))
    with pytest.raises(SlurmOutputError, match="20 columns, not 19"):
        list(runs_of([HEADER, row() + "\x1f"], "\x1f"))


def test_an_answer_needs_its_header() -> None:
    with pytest.raises(SlurmOutputError, match="without even the header"):
        list(runs_of([], "\x1f"))
    with pytest.raises(SlurmOutputError, match="lacks"):
        list(runs_of([row()], "\x1f"))


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return make(tmp_path, monkeypatch)


def answering(fakes: Fakes, *rows: str) -> None:
    """Let sacct answer with the delimiter that it was given."""
    body = "\n".join(rows).replace("\x1f", "@")
    (fakes.folder / "sacct").write_text(
        f"#!/bin/sh\nPATH=/bin:/usr/bin\necho \"$@\" > {fakes.folder}/args\n"
        'for a; do case $a in --delimiter=*) d=${a#--delimiter=};; esac; done\n'
        f'sed "s/@/$d/g" <<"EOF"\n{body}\nEOF\n'
    )  # fmt: skip


def test_the_call(fakes: Fakes) -> None:
    answering(fakes, HEADER, row(), row(JobIDRaw="6", Submit="1796200000", Start="Unknown", End="Unknown"))
    accounting = SacctAccounting(Runner(), clock=lambda: 1796150000.5)
    assert [run.key.job_id for run in accounting.runs(0, 1796150000)] == [5]
    assert [run.key.job_id for run in accounting.runs(1796101971, 1796200001)] == [6], "5 ended before the window"
    args = (fakes.folder / "args").read_text()
    assert "-a -X -D -P --noconvert" in args
    assert "-S uts1796101971 -E uts1796286401 -o Cluster,JobIDRaw," in args


def test_epochs_that_sacct_refuses_are_raised(fakes: Fakes) -> None:
    answering(fakes, HEADER)
    assert list(SacctAccounting(Runner(), clock=lambda: 0).runs(0, 100)) == []
    assert "-S uts1000000000 -E uts1000086400" in (fakes.folder / "args").read_text()


def test_the_delimiter_is_new_each_time(fakes: Fakes) -> None:
    answering(fakes, HEADER)
    seen = set()
    for _ in range(3):
        list(SacctAccounting(Runner()).runs(0, 100))
        seen.add((fakes.folder / "args").read_text())
    assert len(seen) == 3


def test_rows_before_a_failure_do_not_count(fakes: Fakes) -> None:
    answering(fakes, HEADER, row())
    script = fakes.folder / "sacct"
    script.write_text(script.read_text() + 'echo "sacct: error: Problem talking to the database" >&2\n')
    runs = SacctAccounting(Runner()).runs(0, 1796150000)
    with pytest.raises(SlurmdbdError):
        list(runs)
