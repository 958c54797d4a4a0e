"""Real saved accounting, with the right answers of the data's own README (sections 3 and 4)."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import UTC, datetime

import pytest

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.dump import DumpAccounting
from pyslurm_budget.slurm.dump_lines import Row, rows_of
from pyslurm_budget.slurm.dump_row import is_step
from pyslurm_budget.slurm.dump_summary import Summary
from pyslurm_budget.slurm.sacct import runs_of
from tests.golden.recorded import RELEASES, recorded
from tests.shared_data import shared

EVER = 1 << 40
PHILLIPS = (
    "jobid|jobidraw|cluster|partition|qos|account|group|gid|user|uid|submit|eligible|start|end|elapsed|exitcode|state"
    "|nnodes|ncpus|reqcpus|reqmem|reqtres|alloctres|timelimit|nodelist|jobname\n"
)


def text(path: str) -> str:
    return shared(f"data/{path}").read_bytes().decode("utf-8", errors="replace")


def read(path: str) -> tuple[list[RunRecord], Summary]:
    with shared(f"data/{path}").open("rb") as stream:
        dump = DumpAccounting(stream, timezone="UTC")
        return list(dump.runs(0, EVER)), dump.summary


def rows(path: str) -> tuple[list[Row], Summary]:
    summary = Summary()
    return list(rows_of(text(f"sacct/{path}").splitlines(keepends=True), summary)), summary


def hours(runs: list[RunRecord]) -> float:
    """GPU-hours, one run a key."""
    unique = {run.key: run for run in runs}.values()
    return sum((r.end or 0) - (r.start or 0) for r in unique for _ in range(r.tres.gpus or 0)) / 3600


@pytest.mark.parametrize(("name", "count"), [("one-multiline", 4), ("multiple-multiline", 6), ("fake-line-break", 4)])
def test_records_broken_over_lines(name: str, count: int) -> None:
    found, summary = rows(f"gcm/sample-sacct-{name}.txt")
    expected, _ = rows(f"gcm/sample-sacct-{name}-expected.txt")
    assert len(found) == count
    assert [{k: v.replace("\n", "\\n") for k, v in row.cells.items()} for row in found] == [r.cells for r in expected]
    assert summary.lost == 0
    runs, _ = read(f"sacct/gcm/sample-sacct-{name}.txt")
    assert {(r.key.job_id, r.state, r.tres.gpus) for r in runs} >= {(201844, "REQUEUED", 256)}
    assert hours(runs) == pytest.approx(22583.7511 + 6211.9822, abs=1e-3)


def test_bytes_that_are_no_utf8() -> None:
    found, summary = rows("gcm/sample-sacct-output-invalid-utf8.txt")
    assert (len(found), summary.lost) == (11, 0)
    damaged = [row.cells["jobid"] for row in found if "\ufffd" in "".join(row.cells.values())]
    assert damaged == ["3557893.1"]
    assert len(read("sacct/gcm/sample-sacct-output-invalid-utf8.txt")[0]) == 2


def test_a_broken_line_is_reported() -> None:
    runs, summary = read("sacct/gcm/sample-sacct-output-with-invalid-lines.txt")
    assert runs == []
    assert dict(summary.rejected) == {"not the shape of a record": 1}
    assert summary.examples[0].line == 2


def test_rows_of_four_columns() -> None:
    found, summary = rows("gcm/sample-sacct-output-midnight-edge-case.txt")
    jobs = [row for row in found if not is_step(row.cells)]
    assert (len(found), len(jobs), summary.lost) == (1186, 306, 0)
    assert Counter(row.cells["state"].split()[0] for row in found) == {
        "FAILED": 778, "COMPLETED": 349, "CANCELLED": 48, "OUT_OF_MEMORY": 8, "REQUEUED": 2, "TIMEOUT": 1,
    }  # fmt: skip
    assert {row.cells["end"][:10] for row in jobs} == {"2021-04-07"}
    with pytest.raises(SlurmOutputError, match="lacks the columns Account, Submit, AllocTRES"):
        read("sacct/gcm/sample-sacct-output-midnight-edge-case.txt")
    small, _ = rows("gcm/sample-sacct-output-midnight-edge-case-small.txt")
    assert (len(small), sum(row.cells["end"].startswith("2021-04-07") for row in small)) == (11, 9)


@pytest.mark.parametrize(("name", "steps"), [("sample-sacct-output", 68), ("sample-sacct-running-output", 10)])
def test_steps_alone_are_nothing_to_charge(name: str, steps: int) -> None:
    runs, summary = read(f"sacct/gcm/{name}.txt")
    assert (runs, summary.steps, summary.lost) == ([], steps, 0)


@pytest.mark.parametrize(
    ("name", "states", "steps"),
    [
        ("simple-completed", ["COMPLETED"], 2),
        ("cancelled-by-user", ["CANCELLED by 54321"], 2),
        ("terminal-states", ["TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "FAILED"], 0),
        ("multistep-running", ["RUNNING"], 22),
        ("no-matching-jobs", [], 0),
    ],
)
def test_small_answers(name: str, states: list[str], steps: int) -> None:
    found, summary = rows(f"vcell_23.11.10/sacct-{name}.txt")
    assert [row.cells["state"] for row in found if not is_step(row.cells)] == states
    assert sum(is_step(row.cells) for row in found) == steps
    assert summary.lost == 0


def test_an_empty_file_is_a_failure_and_a_header_alone_is_not() -> None:
    with pytest.raises(SlurmOutputError, match="empty"):
        read("sacct/vcell_23.11.10/sacct-empty-output.txt")
    assert read("sacct/vcell_23.11.10/sacct-no-matching-jobs.txt")[0] == []


@pytest.mark.parametrize("name", ["squeue-running", "squeue-empty"])
def test_columns_set_by_blanks_are_refused(name: str) -> None:
    with pytest.raises(SlurmOutputError, match="set by blanks"):
        read(f"sacct/vcell_23.11.10/{name}.txt")


def test_a_separator_in_a_name_shifts_nothing() -> None:
    found, summary = rows("ood_core/null_submit_time.txt")
    assert [row.cells["state"] for row in found][-3:] == ["RUNNING", "RUNNING", "TIMEOUT"]
    assert {row.cells["user"] for row in found} <= {"user01", "user0002", "user0003", "user000004"}
    assert len(found) + summary.lost == 4
    named, _ = rows("ood_core/non_utf8_job_name.txt")
    assert [row.cells["state"] for row in named] == ["COMPLETED"]


def test_a_year_of_a_real_cluster_agrees_with_another_tool_day_by_day() -> None:
    dump = DumpAccounting(PHILLIPS + text("sacct/xdmod/phillips.log"), timezone="UTC")
    runs = list(dump.runs(0, EVER))
    assert (len(runs), dump.summary.lost, dump.summary.elapsed_differs) == (4285, 0, 0)
    states = Counter(run.state for run in runs)
    assert states == {"COMPLETED": 2324, "FAILED": 1717, "CANCELLED": 243, "TIMEOUT": 1}
    assert sum(run.start is None for run in runs) == 239
    assert sum(run.start is not None and run.start == run.end for run in runs) == 22
    for name in ("gpu", "cpu"):
        with shared(f"data/sacct/xdmod/phillips-{name}_hours-by-day.csv").open() as file:
            for line in csv.DictReader(file):
                day = int(datetime.fromisoformat(line["day"]).replace(tzinfo=UTC).timestamp())
                inside = sum(
                    max(0, min(r.end or 0, day + 86400) - max(r.start, day))
                    * ((r.tres.gpus or 0) if name == "gpu" else r.tres.cpus)
                    for r in runs
                    if r.start is not None
                )
                assert inside / 3600 == pytest.approx(float(line[f"{name}_hours"]), abs=1e-4), line


@pytest.mark.parametrize(
    ("name", "job", "state", "seconds", "gpus"),
    [
        ("slurmdb-22.05.5", 42, "COMPLETED", 32, 0),
        ("sacct-23.11.10", 2710593, "RUNNING", 46770, 0),
        ("slurmdb-24.05.3", 3, "COMPLETED", 31, None),
        ("slurmdb-24.11.5", 6354, "COMPLETED", 30, None),
        ("slurmdb-25.05.4", 4756, "COMPLETED", 30, None),
        ("slurmdb-25.11.0", 4637, "COMPLETED", 30, None),
    ],
)
def test_json_of_every_shape(name: str, job: int, state: str, seconds: int, gpus: int | None) -> None:
    (run,), summary = read(f"json/{name}.json")
    assert (run.key.job_id, run.state, (run.end or 0) - (run.start or 0)) == (job, state, seconds)
    assert run.tres.gpus == gpus
    assert summary.unknown_gpus == (gpus is None)
    assert summary.lost == 0


def test_json_of_2108() -> None:
    (failed, requeued), _ = read("json/sacct-21.08.8.json")
    assert (failed.job_ref, failed.state, failed.tres.gpus, failed.time_limit) == ("1_7", "NODE_FAIL", 1, 86400)
    assert (failed.end or 0) - (failed.start or 0) == 20615
    assert (requeued.key.job_id, requeued.state, requeued.tres.gpus) == (20, "REQUEUED", 1)


def test_json_without_jobs() -> None:
    assert read("json/sacct-23.11.10-no-jobs.json")[0] == []


@pytest.mark.parametrize("release", ["24.11.5", "25.11.0"])
def test_json_of_nodes_is_no_accounting(release: str) -> None:
    with pytest.raises(SlurmOutputError, match="no list `jobs`"):
        read(f"json/nodes-{release}.json")


def _with(run: RunRecord, *left_out: str) -> dict[str, object]:
    return {name: getattr(run, name) for name in RunRecord.__slots__ if name not in left_out}


@pytest.mark.parametrize("release", RELEASES)
def test_the_dump_reader_agrees_with_the_reader_of_the_live_cluster(release: str) -> None:
    answer = recorded(release, "sacct")
    live = list(runs_of(answer.split("\n")[:-1], "\x1f"))
    dump = DumpAccounting(answer)
    saved = list(dump.runs(0, EVER))
    assert dump.summary.lost == 0
    assert [_with(run, "end", "comment") for run in saved] == [_with(run, "end", "comment") for run in live]
    for ours, theirs in zip(saved, live, strict=True):
        assert theirs.end in (None, ours.end)
        assert (ours.end is None) == (ours.start is None)
    assert dump.summary.running == sum(run.start is not None and run.end is None for run in live) == 7


@pytest.mark.parametrize("release", RELEASES)
def test_json_and_text_of_one_cluster_agree(release: str) -> None:
    text_runs = {run.key: run for run in DumpAccounting(recorded(release, "sacct")).runs(0, EVER)}
    json_runs = {run.key: run for run in DumpAccounting(recorded(release, "sacct_json")).runs(0, EVER)}
    assert len(json_runs) == 35
    assert set(text_runs) == set(json_runs)
    for key, run in text_runs.items():
        # The two commands ran within two seconds: what still ran, or was suspended, did so for longer in the second.
        # JSON names who cancelled and has no number for him.
        other = json_runs[key]
        left_out = ["end", "suspended", "by_uid", "comment", "tres"]
        assert _with(run, *left_out) == _with(other, *left_out)
        assert (run.tres.gpus, run.tres.gpus_by_type, run.tres.cpus) == (
            other.tres.gpus, other.tres.gpus_by_type, other.tres.cpus,
        )  # fmt: skip
        assert 0 <= (other.end or 0) - (run.end or 0) <= 2
        assert 0 <= other.suspended - run.suspended <= 2


@pytest.mark.parametrize("release", RELEASES)
def test_newlines_and_pipes_in_recorded_names_and_comments(release: str) -> None:
    header = "JobIDRaw|State|QOS|JobName|Comment|AdminComment|WorkDir|SubmitLine\n"
    summary = Summary()
    body = recorded(release, "sacct_pipe_freetext")
    found = list(rows_of((header + body).splitlines(keepends=True), summary))
    expected = [run.key.job_id for run in runs_of(recorded(release, "sacct").split("\n")[:-1], "\x1f")]
    assert [int(row.cells["jobidraw"]) for row in found] == expected
    states = [run.state for run in runs_of(recorded(release, "sacct").split("\n")[:-1], "\x1f")]
    assert [row.cells["state"].split()[0] for row in found] == states
