"""Pre: whether a cluster has reported the end of an attempt, or it was only noticed."""

import sqlalchemy as sa
from alembic import op

revision = "0015_pre"
down_revision = "0014_pre"


def upgrade() -> None:
    """Add the columns. Of ends that are there already it is not known, and they stay as they are."""
    for table in ("jobs", "attempts"):
        op.add_column(
            table, sa.Column("end_unreported", sa.Boolean, nullable=False, server_default=sa.false())
        )
