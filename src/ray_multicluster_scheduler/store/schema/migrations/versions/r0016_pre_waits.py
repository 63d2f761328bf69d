"""Pre: why jobs wait, as the leader sees it."""

import sqlalchemy as sa
from alembic import op

revision = "0016_pre"
down_revision = "0015_pre"


def upgrade() -> None:
    """Add the table."""
    number = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
    op.create_table(
        "waits",
        sa.Column("id", number, autoincrement=False),
        sa.Column("epoch", number, nullable=False),
        sa.Column("waits", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_waits"),
    )
