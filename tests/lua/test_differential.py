"""The plugin in every Lua decides as its reference in Python: the same job, the same table, the same words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.carry import Carry
from pyslurm_budget.domain.submit import Decision, Outcome, SubmitRequest, decide
from pyslurm_budget.domain.table import render
from tests.lua.harness import INFINITE, VERSIONS, Plugin
from tests.unit.tables import HOUR, NOW, tables

if TYPE_CHECKING:
    from pathlib import Path

GOOD = ["seed 3, min-runtime=1h", "min-runtime=15", "min-runtime=2:30:00;x", "min-runtime=0-1", "min-runtime=1h30m"]
GOOD += ["min-runtime=1h,min-runtime=60", "MIN_RUNTIME=90s"]
ODD = st.sampled_from(["min-runtime=0", "min-runtime=99h", "min-runtime=soon", "min-runtime=1h,min-runtime=61"])
ANY = st.text("min-rute=:0123456789dhs ,;", max_size=12).map(lambda s: "min-runtime" + s)
RARE: dict[str, dict[str, Any]] = {
    "exclusive": {"shared": 0},
    "interactive": {"script": None},
    "cron": {"cron_job": True},
    "het": {"het_job_offset": 0},
    "immediate": {"immediate": 1},
    "reservation": {"reservation": "other,sbudget_12"},
}


@dataclass
class Submission:
    """The same submission in both languages."""

    request: SubmitRequest
    fields: dict[str, Any] = field(default_factory=dict)


def asked(
    how: str, name: str, kind: str | None, count: int, nodes: int
) -> tuple[dict[str, Any], int | None, str | None, int, int]:
    """The fields of one of the ways to ask for GPUs or shards, and GPUs, type, CPUs and shards that it comes to."""
    fields: dict[str, Any] = {"min_nodes": nodes}
    gpus: int | None = count
    cpus, shards = nodes, 0
    match how:
        case "none":
            gpus, kind = 0, None
        case "job":
            fields["tres_per_job"] = f"{name}:{count}"
        case "node":
            fields["tres_per_node"] = fields["gres"] = f"{name}:{count},gres:shard:2"
            gpus, shards = count * nodes, 2 * nodes if count == 0 else 0
        case "shards":
            fields["tres_per_node"] = f"gres/shard:{count},gres/gpumem:9" if count % 2 else f"shard:a100:{count}"
            gpus, kind, shards = 0, None, count * nodes
        case "gres":
            fields["tres_per_node"], gpus = name, nodes
        case "task":
            fields |= {"num_tasks": 3, "tres_per_task": f"cpu=2,{name}={count}"}
            gpus, cpus = 3 * count, 3
        case "socket":
            fields |= {"tres_per_socket": f"{name}:{count}", "sockets_per_node": 2}
            gpus = 2 * nodes * count
        case "ntasks":
            fields |= {"ntasks_per_tres": 2, "num_tasks": 8}
            gpus, kind, cpus = None, None, 8
        case "sockets?":
            fields |= {"tres_per_socket": f"{name}:{count}"}
            gpus = None if count else 0
    return fields, gpus, kind, cpus, shards


@st.composite
def submissions(draw: st.DrawFn) -> Submission:
    """Requests, and a job_desc that says the same in one of Slurm's spellings. Half of them are quite ordinary."""
    odd = draw(st.booleans())

    def pick(usual: Any, *others: Any) -> Any:
        return draw(st.sampled_from([usual, *others])) if odd else usual

    kinds = (None, None, "a100", "h100", "v100", "1g.5gb")
    nodes, count, kind = draw(st.integers(1, 4)), draw(st.integers(0, 9)), pick(*kinds)
    name = draw(st.sampled_from(("gres:gpu", "gres/gpu", "gpu"))) + (f":{kind}" if kind else "")
    usual = pick("job", "none", "ntasks", "sockets?")
    how = draw(st.sampled_from(("job", "node", "gres", "task", "socket", "shards", usual)))
    fields, gpus, kind, cpus, shards = asked(how, name, kind, count, nodes)
    cpus = max(cpus, pick(0, 70, 300))
    memory = pick(None, 0, 1000, 900_000)
    minutes = pick(300, None, 1, 30, 480, 481, 6000, INFINITE)
    array = pick(None, None, None, ("0-9%3", 10), ("1,3,5-7", 5), ("0-100:10", 11), ("0-59", 60))
    requeue = pick(None, None, 0, 1)
    rare = pick(*[""] * 6, "exclusive", "interactive", "cron", "het", "immediate", "reservation")
    fields |= RARE.get(rare, {}) | {"min_cpus": cpus, "min_mem_per_node": memory}
    fields |= {} if minutes is None else {"time_limit": minutes}
    fields |= {} if requeue is None else {"requeue": requeue}
    account, user = pick("pa", "PA", "pb", "strange"), draw(st.sampled_from(["alice", "bob"]))
    qos = pick(None, None, None, "backed", "Backed", "spare", "high", "x", "x,backed", "x,spare")
    default = pick("backed", "spare", "normal", None)
    partition = pick(None, "gpu", "owners", "gpu,owners", "cpu", "new", "new,owners")
    comment = draw(draw(st.sampled_from([st.just(""), st.sampled_from(GOOD), pick(st.just(""), ODD, ANY)])))
    fields |= draw(st.sampled_from([{"account": account}, {"account": None, "default_account": account}]))
    fields |= {"user_name": user, "qos": qos, "default_qos": default, "partition": partition, "comment": comment}
    fields["array_inx"] = array[0] if array else None
    fields["name"] = pick("train", "ood", "ood-7", "a-x.%b", "a-.%b", None)
    request = SubmitRequest(
        account=account.lower(),
        user=user,
        qos=qos,
        default_qos=default,
        partition=partition,
        gpus=gpus,
        gpu_type=kind,
        shards=shards,
        nodes=nodes,
        cpus=cpus,
        memory_mb=(memory or 0) * nodes,
        exclusive=rare == "exclusive",
        all_memory=memory == 0,
        time_limit=None if minutes in (None, INFINITE) else minutes * 60,
        unlimited=minutes == INFINITE,
        array_tasks=array[1] if array else None,
        requeue=None if requeue is None else bool(requeue),
        interactive=rare == "interactive",
        cron=rare == "cron",
        het=rare == "het",
        immediate=rare == "immediate",
        comment=comment,
        reservation=fields.get("reservation"),
        name=fields["name"] or "",
    )
    return Submission(request, fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lua")


@pytest.fixture(scope="module", params=VERSIONS)
def plugin(request: pytest.FixtureRequest, folder: Path) -> Plugin:
    return Plugin(request.param, folder / f"{request.param}.table")


def check(plugin: Plugin, submission: Submission, expected: Decision) -> None:
    event(f"{expected.code} {expected.outcome}")
    job = plugin.job(**submission.fields)
    before = dict(job.items())
    code, said = plugin.submit(job)
    note("\n".join(plugin.log()))
    if expected.code != "unreadable-contract":
        assert said == expected.message
    elif expected.message:
        assert "min-runtime" in said.lower().replace("_", "-")
    assert (code != 0) == (expected.outcome is Outcome.REFUSED), said
    wanted = {"qos": expected.qos, "site_factor": expected.site_factor, "admin_comment": expected.marker}
    assert dict(job.items()) == before | {k: v for k, v in wanted.items() if v is not None}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=tables(), second=tables(), submitted=st.lists(submissions(), min_size=1, max_size=12))
def test_the_plugin_decides_as_its_reference(
    plugin: Plugin, first: Any, second: Any, submitted: list[Submission]
) -> None:
    path = plugin.table
    plugin.now = NOW
    path.write_text(render(first), encoding="utf-8")
    plugin.load()
    carry = Carry()
    for submission in submitted:
        expected = decide(first, submission.request, now=NOW, carry=carry)
        carry.add(submission.request, expected, NOW)
        check(plugin, submission, expected)
    path.write_text(render(second), encoding="utf-8")
    later = NOW + HOUR // 2
    plugin.now = later
    if render(second).split("\n")[0] != render(first).split("\n")[0]:
        carry.renew(second.snapshot, later)
        for submission in submitted:
            expected = decide(second, submission.request, now=later, carry=carry)
            carry.add(submission.request, expected, later)
            check(plugin, submission, expected)
    assert not [line for line in plugin.log() if "left as it is" in line]
