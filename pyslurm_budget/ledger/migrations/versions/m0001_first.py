"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the schema forward."""
    op.create_table(
        "action",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("cycle", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("code", sa.String(length=60), nullable=False),
        sa.Column("for_ref", sa.String(length=255), nullable=True),
        sa.Column(
            "detail",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column(
            "outcome",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("closed", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("action", schema=None) as batch_op:
        batch_op.create_index("action_at", ["cluster", "at"], unique=False)
        batch_op.create_index("action_ref", ["cluster", "ref"], unique=False)
        batch_op.create_index("action_state", ["cluster", "state"], unique=False)

    op.create_table(
        "admission",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("budget", sa.String(length=255), nullable=True),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("work_class", sa.String(length=10), nullable=False),
        sa.Column("rate", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("contract", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("price_length", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "signature",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("since", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "reason",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster", "ref"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "budget",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("parent", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "account"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "budget_change",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column(
            "why",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column(
            "change",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("budget_change", schema=None) as batch_op:
        batch_op.create_index("budget_change_at", ["cluster", "at"], unique=False)

    op.create_table(
        "budget_share",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("since", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "share",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster", "account", "pool", "since"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "capacity",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpu_seconds", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("covered", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpus", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "pool", "hour"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "class_map",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("managed", sa.String(length=255), nullable=False),
        sa.Column("since", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("twin", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "managed", "since"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "contract",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("budget", sa.String(length=255), nullable=True),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("work_class", sa.String(length=10), nullable=False),
        sa.Column("shadow", sa.String(length=10), nullable=False),
        sa.Column("rate", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("minimum", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("protected_until", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stoppable", sa.Boolean(), nullable=False),
        sa.Column("mode", sa.String(length=10), nullable=False),
        sa.Column("source", sa.String(length=40), nullable=False),
        sa.Column("outcome", sa.String(length=40), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "job_id", "submit"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("contract", schema=None) as batch_op:
        batch_op.create_index("contract_open", ["cluster", "outcome"], unique=False)

    op.create_table(
        "cycle",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("started", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("finished", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("mode", sa.String(length=10), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column(
            "stages",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column(
            "counts",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column(
            "error",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=True,
        ),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("cycle", schema=None) as batch_op:
        batch_op.create_index("cycle_started", ["cluster", "started"], unique=False)

    op.create_table(
        "lease",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("until", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "run",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_ref", sa.String(length=255), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("qos", sa.String(length=255), nullable=False),
        sa.Column("budget", sa.String(length=255), nullable=True),
        sa.Column("pool", sa.String(length=255), nullable=True),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("end", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("suspended", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpus", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("rate", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("work_class", sa.String(length=10), nullable=False),
        sa.Column("shadow", sa.String(length=10), nullable=False),
        sa.Column(
            "unknown",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=True,
        ),
        sa.Column("time_limit", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column(
            "nodes",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("gpu_type", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "job_id", "submit"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index("run_end", ["cluster", "end"], unique=False)
        batch_op.create_index("run_ref", ["cluster", "job_ref"], unique=False)

    op.create_table(
        "setting",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column(
            "value",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster", "name"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "sync",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("source", sa.String(length=20), nullable=False),
        sa.Column("watermark", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("as_of", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "source"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
