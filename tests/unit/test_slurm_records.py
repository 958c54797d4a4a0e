"""Job records whatever users write into their jobs: names, comments and command lines decide nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import Job, JobState, NodeShare
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.jobs import job_of, jobs_of, needs_partitions
from pyslurm_budget.slurm.records import job_records, record_ids, refuse_twins
from pyslurm_budget.slurm.request import features_of


def line(
    job_id: int = 5, *, head: str = "", name: str = "job", tail: str = "", submit: str = "sbatch x", **changes: str
) -> str:
    """A record as 26.05 prints it; keyword arguments replace values (``_`` for ``/`` and ``:``)."""
    fields = {
        "UserId": "alice(1000)", "GroupId": "alice(1000)", "MCS_label": "N/A", "Priority": "10", "Nice": "0",
        "Account": "pa", "QOS": "spare", "JobState": "PENDING", "Reason": "Resources", "Dependency": "(null)",
        "Requeue": "1", "Restarts": "0", "BatchFlag": "1", "RunTime": "00:00:00", "TimeLimit": "01:00:00",
        "SubmitTime": "1796101958", "EligibleTime": "1796101958", "StartTime": "Unknown", "EndTime": "Unknown",
        "Partition": "gpu", "ReqNodeList": "(null)", "ExcNodeList": "(null)", "NodeList": "", "NumNodes": "1-1",
        "NumCPUs": "4", "NumTasks": "1", "ReqTRES": "cpu=4,mem=8G,node=1,gres/gpu=2", "AllocTRES": "(null)",
        "MinCPUsNode": "1", "MinMemoryCPU": "-", "MinMemoryNode": "8G", "Features": "(null)", "Reservation": "-",
        "OverSubscribe": "NO", "Exclusive": "NO", "Contiguous": "0", "Licenses": "(null)",
        "Network": "(null)", "NtasksPerN:B:S:C": "0:0:*:*", "Command": "/home/alice/x.sh",
        "SubmitLine": submit, "WorkDir": "/home/alice",
    }  # fmt: skip
    shares = changes.pop("shares", "")
    fields |= changes
    text = " ".join(f"{key}={value}" for key, value in fields.items() if value != "-")
    text = text.replace(" MinCPUsNode=", f"{shares} MinCPUsNode=")
    return f"JobId={job_id} {head}JobName={name} {text}{tail} StdErr= StdIn=/dev/null StdOut=/dev/null\n"


def one(text: str, limit: int | None = None) -> Job:
    (record,) = job_records(text)
    return job_of(record, lambda _: limit)


IMITATION = line(5)[len("JobId=5 JobName=job") : -1].replace("alice", "root").replace("QOS=spare", "QOS=backed")
ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"), max_size=60
) | st.lists(
    st.sampled_from(
        [
            *(" ", "\n", "JobId=7 JobName=", "UserId=root(0)", " QOS=backed", " JobState=RUNNING", " Command=", "x"),
            *(" Comment=", " AdminComment=", " WorkDir=", " StdErr=", " TresPerNode=gres/gpu:8", "=", IMITATION),
            *(" CPU_IDs=0", "\nJobId=7 JobName=y" + IMITATION, IMITATION + "\nJobId=7 JobName=z"),
        ]
    ),
    max_size=9,
).map("".join)  # fmt: skip


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_free_text_never_changes_the_fields_that_decide(name: str, comment: str, submit: str) -> None:
    """Any name, comment and command line: the fields are the true ones, and nobody can make the answer unreadable."""
    text = line(5, name=name, submit=submit, tail=f" Comment={comment}") + line(6)

    def name_of(job_id: int) -> str | None:
        return {5: name, 6: "job"}.get(job_id)

    records = job_records(text, name_of, imitated=set(record_ids(text)) - {5, 6})
    refuse_twins(records)
    first, second = jobs_of(records, lambda _: None)
    assert (first.key.job_id, first.user, first.qos, first.priority) == (5, "alice", "spare", 10)
    assert (first.state, first.name) == (JobState.PENDING, name)
    assert (second.key.job_id, second.name) == (6, "job")


def test_a_name_that_imitates_a_record_is_settled_by_the_name_alone() -> None:
    text = line(5, name="evil" + IMITATION)
    with pytest.raises(SlurmOutputError, match="free text of job 5 imitates"):
        job_records(text)
    (record,) = job_records(text, {5: "evil" + IMITATION}.get)
    assert (record.fields["UserId"], record.fields["QOS"]) == ("alice", "spare")
    with pytest.raises(SlurmOutputError, match="imitates"):
        job_records(text, {5: "another"}.get)


def test_a_comment_that_imitates_a_record_changes_nothing() -> None:
    (record,) = job_records(line(5, tail=" Comment=evil" + IMITATION), {5: "job"}.get)
    assert (record.fields["UserId"], record.fields["QOS"]) == ("alice", "spare")


def test_ids_that_are_no_jobs_are_text_of_the_record_before() -> None:
    name = "x" + IMITATION + "\nJobId=99 JobName=y"
    text = line(4) + line(5, name=name) + line(6)
    assert [r.job_id for r in job_records(text)] == [4, 5, 99, 6]
    records = job_records(text, {5: name}.get, imitated={99})
    assert [(r.job_id, r.fields["QOS"]) for r in records] == [(4, "spare"), (5, "spare"), (6, "spare")]
    assert records[1].fields["JobName"] == name


def test_an_id_that_comes_twice_is_refused() -> None:
    with pytest.raises(SlurmOutputError, match="job 4 is listed twice; the free text of job 5 imitates"):
        refuse_twins(job_records(line(4) + line(5) + line(4)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty answer"),
        ("\n", "empty answer"),
        ("scontrol: something\n", "cannot read the line 'scontrol: something'"),
        ("x\n" + line(), "cannot read the line 'x'"),
        ("JobId=5 JobName=x UserId=\n", "cannot read the line 'JobId=5"),
        (line().partition(" Command=")[0], "cannot read the line"),
    ],
)
def test_what_is_no_record_is_named_and_never_dropped(text: str, words: str) -> None:
    with pytest.raises(SlurmOutputError) as caught:
        job_records(text)
    assert words in str(caught.value)


def test_no_jobs_is_an_answer_only_in_slurms_words() -> None:
    assert job_records("No jobs in the system\n") == []


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        records = job_records(text)
    except SlurmOutputError:
        return
    assert records or text.strip() == "No jobs in the system"


@given(st.data())
def test_a_damaged_record_is_read_or_refused(data: st.DataObject) -> None:
    whole = line(5, head="ArrayJobId=5 ArrayTaskId=3-9%2 ArrayTaskThrottle=2 ")
    start = data.draw(st.integers(0, len(whole)))
    damaged = whole[:start] + data.draw(st.text("=, 0aN", max_size=4)) + whole[start + data.draw(st.integers(0, 9)) :]
    try:
        jobs_of(job_records(damaged), lambda _: None)
    except SlurmOutputError as error:
        assert "scontrol show job" in str(error)


@pytest.mark.parametrize(
    "changes",
    [
        {"JobState": "DREAMING"}, {"SubmitTime": "Unknown"}, {"SubmitTime": "yesterday"}, {"TimeLimit": "INVALID"},
        {"Priority": "-"}, {"NumNodes": "few"}, {"ReqTRES": "cpu=4,mem=8G,node="}, {"Partition": "-"},
        {"Restarts": "x"}, {"QOS": "-"},
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_refused_by_job(changes: dict[str, str]) -> None:
    with pytest.raises(SlurmOutputError, match=r"job 5|cannot read the line 'JobId=5"):
        one(line(5, **changes))


@pytest.mark.parametrize(
    ("head", "job_id", "ref", "tasks"),
    [
        ("", 5, "5", ()),
        ("ArrayJobId=5 ArrayTaskId=7 ", 9, "5_7", ()),
        ("ArrayJobId=5 ArrayTaskId=7 ", 5, "5_7", ()),
        ("ArrayJobId=5 ArrayTaskId=3-9%2 ArrayTaskThrottle=2 ", 5, "5_[3-9]", (3, 4, 5, 6, 7, 8, 9)),
        ("ArrayJobId=5 ArrayTaskId=0-20:4 ", 5, "5_[0,4,8,12,16,20]", (0, 4, 8, 12, 16, 20)),
        ("ArrayJobId=5 ArrayTaskId=1,3-4,7 ", 5, "5_[1,3-4,7]", (1, 3, 4, 7)),
        ("HetJobId=4 HetJobOffset=1 ", 5, "4+1", ()),
    ],
)
def test_references(head: str, job_id: int, ref: str, tasks: tuple[int, ...]) -> None:
    job = one(line(job_id, head=head))
    assert (job.ref, job.tasks, job.key.job_id) == (ref, tasks, job_id)


def test_the_shares_of_each_node() -> None:
    """`Nodes=n[3-4]` means each; nodes that differ have lines of their own."""
    job = one(
        line(
            JobState="RUNNING",
            StartTime="1796102000",
            EndTime="1796105600",
            NodeList="n[1,3-4]",
            AllocTRES="cpu=5,mem=10G,node=3,gres/gpu=5,gres/gpu:a100=5",
            shares=" JOB_GRES=gpu:a100:5   Nodes=n1 CPU_IDs=0 Mem=2048 GRES=gpu:a100:1(IDX:2) "
            "Nodes=n[3-4] CPU_IDs=1-2 Mem=4096 GRES=gpu:a100:2(IDX:0,3)",
        )
    )
    assert job.allocation == (
        NodeShare("n1", 1, 1, 2048, (("a100", 1),)),
        NodeShare("n3", 2, 2, 4096, (("a100", 2),)),
        NodeShare("n4", 2, 2, 4096, (("a100", 2),)),
    )
    assert sum(share.gpus for share in job.allocation) == job.held_tres.gpus


def test_details_that_miss_a_node_are_refused() -> None:
    with pytest.raises(SlurmOutputError, match="differs from the nodes"):
        one(
            line(JobState="RUNNING", NodeList="n[1-2]", AllocTRES="cpu=2,gres/gpu=1", StartTime="1", EndTime="2",
                 shares=" Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(CNT:1)")
        )  # fmt: skip


@given(st.integers(1, 9), st.integers(0, 40))
def test_without_details_the_total_is_kept(nodes: int, gpus: int) -> None:
    job = one(
        line(JobState="RUNNING", NodeList=f"n[1-{nodes}]" if nodes > 1 else "n1", StartTime="1796102000",
             AllocTRES=f"cpu={nodes},mem=7M,node={nodes},gres/gpu={gpus}", ReqTRES="cpu=1")
    )  # fmt: skip
    assert len(job.allocation) == nodes
    assert sum(share.gpus for share in job.allocation) == gpus
    assert sum(share.memory_mb for share in job.allocation) == 7
    assert max(s.gpus for s in job.allocation) - min(s.gpus for s in job.allocation) <= 1


def test_requested_but_not_accounted_gpus_are_unknown() -> None:
    running = {"JobState": "RUNNING", "StartTime": "1796102000", "NodeList": "n1", "AllocTRES": "cpu=4,node=1"}
    assert one(line(**running)).held_tres.gpus is None
    assert one(line(**running, ReqTRES="cpu=4")).held_tres.gpus == 0


@pytest.mark.parametrize(
    ("changes", "state", "completing"),
    [
        ({"JobState": "CONFIGURING", "StartTime": "1"}, JobState.RUNNING, False),
        ({"JobState": "REQUEUE_HOLD"}, JobState.PENDING, False),
        ({"JobState": "RESV_DEL_HOLD"}, JobState.PENDING, False),
        ({"JobState": "OUT_OF_MEMORY"}, JobState.OTHER, False),
        ({"JobState": "COMPLETING", "StartTime": "100", "EndTime": "700", "RunTime": "0:00"}, JobState.PENDING, True),
        ({"JobState": "COMPLETING", "StartTime": "100", "EndTime": "700", "RunTime": "9:00"}, JobState.OTHER, True),
        ({"JobState": "COMPLETING", "StartTime": "100", "EndTime": "100", "RunTime": "0:00"}, JobState.OTHER, True),
    ],
)  # fmt: skip
def test_states_and_what_a_completing_job_was(changes: dict[str, str], state: JobState, completing: bool) -> None:
    """A requeued job that is still completing shows run time 0 between a start and a later end (seen on 22.05)."""
    job = one(line(**changes))
    assert (job.state, job.completing) == (state, completing)


@pytest.mark.parametrize(
    ("changes", "eligible"),
    [
        ({}, 1796101958),
        ({"Priority": "0"}, None),
        ({"Reason": "JobHeldUser"}, None),
        ({"Reason": "JobHeldAdmin"}, None),
        ({"Reason": "Dependency"}, None),
        ({"Reason": "BeginTime", "EligibleTime": "1796999999"}, 1796999999),
        ({"EligibleTime": "Unknown"}, None),
        ({"JobState": "SUSPENDED", "Priority": "0", "StartTime": "1796101960", "NodeList": "n1"}, 1796101958),
    ],
)
def test_eligible(changes: dict[str, str], eligible: int | None) -> None:
    assert one(line(**changes)).eligible == eligible


def test_a_partition_limit_is_asked_for() -> None:
    text = line(TimeLimit="Partition_Limit")
    assert needs_partitions(job_records(text))
    assert one(text, 7200).time_limit == 7200
    assert not needs_partitions(job_records(line(TimeLimit="UNLIMITED")))
    assert one(line(TimeLimit="UNLIMITED"), 7200).time_limit is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"Features": "a100&nvlink", "ReqNodeList": "n1", "ExcNodeList": "n2"}, None),
        ({"Features": "[a|b]"}, "features with counts, brackets, or both & and |"),
        ({"Features": "a*2"}, "features with counts, brackets, or both & and |"),
        ({"Features": "a&b|c"}, "features with counts, brackets, or both & and |"),
        ({"NtasksPerN:B:S:C": "1:0:*:*", "NumTasks": "1"}, None),
        ({"NtasksPerN:B:S:C": "4:0:*:*", "NumTasks": "6"}, "tasks per node"),
        ({"NtasksPerN:B:S:C": "0:0:2:*"}, "tasks per node"),
        ({"Licenses": "matlab:1"}, "licences"),
        ({"Contiguous": "1"}, "contiguous nodes"),
        ({"Reservation": "maint"}, "a reservation"),
        ({"Exclusive": "USER"}, "exclusive user"),
        ({"Exclusive": "-", "OverSubscribe": "YES"}, "oversubscribed nodes"),
        ({"Features": "(x)", "Licenses": "y"}, "licences, features with counts, brackets, or both & and |"),
    ],
)
def test_what_placement_cannot_judge(changes: dict[str, str], words: str | None) -> None:
    assert one(line(**changes)).request.special == words


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("(null)", ()),
        ("a100", (frozenset({"a100"}),)),
        ("a100&nvlink", (frozenset({"a100", "nvlink"}),)),
        ("intel|amd", (frozenset({"intel"}), frozenset({"amd"}))),
        ("a&b|c", None),
        ("[a|b]", None),
        ("a*2", None),
        ("a&", None),
    ],
)
def test_features(text: str, groups: tuple[frozenset[str], ...] | None) -> None:
    assert features_of(text) == groups


def test_named_and_excluded_nodes() -> None:
    asked = one(line(ReqNodeList="n[1-2]", ExcNodeList="n3")).request
    assert (asked.required, asked.excluded) == (("n1", "n2"), frozenset({"n3"}))


def test_what_a_completing_job_still_holds() -> None:
    """NodeList are the nodes that are not done yet, AllocTRES is of all four."""
    job = one(
        line(
            JobState="COMPLETING",
            StartTime="1796102000",
            EndTime="1796105600",
            RunTime="01:00:00",
            NodeList="n[1,3]",
            AllocTRES="cpu=16,mem=16G,node=4,gres/gpu=8,gres/gpu:a100=8",
        )
    )
    assert (job.leaving, job.ended) == ((NodeShare("n1", 2, 4, 4096), NodeShare("n3", 2, 4, 4096)), 1796105600)
    assert job.allocation == ()


def test_when_slurm_expects_a_job_to_start() -> None:
    assert one(line(StartTime="1796109999")).expected == 1796109999
    assert one(line()).expected is None


@pytest.mark.parametrize(
    ("end", "units", "cpus"),
    [
        (" TresPerTask=gres/gpu=2", 3, 6),
        (" TresPerJob=gres/gpu:4", None, 6),
        (" CpusPerTres=gres/gpu:4 TresPerJob=gres/gpu:4", 4, 16),
        (" CpusPerTres=gres/gpu:4 TresPerNode=gres/gpu:4", None, 16),
    ],
)
def test_parts_that_each_lie_on_one_node(end: str, units: int | None, cpus: int) -> None:
    text = line(NumTasks="3", NumCPUs="6", ReqTRES="cpu=6", MinMemoryNode="0").rstrip("\n") + end + " \n"
    asked = one(text).request
    assert (asked.units, asked.cpus) == (units, cpus)


@pytest.mark.parametrize(
    ("end", "total", "per_node", "kind", "special"),
    [
        (" TresPerJob=gres/gpu:a100:2", 2, None, "a100", None),
        (" TresPerNode=gres/gpu:2", 2, 2, None, None),
        (" TresPerTask=cpu=2,gres/gpu=2", 2, None, None, None),
        (" TresPerTask=gres/gpu=1", 2, None, None, None),
        (" TresPerJob=gres/gpu:a100:1,gres/gpu:h100:1", 2, None, None, "several GPU types"),
        (" TresPerNode=gres/gpu:1,gres/shard:2", 2, 1, None, "other GRES"),
        (" CpusPerTres=gres/gpu:4 TresPerJob=gres/gpu:2", 2, None, None, None),
    ],
)
def test_how_gpus_are_asked(end: str, total: int, per_node: int | None, kind: str | None, special: str) -> None:
    asked = one(line().rstrip("\n") + end + " \n").request
    assert (asked.gpus, asked.gpus_per_node, asked.gpu_type, asked.special) == (total, per_node, kind, special)


@pytest.mark.parametrize(
    ("changes", "gpus", "cpus", "memory_mb"),
    [
        ({}, 2, 4, 8192),
        ({"NumNodes": "2-2", "MinCPUsNode": "8"}, 2, 16, 8192),
        ({"ReqTRES": "cpu=4,node=2", "NumNodes": "2-2", "MinMemoryNode": "4G"}, 0, 4, 8192),
        ({"ReqTRES": "cpu=4,node=1", "MinMemoryNode": "-", "MinMemoryCPU": "500M"}, 0, 4, 2000),
    ],
)
def test_totals(changes: dict[str, str], gpus: int, cpus: int, memory_mb: int) -> None:
    asked = one(line(**changes)).request
    assert (asked.gpus, asked.cpus, asked.memory_mb) == (gpus, cpus, memory_mb)


@pytest.mark.parametrize(
    ("end", "gpus"),
    [
        (" TresPerNode=gres/gpu:4", 8),
        (" TresPerTask=gres/gpu=3", 9),
        (" TresPerJob=gres/gpu:5", 5),
        (" TresPerSocket=gres/gpu:1", 2),
    ],
)
def test_gpus_that_the_site_does_not_track(end: str, gpus: int) -> None:
    text = line(NumNodes="2-2", NumTasks="3", ReqTRES="cpu=4,mem=8G,node=2")
    assert one(text.rstrip("\n") + end + "\n").request.gpus == gpus


def test_a_blank_in_a_value_belongs_to_it_and_hides_nothing() -> None:
    (record,) = job_records(line(Features="a & b", Network="x NumNodes=9"))
    assert (record.fields["Features"], record.fields["NumNodes"]) == ("a & b", "1-1")


@pytest.mark.parametrize(("word", "exclusive"), [("NO", True), ("OK", False)])
def test_exclusive_before_26_05(word: str, exclusive: bool) -> None:
    assert one(line(Exclusive="-", OverSubscribe=word)).request.exclusive is exclusive
    assert one(line(Exclusive="NODE")).request.exclusive


@pytest.mark.parametrize(
    ("nodes", "end", "least", "most"),
    [
        ("1-1", "", 1, 1),
        ("2-3", "", 2, 3),
        ("4-4", " TresPerJob=gres/gpu:2", 4, 4),
        ("1", " TresPerJob=gres/gpu:2", 1, None),
        ("3", " TresPerJob=gres/gpu:2", 3, 3),
        ("1", " TresPerNode=gres/gpu:2", 1, 1),
        ("1", "", 1, 1),
    ],
)
def test_numbers_of_nodes(nodes: str, end: str, least: int, most: int | None) -> None:
    request = one(line(NumNodes=nodes).rstrip("\n") + end + "\n").request
    assert (request.nodes_min, request.nodes_max) == (least, most)


def test_comment_and_marker_are_told_apart() -> None:
    (marked,) = job_records(line(tail=" AdminComment=asked:spare  Comment=min-runtime=4h AdminComment=fake"))
    assert marked.fields["AdminComment"] == "asked:spare"
    assert marked.fields["Comment"] == "min-runtime=4h AdminComment=fake"
    (plain,) = job_records(line(tail=" Comment=x AdminComment=fake"))
    assert (plain.fields["AdminComment"], plain.fields["Comment"]) == ("", "x AdminComment=fake")
