"""Pre: no index on `not_before`, which nothing asks by itself since the scheduler's state knows its times."""

from alembic import op

revision = "0010_pre"
down_revision = "0009_pre"


def upgrade() -> None:
    """Drop the index."""
    op.drop_index("ix_jobs_not_before", "jobs")
