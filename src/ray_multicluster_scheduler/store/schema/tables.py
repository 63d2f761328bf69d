"""The schema of a store. A test checks that a recorded store of each revision is brought to it.

New columns go to the end of a table, because that is where migrations add them.

Rules that must never be broken are constraints here: one row per submission id, one job per idempotency key
of a user, one attempt per id on a cluster, one lease, known states only.
"""

from __future__ import annotations

from enum import Enum

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    text,
)

from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState

#: The last migration. A store of this version has this schema.
REVISION = "r0001_pre"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


#: PostgreSQL has 64 bits only if asked for them.
Number = Integer().with_variant(BigInteger(), "postgresql")
#: Ids are compared byte by byte, so that those with a common prefix stand together in an index.
_Id = Text().with_variant(Text(collation="C"), "postgresql")


def _one_of(column: str, words: type[Enum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(w.value) for w in words)})", name=column)


def _partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    # `postgres/opening.py` adds `postgresql_where`: here it would import that dialect everywhere.
    return Index(name, *columns, unique=unique, sqlite_where=text(where))


def _job_id(*, primary_key: bool = False) -> Column[str]:
    return Column(
        "submission_id", _Id, ForeignKey("jobs.submission_id"), primary_key=primary_key, nullable=False
    )


meta = Table(
    "meta",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("store_id", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    # Grows with each commit that may be waited for; see `Changes.wait`.
    Column("changes", Number, nullable=False),
    # Proves the tokens of jobs: 32 bytes as hexadecimal digits, made when the store is created.
    Column("job_key", Text),
    CheckConstraint("id = 1", name="one_row"),
)

lease = Table(
    "lease",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("holder", Text),  # NULL: nobody
    Column("epoch", Number, nullable=False),
    Column("expires_at", Float, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

#: Notes of a leader for its successors.
upkeep = Table(
    "upkeep",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    # The last boot of the machine, and the difference between the time and its uptime.
    Column("clock_boot", Text),
    Column("clock_offset", Float),
    # The secrets, and the logs, of jobs that ended up to this time are removed.
    Column("secrets_until", Float, nullable=False),
    Column("logs_until", Float),
    CheckConstraint("id = 1", name="one_row"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("submission_id", _Id, nullable=False, unique=True),
    Column("spec", JSON, nullable=False),
    # Copies of fields of the spec that queries need. A spec never changes.
    Column("user", Text, nullable=False),
    Column("priority", Number, nullable=False),
    Column("group", Text),
    Column("idempotency_key", Text),
    # The progress of the job.
    Column("state", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("stop_reason", Text),
    Column("attempt", Number, nullable=False),
    Column("cluster", Text),
    Column("remote_id", Text),
    Column("session_name", Text),
    Column("accepted_at", Float, nullable=False),
    Column("placed_at", Float),
    Column("seen_at", Float),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("changed_at", Float, nullable=False),
    Column("not_before", Float, nullable=False),
    # When the job will have waited too long; NULL without a limit and outside the queue.
    Column("queue_deadline", Float),
    Column("reason", Text, nullable=False),
    Column("error_type", Text),
    Column("exit_code", Number),
    Column("infra_failures", Number, nullable=False),
    Column("user_failures", Number, nullable=False),
    Column("avoid", JSON, nullable=False),
    # Copies of the spec too. `name` is the `job_id`.
    Column("name", Text),
    Column("parent", Text),
    # The job under which a list shows this one; NULL: it is listed itself. Such a job has no head itself.
    Column("head", _Id),
    # The group again, of the job that stands for it. PostgreSQL would not find it by `group` and `head`: it
    # takes the two for independent, and reads the whole group.
    Column("head_group", Text),
    # Its cluster has not reported the end: `ended_at` is when it was noticed.
    Column("end_unreported", Boolean, nullable=False, server_default=false()),
    _one_of("state", JobState),
    _one_of("target", Target),
    Index("ix_jobs_state", "state", "seq"),
    _partial_index(
        "uq_jobs_idempotency", "user", "idempotency_key", where="idempotency_key IS NOT NULL", unique=True
    ),
    # They sort by age within one name or group too: SQLite has `seq`, its row number, in every index.
    _partial_index("ix_jobs_name", "name", where="name IS NOT NULL"),
    _partial_index("ix_jobs_group", "group", where='"group" IS NOT NULL'),
    _partial_index("ix_jobs_parent", "parent", where="parent IS NOT NULL"),
    # With both columns, so that SQLite prefers it to `ix_jobs_state`.
    _partial_index("ix_jobs_stopping", "state", "target", where="target = 'STOPPED'"),
    _partial_index("ix_jobs_ended", "ended_at", where="ended_at IS NOT NULL"),
    _partial_index("ix_jobs_queue_deadline", "queue_deadline", where="queue_deadline IS NOT NULL"),
    # The jobs of one user by age, and the open ones: for lists, counts and quotas.
    Index("ix_jobs_user", "user"),
    _partial_index("ix_jobs_open", "user", "state", where="ended_at IS NULL"),
    # What is listed itself, by age: of everybody, of one user, in one state. However many jobs are listed
    # under others, a page costs the same.
    _partial_index("ix_jobs_heads", "seq", where="head IS NULL"),
    _partial_index("ix_jobs_heads_user", "user", "seq", where="head IS NULL"),
    _partial_index("ix_jobs_heads_state", "state", "seq", where="head IS NULL"),
    # One row for each group of a user.
    _partial_index("uq_jobs_head_group", "head_group", "user", where="head_group IS NOT NULL", unique=True),
    # What is listed under a job: to count it without reading it, and by age in one state.
    _partial_index("ix_jobs_members", "head", "state", "seq", where="head IS NOT NULL"),
    sqlite_autoincrement=True,
)

#: Open dependencies of queued jobs. A row is deleted when the needed job succeeds or the waiting job ends.
#: The full list stays in the spec. So the cost of a query depends on open dependencies, not on history.
dependencies = Table(
    "dependencies",
    metadata,
    _job_id(primary_key=True),
    Column("needs", _Id, ForeignKey("jobs.submission_id"), primary_key=True),
    Column("failed", Boolean, nullable=False),  # the needed job ended without success
    Index("ix_dependencies_needs", "needs"),
    _partial_index("ix_dependencies_failed", "submission_id", where="failed"),
)

tags = Table(
    "tags",
    metadata,
    _job_id(primary_key=True),
    Column("tag", Text, primary_key=True),
    Index("ix_tags_tag", "tag"),
)

attempts = Table(
    "attempts",
    metadata,
    _job_id(primary_key=True),
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("remote_id", Text, nullable=False),
    Column("session_name", Text),
    Column("entrypoint", Text, nullable=False),
    Column("runtime_env", JSON, nullable=False),
    Column("decision", JSON, nullable=False),
    Column("placed_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("outcome", Text),  # NULL while it lives
    Column("reason", Text, nullable=False),
    Column("executor", Text, nullable=False, server_default=DEFAULT_EXECUTOR),
    Column("end_unreported", Boolean, nullable=False, server_default=false()),
    Index("uq_attempts_remote", "cluster", "remote_id", unique=True),
    _partial_index("ix_attempts_live", "cluster", where="outcome IS NULL"),
    # For the timeline: what began in a span of time, and what ended after one.
    Index("ix_attempts_placed", "placed_at"),
    _partial_index("ix_attempts_ended", "ended_at", "placed_at", where="ended_at IS NOT NULL"),
)

events = Table(
    "events",
    metadata,
    Column("id", Number, primary_key=True),
    _job_id(),
    Column("at", Float, nullable=False),
    Column("old", Text),
    Column("new", Text, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("cluster", Text),
    Column("reason", Text, nullable=False),
    Index("ix_events_job", "submission_id", "id"),
    sqlite_autoincrement=True,
)

logs = Table(
    "logs",
    metadata,
    _job_id(primary_key=True),
    Column("attempt", Number, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
)

#: What jobs have left as their results: of a job the last one, with the attempt that left it.
results = Table(
    "results",
    metadata,
    _job_id(primary_key=True),
    Column("attempt", Number, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("problem", Text),
)

#: Beside the job of a session: what the servers that it is connected through know.
sessions = Table(
    "sessions",
    metadata,
    _job_id(primary_key=True),
    Column("alive_at", Float, nullable=False),
    Column("ray_job_id", Text),
    Column("helper_pid", Number),
    Column("helper_address", Text),
    Column("failure", Text),
    Column("disconnected", Boolean, nullable=False),
    Column("stop_requested", Boolean, nullable=False),
    Column("refused_attempt", Number),
)

drained_clusters = Table(
    "drained_clusters",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("drained", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", Float, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("snapshot", JSON, nullable=False),
)

#: One row: why jobs wait, as the leader of this epoch sees it.
waits = Table(
    "waits",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("epoch", Number, nullable=False),
    Column("waits", JSON, nullable=False),
)

#: Who may use the server. A row is never removed: if there is one, callers must show a token.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),  # NULL: never
    Column("revoked_at", Float),
    Column("used_at", Float),  # to the hour
)

audit_trail = Table(
    "audit",
    metadata,
    Column("id", Number, primary_key=True),
    Column("at", Float, nullable=False),
    Column("user", Text),  # NULL: nobody was recognised
    Column("token_id", Text),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("address", Text),
    Index("ix_audit_at", "at"),
    sqlite_autoincrement=True,
)

#: Packages that every scheduler on this store can read. One without a name is being written or removed.
packages = Table(
    "packages",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", Text, unique=True),
    Column("size", Number, nullable=False),
    Column("chunks", Number, nullable=False),
    Column("used_at", Float, nullable=False),
    sqlite_autoincrement=True,
)

#: In pieces, so that neither a transaction nor a row is as large as a package.
package_chunks = Table(
    "package_chunks",
    metadata,
    Column("package_id", Number, ForeignKey("packages.id"), primary_key=True, autoincrement=False),
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

#: The package (`content`) that a name of a user refers to.
uploads = Table(
    "uploads",
    metadata,
    Column("user", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("content", Text, nullable=False),
    Column("size", Number, nullable=False),
    Column("used_at", Float, nullable=False),
    Index("ix_uploads_content", "content"),
)
