"""The columns of sacct: their names in all releases from 17.11 to 26.05, and the shape of what stands in them.

The shapes find the borders of records and cells where free text holds the delimiter or a newline: sacct escapes
nothing. They are wider than what is accepted as a value, so that a cut value is reported as such.
"""

from __future__ import annotations

import re

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_TIME = rf"[0-9]{{1,11}}|{_DATE}|Unknown|None|N/A|"
JOB = re.compile(
    r"(?P<job>[0-9]+)(?:_(?P<task>[0-9]+)|_(?P<tasks>\[[0-9,:%.\-]*\]?)|\+(?P<offset>[0-9]+))?(?P<step>\.[A-Za-z0-9_+]+)?",
    re.ASCII,
)
_COUNT = r"[0-9.]*[KMGTP]?"
_DURATION = r"(?:[0-9]+-)?[0-9:.]*|UNLIMITED|Partition_Limit|INVALID"
_TRES = r"(?:[^\s=,]+=\S*)?"
_WORD = r"\S*"
_SHAPES = {
    JOB.pattern: ("JobID", "JobIDRaw"),
    _TIME: ("Submit", "Start", "End", "Eligible"),
    r"[A-Z_]+(?: by [0-9]+)?": ("State",),
    _TRES: ("AllocTRES", "ReqTRES"),
    _COUNT: (
        *("AllocCPUS", "AllocNodes", "NCPUS", "NNodes", "ReqCPUS", "ReqNodes", "ElapsedRaw", "CPUTimeRAW", "UID"),
        *("GID", "AssocID", "NTasks", "Restarts", "QOSRAW", "WCKeyID", "DBIndex"),
    ),
    _DURATION: ("Elapsed", "Suspended", "Timelimit", "TimelimitRaw", "CPUTime", "TotalCPU", "Planned", "Reserved"),
    _WORD: ("Account", "User", "QOS", "Partition", "Cluster", "AllocGRES", "ReqGRES", "Flags", "ExitCode"),
    r"\S*|None assigned": ("NodeList",),
}
_OTHERS = re.findall(
    r"\w+",
    """
    AveCPU AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize BlockID ConsumedEnergy ConsumedEnergyRaw
    DerivedExitCode Group Layout MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode
    MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode
    MaxVMSizeTask MinCPU MinCPUNode MinCPUTask PlannedCPU PlannedCPURAW Priority QOSREQ ReqCPUFreq
    ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin ReqMem Reservation ReservationId ReservationReq ResvCPU ResvCPURAW
    SegmentSize SystemCPU TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin
    TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode
    TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot UserCPU
    SLUID OriginalSLUID Exclusive OverSubscribe ReqReservation
    """,
)
_FREE = re.findall(
    r"\w+",
    """
    JobName Comment AdminComment SystemComment WorkDir SubmitLine Constraints Container Extra StdErr StdIn StdOut
    WCKey Reason Licenses FailedNode McsLabel
    """,
)

SHAPE = {name.lower(): re.compile(shape, re.ASCII) for shape, names in _SHAPES.items() for name in names}
_LINE = re.compile(r"[^\n]*")
NOTHING = re.compile("")
KNOWN = frozenset(SHAPE) | {name.lower() for name in (*_OTHERS, *_FREE)}
FREE_TEXT = frozenset(name.lower() for name in _FREE)


def shape_of(name: str) -> re.Pattern[str] | None:
    """Shape of a column by its name in lower case; ``None`` for free text, which a column nobody knows may hold."""
    if name in FREE_TEXT or name not in KNOWN:
        return NOTHING if name == "" else None
    return SHAPE.get(name, _LINE)


# What becomes part of a run: where free text makes two values of these possible, the row is rejected.
USED = frozenset(
    re.findall(
        r"\w+",
        """
        cluster jobid jobidraw account user uid qos partition state submit eligible start end elapsed elapsedraw
        suspended timelimit timelimitraw alloctres reqtres allocgres reqgres nodelist nnodes
        """,
    )
)
