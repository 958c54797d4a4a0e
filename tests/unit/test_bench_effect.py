"""scripts/bench effect on two jobs, held against figures worked out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench"
# One node of 8 GPUs, two groups. At midnight a takes all of it for six hours; at one b wants half of it for an hour.
TRACE = """timestamp,duration,num_gpus,cluster
2017-10-01 00:00:00,21600.0,8,a
2017-10-01 01:00:00,3600.0,4,b
2017-10-02 00:00:00,3600.0,4,b
"""


def found(tmp_path: Path, *arms: str) -> dict[str, float]:
    """What the bench says of a day."""
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    command = [sys.executable, str(SCRIPT), "effect", "--json", "--trace", str(trace), "--days", "1", "--nodes", "1"]
    command += ["--every", "1200", *(word for arm in arms for word in ("--arm", arm))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    said = json.loads(done.stdout)
    assert said["bench"] == "effect"
    return {row["what"]: row["value"] for row in said["rows"]}


@pytest.mark.parametrize("arm", ["first-come", "fair-share"])
def test_a_day_without_us_by_hand(tmp_path: Path, arm: str) -> None:
    """a is owed 4 GPUs for six hours and gets them; b is owed 4 for six hours, five of them in vain, and gets one."""
    rows = found(tmp_path, arm)
    assert rows[f"{arm}: delivered of owed, worst group"] == pytest.approx(100 / 6, abs=0.2)
    assert rows[f"{arm}: delivered of owed, hour by hour, all"] == pytest.approx(100 * 7 / 12, abs=0.2)
    assert rows[f"{arm}: occupancy"] == pytest.approx(100 * (8 * 6 + 4) / (8 * 24), abs=0.01)
    assert rows[f"{arm}: idle while jobs wait"] == 0
    assert rows[f"{arm}: wait p50"] == pytest.approx(5 * 3600, abs=5)
    assert rows[f"{arm}: runs requeued"] == 0


def test_with_the_rules_the_more_deserving_does_not_wait_for_the_end(tmp_path: Path) -> None:
    """a is owed 4 x 168 GPU-hours in 7 days and has used 5 % of them, the margin, after 4.2 hours on 8 GPUs: the next
    cycle, 4 h 20 min after midnight, requeues its run, and b starts."""
    rows = found(tmp_path, "rules")
    assert rows["rules: runs requeued"] == 1
    assert rows["rules: backed runs stopped inside their contract"] == 0
    assert rows["rules: wait p50"] == pytest.approx(13 * 1200 - 3600, abs=10)
