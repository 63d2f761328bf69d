"""Pre: the first schema. Safe before the new code runs, because there is no old code."""

import sqlalchemy as sa
from alembic import op

revision = "0001_pre"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    _create_identity()
    _create_jobs()
    _create_waiting()
    _create_history()
    _create_clusters()


def _create_identity() -> None:
    op.create_table(
        "meta",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_meta_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_meta"),
    )
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.Text()),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_lease_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("group", sa.Text()),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text()),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Text()),
        sa.Column("remote_id", sa.Text()),
        sa.Column("session_name", sa.Text()),
        sa.Column("accepted_at", sa.Float(), nullable=False),
        sa.Column("placed_at", sa.Float()),
        sa.Column("seen_at", sa.Float()),
        sa.Column("started_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("queue_deadline", sa.Float()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("error_type", sa.Text()),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("infra_failures", sa.Integer(), nullable=False),
        sa.Column("user_failures", sa.Integer(), nullable=False),
        sa.Column("avoid", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "state IN ('QUEUED', 'PLACED', 'SUBMITTED', 'RUNNING', 'UNREACHABLE', 'LOST', "
            "'SUCCEEDED', 'FAILED', 'STOPPED')",
            name="ck_jobs_state",
        ),
        sa.CheckConstraint("target IN ('FINISHED', 'STOPPED')", name="ck_jobs_target"),
        sa.PrimaryKeyConstraint("seq", name="pk_jobs"),
        sa.UniqueConstraint("submission_id", name="uq_jobs_submission_id"),
        sqlite_autoincrement=True,
    )
    _index_jobs()


def _index_jobs() -> None:
    _partial_index("ix_jobs_group", "jobs", ["group"], where='"group" IS NOT NULL')
    op.create_index("ix_jobs_queue", "jobs", ["state", sa.text("priority DESC"), "seq"])
    _partial_index("ix_jobs_not_before", "jobs", ["state", "not_before"], where="not_before > 0")
    _partial_index("ix_jobs_queue_deadline", "jobs", ["queue_deadline"], where="queue_deadline IS NOT NULL")
    _partial_index("ix_jobs_stopping", "jobs", ["state"], where="target = 'STOPPED'")
    _partial_index(
        "uq_jobs_idempotency",
        "jobs",
        ["user", "idempotency_key"],
        unique=True,
        where="idempotency_key IS NOT NULL",
    )


def _create_waiting() -> None:
    op.create_table(
        "dependencies",
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("needs", sa.Text(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["needs"], ["jobs.submission_id"], name="fk_dependencies_needs"),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["jobs.submission_id"], name="fk_dependencies_submission_id"
        ),
        sa.PrimaryKeyConstraint("submission_id", "needs", name="pk_dependencies"),
    )
    _partial_index("ix_dependencies_failed", "dependencies", ["submission_id"], where="failed")
    op.create_index("ix_dependencies_needs", "dependencies", ["needs"])
    op.create_table(
        "tags",
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["jobs.submission_id"], name="fk_tags_submission_id"),
        sa.PrimaryKeyConstraint("submission_id", "tag", name="pk_tags"),
    )
    op.create_index("ix_tags_tag", "tags", ["tag"])


def _create_history() -> None:
    op.create_table(
        "attempts",
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=False),
        sa.Column("session_name", sa.Text()),
        sa.Column("entrypoint", sa.Text(), nullable=False),
        sa.Column("runtime_env", sa.JSON(), nullable=False),
        sa.Column("decision", sa.JSON(), nullable=False),
        sa.Column("placed_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("outcome", sa.Text()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["jobs.submission_id"], name="fk_attempts_submission_id"),
        sa.PrimaryKeyConstraint("submission_id", "number", name="pk_attempts"),
    )
    _partial_index("ix_attempts_live", "attempts", ["cluster"], where="outcome IS NULL")
    op.create_index("uq_attempts_remote", "attempts", ["cluster", "remote_id"], unique=True)
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("old", sa.Text()),
        sa.Column("new", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Text()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["jobs.submission_id"], name="fk_events_submission_id"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job", "events", ["submission_id", "id"])
    op.create_table(
        "logs",
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["jobs.submission_id"], name="fk_logs_submission_id"),
        sa.PrimaryKeyConstraint("submission_id", "attempt", name="pk_logs"),
    )


def _create_clusters() -> None:
    op.create_table(
        "drained_clusters",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_drained_clusters"),
    )
    op.create_table(
        "snapshots",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_snapshots"),
    )


def _partial_index(name: str, table: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
