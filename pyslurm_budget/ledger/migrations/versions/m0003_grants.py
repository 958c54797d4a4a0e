"""Grants and loans with what is booked of them, loans of shares, borrowing"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the schema forward."""
    op.create_table(
        "booking",
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("entry", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("begin", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("amount", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lender", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "entry", "account", "pool", "begin"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("booking", schema=None) as batch_op:
        batch_op.create_index("booking_end", ["cluster", "end"], unique=False)

    op.create_table(
        "share_loan",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=40), nullable=False),
        sa.Column("lender", sa.String(length=255), nullable=False),
        sa.Column("borrower", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column(
            "share",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("since", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("until", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("share_loan", schema=None) as batch_op:
        batch_op.create_index("share_loan_until", ["cluster", "until"], unique=False)

    with op.batch_alter_table("entry", schema=None) as batch_op:
        batch_op.add_column(sa.Column("lender", sa.String(length=255), nullable=True))
    with op.batch_alter_table("budget", schema=None) as batch_op:
        batch_op.add_column(sa.Column("borrow", sa.Boolean(), server_default=sa.false(), nullable=False))
