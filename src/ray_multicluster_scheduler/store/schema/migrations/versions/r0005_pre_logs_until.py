"""Pre: a mark up to which the logs of ended jobs are removed."""

import sqlalchemy as sa
from alembic import op

revision = "0005_pre"
down_revision = "0004_pre"


def upgrade() -> None:
    """Add the mark beside the one for secrets."""
    op.add_column("upkeep", sa.Column("logs_until", sa.Float()))
