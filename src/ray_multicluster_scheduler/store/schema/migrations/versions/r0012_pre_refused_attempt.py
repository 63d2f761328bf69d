"""Pre: which attempt of a session its cluster could not begin."""

import sqlalchemy as sa
from alembic import op

revision = "0012_pre"
down_revision = "0011_pre"


def upgrade() -> None:
    """Add the column."""
    op.add_column("sessions", sa.Column("refused_attempt", sa.Integer()))
