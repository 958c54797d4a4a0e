"""What the plugin does to a submission, by numbers that a person can check against ``tests/unit/tables.py``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pyslurm_budget.domain.model import MILLI, Mode
from pyslurm_budget.domain.table import ContractLine, DecisionTable, LimitLine, PartitionLine, render
from pyslurm_budget.slurm.install import PluginFile
from pyslurm_budget.slurm.run import Runner
from tests.lua.harness import INFINITE, NAMES_24_11, SCRIPT, VERSIONS, Plugin
from tests.unit.tables import A100, GPU_H, HOUR, NOW, TABLE, changed, measured

if TYPE_CHECKING:
    from pathlib import Path

LAB = TABLE.limits[0]
BACKED, SPARE = ("backed", 2_000_010), ("spare", 5)


@pytest.fixture(params=VERSIONS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Plugin:
    publish(tmp_path / "table", TABLE)
    return Plugin(request.param, tmp_path / "table", now=NOW)


def publish(path: Path, table: DecisionTable) -> None:
    path.write_text(render(table), encoding="utf-8")


def republish(plugin: Plugin, table: DecisionTable) -> None:
    publish(plugin.table, table)


def outcome(plugin: Plugin, **fields: Any) -> tuple[tuple[Any, Any], str]:
    job = plugin.job(**{"default_qos": "backed", "time_limit": 600, **fields})
    code, said = plugin.submit(job)
    assert code == 0, said
    factor = None if job["site_factor"] == 4294967294 else job["site_factor"]
    return (job["qos"], factor), said


def hours(count: int, hours: int) -> dict[str, Any]:
    return {"tres_per_job": f"gres/gpu:{count}", "comment": f"min-runtime={hours}h"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # 4 h: 25 GPUs x 4 h = 100 GPU-h is what is left until then; one GPU more is too much.
        (hours(25, 4), BACKED),
        (hours(26, 4), SPARE),
        # 8 h: 18 x 8 = 144 of 150, but 19 x 8 = 152.
        (hours(18, 8), BACKED),
        (hours(19, 8), SPARE),
        # The ceiling: 64 GPUs, and 1 h each would fit (a price of 64 GPU-h).
        (hours(64, 1), BACKED),
        (hours(65, 1), SPARE),
        # The floor is 1 h: 64 GPUs for a minute cost as much, 26 h of time limit do not matter.
        ({"tres_per_job": "gres/gpu:64", "comment": "min-runtime=1"}, BACKED),
        # Time limit below the contract: 64 GPUs x 30 min = 32 GPU-h although 4 h were declared.
        ({**hours(64, 4), "time_limit": 30}, BACKED),
        # All CPUs of two nodes cost 16 GPUs: 16 x 8 h = 128 of 150. One CPU more: 16.0625 GPUs, 128.5; 300: 18.75.
        ({"min_nodes": 2, "min_cpus": 256, "comment": "min-runtime=8h"}, BACKED),
        ({"min_nodes": 2, "min_cpus": 300, "comment": "min-runtime=8h"}, BACKED),
        ({"min_nodes": 2, "min_cpus": 301, "comment": "min-runtime=8h"}, SPARE),
        # All memory of three nodes costs 24 GPUs x 8 h = 192.
        ({"min_nodes": 3, "min_mem_per_node": 0, "comment": "min-runtime=8h"}, SPARE),
        ({"min_nodes": 3, "min_mem_per_node": 0, "comment": "min-runtime=4h"}, BACKED),
        ({"min_nodes": 4, "shared": 0, "comment": "min-runtime=4h"}, SPARE),
        ({"min_nodes": 3, "shared": 0, "comment": "min-runtime=4h"}, BACKED),
        ({"min_nodes": 4, "shared": 2, "comment": "min-runtime=4h"}, BACKED),
        # Memory per CPU and per GPU, CPUs per GPU: 512,000 MiB are half a node, 4 GPUs.
        ({**hours(1, 8), "mem_per_tres": "gres/gpu:1024000"}, BACKED),
        ({**hours(3, 8), "mem_per_tres": "gres:gpu:1024000"}, SPARE),
        ({**hours(3, 8), "cpus_per_tres": "gres:gpu:128"}, SPARE),
        ({"min_cpus": 10, "min_mem_per_cpu": 256000, "comment": "min-runtime=8h"}, SPARE),
        # An array of 50 (one GPU, 1 h each) is backed as a whole, 51 are above the number ahead.
        ({**hours(1, 1), "array_inx": "0-49%2"}, BACKED),
        ({**hours(1, 1), "array_inx": "0-50"}, SPARE),
        ({**hours(1, 4), "array_inx": "1-26"}, SPARE),
        # Cannot be requeued: the whole time limit is the contract, up to the cap (8 h).
        ({"tres_per_job": "gres/gpu:18", "requeue": 0, "time_limit": 480}, BACKED),
        ({"tres_per_job": "gres/gpu:19", "requeue": 0, "time_limit": 480}, SPARE),
        ({"tres_per_job": "gres/gpu:1", "script": None, "time_limit": 481}, SPARE),
        ({"tres_per_job": "gres/gpu:1", "script": None, "time_limit": INFINITE}, SPARE),
        # The partition's 24 h count where no time limit is given.
        ({"tres_per_job": "gres/gpu:1", "script": None, "time_limit": 4294967294}, SPARE),
        ({"tres_per_job": "gres/gpu:1", "time_limit": 4294967294}, BACKED),
        # Untyped on a mixed partition: must fit the h100 pool (10 GPU-h) too; typed: only its own.
        ({**hours(11, 1), "partition": "mixed"}, SPARE),
        ({**hours(8, 1), "partition": "mixed"}, BACKED),
        ({"tres_per_job": "gres/gpu:a100:25", "comment": "min-runtime=4h", "partition": "mixed"}, BACKED),
        ({**hours(2, 4), "tres_per_job": "gres/gpu:h100:2", "partition": "mixed"}, ("backed", 2_000_020)),
        ({**hours(3, 4), "tres_per_job": "gres/gpu:h100:3", "partition": "mixed"}, ("spare", 6)),
        # Decided before the start.
        ({"ntasks_per_tres": 2, "num_tasks": 8}, SPARE),
        ({"tres_per_job": "gres/gpu:x:y:2"}, SPARE),
        ({**hours(1, 1), "het_job_offset": 1}, SPARE),
        ({**hours(1, 1), "cron_job": True}, SPARE),
        ({"comment": "min-runtime=0"}, SPARE),
        # Other budgets.
        ({"account": "pb", "min_nodes": 1}, ("spare", 1)),
        ({"account": "none"}, ("spare", 0)),
        # Left alone: not managed, not known, no GPUs there.
        ({"qos": "urgent"}, ("urgent", None)),
        ({"default_qos": None}, (None, None)),
        ({"user_name": "mallory"}, (None, None)),
        ({"account": "pz"}, (None, None)),
        ({"partition": "cpu"}, (None, None)),
        ({"partition": "new"}, (None, None)),
        # Only QOS that the association has.
        ({"user_name": "dora"}, SPARE),
        ({"user_name": "carol", **hours(26, 4)}, (None, None)),
        ({"user_name": "carol", **hours(25, 4)}, BACKED),
    ],
)
def test_the_class_of_a_submission(plugin: Plugin, fields: dict[str, Any], expected: tuple[str, int]) -> None:
    assert outcome(plugin, **fields)[0] == expected


def test_what_it_says(plugin: Plugin) -> None:
    assert outcome(plugin, **hours(8, 4))[1] == (
        "pa, a100: backed. Protected for 4 h from its start (32 of 150 GPU-h left: lab's limit), "
        "then it may be requeued."
    )
    assert outcome(plugin, account="pb", **hours(64, 8))[1] == (
        "pb, a100: spare, may be preempted at any time: pb is 489 GPU-h over its budget "
        "(its contract needs 512 GPU-h)."
    )
    # bob sees half of the 32 GPU-h of alice gone at most: she asked for 32, half of 100 is 50, so 68 are left in 4 h.
    assert outcome(plugin, user_name="bob", **hours(18, 4))[1] == (
        "pa, a100: spare, may be preempted at any time: its contract needs 72 GPU-h, lab has 68 left.\n"
        "A contract of 1 h would be backed: --comment=min-runtime=60m"
    )


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"comment": "min-runtime=24h"}, 2051, "min-runtime=24 h: the longest contract here is 8 h."),
        ({"comment": "min-runtime=soon"}, 2051, "min-runtime=soon is not a duration"),
        ({"comment": "x;min-runtime"}, 2051, "has no readable value"),
        ({"reservation": "sbudget_7"}, 2002, "Reservations named sbudget_*"),
        ({"reservation": "mine,sbudget_7", "qos": "urgent"}, 2002, "Reservations named sbudget_*"),
    ],
)
@pytest.mark.parametrize("names", [None, NAMES_24_11])
def test_refusals_have_a_number_on_every_release(
    plugin: Plugin, fields: dict[str, Any], code: int, words: str, names: dict[str, int] | None
) -> None:
    plugin.globals.slurm.ESLURM_INVALID_TIME_LIMIT = None if names is None else 2051
    plugin.load()
    job = plugin.job(default_qos="backed", time_limit=600, **fields)
    before = dict(job.items())
    found, said = plugin.submit(job)
    assert found == code
    assert words in said
    assert dict(job.items()) == before
    assert outcome(plugin, qos="urgent", comment="min-runtime=soon")[0] == ("urgent", None), "not ours, not refused"


@pytest.mark.parametrize(
    "text",
    [
        *("gres:gpu:4", "gres/gpu:4", "gpu:4", "gres/gpu=4", "gres:gpu:a100:4", "gres/gpu:a100=4"),
        *("gres/gpu=4,gres/gpu:a100=4", "cpu=9,gres/gpu:4,license/x:3", "gres/gpu:3,gres/gpu", "gpu:no_consume:4"),
    ],
)
def test_every_spelling_of_four_gpus_costs_four(plugin: Plugin, text: str) -> None:
    for fields in (
        {"tres_per_job": text},
        {"tres_per_node": text, "gres": text},
        {"tres_per_task": text, "num_tasks": 1},
        {"tres_per_socket": text, "sockets_per_node": 1},
    ):
        plugin.load()
        said = outcome(plugin, comment="min-runtime=4h", **fields)[1]
        assert "(16 of 150 GPU-h left" in said, fields


def test_a_typed_spare_qos_is_a_wish_and_is_marked(plugin: Plugin) -> None:
    job = plugin.job(qos="spare", default_qos="backed", tres_per_job="gres/gpu:1", time_limit=60)
    plugin.submit(job)
    assert (job.qos, job.admin_comment, job.site_factor) == ("spare", "sbudget:spare", 5)
    job = plugin.job(default_qos="spare", tres_per_job="gres/gpu:1", time_limit=60)
    plugin.submit(job)
    assert (job.qos, job.admin_comment) == ("backed", None), "a default QOS is no wish"


def test_what_was_let_in_counts_until_the_next_table(plugin: Plugin) -> None:
    assert outcome(plugin, **hours(25, 4))[0] == BACKED
    assert outcome(plugin, **hours(1, 1))[0] == SPARE, "alice has used up the 100 GPU-h of the first 4 h"
    assert outcome(plugin, user_name="bob", **hours(12, 4))[0] == BACKED, "for bob half of it is left"
    assert outcome(plugin, user_name="bob", **hours(2, 1))[0] == BACKED, "50 - 48 - 2"
    assert outcome(plugin, user_name="bob", **hours(1, 1))[0] == SPARE
    # A table of before they came, as it has all of it: nothing may be forgotten that is not in its numbers.
    republish(plugin, changed(generation=8, snapshot=NOW + 2))
    assert outcome(plugin, **hours(1, 1))[0] == SPARE
    republish(plugin, changed(generation=9, snapshot=NOW + 3))
    assert outcome(plugin, **hours(25, 4))[0] == BACKED


def test_one_who_only_tests_takes_at_most_half_from_others(plugin: Plugin) -> None:
    flood = [outcome(plugin, **hours(25, 1))[0] for _ in range(4)]
    assert flood == [BACKED, BACKED, SPARE, SPARE], "the ceiling of 64 GPUs"
    assert outcome(plugin, user_name="bob", **hours(12, 4))[0] == BACKED
    plugin.load()
    for _ in range(20):
        assert outcome(plugin, immediate=1, **hours(25, 4))[0] == BACKED, "immediate ones take nothing"


def test_a_stale_table_gives_its_class_at_the_floor_price(plugin: Plugin) -> None:
    plugin.now = NOW + HOUR
    assert outcome(plugin, **hours(26, 4))[0] == SPARE
    plugin.now = NOW + HOUR + 1
    assert outcome(plugin, **hours(26, 4))[0] == BACKED
    assert outcome(plugin, **hours(30, 4))[0] == BACKED, "its ceiling still counts: 26 + 30"
    assert outcome(plugin, **hours(30, 4))[0] == SPARE
    assert outcome(plugin, account="pb", **hours(1, 1))[0] == ("spare", 1)
    assert [line.split("table: ")[1] for line in plugin.log()] == [
        "the decision table is in use, mode enforce",
        "the decision table is stale; new jobs get its classes at the floor price",
    ]


def test_observe_does_nothing_at_all(plugin: Plugin) -> None:
    republish(plugin, changed(generation=8, mode=Mode.OBSERVE))
    for fields in (hours(26, 4), {"comment": "min-runtime=soon"}, {"reservation": "sbudget_1"}, {"qos": "spare"}):
        job = plugin.job(default_qos="backed", **fields)
        before = dict(job.items())
        assert plugin.submit(job) == (0, "")
        assert dict(job.items()) == before


def test_advise_only_talks(plugin: Plugin) -> None:
    republish(plugin, changed(generation=8, mode=Mode.ADVISE))
    for fields, words in (
        (hours(26, 4), "spare, may be preempted"),
        (hours(1, 1), "backed. Protected"),
        ({"comment": "min-runtime=soon"}, "not a duration"),
        ({"reservation": "sbudget_1"}, "Reservations named"),
    ):
        job = plugin.job(default_qos="backed", **fields)
        before = dict(job.items())
        code, said = plugin.submit(job)
        assert code == 0
        assert words in said
        assert dict(job.items()) == before


def test_without_a_table_jobs_keep_what_they_ask_for(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "table").unlink()
    for qos in ("backed", "spare", None, "urgent"):
        assert outcome(plugin, qos=qos, **hours(1, 1)) == ((qos, None), "")
    assert len(plugin.log()) == 1, "one line a change of state, not one a job"


@pytest.mark.parametrize(
    "broken", ["", "garbage", "\n", None, "sbudget-table\t4\t8\t1\t2\talpha\tenforce\nend\t38\n"]
)
def test_after_a_good_table_a_typed_class_is_not_free(plugin: Plugin, tmp_path: Path, broken: str | None) -> None:
    assert outcome(plugin, **hours(1, 1))[0] == BACKED
    (tmp_path / "table").unlink()
    if broken is not None:
        (tmp_path / "table").write_text(broken)
    plugin.log()
    assert outcome(plugin, qos="backed", **hours(1, 1))[0] == ("spare", 0)
    assert outcome(plugin, **hours(1, 1)) == ((None, None), "")
    assert outcome(plugin, qos="spare") == (("spare", None), "")
    assert outcome(plugin, qos="urgent") == (("urgent", None), "")
    assert outcome(plugin, qos="backed", user_name="mallory")[0] == ("backed", None)
    assert outcome(plugin, qos="backed", user_name="carol")[0] == ("backed", None)
    assert len(plugin.log()) == 1
    publish(tmp_path / "table", TABLE)
    assert outcome(plugin, **hours(1, 1))[0] == BACKED
    assert len(plugin.log()) == 1


def test_a_table_of_another_cluster_is_not_used(plugin: Plugin) -> None:
    republish(plugin, changed(generation=8, cluster="beta"))
    assert outcome(plugin, **hours(1, 1)) == ((None, None), "")
    assert "it is of cluster beta" in plugin.log()[0]


def test_the_table_is_read_again_only_when_its_first_line_changes(plugin: Plugin, tmp_path: Path) -> None:
    assert outcome(plugin, **hours(1, 1))[0] == BACKED
    text = (tmp_path / "table").read_text()
    (tmp_path / "table").write_text(text.split("\n", maxsplit=1)[0] + "\ngarbage")
    assert outcome(plugin, **hours(1, 1))[0] == BACKED
    (tmp_path / "table").write_text(measured(text.replace("\t7\t", "\t8\t", 1).replace("alice\tbacked,", "alice\t")))
    assert outcome(plugin, **hours(1, 1))[0] == SPARE


def test_job_requeue_off_means_the_whole_time_limit(plugin: Plugin) -> None:
    republish(plugin, changed(generation=8, contract=ContractLine(8 * HOUR, HOUR, HOUR, requeue=False)))
    assert outcome(plugin, **hours(1, 1))[0] == SPARE, "a time limit of 10 h is above the cap"
    assert outcome(plugin, requeue=1, **hours(1, 1))[0] == BACKED


def test_charging_by_gpu_alone(plugin: Plugin) -> None:
    plain = replace(A100, cpus=0, memory_mb=0)
    republish(plugin, changed(generation=8, partitions=(PartitionLine("gpu", HOUR, True, None, (plain,)),)))
    assert outcome(plugin, min_nodes=3, min_cpus=384, min_mem_per_node=0, comment="min-runtime=8h")[0] == BACKED


def test_lists_of_qos_and_upper_case(plugin: Plugin) -> None:
    assert outcome(plugin, qos="urgent,backed", **hours(26, 4))[0] == SPARE
    assert outcome(plugin, qos="BACKED", **hours(1, 1))[0] == BACKED
    assert outcome(plugin, account="PA", **hours(1, 1))[0] == BACKED
    assert outcome(plugin, account=None, default_account="pa", **hours(1, 1))[0] == BACKED


def test_jobs_that_name_no_qos_are_adopted(plugin: Plugin) -> None:
    assert outcome(plugin, default_qos="normal", **hours(1, 1))[0] == (None, None)
    republish(plugin, changed(generation=8, adopt="backed"))
    for default in ("normal", None):
        assert outcome(plugin, default_qos=default, **hours(1, 1))[0] == BACKED
    assert outcome(plugin, default_qos="urgent", **hours(1, 1))[0] == (None, None)
    assert outcome(plugin, qos="normal", default_qos="normal", **hours(1, 1))[0] == ("normal", None)


@pytest.mark.parametrize(("left", "expected"), [(62, SPARE), (63, BACKED)])
def test_thousandths_are_rounded_up(plugin: Plugin, left: int, expected: tuple[str, int]) -> None:
    amounts = (left * 4 * HOUR, left * 4 * HOUR)
    republish(plugin, changed(generation=8, limits=(replace(LAB, left=amounts), *TABLE.limits[1:])))
    assert outcome(plugin, min_cpus=1, comment="min-runtime=4h")[0] == expected, "1 of 128 CPUs: 62.5 thousandths"


def test_numbers_that_are_none(plugin: Plugin) -> None:
    for count in ("9" * 10, "9" * 20, "9" * 400, "999999999k"):
        (qos, _), _ = outcome(plugin, tres_per_job="gres/gpu:" + count)
        assert qos == "spare"
    assert outcome(plugin, array_inx="0-" + "9" * 25, **hours(1, 1))[0] == SPARE
    assert outcome(plugin, array_inx="x", **hours(1, 1))[0] == SPARE
    assert not [line for line in plugin.log() if "left as it is" in line]


def test_texts_of_users_are_no_formats(plugin: Plugin) -> None:
    job = plugin.job(default_qos="backed", comment="min-runtime=%s%d%n")
    assert plugin.submit(job)[0] == 2051


@pytest.mark.parametrize("version", VERSIONS)
def test_as_a_module_of_a_script_that_is_there(version: str, tmp_path: Path) -> None:
    publish(tmp_path / "table", TABLE)
    mine = "SBUDGET_AS_MODULE = true; function slurm_job_submit() return 99 end "
    mine += "function slurm_job_modify() return 98 end"
    plugin = Plugin(version, tmp_path / "table", now=NOW, before=mine)
    job = plugin.job(default_qos="backed", **hours(1, 1))
    assert plugin.submit(job)[0] == 99
    assert plugin.modify(plugin.change(), plugin.record())[0] == 98
    assert plugin.globals.sbudget_job_submit(job, None, 1000) == 0
    assert job.qos == "backed"


def test_the_ceiling_is_of_rates(plugin: Plugin) -> None:
    left = (9000 * GPU_H, 9000 * GPU_H)
    limits = (replace(LAB, left=left), LimitLine("pa", "a100", "pa", 8 * MILLI, left), *TABLE.limits[2:])
    republish(plugin, changed(generation=8, limits=limits))
    assert outcome(plugin, **hours(8, 8))[0] == BACKED
    found, said = outcome(plugin, **hours(1, 1))
    assert found == SPARE
    assert "it asks for 1 GPUs, pa may have 0 more under contract at one time" in said


def test_siblings_cannot_each_use_up_what_their_parent_has_left(plugin: Plugin) -> None:
    """lab has 100 GPU-h left in 4 h: pa takes 48 of them, and pc, with 900 of its own, finds 52."""
    assert outcome(plugin, **hours(12, 4))[0] == BACKED
    found, said = outcome(plugin, account="pc", **hours(14, 4))
    assert found == ("spare", 2)
    assert "its contract needs 56 GPU-h, lab has 52 left." in said
    assert outcome(plugin, account="pc", **hours(13, 4))[0] == ("backed", 2_000_002)


def test_ten_thousand_submissions_in_one_second_are_never_all_backed(plugin: Plugin) -> None:
    """lab has 100 GPU-h left in 4 h, a contract is 4. alice gets 25, whatever account she names; of what another
    pair took at most half is subtracted, so bob finds 50 of them, less his own."""
    alice = [outcome(plugin, account=("pa", "pc")[i % 2], **hours(1, 4))[0][0] for i in range(1000)]
    assert alice.count("backed") == 25
    bob = [outcome(plugin, user_name="bob", **hours(1, 4))[0][0] for _ in range(1000)]
    assert bob.count("backed") <= 12
    assert [outcome(plugin, **hours(1, 4))[0][0] for _ in range(1000)].count("backed") == 0


def test_a_fault_in_one_block_is_the_fault_of_its_jobs_only(plugin: Plugin) -> None:
    text = plugin.table.read_text(encoding="utf-8")
    plugin.table.write_text(measured(text.replace("\t64000\t-1760400000", "\tmuch\t-1760400000")), encoding="utf-8")
    assert outcome(plugin, **hours(1, 1))[0] == BACKED
    plugin.log()
    for _ in range(2):
        assert outcome(plugin, account="pb", **hours(1, 1))[0] == (None, None)
        assert outcome(plugin, account="pb", qos="backed", **hours(1, 1))[0] == ("spare", 0)
    assert [line.partition("table: ")[2] for line in plugin.log()] == [
        "the limit block of 'pb': 'much' where a whole number is expected"
    ]
    assert "'much' where a whole number" in plugin.globals.sbudget_table_fault()


def test_an_unknown_limit_is_no_free_way(plugin: Plugin) -> None:
    text = plugin.table.read_text(encoding="utf-8")
    plugin.table.write_text(measured(text.replace("\t1\tpb\tlab", "\t1\tpx\tlab")), encoding="utf-8")
    assert outcome(plugin, account="pb", qos="backed", **hours(1, 1))[0] == ("spare", 0)
    assert "no limit 'px' in pool a100" in plugin.log()[-1]


@pytest.mark.parametrize("other", ["1", "2", "4"])
def test_a_table_of_another_version_is_not_used_and_is_named(plugin: Plugin, other: str) -> None:
    text = plugin.table.read_text(encoding="utf-8")
    plugin.table.write_text(text.replace("\t3\t", f"\t{other}\t", 1), encoding="utf-8")
    assert outcome(plugin, qos="backed", **hours(1, 1)) == (("backed", None), "")
    assert plugin.log()[-1].endswith(f"line 1: version {other}, this plugin reads version 3")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plugin_of_before_does_not_use_this_table(version: str, tmp_path: Path) -> None:
    """Its first line keeps its place in every version, so that each plugin can say what it is."""
    publish(tmp_path / "table", TABLE)
    old = tmp_path / "old.lua"
    old.write_text(SCRIPT.read_text(encoding="utf-8").replace('VERSION = "3"', 'VERSION = "2"'), encoding="utf-8")
    plugin = Plugin(version, tmp_path / "table", script=old, now=NOW)
    assert outcome(plugin, qos="backed", **hours(1, 1)) == (("backed", None), "")
    assert plugin.log()[-1].endswith("line 1: version 3, this plugin reads version 2")


def test_a_clock_that_is_set_back_makes_the_table_stale(plugin: Plugin) -> None:
    plugin.now = NOW - 60
    assert outcome(plugin, **hours(26, 4))[0] == SPARE
    plugin.now = NOW - 61
    assert outcome(plugin, **hours(26, 4))[0] == BACKED, "at the floor price"
    assert "is stale" in plugin.log()[-1]


def test_what_was_let_in_before_the_clock_was_set_back_is_forgotten_in_time(plugin: Plugin) -> None:
    assert outcome(plugin, **hours(25, 4))[0] == BACKED
    plugin.now = NOW - 7200
    republish(plugin, changed(generation=8, snapshot=NOW - 7201, stale_after=NOW))
    assert outcome(plugin, **hours(1, 1))[0] == SPARE
    republish(plugin, changed(generation=9, snapshot=NOW - 7197, stale_after=NOW))
    assert outcome(plugin, **hours(25, 4))[0] == BACKED


def test_a_table_that_cannot_be_used_is_read_once_a_second(plugin: Plugin) -> None:
    text = plugin.table.read_text(encoding="utf-8")
    plugin.table.write_text(text[:-1], encoding="utf-8")
    assert outcome(plugin, **hours(1, 1))[0] == (None, None)
    plugin.table.write_text(text, encoding="utf-8")
    assert outcome(plugin, **hours(1, 1))[0] == (None, None)
    plugin.now = NOW + 1
    assert outcome(plugin, **hours(1, 1))[0] == BACKED


@pytest.mark.parametrize("text", ["%5", "9" * 33000 + "x", "1," * 20000, "0-59%2"])
def test_an_array_that_cannot_be_read_or_is_long_is_never_backed_as_a_whole(plugin: Plugin, text: str) -> None:
    found, said = outcome(plugin, array_inx=text, **hours(1, 1))
    assert found == SPARE
    assert "50 tasks of an array at a time" in said


def test_what_slurm_refuses_for_its_length_is_not_read_to_its_end(plugin: Plugin) -> None:
    assert outcome(plugin, comment=" " * 2000 + "min-runtime=soon", tres_per_job="gres/gpu:1")[0] == BACKED
    assert outcome(plugin, comment=" " * 1000 + "min-runtime=30m", tres_per_job="gres/gpu:1")[0] == BACKED


OWN_SCRIPT = """\
SBUDGET_AS_MODULE = true; dofile("{module}")
function slurm_job_submit(job_desc, part_list, submit_uid)
    local rc = sbudget_job_submit(job_desc, part_list, submit_uid); if rc ~= slurm.SUCCESS then return rc end
    if job_desc.name == "bad" then slurm.log_user("no such names here") return slurm.ERROR end
    job_desc.wckey = "seen"
    return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    local rc = sbudget_job_modify(job_desc, job_rec, part_list, modify_uid); if rc ~= slurm.SUCCESS then return rc end
    return job_desc.name == "bad" and slurm.ERROR or slurm.SUCCESS
end
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_two_lines_in_a_site_s_own_script(version: str, tmp_path: Path) -> None:
    """What setup tells a site to add, word for word, in a script that has rules of its own."""
    publish(tmp_path / "table", TABLE)
    file = PluginFile(tmp_path / "slurm.conf", tmp_path / "table", tmp_path, Runner())
    own = OWN_SCRIPT.format(module=SCRIPT)
    top, first = (line.split(":  ", 1)[1] for line in file.lines_to_add().split("\n")[1:3])
    assert top == own.split("\n")[0].replace(str(SCRIPT), str(file.module))
    assert first == own.split("\n")[2].strip()
    (tmp_path / "own.lua").write_text(own, encoding="utf-8")
    plugin = Plugin(version, tmp_path / "table", script=tmp_path / "own.lua", now=NOW)
    job = plugin.job(default_qos="backed", **hours(1, 1))
    assert plugin.submit(job)[0] == 0
    assert (job.qos, job.wckey) == ("backed", "seen")
    job = plugin.job(default_qos="backed", comment="min-runtime=soon")
    assert plugin.submit(job)[0] == 2051
    assert job.wckey is None
    assert plugin.submit(plugin.job(default_qos="backed", name="bad"))[0] == -1
    assert plugin.modify(plugin.change(requeue=0), plugin.record())[0] == 2002
    assert plugin.modify(plugin.change(name="bad"), plugin.record())[0] == -1
    assert plugin.modify(plugin.change(nice=5), plugin.record())[0] == 0
