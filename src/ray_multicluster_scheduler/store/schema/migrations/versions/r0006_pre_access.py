"""Pre: tokens, the audit trail, and indexes of jobs by user."""

import sqlalchemy as sa
from alembic import op

revision = "0006_pre"
down_revision = "0005_pre"


def upgrade() -> None:
    """Create both tables, and the indexes for the lists and quotas of a user."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float()),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("used_at", sa.Float()),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("user", sa.Text()),
        sa.Column("token_id", sa.Text()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("address", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_jobs_user", "jobs", ["user"])
    is_open = sa.text("ended_at IS NULL")
    op.create_index("ix_jobs_open", "jobs", ["user", "state"], sqlite_where=is_open, postgresql_where=is_open)
