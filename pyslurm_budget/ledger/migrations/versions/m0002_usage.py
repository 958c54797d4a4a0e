"""Usage by hour, the class that counts, parts of runs, demand, node events, reservations, entries"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the schema forward. Usage by hour is filled from the runs afterwards (``ledger.migrate``)."""
    op.create_table(
        "demand",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("running", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("pending", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("covered", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "pool", "account", "hour"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "entry",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("amount", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("begin", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("submit", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("reverses", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column(
            "why",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cluster", "kind", "job_id", "submit", name="entry_once"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("entry", schema=None) as batch_op:
        batch_op.create_index("entry_begin", ["cluster", "begin"], unique=False)

    op.create_table(
        "node_event",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column(
            "reason",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster", "node", "start"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("node_event", schema=None) as batch_op:
        batch_op.create_index("node_event_end", ["cluster", "end"], unique=False)

    op.create_table(
        "reservation",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("end", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column(
            "accounts",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("flags", sa.String(length=255), nullable=False),
        sa.Column(
            "nodes",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column(
            "gpus",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster", "id", "start"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("reservation", schema=None) as batch_op:
        batch_op.create_index("reservation_end", ["cluster", "end"], unique=False)

    op.create_table(
        "usage_group",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("budget", sa.String(length=255), nullable=True),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("qos", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=True),
        sa.Column("flavor", sa.String(length=255), nullable=True),
        sa.Column("charged_as", sa.String(length=10), nullable=False),
        sa.Column("run_on", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cluster", "digest", name="usage_group_digest"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "usage_hour",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("span", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("group_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpu_seconds", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("charge", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpus_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rate_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "span", "at", "group_id"),
        sqlite_with_rowid=False,
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.add_column(sa.Column("partition", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("charged_as", sa.String(length=10), server_default="backed", nullable=False))
        batch_op.add_column(
            sa.Column(
                "parts",
                sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
                nullable=True,
            )
        )
        batch_op.add_column(sa.Column("protected_until", sa.BigInteger(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("absent_since", sa.BigInteger(), autoincrement=False, nullable=True))
        batch_op.add_column(sa.Column("charged_to", sa.BigInteger(), autoincrement=False, nullable=True))
        batch_op.create_index("run_protected", ["cluster", "protected_until"], unique=False)
        batch_op.create_index("run_start", ["cluster", "start"], unique=False)

    _set_classes()


def _set_classes() -> None:
    """A run that ended before the switch-on counts as it would have been decided then, any other by its QOS."""
    run = sa.table("run", *(sa.column(c) for c in ("cluster", "end", "work_class", "shadow", "charged_as")))
    setting = sa.table("setting", *(sa.column(c) for c in ("cluster", "name", "value")))
    switched = {
        cluster: int(value)
        for cluster, value in op.get_bind().execute(
            sa.select(setting.c.cluster, setting.c.value).where(setting.c.name == "enforced-since")
        )
    }
    op.execute(run.update().values(charged_as=run.c.shadow))
    for cluster, since in switched.items():
        after = sa.or_(run.c.end.is_(None), run.c.end >= since)
        op.execute(run.update().where(run.c.cluster == cluster, after).values(charged_as=run.c.work_class))
