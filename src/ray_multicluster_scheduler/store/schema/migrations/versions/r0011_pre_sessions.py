"""Pre: Ray Client sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0011_pre"
down_revision = "0010_pre"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "sessions",
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("alive_at", sa.Float(), nullable=False),
        sa.Column("ray_job_id", sa.Text()),
        sa.Column("helper_pid", sa.Integer()),
        sa.Column("helper_address", sa.Text()),
        sa.Column("failure", sa.Text()),
        sa.Column("disconnected", sa.Boolean(), nullable=False),
        sa.Column("stop_requested", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["jobs.submission_id"], name="fk_sessions_submission_id"),
        sa.PrimaryKeyConstraint("submission_id", name="pk_sessions"),
    )
