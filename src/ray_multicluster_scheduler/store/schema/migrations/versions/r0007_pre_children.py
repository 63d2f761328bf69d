"""Pre: the parent of a job, which is the job that submitted it."""

import sqlalchemy as sa
from alembic import op

revision = "0007_pre"
down_revision = "0006_pre"


def upgrade() -> None:
    """Add the column. Existing jobs have no parent."""
    op.add_column("jobs", sa.Column("parent", sa.Text))
    children = sa.text("parent IS NOT NULL")
    op.create_index("ix_jobs_parent", "jobs", ["parent"], sqlite_where=children, postgresql_where=children)
