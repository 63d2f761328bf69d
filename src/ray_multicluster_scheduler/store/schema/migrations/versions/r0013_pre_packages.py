"""Pre: packages in chunks, and which user has uploaded which package."""

import sqlalchemy as sa
from alembic import op

revision = "0013_pre"
down_revision = "0012_pre"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "packages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_packages"),
        sa.UniqueConstraint("name", name="uq_packages_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "package_chunks",
        sa.Column("package_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["package_id"], ["packages.id"], name="fk_package_chunks_package_id"),
        sa.PrimaryKeyConstraint("package_id", "number", name="pk_package_chunks"),
    )
    op.create_table(
        "uploads",
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("user", "name", name="pk_uploads"),
    )
    op.create_index("ix_uploads_content", "uploads", ["content"])
