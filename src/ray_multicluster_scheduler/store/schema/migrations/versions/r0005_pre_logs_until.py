"""Pre: until when the logs of ended jobs are removed."""

import sqlalchemy as sa
from alembic import op

revision = "0005_pre"
down_revision = "0004_pre"


def upgrade() -> None:
    """Add the mark beside that of the secrets."""
    op.add_column("upkeep", sa.Column("logs_until", sa.Float()))
