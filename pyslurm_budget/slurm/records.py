"""From the text of ``scontrol show job -d -o`` to records of fields.

One record is one line, *almost*: JobName, Comment, Command, SubmitLine and WorkDir are free text, may hold newlines,
blanks and anything that looks like a field, and JobName comes before the fields that decide (QOS, JobState). What is
relied on is what users cannot write: the order of the keys. A record begins where a line begins with ``JobId=``; its
deciding fields begin at the one place where the whole sequence from UserId to JobState stands, and end at Command.
Where that sequence stands more than once somebody wrote it into his job's name (or comment), and slurmctld is asked
for the name alone; without an answer the record is refused. Nothing is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyslurm_budget.errors import SlurmOutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    NameOf = Callable[[int], str | None]

_EMPTY = ("No jobs in the system",)
_BEGIN = re.compile(r"^(?=JobId=([0-9]+) (?:ArrayJobId|HetJobId|JobName)=)", re.MULTILINE)
_HEAD = re.compile(
    r"JobId=(?P<JobId>[0-9]+) "
    r"(?:ArrayJobId=(?P<ArrayJobId>[0-9]+) ArrayTaskId=(?P<ArrayTaskId>\S+) "
    r"(?:ArrayTaskThrottle=(?P<ArrayTaskThrottle>[0-9]+) )?)?"
    r"(?:HetJobId=(?P<HetJobId>[0-9]+) HetJobOffset=(?P<HetJobOffset>[0-9]+) )?"
    r"JobName="
)
_ANCHOR = re.compile(
    r" (?:SLUID=\S+ )?(?:OriginalSLUID=\S+ )?(?:HetJobIdSet=\S+ )?"
    r"UserId=(?P<UserId>[^\n=]*)\((?P<Uid>[0-9]+)\) GroupId=[^\n=]*\([0-9]+\) MCS_label=\S* "
    r"Priority=(?P<Priority>[0-9]+) Nice=\S+ Account=(?P<Account>\S*) QOS=(?P<QOS>\S*) (?:WCKey=\S* )?(?=JobState=)"
)
_FREE = " Command="
_AT_END = frozenset(
    {"Power", "CpusPerTres", "MemPerTres", "TresBind", "TresFreq", "TresPerJob", "TresPerNode", "TresPerSocket"}
    | {"TresPerTask", "MailUser", "MailType", "NtasksPerTRES", "StepMgrEnabled"}
)
_NODE_KEYS = ("Nodes", "CPU_IDs", "Mem", "GRES")


@dataclass(frozen=True, slots=True)
class Record:
    """One job's fields by their Slurm names; ``shares`` are the per-node lines of ``-d``, each by its own keys."""

    fields: Mapping[str, str]
    shares: tuple[Mapping[str, str], ...]

    @property
    def job_id(self) -> int:
        """The raw job id."""
        return int(self.fields["JobId"])


def record_ids(text: str) -> list[int]:
    """The ids of what looks like the beginning of a record, in order; free text may be among it."""
    return [int(found[1]) for found in _BEGIN.finditer(text)]


def job_records(text: str, name_of: NameOf | None = None, imitated: Collection[int] = ()) -> list[Record]:
    """All records of the answer; raises SlurmOutputError naming the first line that cannot be read.

    ``name_of`` asks for the name of one job (``None``: unknown), where the text alone is ambiguous; ``imitated`` are
    ids that are no jobs: what looks like their record is free text of the record before. An answer without any record
    must say so in Slurm's words: an empty one is a failure.
    """
    first, *parts = _BEGIN.split(text)
    chunks: list[str] = []
    for job_id, part in zip(parts[::2], parts[1::2], strict=True):
        if chunks and imitated and int(job_id) in imitated:
            chunks[-1] += part
        else:
            chunks.append(part)
    if first.strip() and not (first.strip() in _EMPTY and not chunks):
        raise SlurmOutputError(f"scontrol show job: cannot read the line {_short(first)}")
    if not chunks and not first.strip():
        raise SlurmOutputError("scontrol show job: an empty answer, without even `No jobs in the system`")
    return [_record(chunk.rstrip(" \n"), name_of) for chunk in chunks]


def _record(text: str, name_of: NameOf | None) -> Record:
    """Read one record."""
    head = _HEAD.match(text)
    if head is None:
        raise _unreadable(text)
    anchor = _anchor(text, head, name_of)
    end = text.find(_FREE, anchor.end())
    if end < 0:
        raise _unreadable(text)
    fields = {key: value for key, value in head.groupdict().items() if value is not None}
    fields.update(anchor.groupdict())
    fields["JobName"] = text[head.end() : anchor.start()]
    shares = _decisive(text[anchor.end() : end], fields)
    _free_text(text[end + len(_FREE) :], fields)
    return Record(fields, shares)


def _anchor(text: str, head: re.Match[str], name_of: NameOf | None) -> re.Match[str]:
    """Where the deciding fields begin: the only place that looks like it, else right after the job's true name."""
    found = _ANCHOR.search(text, head.end())
    if found is None:
        raise _unreadable(text)
    if text.find(" MCS_label=", found.end()) < 0 or _ANCHOR.search(text, found.end()) is None:
        return found
    name = name_of(int(head["JobId"])) if name_of is not None else None
    if name is not None and text.startswith(name, head.end()):
        found = _ANCHOR.match(text, head.end() + len(name))
        if found is not None:
            return found
    raise SlurmOutputError(
        f"scontrol show job: the free text of job {head['JobId']} imitates a job record; cancel the job or clear it"
    )


def _decisive(text: str, fields: dict[str, str]) -> tuple[Mapping[str, str], ...]:
    """Put the fields between JobState and Command into ``fields``; returns the per-node lines among them."""
    shares: list[dict[str, str]] = []
    last = ""
    for token in text.split(" "):
        key, equals, value = token.partition("=")
        if key in _NODE_KEYS and equals:
            if key == "Nodes":
                shares.append({})
            if not shares:
                raise SlurmOutputError(f"scontrol show job: {token} without a node in job {fields['JobId']}")
            shares[-1][key] = value
        elif equals:
            fields.setdefault(key, value)
            last = key
        elif token and last:
            fields[last] += " " + token
    return tuple(shares)


def _free_text(text: str, fields: dict[str, str]) -> None:
    """Put what follows Command into ``fields``: TresPer* and the like from the end, then the comments."""
    while True:
        rest, _, token = text.rstrip().rpartition(" ")
        key, equals, value = token.partition("=")
        if not equals or key not in _AT_END:
            break
        fields.setdefault(key, value)
        text = rest
    text = text.rpartition(" StdErr=")[0] or text
    before, _, comment = text.rpartition(" WorkDir=")[2].partition(" Comment=")
    admin = before.partition(" AdminComment=")[2]
    fields["Comment"] = comment.strip()
    fields["AdminComment"] = admin.partition(" SystemComment=")[0].strip()


def refuse_twins(records: list[Record]) -> None:
    """Raise if a job id comes twice: Slurm prints each once, so one of them is somebody's free text."""
    place: dict[int, int] = {}
    for i, record in enumerate(records):
        first = place.setdefault(record.job_id, i)
        if first != i:
            before = " or ".join(str(records[at - 1].job_id) for at in (first, i) if at > 0)
            raise SlurmOutputError(
                f"scontrol show job: job {record.job_id} is listed twice; the free text of job {before} imitates it:"
                " look at both, and cancel the one that does"
            )


def _unreadable(text: str) -> SlurmOutputError:
    """The error for a record that has not the shape of one."""
    return SlurmOutputError(f"scontrol show job: cannot read the line {_short(text)}")


def _short(text: str) -> str:
    """A text as it may stand in a message."""
    shown = text.strip()
    return repr(shown if len(shown) <= 160 else shown[:160] + "...")
