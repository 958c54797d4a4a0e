"""Protected jobs, and the record of decisions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Bring the schema forward."""
    op.create_table(
        "protection",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("until", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("why", _text(), nullable=False),
        sa.Column("ended", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("ended_by", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("protection", schema=None) as batch_op:
        batch_op.create_index("protection_until", ["cluster", "until"], unique=False)
        batch_op.create_index("protection_ref", ["cluster", "ref"], unique=False)
    op.create_table(
        "decision",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("submit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("code", sa.String(length=60), nullable=False),
        sa.Column("numbers", _text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("decision", schema=None) as batch_op:
        batch_op.create_index("decision_ref", ["cluster", "ref"], unique=False)
        batch_op.create_index("decision_at", ["cluster", "at"], unique=False)
