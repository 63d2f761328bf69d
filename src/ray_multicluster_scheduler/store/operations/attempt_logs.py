"""The kept logs of attempts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    insert,
    select,
)

from ray_multicluster_scheduler.store.operations.job_reads import (
    require,
)
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared
from ray_multicluster_scheduler.store.schema.tables import attempts, jobs, logs
from ray_multicluster_scheduler.text.storable import storable

_FORGET_LOG = Prepared(
    delete(logs).where(logs.c.submission_id == bindparam("of_job"), logs.c.attempt == bindparam("of_attempt"))
)
_KEEP_LOG = Prepared(insert(logs))
_KEPT_ENDS = ForIds(
    lambda ids: (
        select(attempts.c.remote_id)
        .join(
            logs,
            and_(logs.c.submission_id == attempts.c.submission_id, logs.c.attempt == attempts.c.number),
        )
        .where(attempts.c.submission_id.in_(ids), attempts.c.outcome.is_not(None))
    )
)


def save_logs(tx: Connection, texts: Sequence[tuple[str, int, str]]) -> None:
    """Keep the logs of attempts. A log that was kept before is replaced."""
    require(tx, sorted({submission_id for submission_id, _, _ in texts}))
    _FORGET_LOG.run(tx, [{"of_job": job, "of_attempt": number} for job, number, _ in texts])
    _KEEP_LOG.run(
        tx, [{"submission_id": job, "attempt": number, "text": storable(text)} for job, number, text in texts]
    )


def kept_ends(tx: Connection, remote_ids: Sequence[str]) -> frozenset[str]:
    """Return the attempts among these that have ended and whose log is kept."""
    job_ids = {remote_id.rpartition("--r")[0] or remote_id for remote_id in remote_ids} | set(remote_ids)
    return frozenset(remote_id for (remote_id,) in _KEPT_ENDS.rows(tx, sorted(job_ids))) & set(remote_ids)


def load_log(tx: Connection, submission_id: str, attempt: int | None) -> str | None:
    """Return the kept log of an attempt (of the last one by default), or None."""
    last = select(jobs.c.attempt).where(jobs.c.submission_id == submission_id).scalar_subquery()
    number = last if attempt is None else attempt
    return tx.scalar(
        select(logs.c.text).where(logs.c.submission_id == submission_id, logs.c.attempt == number)
    )
