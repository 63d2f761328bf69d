"""Pre: jobs by the name that their user gave them (`job_id`)."""

import sqlalchemy as sa
from alembic import op

revision = "0003_pre"
down_revision = "0002_pre"


def upgrade() -> None:
    """Copy the names from the specs, which never change, and index them."""
    op.add_column("jobs", sa.Column("name", sa.Text))
    jobs = sa.table("jobs", sa.column("name", sa.Text), sa.column("spec", sa.JSON))
    op.execute(sa.update(jobs).values(name=jobs.c.spec["name"].as_string()))
    named = sa.text("name IS NOT NULL")
    op.create_index("ix_jobs_name", "jobs", ["name"], sqlite_where=named, postgresql_where=named)
