"""Pre: notes of a leader for its successors, and an index of ended jobs by age."""

import sqlalchemy as sa
from alembic import op

revision = "0004_pre"
down_revision = "0003_pre"


def upgrade() -> None:
    """Create the table with its one row, and the index that retention needs."""
    upkeep = op.create_table(
        "upkeep",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("clock_boot", sa.Text()),
        sa.Column("clock_offset", sa.Float()),
        sa.Column("secrets_until", sa.Float(), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_upkeep_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_upkeep"),
    )
    op.execute(sa.insert(upkeep).values(id=1, secrets_until=0.0))
    ended = sa.text("ended_at IS NOT NULL")
    op.create_index("ix_jobs_ended", "jobs", ["ended_at"], sqlite_where=ended, postgresql_where=ended)
