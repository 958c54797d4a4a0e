"""One command of ours as a process, and what it took: the time, its own CPU time and its own memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Asked from inside, at the end: from outside, the commands of Slurm that it has started would be counted with it.
_INSIDE = """
import atexit, json, resource, sys
def told(path=sys.argv.pop(1)):
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    with open(path, "w") as out:
        json.dump({"cpu": used.ru_utime + used.ru_stime, "peak_mb": int(peak) / 1024}, out)
atexit.register(told)
from pyslurm_budget.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Took:
    """Seconds from start to end, seconds of CPU and MiB at most (children not counted), and what it said."""

    seconds: float
    cpu: float
    peak_mb: float
    said: str


def timed(argv: list[str], env: Mapping[str, str], folder: Path) -> Took:
    """Run ``sbudget`` with these arguments; raises RuntimeError with its words if it fails."""
    told = folder / "used.json"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-c", _INSIDE, str(told), *argv],
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"sbudget {' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
    used = json.loads(told.read_text(encoding="utf-8"))
    return Took(seconds, used["cpu"], used["peak_mb"], done.stderr.strip())
