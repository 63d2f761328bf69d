"""Pre: the job under which a list shows another one, and the attempts of a span of time."""

import sqlalchemy as sa
from alembic import op

revision = "0014_pre"
down_revision = "0013_pre"

_LISTED = "head IS NULL"


def upgrade() -> None:
    """Add the column and the indexes. Jobs of one group are listed under the first of it.

    Chains of dependencies that are there already stay as they are: each of their jobs is listed itself.
    """
    ids = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.add_column("jobs", sa.Column("head", ids))
    op.add_column("jobs", sa.Column("head_group", sa.Text))
    _fill_groups()
    _index("ix_jobs_heads", ["seq"], _LISTED)
    _index("ix_jobs_heads_user", ["user", "seq"], _LISTED)
    _index("ix_jobs_heads_state", ["state", "seq"], _LISTED)
    _index("uq_jobs_head_group", ["head_group", "user"], "head_group IS NOT NULL", unique=True)
    _index("ix_jobs_members", ["head", "state", "seq"], "head IS NOT NULL")
    op.create_index("ix_attempts_placed", "attempts", ["placed_at"])
    _index("ix_attempts_ended", ["ended_at", "placed_at"], "ended_at IS NOT NULL", table="attempts")


def _fill_groups() -> None:
    """Let the jobs of a group know the first of them, one group after the other: each has an index entry."""
    names = ("seq", "submission_id", "user", "group", "head", "head_group")
    jobs = sa.table("jobs", *map(sa.column, names))
    first = (
        sa.select(jobs.c.user, jobs.c.group, sa.func.min(jobs.c.seq).label("seq"))
        .where(jobs.c.group.is_not(None))
        .group_by(jobs.c.user, jobs.c.group)
        .having(sa.func.count() > 1)
        .subquery()
    )
    heads = sa.select(first, jobs.c.submission_id).join(jobs, jobs.c.seq == first.c.seq)
    others = (
        sa.update(jobs)
        .where(
            jobs.c.user == sa.bindparam("of_user"),
            jobs.c.group == sa.bindparam("of_group"),
            jobs.c.seq > sa.bindparam("first"),
        )
        .values(head=sa.bindparam("head_id"))
    )
    rows = [
        {"of_user": user, "of_group": group, "first": seq, "head_id": submission_id}
        for user, group, seq, submission_id in op.get_bind().execute(heads)
    ]
    if rows:
        op.get_bind().execute(others, rows)
    first_ones = sa.update(jobs).where(jobs.c.group.is_not(None), jobs.c.head.is_(None))
    op.execute(first_ones.values(head_group=jobs.c.group))


def _index(name: str, columns: list[str], where: str, *, table: str = "jobs", unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
