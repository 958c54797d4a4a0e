"""What the product reads of each release's recorded answers, against what was done in the cluster (scenario.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

import pytest

from pyslurm_budget.domain.model import Job, JobState, RunRecord
from tests.golden.recording import Replay, same_marks
from tests.golden.scenario import NO_JOB, ODD, OWNERS, REASON, Looks, look, silent

FOLDER = Path(__file__).with_name("releases")
# Those of scripts/devcluster.
RELEASES = ("22.05", "24.11", "26.05")
releases = pytest.mark.parametrize("release", RELEASES)
R, P, S, O = JobState.RUNNING, JobState.PENDING, JobState.SUSPENDED, JobState.OTHER  # noqa: E741


@dataclass(frozen=True)
class Expected:
    """What must be read of a job; ``held`` are GPUs by node."""

    account: str
    qos: str
    state: JobState
    asked: int = 0
    held: tuple[tuple[str, int], ...] = ()
    restarts: int = 0
    comment: str = ""
    limit: int | None = 1800
    runs: tuple[str, ...] = ()


N1, N2, N3, N4 = "n1", "n2", "n3", "n4"
JOBS = {
    "done": Expected("nlp", "backed", O, 2, comment="min-runtime=2h", runs=("COMPLETED",)),
    "failed": Expected("vision", "spare", O, 1, runs=("FAILED",)),
    "never": Expected("vision", "normal", O, 2, runs=("CANCELLED",)),
    "stopped": Expected("nlp", "spare", O, 1, runs=("CANCELLED",)),
    "victim": Expected("bio", "spare", P, 4, restarts=1, runs=("PENDING", "PREEMPTED")),
    "put-back": Expected("vision", "spare", R, 2, ((N2, 2),), restarts=1, runs=("REQUEUED", "RUNNING")),
    "preemptor": Expected("nlp", "backed", R, 4, ((N1, 4),), runs=("RUNNING",)),
    "suspended": Expected("vision", "backed", S, 0, ((N2, 0),), runs=("SUSPENDED",)),
    "unlimited": Expected("vision", "backed", R, 0, ((N3, 0),), limit=None, runs=("RUNNING",)),
    "other-type": Expected("bio", "spare", R, 2, ((N4, 2),), comment="min-runtime=90m", runs=("RUNNING",)),
    "held": Expected("vision", "spare", P, 3),
    "wide": Expected("nlp", "spare", P, 12, runs=("PENDING",)),
    "inside": Expected("nlp", "backed", R, 1, ((N2, 1),), runs=("RUNNING",)),
}


@dataclass(frozen=True)
class Read:
    """What was read of one release."""

    looks: Looks
    ids: dict[str, str]
    began: int

    def job(self, name: str, rest: str = "") -> Job:
        """One record by the scenario's name of the job, and what its reference has after the id."""
        (found,) = [job for job in self.looks.snapshot.jobs if job.ref == self.ids[name] + rest]
        return found

    def runs(self, name: str) -> list[RunRecord]:
        """The rows of a job."""
        of_it = [run for run in self.looks.runs if run.job_ref.split("_")[0].split("+")[0] == self.ids[name]]
        return sorted(of_it, key=lambda run: run.key)


@lru_cache
def read(release: str) -> Read:
    """All answers of a release, read by the product; whoever runs the tests, root had asked."""
    replay = Replay(FOLDER / release)
    facts = replay.facts
    with same_marks(), patch("os.geteuid", lambda: 0):
        return Read(look(replay, facts["jobs"], facts["began"], facts["until"]), facts["jobs"], facts["began"])


def test_each_release_of_devcluster_is_recorded() -> None:
    assert sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()) == sorted(RELEASES)


@releases
@pytest.mark.parametrize("name", JOBS)
def test_jobs(release: str, name: str) -> None:
    found, wanted = read(release).job(name), JOBS[name]
    assert (found.name, found.user, found.account, found.qos, found.state, found.restarts, found.comment) == (
        name, OWNERS[wanted.account], wanted.account, wanted.qos, wanted.state, wanted.restarts, wanted.comment,
    )  # fmt: skip
    assert found.time_limit == wanted.limit
    assert found.request.gpus == wanted.asked
    assert tuple((share.node, share.gpus) for share in found.allocation) == wanted.held
    assert (found.held_tres.gpus or 0) == sum(gpus for _, gpus in wanted.held)
    assert found.requeueable is (name != "unlimited")
    assert found.reservation == ("bought" if name == "inside" else None)
    assert (found.batch, found.het, found.resized, found.completing) == (True, False, False, False)


@releases
@pytest.mark.parametrize("name", [name for name, wanted in JOBS.items() if wanted.runs])
def test_runs(release: str, name: str) -> None:
    found, wanted = read(release).runs(name), JOBS[name]
    assert sorted(run.state for run in found) == sorted(wanted.runs)
    for run in found:
        started = run.state != "PENDING" and name != "never"
        over = run.state not in ("RUNNING", "PENDING", "SUSPENDED")
        assert (run.account, run.user, run.qos) == (wanted.account, OWNERS[wanted.account], wanted.qos)
        assert run.comment == (wanted.comment if over else ""), "accounting has it when the run is over"
        assert (run.start is not None, run.end is not None) == (started, over)
        assert (run.tres.gpus or 0) == (wanted.asked if started else 0)
        assert run.requested_gpus == wanted.asked
        assert run.time_limit == wanted.limit
    assert found[-1].key == read(release).job(name).key, "the live record and the last row are one run"


@releases
def test_who_cancelled_and_what_was_suspended(release: str) -> None:
    found = read(release)
    (stopped,), (never,), (suspended,) = (found.runs(name) for name in ("stopped", "never", "suspended"))
    assert stopped.by_uid == 0
    assert never.by_uid not in (None, 0)
    assert 0 < suspended.suspended < 120
    assert found.job("suspended").start == suspended.start


@releases
def test_free_text_with_everything_that_separates(release: str) -> None:
    """A name and a comment with a bar, a line break, bytes that are no UTF-8, and letters of other alphabets."""
    job = read(release).job("odd")
    (run,) = read(release).runs("odd")
    text = ODD.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    assert job.name == job.comment == text
    assert (job.account, job.state, run.account, run.state) == ("nlp", O, "nlp", "COMPLETED")
    assert run.comment.startswith("pipe|and\nnewline "), "accounting keeps what its character set has"


@releases
def test_a_resized_job(release: str) -> None:
    job, rows = read(release).job("resized"), read(release).runs("resized")
    assert (job.state, job.resized, job.held_tres.gpus) == (R, True, 1)
    assert (rows[-1].key, rows[-1].end, rows[-1].tres.gpus, rows[-1].nodes) == (job.key, None, 1, ("n2",))
    assert [row.state for row in rows] == ["RESIZING", "RUNNING"]
    assert [row.begun for row in rows] == [job.start, *(row.end for row in rows[:-1])]


@releases
def test_arrays(release: str) -> None:
    found = read(release)
    tasks = found.job("tasks", "_[1-3,7]")
    assert (tasks.state, tasks.tasks, tasks.throttle, tasks.reason) == (P, (1, 2, 3, 7), None, "BeginTime")
    running = [found.job("array", f"_{task}") for task in (0, 4)]
    assert {(task.state, task.throttle) for task in running} == {(R, 2)}
    (rest,) = [j for j in found.looks.snapshot.jobs if j.array_job_id == running[0].array_job_id and j.tasks]
    assert (rest.state, rest.tasks, rest.throttle) == (P, tuple(range(8, 41, 4)), 2)
    rows = {run.job_ref: run.state for run in found.runs("array") if run.state == "RUNNING"}
    assert rows == {task.ref: "RUNNING" for task in running}


@releases
def test_a_job_of_two_parts(release: str) -> None:
    found = read(release)
    parts = [found.job("pair", part) for part in ("+0", "+1")]
    assert [(part.het, part.state, part.held_tres.gpus) for part in parts] == [(True, R, 1), (True, R, 0)]
    assert [part.request.cpus for part in parts] == [1, 2]


@releases
def test_why_jobs_wait(release: str) -> None:
    found = read(release)
    assert (found.job("held").priority, found.job("held").reason) == (0, "JobHeldUser")
    assert (found.job("after").reason, found.job("after").request.special) == ("Dependency", "a dependency")
    assert found.job("held").eligible is None
    assert found.job("victim").eligible is not None


@releases
def test_single_jobs_are_as_in_the_list(release: str) -> None:
    found = read(release)
    assert found.looks.single["no job"] is None
    for name, wanted in JOBS.items():
        job = found.looks.single[name]
        assert job is not None
        assert (job.key, job.qos, job.state) == (found.job(name).key, wanted.qos, wanted.state)


@releases
def test_nodes(release: str) -> None:
    nodes = {node.name: node for node in read(release).looks.snapshot.nodes}
    assert [(n.name, n.gpus, n.gpu_type, n.cpus, n.memory_mb) for n in nodes.values()] == [
        (name, 4, "h100" if name == N4 else "a100", 16, 64000) for name in (N1, N2, N3, N4)
    ]
    # n2: put back 2, resized 1, in the reservation 1; n3: the first half of the pair; n4: the other type
    assert [node.gpus_used for node in nodes.values()] == [4, 4, 1, 2]
    assert [node.draining for node in nodes.values()] == [False, False, False, True]
    assert all(node.up for node in nodes.values())
    assert (nodes[N4].reason, nodes[N3].reason) == (REASON, "")
    assert [node.reserved for node in nodes.values()] == [False, True, False, True]


@releases
def test_controller_partition_and_lists(release: str) -> None:
    snapshot = read(release).looks.snapshot
    controller = snapshot.controller
    year, month = map(int, release.split("."))
    assert (controller.cluster, controller.release[:2], controller.kill_wait) == ("demo", (year, month), 2)
    assert (controller.preempt_type, controller.preempt_mode) == ("preempt/qos", "REQUEUE")
    assert controller.started <= read(release).began <= controller.now
    (partition,) = snapshot.partitions
    assert (partition.name, partition.nodes, partition.default, partition.up) == ("gpu", (N1, N2, N3, N4), True, True)
    assert (partition.max_time, partition.default_time) == (None, 3600)
    setup = read(release).looks.setup
    assert set(setup.qos) == {"normal", "backed", "spare"} == set(snapshot.qos or ())
    assert (setup.qos["backed"].priority, setup.qos["backed"].preempt) == (10, {"spare"})
    lists = {(a.account, a.user): a.own for a in setup.associations}
    assert {lists[account, ""] for account in OWNERS} == {frozenset({"+backed", "+spare"})}
    assert {lists[account, user] for account, user in OWNERS.items()} == {frozenset()}


@releases
def test_reservations_now_and_by_accounting(release: str) -> None:
    looks = read(release).looks
    live = {r.name: r for r in looks.snapshot.reservations}
    assert {name: r.nodes for name, r in live.items()} == {"bought": (N2,), "work": (N4,)}
    assert live["bought"].accounts == ("nlp", "vision")
    past = {h.name: h for h in looks.holdings}
    assert {name: (h.nodes, h.accounts, h.apart) for name, h in past.items()} == {
        "bought": ((N2,), ("nlp", "vision"), False), "work": ((N4,), (), True),
    }  # fmt: skip
    assert all(h.start == live[h.name].start for h in looks.holdings)


@releases
def test_node_events(release: str) -> None:
    events = {event.node: event for event in read(release).looks.events}
    assert set(events) == {N3, N4}
    assert {event.reason for event in events.values()} == {REASON}
    assert events[N4].end is None
    end = events[N3].end
    assert end is not None
    assert 1 <= end - events[N3].start <= 10


@releases
def test_what_is_refused(release: str) -> None:
    refused = dict(read(release).looks.refused)
    assert refused.pop("no reservation") == "None", "what is gone needs no deletion"
    several = refused.pop("several")
    assert all(words.startswith("SlurmRefusedError: ") for words in refused.values()), refused
    running = read(release).ids["preemptor"]
    assert several.startswith(f"{{'{running}': ")
    assert f"'{NO_JOB}': " in several


@pytest.mark.parametrize(("phase", "error"), [("no-slurmdbd", "SlurmdbdError"), ("no-slurmctld", "SlurmctldError")])
@releases
def test_daemons_that_are_down(release: str, phase: str, error: str) -> None:
    replay = Replay(FOLDER / release)
    replay.phase = phase
    with same_marks():
        assert silent(replay, phase, replay.facts["until"]).startswith(f"{error}: ")


@releases
def test_nothing_of_the_machine_is_in_the_answers(release: str) -> None:
    for path in (FOLDER / release).iterdir():
        text = path.read_text(encoding="utf-8")
        assert "sbudget-golden" not in text, path
        assert "/work" not in text, path
