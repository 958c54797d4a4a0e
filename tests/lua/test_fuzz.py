"""Nothing that users or a broken disk can send makes the plugin raise, or backs a job without a whole table."""

from __future__ import annotations

import math
from contextlib import nullcontext
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pyslurm_budget.domain.table import parse, render
from tests.lua.harness import INFINITE, NO_VAL, NO_VAL16, VERSIONS, Plugin
from tests.unit.tables import NOW, TABLE, changed, ended, measured, tables

if TYPE_CHECKING:
    from pathlib import Path

TEXT = render(TABLE)
FIELDS = (
    *("account", "default_account", "qos", "default_qos", "partition", "comment", "reservation", "user_name"),
    *("tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket", "gres", "cpus_per_tres", "mem_per_tres"),
    *("array_inx", "min_nodes", "num_tasks", "min_cpus", "time_limit", "het_job_offset", "cpus_per_task", "shared"),
    *("ntasks_per_node", "ntasks_per_tres", "ntasks_per_gpu", "sockets_per_node", "pn_min_cpus", "requeue"),
    *("min_mem_per_node", "min_mem_per_cpu", "immediate", "cron_job", "features", "max_nodes", "priority", "script"),
)
VALUES = (
    st.text(max_size=12)
    | st.text("gresgpu:/=,0123456789akM%()-", max_size=20)
    | st.sampled_from(["pa", "backed", "spare", "gpu", "mixed", "alice", "min-runtime=4h", "gres/gpu:4", "0-9%3", ""])
    | st.integers(-5, 2**40)
    | st.sampled_from([0, 1, NO_VAL, INFINITE, NO_VAL16, 65535, 2**53, 2**62, 1.8446744073709552e19, 0.5, -1.0])
    | st.sampled_from([math.inf, -math.inf, math.nan])
    | st.booleans()
    | st.none()
)
QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=VERSIONS)
def plugin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    return Plugin(request.param, tmp_path_factory.mktemp("lua") / "table", now=NOW)


def write(plugin: Plugin, text: bytes) -> None:
    plugin.table.write_bytes(text)


def submit_plain(plugin: Plugin) -> tuple[Any, str]:
    job = plugin.job(default_qos="backed", tres_per_job="gres/gpu:1", time_limit=60)
    code, said = plugin.submit(job)
    assert code == 0
    return job, said


@QUIET
@given(fields=st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_fields_of_a_submission(plugin: Plugin, fields: dict[str, Any]) -> None:
    write(plugin, TEXT.encode())
    plugin.load()
    job = plugin.job(**{"default_qos": "backed", **fields})
    code, _ = plugin.submit(job)
    assert code in (0, 2002, 2051)
    assert not [line for line in plugin.log() if "left as it is" in line]


@QUIET
@given(
    fields=st.dictionaries(st.sampled_from(FIELDS), VALUES),
    record=st.dictionaries(st.sampled_from((*FIELDS, "job_state")), VALUES),
    uid=st.sampled_from([0, 64, 1000]),
)
def test_any_fields_of_a_change(plugin: Plugin, fields: dict[str, Any], record: dict[str, Any], uid: int) -> None:
    write(plugin, TEXT.encode())
    plugin.load()
    job = plugin.change(**fields)
    before = dict(job.items())
    code, _ = plugin.modify(job, plugin.record(**record), uid)
    assert code in (0, 2002)
    if uid in (0, 64):
        assert code == 0
        assert repr(dict(job.items())) == repr(before)
    assert not [line for line in plugin.log() if "left as it is" in line]


def test_a_table_cut_at_any_byte_is_not_used(plugin: Plugin) -> None:
    data = TEXT.encode()
    plugin.load()
    for length in range(len(data)):
        plugin.now = NOW + length
        write(plugin, data[:length])
        job, said = submit_plain(plugin)
        assert (job.qos, said) == (None, ""), length
    write(plugin, data)
    plugin.now = NOW
    assert submit_plain(plugin)[0].qos == "backed"
    plugin.log()


ODD = ["", "-", "-1", "-0", "007", "1e3", "0x10", "9007199254740992", "x", "1", "a b", "backed", "adopt"]


def damaged(lines: list[str], data: st.DataObject) -> list[str]:
    """The lines with one fault, if it is one."""
    at = data.draw(st.integers(0, len(lines) - 1))
    fields = lines[at].split("\t")
    place = data.draw(st.integers(0, len(fields) - 1))
    here: dict[str, list[str]] = {
        "value": ["\t".join([*fields[:place], data.draw(st.sampled_from(ODD)), *fields[place + 1 :]])],
        "less": ["\t".join(fields[:place] + fields[place + 1 :])],
        "more": ["\t".join([*fields[:place], "5", *fields[place:]])],
        "twice": [lines[at], lines[at]],
        "gone": [],
        "moved": [],
    }
    how = data.draw(st.sampled_from(sorted(here)))
    rest = lines[:at] + here[how] + lines[at + 1 :]
    if how == "moved":
        rest.insert(data.draw(st.integers(0, len(rest))), lines[at])
    return rest


@QUIET
@given(table=tables(), faults=st.integers(0, 2), data=st.data())
def test_it_uses_exactly_what_the_controller_would_read(
    plugin: Plugin, table: Any, faults: int, data: st.DataObject
) -> None:
    lines = render(table).split("\n")[:-2]
    for _ in range(faults):
        lines = damaged(lines, data)
    text = "\n".join([*lines, ""])
    text = measured(text + "end\n") if data.draw(st.booleans()) else ended(text)
    try:
        good = parse(text).cluster == "alpha"
    except ValueError:
        good = False
    event(f"good {good}")
    write(plugin, text.encode())
    plugin.load()
    submit_plain(plugin)
    log = plugin.log()
    assert not [line for line in log if "left as it is" in line]
    fault = plugin.globals.sbudget_table_fault()
    assert (fault is None) == good, (fault, text)
    if good:
        assert any("in use" in line or "is stale" in line for line in log), (log, text)


PARTS = changed(fractions=MappingProxyType({"1g.5gb": Fraction(1, 7)}))
SLICE = "fraction\t1g.5gb\t1\t7"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SLICE, SLICE),
        (SLICE, "array\t50"),
        (SLICE, f"{SLICE}\n{SLICE}"),
        *((SLICE, f"fraction\t1g.5gb\t{part}") for part in ("9\t7", "0\t7", "1\t1001", "-1\t7", "1\t0", "1", "7\t7")),
    ],
)
def test_fractions_are_read_as_the_controller_would(plugin: Plugin, old: str, new: str) -> None:
    lines = render(PARTS).replace(old, new, 1).split("\n")[:-2]
    text = ended("\n".join([*lines, ""]))
    good = new in (SLICE, "fraction\t1g.5gb\t7\t7")
    with nullcontext() if good else pytest.raises(ValueError, match="decision table"):
        parse(text)
    write(plugin, text.encode())
    plugin.load()
    assert submit_plain(plugin)[0].qos == ("backed" if good else None)
    plugin.log()


@QUIET
@given(data=st.binary(max_size=200))
def test_garbage_is_not_used(plugin: Plugin, data: bytes) -> None:
    write(plugin, data)
    plugin.load()
    job, said = submit_plain(plugin)
    assert (job.qos, said) == (None, "")
    plugin.log()


def test_a_folder_in_the_place_of_the_table(plugin: Plugin, tmp_path: Path) -> None:
    plugin.globals.SBUDGET_TABLE_PATH, before = str(tmp_path), plugin.globals.SBUDGET_TABLE_PATH
    plugin.load()
    plugin.globals.SBUDGET_TABLE_PATH = before
    job, said = submit_plain(plugin)
    assert (job.qos, said) == (None, "")
    plugin.log()


def test_an_error_inside_leaves_the_job_alone_and_is_logged_once(plugin: Plugin) -> None:
    write(plugin, TEXT.encode())
    plugin.load()
    kept = plugin.globals.slurm.log_user
    plugin.lua.execute("slurm.log_user = function() error('lost') end")
    for _ in range(2):
        job = plugin.job(default_qos="backed", tres_per_job="gres/gpu:1", time_limit=60)
        assert plugin.submit(job)[0] == 0
        assert job.qos is None
    plugin.globals.slurm.log_user = kept
    assert len([line for line in plugin.log() if "left as it is" in line]) == 1
