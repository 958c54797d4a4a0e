"""A ledger that has been kept for years, made from one of two months: its runs and usage again, earlier."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from benches.history import DAY

if TYPE_CHECKING:
    from pathlib import Path

# Columns by which a copy differs: each copy has job ids of its own, and lies earlier by so many whole days.
EARLIER = {"run": ("submit", "start", "end", "charged_to", "protected_until"), "usage_hour": ("at",)}
JOBS = 100_000_000


def older(source: Path, target: Path, copies: int, days: int) -> int:
    """Copy the ledger, and put its runs and usage into it ``copies`` times more, each time ``days`` earlier; returns
    how many runs there are then."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as ledger:
        ledger.execute("PRAGMA journal_mode=WAL")
        ledger.execute("PRAGMA synchronous=OFF")
        made = ledger.execute("SELECT COUNT(*) FROM run").fetchone()[0]
        for table, times in EARLIER.items():
            columns = [row[1] for row in ledger.execute(f"PRAGMA table_info({table})")]
            ledger.execute(f"CREATE TEMP TABLE original AS SELECT * FROM {table}")
            for copy in range(1, copies + 1):
                changed = [_changed(name, times, copy, copy * days * DAY) for name in columns]
                ledger.execute(f"INSERT INTO {table} SELECT {', '.join(changed)} FROM original")
            ledger.execute("DROP TABLE original")
        ledger.execute("ANALYZE")
        ledger.commit()
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(made) * (copies + 1)


def _changed(column: str, times: tuple[str, ...], copy: int, seconds: int) -> str:
    if column == "job_id":
        return f"job_id + {copy * JOBS}"
    return f'"{column}" - {seconds}' if column in times else f'"{column}"'
