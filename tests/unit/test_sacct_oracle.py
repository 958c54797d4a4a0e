"""The reader of accounting rows against a slow and simple one: the same runs, and the same words of refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from pyslurm_budget.domain.model import RunRecord
from pyslurm_budget.errors import SlurmOutputError
from pyslurm_budget.slurm.sacct import FIELDS, runs_of
from tests.unit import sacct_oracle

Reader = Callable[[Iterable[str], str], Iterator[RunRecord]]
MARK = "\x1f"

TIMES = st.sampled_from(
    ["1796101958", "1796101960", "1796101970", "0", "Unknown", "None", "", "2026-12-01T10:00:00", "٤٢", "²", "soon"]
)
AMOUNTS = st.sampled_from(
    [
        "", "cpu=1", "billing=1,cpu=1,gres/gpu=2,node=1", "billing=1,cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
        "cpu=2,gres/gpu:h100=4,mem=1.5T", "gres/gpu=0", "gres/gpu=18446744073709551614,cpu=1", "cpu=2,mem=512M,node=",
        "cpu=1,cpu=1", "gres/gpu=x", "(null)",
    ]
)  # fmt: skip
STATES = st.sampled_from(
    [
        "COMPLETED", "CANCELLED", "CANCELLED by 1000", "CANCELLED by 0", "CANCELLED by ", "CANCELLED by x",
        "CANCELLED by 1 2", "CANCELLED by ٤", "CANCELLED by -1", "CANCELLED by 7\n", "REQUEUED", "PREEMPTED", "",
    ]
)  # fmt: skip
NODES = st.sampled_from(
    ["", "None assigned", "n1", "n[1-3]", "n[001-003,7],gpu3", "n2,n1", "n[1-", "n[3-1]", "n1,", "a b", "n[0-1]x2"]
)
LIMITS = ["60", "0", "", "UNLIMITED", "Partition_Limit", "INVALID", "soon", "-1", "²", "٤"]
NAMES = st.sampled_from(["", "pa", "PhysicsA", "alice", "ÄÖ", "İ"]) | st.text("aB|", max_size=3)
COLUMNS: dict[str, st.SearchStrategy[str]] = {
    "Cluster": NAMES, "JobIDRaw": st.sampled_from(["5", "6", "7", "5.batch", "", "1_0", "٤"]), "JobID": NAMES,
    "Account": NAMES, "User": NAMES, "UID": st.sampled_from(["0", "1000", ""]), "QOS": NAMES, "Partition": NAMES,
    "State": STATES, "Submit": TIMES, "Eligible": TIMES, "Start": TIMES, "End": TIMES,
    "Suspended": st.sampled_from(["00:00:00", "00:01:04", "1-00:00:04", "", "INVALID", "3"]),
    "TimelimitRaw": st.sampled_from(LIMITS),
    "AllocTRES": AMOUNTS, "ReqTRES": AMOUNTS, "NodeList": NODES,
    "Comment": st.sampled_from(["", "min-runtime=4h", "a\nb", "\n", "5|x"]) | st.text(
        st.characters(exclude_characters=MARK, exclude_categories=["Cs"]), max_size=20
    ),
}  # fmt: skip
SOUND: dict[str, str] = {
    "Cluster": "lv", "JobIDRaw": "5", "JobID": "5", "Account": "pa", "User": "alice", "UID": "1000", "QOS": "spare",
    "Partition": "gpu", "State": "COMPLETED", "Submit": "1796101958", "Eligible": "1796101958",
    "Start": "1796101960", "End": "1796101970", "Suspended": "00:00:00", "TimelimitRaw": "60",
    "AllocTRES": "cpu=1,gres/gpu=2,node=1", "ReqTRES": "cpu=1,gres/gpu=2", "NodeList": "n1", "Comment": "",
}  # fmt: skip


@st.composite
def sound_but_for(draw: st.DrawFn) -> dict[str, str]:
    """A row in which a few columns are anything, as rows with many odd ones are all refused at the first."""
    names = draw(st.lists(st.sampled_from(FIELDS), max_size=4, unique=True))
    return SOUND | {name: draw(COLUMNS[name]) for name in names}


HEADERS = (
    st.just(list(FIELDS))
    | st.permutations(FIELDS)
    | st.just([*FIELDS[:-1]])
    | st.just(["Extra", *FIELDS])
    | st.just([*FIELDS, "QOS"])
    | st.just([*FIELDS[1:]])
)


def outcome(reader: Reader, lines: list[str], mark: str) -> tuple[list[RunRecord], str]:
    """The runs up to the end or to the refusal, and its words."""
    found: list[RunRecord] = []
    try:
        for run in reader(iter(lines), mark):
            found.append(run)
    except SlurmOutputError as error:
        return found, str(error)
    return found, ""


@given(st.lists(sound_but_for(), max_size=4), HEADERS)
def test_the_same_runs_and_refusals(rows: list[dict[str, str]], header: list[str]) -> None:
    text = "\n".join([MARK.join(header), *(MARK.join(row.get(name, "x") for name in header) for row in rows)])
    lines = text.split("\n")
    assert outcome(runs_of, lines, MARK) == outcome(sacct_oracle.runs, lines, MARK)


@given(st.lists(sound_but_for(), min_size=1, max_size=3), st.data())
def test_the_same_of_damaged_answers(rows: list[dict[str, str]], data: st.DataObject) -> None:
    text = "\n".join(MARK.join(row[name] for name in FIELDS) for row in rows)
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(f"{MARK}\nx", max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    lines = [MARK.join(FIELDS), *damaged.split("\n")]
    assert outcome(runs_of, lines, MARK) == outcome(sacct_oracle.runs, lines, MARK)


@given(sound_but_for())
def test_a_row_reads_the_same_the_second_time(row: dict[str, str]) -> None:
    lines = [MARK.join(FIELDS), *MARK.join(row[name] for name in FIELDS).split("\n")]
    assert outcome(runs_of, lines, MARK) == outcome(runs_of, lines, MARK)
