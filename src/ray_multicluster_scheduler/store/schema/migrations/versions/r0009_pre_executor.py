"""Pre: which executor ran an attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0009_pre"
down_revision = "0008_pre"


def upgrade() -> None:
    """Add the column; all attempts that are there were run as jobs of Ray."""
    op.add_column("attempts", sa.Column("executor", sa.Text, nullable=False, server_default="ray-jobs"))
