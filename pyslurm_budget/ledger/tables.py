"""The ledger's tables (design section 5). Every table has the cluster in its key; times are epoch seconds.

Names are as long as slurmdbd's own (tinytext, 255 bytes), and keys of them within MariaDB's limit (3072 bytes).
Text is compared byte by byte there (``utf8mb4_bin``), so that users ``Joe`` and ``joe`` stay two. Migrations
(``migrations/versions``) make these tables; a test compares both.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import TypeEngine

metadata = MetaData()
_BINARY: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def name(length: int = 255) -> String:
    """A name in Slurm's sense."""
    return String(length)


def long_text() -> TypeEngine[str]:
    """Text without a limit that matters."""
    return Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def _int(column: str, *, null: bool = False, key: bool = False) -> Column[int]:
    return Column(column, BigInteger, nullable=null, primary_key=key, autoincrement=False)


def _text(column: str, length: int = 255, *, null: bool = False, key: bool = False) -> Column[str]:
    return Column(column, name(length), nullable=null, primary_key=key)


run = Table(
    "run",
    metadata,
    _text("cluster", 40, key=True),
    _int("job_id", key=True),
    _int("submit", key=True),
    _text("job_ref"),
    _text("account"),
    _text("user"),
    _text("qos"),
    _text("budget", null=True),
    _text("pool", null=True),
    _text("state", 40),
    _int("start", null=True),
    _int("end", null=True),
    _int("suspended"),
    _int("gpus", null=True),
    _int("rate"),
    _text("work_class", 10),
    _text("shadow", 10),
    Column("unknown", long_text(), nullable=True),
    _int("time_limit", null=True),
    Column("nodes", long_text(), nullable=False),
    _text("gpu_type", null=True),
    _text("partition", null=True),
    _text("charged_as", 10),
    Column("parts", long_text(), nullable=True),
    _int("protected_until", null=True),
    _int("absent_since", null=True),
    _int("charged_to", null=True),
    Index("run_end", "cluster", "end"),
    Index("run_start", "cluster", "start"),
    Index("run_protected", "cluster", "protected_until"),
    Index("run_ref", "cluster", "job_ref"),
    **_BINARY,
)

usage_group = Table(
    "usage_group",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _text("digest", 64),
    _text("budget", null=True),
    _text("account"),
    _text("user"),
    _text("qos"),
    _text("pool", null=True),
    _text("flavor", null=True),
    _text("charged_as", 10),
    Column("run_on", Boolean, nullable=False),
    UniqueConstraint("cluster", "digest", name="usage_group_digest"),
    **_BINARY,
)

usage_hour = Table(
    "usage_hour",
    metadata,
    _text("cluster", 40, key=True),
    _int("span", key=True),
    _int("at", key=True),
    _int("group_id", key=True),
    _int("gpu_seconds"),
    _int("charge"),
    _int("gpus_at"),
    _int("rate_at"),
    sqlite_with_rowid=False,
    **_BINARY,
)

contract = Table(
    "contract",
    metadata,
    _text("cluster", 40, key=True),
    _int("job_id", key=True),
    _int("submit", key=True),
    _text("ref"),
    _text("pool"),
    _text("budget", null=True),
    _text("user"),
    _text("work_class", 10),
    _text("shadow", 10),
    _int("rate"),
    _int("start"),
    _int("minimum"),
    _int("protected_until"),
    Column("stoppable", Boolean, nullable=False),
    _text("mode", 10),
    _text("source", 40),
    _text("outcome", 40, null=True),
    Index("contract_open", "cluster", "outcome"),
    **_BINARY,
)

admission = Table(
    "admission",
    metadata,
    _text("cluster", 40, key=True),
    _text("ref", key=True),
    _int("job_id"),
    _int("submit"),
    _text("budget", null=True),
    _text("pool"),
    _text("work_class", 10),
    _int("rate"),
    _int("contract"),
    _int("price_length"),
    Column("signature", long_text(), nullable=False),
    _int("since"),
    _int("sequence"),
    Column("reason", long_text(), nullable=False),
    **_BINARY,
)

action = Table(
    "action",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _int("cycle"),
    _int("at"),
    _text("kind", 20),
    _text("ref"),
    _int("job_id"),
    _int("submit"),
    _text("code", 60),
    _text("for_ref", null=True),
    Column("detail", long_text(), nullable=False),
    _text("state", 10),
    Column("outcome", long_text(), nullable=False),
    _int("closed", null=True),
    Index("action_ref", "cluster", "ref"),
    Index("action_at", "cluster", "at"),
    Index("action_state", "cluster", "state"),
    **_BINARY,
)

cycle = Table(
    "cycle",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _int("started"),
    _int("finished", null=True),
    _text("mode", 10),
    Column("applied", Boolean, nullable=False),
    Column("stages", long_text(), nullable=False),
    Column("counts", long_text(), nullable=False),
    Column("error", long_text(), nullable=True),
    Index("cycle_started", "cluster", "started"),
    **_BINARY,
)

lease = Table(
    "lease",
    metadata,
    _text("cluster", 40, key=True),
    _text("holder", 200),
    _int("until"),
    _int("token"),
    **_BINARY,
)

sync = Table(
    "sync",
    metadata,
    _text("cluster", 40, key=True),
    _text("source", 20, key=True),
    _int("watermark"),
    _int("as_of"),
    Column("complete", Boolean, nullable=False),
    **_BINARY,
)

capacity = Table(
    "capacity",
    metadata,
    _text("cluster", 40, key=True),
    _text("pool", key=True),
    _int("hour", key=True),
    _int("gpu_seconds"),
    _int("covered"),
    _int("gpus"),
    **_BINARY,
)

demand = Table(
    "demand",
    metadata,
    _text("cluster", 40, key=True),
    _text("pool", key=True),
    _text("account", key=True),
    _int("hour", key=True),
    _int("running"),
    _int("pending"),
    _int("covered"),
    **_BINARY,
)

node_event = Table(
    "node_event",
    metadata,
    _text("cluster", 40, key=True),
    _text("node", key=True),
    _int("start", key=True),
    _int("end", null=True),
    _text("state", 40),
    Column("reason", long_text(), nullable=False),
    Index("node_event_end", "cluster", "end"),
    **_BINARY,
)

reservation = Table(
    "reservation",
    metadata,
    _text("cluster", 40, key=True),
    _int("id", key=True),
    _int("start", key=True),
    _text("name"),
    _int("end", null=True),
    Column("accounts", long_text(), nullable=False),
    _text("flags"),
    Column("nodes", long_text(), nullable=False),
    Column("gpus", long_text(), nullable=False),
    Index("reservation_end", "cluster", "end"),
    **_BINARY,
)

entry = Table(
    "entry",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _int("at"),
    _text("kind", 20),
    _text("account"),
    _text("pool"),
    _int("amount"),
    _int("begin"),
    _int("end", null=True),
    _int("job_id", null=True),
    _int("submit", null=True),
    _int("reverses", null=True),
    _text("who"),
    Column("why", long_text(), nullable=False),
    _text("lender", null=True),
    Index("entry_begin", "cluster", "begin"),
    UniqueConstraint("cluster", "kind", "job_id", "submit", name="entry_once"),
    **_BINARY,
)

booking = Table(
    "booking",
    metadata,
    _text("cluster", 40, key=True),
    _int("entry", key=True),
    _text("account", key=True),
    _text("pool", key=True),
    _int("begin", key=True),
    _int("end"),
    _int("amount"),
    _text("lender", null=True),
    Index("booking_end", "cluster", "end"),
    **_BINARY,
)

share_loan = Table(
    "share_loan",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _text("lender"),
    _text("borrower"),
    _text("pool"),
    Column("share", long_text(), nullable=False),
    _int("since"),
    _int("until"),
    Index("share_loan_until", "cluster", "until"),
    **_BINARY,
)

budget = Table(
    "budget",
    metadata,
    _text("cluster", 40, key=True),
    _text("account", key=True),
    _text("parent", null=True),
    Column("borrow", Boolean, nullable=False),
    **_BINARY,
)

budget_share = Table(
    "budget_share",
    metadata,
    _text("cluster", 40, key=True),
    _text("account", key=True),
    _text("pool", key=True),
    _int("since", key=True),
    Column("share", long_text(), nullable=False),
    **_BINARY,
)

budget_change = Table(
    "budget_change",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _int("at"),
    _text("who"),
    Column("why", long_text(), nullable=False),
    Column("change", long_text(), nullable=False),
    Index("budget_change_at", "cluster", "at"),
    **_BINARY,
)

protection = Table(
    "protection",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _text("ref"),
    _int("job_id"),
    _int("at"),
    _int("until"),
    _text("who"),
    Column("why", long_text(), nullable=False),
    _int("ended", null=True),
    _text("ended_by", null=True),
    Index("protection_until", "cluster", "until"),
    Index("protection_ref", "cluster", "ref"),
    **_BINARY,
)

decision = Table(
    "decision",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("cluster", 40),
    _int("at"),
    _text("kind", 20),
    _text("ref"),
    _int("submit"),
    _text("code", 60),
    Column("numbers", long_text(), nullable=False),
    Index("decision_ref", "cluster", "ref"),
    Index("decision_at", "cluster", "at"),
    **_BINARY,
)

class_map = Table(
    "class_map",
    metadata,
    _text("cluster", 40, key=True),
    _text("managed", key=True),
    _int("since", key=True),
    _text("twin", null=True),
    **_BINARY,
)

setting = Table(
    "setting",
    metadata,
    _text("cluster", 40, key=True),
    _text("name", key=True),
    Column("value", long_text(), nullable=False),
    **_BINARY,
)
