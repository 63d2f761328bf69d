"""Pre: the key that proves the tokens of jobs."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0008_pre"
down_revision = "0007_pre"


def upgrade() -> None:
    """Add the column and the key of an existing store. A new store gets its key with its identity."""
    op.add_column("meta", sa.Column("job_key", sa.Text))
    op.execute(sa.table("meta", sa.column("job_key")).update().values(job_key=secrets.token_hex(32)))
