"""Whether the cluster works: its nodes take jobs, a job runs, accounting knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devcluster_lib.layout import DevclusterError
from devcluster_lib.processes import last_words, run, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devcluster_lib.layout import Layout

NODE_SECONDS = 60
TRIES = 3
# Empty: accounting does not know the job yet.
UNDER_WAY = ("", "PENDING", "RUNNING", "COMPLETING")


def idle(layout: Layout, seconds: float) -> None:
    """Wait until every node is idle."""
    count = len(layout.nodes())

    def all_idle() -> bool:
        states = _states(layout)
        return len(states) == count and set(states.values()) == {"idle"}

    wait_for("all nodes are idle", all_idle, seconds, _logs(layout))


def answer(layout: Layout, nodes: Sequence[str]) -> None:
    """Wait until slurmctld has heard of nodes, whatever their state: somebody may have drained one on purpose."""

    def heard() -> bool:
        states = _states(layout)
        return all(states.get(node, "*")[-1] != "*" and not states[node].startswith("unk") for node in nodes)

    wait_for(f"slurmctld has heard of {', '.join(nodes)}", heard, NODE_SECONDS, _logs(layout))


def _states(layout: Layout) -> dict[str, str]:
    lines = run(layout, ["sinfo", "-h", "-N", "-o", "%N %T"], 5).stdout.splitlines()
    return dict(line.split(maxsplit=1) for line in lines if " " in line)


def _logs(layout: Layout) -> list[Path]:
    return [layout.log("slurmctld"), layout.log("n1")]


def quiet(layout: Layout) -> bool:
    """Whether nobody has a job: a test job would only wait behind others."""
    done = run(layout, ["squeue", "-h", "-o", "%i"], 15)
    return done.returncode == 0 and not done.stdout.strip()


def test_job(layout: Layout) -> None:
    """A GPU job through sbatch as the first user: it must run, and accounting must show it as COMPLETED.

    Tried again when it fails: a slurmctld that was killed may give it the id of a job that it has forgotten, and that
    one's end ends it too; on a busy machine its start may take longer than its credential lasts.
    """
    user, accounts = next(iter(layout.options.users.items()))
    submit = [
        "sbatch", "--parsable", "-A", accounts[0], "-J", "devcluster-test", "--gres=gpu:1", "-t", "1",
        "-o", "/dev/null", '--wrap=test -n "$SLURM_JOB_GPUS"',
    ]  # fmt: skip
    logs = _logs(layout)
    state = job = ""

    def submitted() -> bool:
        # slurmctld hears of new users from slurmdbd, a moment after sacctmgr has ended.
        nonlocal job
        job = run(layout, submit, 15, user=user).stdout.strip().partition(";")[0]
        return bool(job)

    def over() -> bool:
        nonlocal state
        state = run(layout, ["sacct", "-n", "-P", "-X", "-j", job, "-o", "State"], 10).stdout.strip()
        return state not in UNDER_WAY

    for _ in range(TRIES):
        wait_for(f"sbatch accepts a job of {user}", submitted, 30, logs)
        wait_for(f"sacct shows the end of test job {job}", over, 60 + layout.options.epilog_seconds, logs)
        if state == "COMPLETED":
            return
    raise DevclusterError(f"test job {job} of {user} ended as {state}; {last_words(logs)}")
