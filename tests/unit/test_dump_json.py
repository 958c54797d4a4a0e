"""Saved ``sacct --json``: shapes by data parser, markers, and what is refused."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.dump import DumpAccounting
from pyslurm_budget.slurm.dump_json import SHAPES, tres_of
from pyslurm_budget.slurm.dump_summary import Summary

T = 1_796_000_000
NO_VAL64 = 18446744073709551614


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def tres(**counts: int | None) -> list[dict[str, Any]]:
    found = []
    for at, (name, count) in enumerate(counts.items()):
        kind, _, rest = name.partition("_")
        found.append({"type": kind, "name": rest.replace("_", ":", 1), "id": at, "count": count})
    return found


def job(parser: int = 45, **changes: Any) -> dict[str, Any]:
    shape = SHAPES[parser]
    found: dict[str, Any] = {
        "job_id": 5, "account": "lab", "user": "alice", "cluster": "alpha", "qos": "normal", "partition": "gpu",
        "nodes": "n[1-2]", "comment": {"job": "", "administrator": "", "system": ""},
        "association": {"user": "alice"},
        "state": {"current": ["COMPLETED"] if shape.state_is_list else "COMPLETED", "reason": "None"},
        "array": {"job_id": 0, "task_id": number(None) if shape.number_is_object else None, "task": ""},
        "het": {"job_id": 0, "job_offset": number(None) if shape.number_is_object else None},
        "time": {
            "submission": T - 5, "eligible": T - 4, "start": T, "end": T + 60, "elapsed": 60, "suspended": 0,
            "limit": number(60) if shape.number_is_object else 60,
        },
        "tres": {"allocated": tres(cpu=4, gres_gpu=2, gres_gpu_a100=2), "requested": tres(cpu=4, gres_gpu=2)},
        "steps": [],
    }  # fmt: skip
    for path, value in changes.items():
        target = found
        *parents, last = path.split("__")
        for parent in parents:
            target = target[parent]
        target[last] = value
    return found


def document(*jobs: Any, parser: int = 45, **more: Any) -> str:
    plugin = {"type": f"openapi/dbv0.0.{parser}"} if parser < 39 else {"data_parser": f"data_parser/v0.0.{parser}"}
    return json.dumps({"jobs": list(jobs), "meta": {"plugin": plugin}, "errors": [], **more})


def read(text: str, **options: Any) -> tuple[list[RunRecord], Summary]:
    dump = DumpAccounting(text, **options)
    return list(dump.runs(0, 1 << 40)), dump.summary


def one(**changes: Any) -> RunRecord:
    (run,), summary = read(document(job(**changes)))
    assert summary.lost == 0
    return run


@pytest.mark.parametrize("parser", sorted(SHAPES))
def test_bug_29_every_known_shape_gives_the_same_run(parser: int) -> None:
    (run,), summary = read(document(job(parser), parser=parser))
    assert run == one()
    assert (run.state, run.time_limit, run.nodes, run.tres.gpus) == ("COMPLETED", 3600, ("n1", "n2"), 2)
    assert summary.lost == 0


@pytest.mark.parametrize("name", ["data_parser/v0.0.36", "data_parser/v0.0.46", "data_parser/v0.0.45+fast", "x", ""])
def test_bug_29_an_unknown_parser_fails_loudly(name: str) -> None:
    text = json.dumps({"jobs": [job()], "meta": {"plugin": {"data_parser": name}}})
    with pytest.raises(SlurmOutputError, match="does not know"):
        read(text)


@pytest.mark.parametrize("parser", sorted(SHAPES))
def test_bug_29_a_row_in_the_shape_of_another_parser_is_rejected(parser: int) -> None:
    other = next(p for p in SHAPES if SHAPES[p].state_is_list != SHAPES[parser].state_is_list)
    runs, summary = read(document(job(other), job(parser), parser=parser))
    assert (len(runs), summary.lost) == (1, 1)


@pytest.mark.parametrize("entries", [tres(gres_gpu_a100=4), tres(gres_gpu=4, gres_gpu_a100=4)])
def test_bug_3_the_count_of_a_typed_entry_is_kept(entries: list[dict[str, Any]]) -> None:
    run = one(tres__allocated=entries)
    assert (run.tres.gpus, dict(run.tres.gpus_by_type)) == (4, {"a100": 4})


@pytest.mark.parametrize("marker", [-2, -1, None, NO_VAL64, NO_VAL64 + 1, 0xFFFFFFFE, -9223372036854775806])
def test_bug_31_markers_are_not_set(marker: int | None) -> None:
    run = one(tres__allocated=tres(cpu=4, mem=marker, energy=marker, gres_gpu=2), time__suspended=marker)
    assert (run.tres.memory_mb, run.tres.gpus, run.suspended) == (0, 2, 0)
    assert tres_of(tres(gres_gpu=marker)).gpus is None
    assert tres_of(tres(gres_gpu=marker, gres_gpu_a100=3)).gpus == 3
    assert one(time__limit={"set": True, "infinite": False, "number": marker}).time_limit is None


def test_limits_that_are_none() -> None:
    assert one(time__limit={"set": True, "infinite": True, "number": 0}).time_limit is None
    assert one(time__limit=number(None)).time_limit is None


def test_bug_4_gpus_that_only_the_command_line_knows_are_unknown() -> None:
    run = one(tres={"allocated": tres(cpu=1), "requested": tres(cpu=1)}, submit_line="sbatch --gpus 4 x.sh")
    assert run.tres.gpus is None
    assert one(tres={"allocated": tres(cpu=1), "requested": tres(cpu=1)}, submit_line="sbatch x.sh").tres.gpus == 0


@pytest.mark.parametrize("words", [["PENDING", "REQUEUED"], ["REQUEUED"]])
def test_a_flag_is_the_state(words: list[str]) -> None:
    assert one(state__current=words).state == "REQUEUED"


@pytest.mark.parametrize(
    ("changes", "ref"),
    [
        ({"array__job_id": 100, "array__task_id": number(0)}, "100_0"),
        ({"array__job_id": 100, "array__task": "0x1F"}, "100_[0-4]"),
        ({"array__job_id": 100, "array__task": "0x25%2"}, "100_[0,2,5]%2"),
        ({"array__job_id": 100, "array__task": "1-5"}, "100_[1-5]"),
        ({"het__job_id": 21, "het__job_offset": number(1)}, "21+1"),
        ({}, "5"),
    ],
)
def test_readable_ids(changes: dict[str, Any], ref: str) -> None:
    assert one(**changes).job_ref == ref.replace("]%2", "%2]")


def test_bug_24_never_started_and_bug_42_nobody() -> None:
    waiting = one(time__start=0, time__end=T + 9, nodes="None assigned", state__current=["CANCELLED"])
    assert (waiting.start, waiting.tres.gpus, waiting.nodes) == (None, 0, ())
    old = one(time__start=T, time__end=T, time__elapsed=0, nodes="None assigned", state__current=["CANCELLED"])
    assert old.start is None
    nobody = one(account=None, user="", association={"user": ""})
    assert (nobody.account, nobody.user) == ("(none)", "(none)")
    assert one(user="", association={"user": "bob"}).user == "bob"
    assert one(account="LAB").account == "lab"


def test_running_rows_and_rows_that_forgot_their_end() -> None:
    running = job(time__end=0, time__elapsed=40, state__current=["RUNNING"])
    (run,), summary = read(document(running), as_of=T + 50)
    assert (run.end, summary.running) == (T + 50, 1)
    (run,), _ = read(document(running))
    assert run.end == T + 40
    assert one(time__end=0, time__elapsed=20, state__current=["NODE_FAIL"]).end == T + 20
    del running["time"]["elapsed"]
    running["state"]["current"] = ["FAILED"]
    runs, summary = read(document(running))
    assert (runs, dict(summary.rejected)) == ([], {"over, but without an End": 1})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"jobs": [', "is not"),
        ("{}", "meta.plugin"),
        ('{"meta": 5}', "meta.plugin"),
        (document(errors=[{"error": "slurmdbd is away"}]), "slurmdbd is away"),
        (json.dumps({"meta": {"plugin": {"data_parser": "data_parser/v0.0.45"}}}), "no list `jobs`"),
    ],
)
def test_documents_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(SlurmOutputError, match=says):
        read(text)


def test_rows_that_cannot_be_read_are_counted_with_their_place() -> None:
    broken = job()
    del broken["time"]
    runs, summary = read(document(job(), broken, 5, job(cluster="beta"), job(time__end=T - 9)), cluster="alpha")
    assert len(runs) == 1
    assert summary.lost == 4
    assert [(example.line, example.kind) for example in summary.examples] == [
        (2, "a field is missing or of another type"),
        (3, "a field is missing or of another type"),
        (4, "of another cluster"),
        (5, "End before Start"),
    ]


PATHS = [
    "job_id",
    "time",
    "time__start",
    "time__limit",
    "state",
    "state__current",
    "tres",
    "tres__allocated",
    "nodes",
]
WRONG: st.SearchStrategy[Any] = st.sampled_from([None, -1, "x", 1.5, [], {}, True, "n[1-", [{}], {"set": True}])


@given(st.sampled_from(PATHS), WRONG)
def test_whatever_stands_in_a_field_the_other_rows_are_read(path: str, value: Any) -> None:
    runs, summary = read(document(job(**{path: deepcopy(value)}), job(job_id=6)))
    assert 6 in [run.key.job_id for run in runs]
    assert len(runs) + summary.lost == 2
