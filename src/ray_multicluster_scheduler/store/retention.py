"""Remove history in small steps: secrets of ended jobs first, then logs, then whole jobs, oldest first.

Where there are too many jobs, or they take too much space, those users give up history who hold the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy import LargeBinary as Bytes

from ray_multicluster_scheduler.environment.redact import redact_env, redact_text, secrets_of
from ray_multicluster_scheduler.errors import DependencyProblem, InvalidRequest, JobNotFound
from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.model.storage import Keep, Pruned, Space, fair_cuts
from ray_multicluster_scheduler.store.access import prune_audit
from ray_multicluster_scheduler.store.backend import Database
from ray_multicluster_scheduler.store.job_rows import has_more_members_than, replace_heads
from ray_multicluster_scheduler.store.packages import stored_bytes
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared, chunks
from ray_multicluster_scheduler.store.schema.tables import (
    attempts,
    dependencies,
    events,
    jobs,
    logs,
    results,
    sessions,
    tags,
    upkeep,
)
from ray_multicluster_scheduler.store.transactions import Transactions


def _delete_from(table: Table) -> ForIds:
    return ForIds(lambda ids: delete(table).where(table.c.submission_id.in_(ids)))


#: Returned to the file system in one transaction: little enough not to hold up other writers.
SHRINK_BYTES = 8 * 2**20
#: Removing this many audit entries takes as long as removing one job with all its rows.
_AUDIT_PER_JOB = 10
#: A job that more than these are listed under is pruned after them: another one would take its place for all
#: of them, again and again, and a step is to be short.
_MOST_MEMBERS = 100
_DELETE_LOGS = _delete_from(logs)
#: In this order: rows that refer to a job are deleted before the job.
_DELETES = tuple(
    _delete_from(table) for table in (events, tags, attempts, results, sessions, dependencies, jobs)
)
_IS_FINAL = jobs.c.state.in_(sorted(state.value for state in FINAL))
_IS_NEEDED = exists().where(dependencies.c.needs == jobs.c.submission_id)
_STANDS_FOR_FEW = has_more_members_than(_MOST_MEMBERS).is_(None)
_ENDS = ForIds(
    lambda ids: select(jobs.c.submission_id, jobs.c.state, _IS_NEEDED.label("needed")).where(
        jobs.c.submission_id.in_(ids)
    )
)

#: Steps by age go on after the ends that they have done with.
_COME_BACK = Prepared(
    update(upkeep)
    .where(or_(upkeep.c.secrets_until >= bindparam("ended_at"), upkeep.c.logs_until >= bindparam("ended_at")))
    .values(
        {
            column: case((column >= bindparam("ended_at"), bindparam("before")), else_=column)
            for column in (upkeep.c.secrets_until, upkeep.c.logs_until)
        }
    )
)


class Retention:
    """What need not be kept, and the space that it leaves."""

    def __init__(self, transactions: Transactions, database: Database) -> None:
        self._transactions = transactions
        self._database = database

    def delete(self, submission_ids: Sequence[str], *, audit: AuditEntry | None = None) -> None:
        """Remove ended jobs with all that is kept of them, all or none; their ids can be used again.

        `JobNotFound` for an unknown id, `InvalidRequest` for a job that has not ended, `DependencyProblem`
        for one that open jobs wait for. The oldest of those listed under such a job takes its place.
        """
        ids = list(dict.fromkeys(submission_ids))
        with self._transactions.write(audit=audit) as tx:
            ends = {submission_id: (state, needed) for submission_id, state, needed in _ENDS.rows(tx, ids)}
            for submission_id in ids:
                if submission_id not in ends:
                    raise JobNotFound(submission_id)
                _require_ended(submission_id, *ends[submission_id])
            _remove(tx, ids)

    def prune(self, keep: Keep, *, now: float, limit: int, epoch: int | None = None) -> Pruned:
        """Remove data beyond the limits, of about `limit` jobs in a short transaction; repeat while `more`.

        Secrets of ended jobs go first, then logs, then jobs with their attempts and events, oldest first.
        Open jobs, and jobs that an open job depends on, stay; a job that many are listed under goes after
        them. Safe while another process leads.
        """
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            pruned = _prune(tx, keep, now=now, limit=limit)
        if pruned.more:
            return pruned
        with self._transactions.read() as tx:
            excess = self._history_bytes(tx) - keep.size_bytes
            if excess <= 0:
                return pruned
            found = _find_oversize(tx, excess=excess, now=now, limit=limit)
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            return _remove_oversize(tx, found)

    def prunable(self, keep: Keep, *, now: float) -> Pruned:
        """Count the jobs and logs that `prune` would remove because of their age and number."""
        with self._transactions.read() as tx:
            return _prunable(tx, keep, now=now)

    def space(self) -> Space:
        """Return the size of the store on the disk, and the part of it that holds data."""
        with self._transactions.read() as tx:
            return self._database.space(tx)

    def shrink(self, *, most_bytes: int) -> bool:
        """Return some free space to the file system, if there is much; tell whether there is more."""
        with self._transactions.write(notify=False) as tx:
            return self._database.shrink(tx, most_bytes=most_bytes)

    def compact(self, *, rewrite: bool) -> bool:
        """Return all free space; False if only a rewrite can, because an older version created this store."""
        with self._transactions.read() as tx:
            in_place = self._database.can_shrink(tx)
        if rewrite and not in_place:
            self._database.rewrite()
            return True
        while self.shrink(most_bytes=SHRINK_BYTES):
            pass
        self._database.flush()
        return in_place

    def _history_bytes(self, tx: Connection) -> int:
        """Return how many bytes hold data other than packages, for which no job has to go."""
        return self._database.used_bytes(tx) - stored_bytes(tx)


def _prune(tx: Connection, keep: Keep, *, now: float, limit: int) -> Pruned:
    """Take one step by the rules about age and number: remove one kind of data of about `limit` jobs."""
    steps: tuple[Callable[[], Pruned], ...] = (
        lambda: _prune_secrets(tx, until=now - keep.secrets_s, limit=limit),
        lambda: _prune_logs(tx, until=now - keep.logs_s, limit=limit),
        lambda: _prune_audit(tx, keep, now=now, limit=limit),
        lambda: _prune_jobs(tx, _may_go_until(now - keep.jobs_s), limit=limit),
        lambda: _prune_to_number(tx, keep.jobs, now=now, limit=limit),
    )
    for step in steps:
        if (pruned := step()).more:
            return pruned
    return Pruned()


def _require_ended(submission_id: str, state: str, needed: bool) -> None:  # noqa: FBT001
    if JobState(state) not in FINAL:
        raise InvalidRequest(
            f"job {submission_id!r} is {state} and can be deleted when it has ended; stop it first"
        )
    if needed:
        raise DependencyProblem(
            f"job {submission_id!r} cannot be deleted while other jobs wait for it; stop those first"
        )


def _prunable(tx: Connection, keep: Keep, *, now: float) -> Pruned:
    until = now - keep.jobs_s
    old = tx.scalar(select(func.count()).select_from(jobs).where(*_may_go_until(until))) or 0
    cuts = fair_cuts(_ended_by_user(tx, after=until), max(0, _beyond(tx, keep.jobs) - old))
    going = [jobs.c.ended_at <= max(now - keep.logs_s, until)]
    for user, count in cuts.items():
        mine = (*_may_go_until(now), jobs.c.ended_at > until, _is_of(user))
        oldest = select(jobs.c.ended_at).where(*mine).order_by(jobs.c.ended_at).limit(1).offset(count - 1)
        going.append(_is_of(user) & (jobs.c.ended_at <= oldest.scalar_subquery()))
    ended = select(jobs.c.submission_id).where(or_(*going))
    texts = tx.scalar(select(func.count()).select_from(logs).where(logs.c.submission_id.in_(ended))) or 0
    count = old + sum(cuts.values())
    return Pruned(jobs=count, logs=texts, more=count + texts > 0)


def _prune_secrets(tx: Connection, *, until: float, limit: int) -> Pruned:
    def act(ids: Sequence[str]) -> Pruned:
        return Pruned(secrets=_forget_secrets(tx, ids), more=True)

    return _by_end(tx, upkeep.c.secrets_until, until, limit, act)


def _prune_logs(tx: Connection, *, until: float, limit: int) -> Pruned:
    def act(ids: Sequence[str]) -> Pruned:
        return Pruned(logs=_DELETE_LOGS.run(tx, ids), more=True)

    return _by_end(tx, upkeep.c.logs_until, until, limit, act)


def _prune_audit(tx: Connection, keep: Keep, *, now: float, limit: int) -> Pruned:
    removed = prune_audit(tx, until=now - keep.audit_s, most=keep.audit, limit=limit * _AUDIT_PER_JOB)
    return Pruned(more=removed > 0)


def end_found_late(tx: Connection, ended_at: float) -> None:
    """Let the steps by age come back to jobs that ended at this time, if they have gone on to later ones.

    The end of a job may be noticed long after it. Steps that are taken again find nothing left to remove.
    """
    _COME_BACK.run(tx, [{"ended_at": ended_at, "before": math.nextafter(ended_at, 0.0)}])


def _by_end(
    tx: Connection,
    done_until: Column[Any],
    until: float,
    limit: int,
    act: Callable[[Sequence[str]], Pruned],
) -> Pruned:
    """Call `act` with the next jobs in the order of their ends. Jobs with the same end stay together."""
    after = tx.scalar(select(done_until)) or 0.0
    ends = select(jobs.c.ended_at).where(jobs.c.ended_at > after, jobs.c.ended_at <= until)
    last = tx.scalar(ends.order_by(jobs.c.ended_at).limit(1).offset(limit - 1)) or until
    ids = tx.scalars(
        select(jobs.c.submission_id).where(jobs.c.ended_at > after, jobs.c.ended_at <= last)
    ).all()
    if not ids:
        return Pruned()
    tx.execute(update(upkeep).values({done_until: last}))
    return act(ids)


def _may_go_until(until: float) -> tuple[ColumnElement[bool], ...]:
    return jobs.c.ended_at <= until, _IS_FINAL, ~_IS_NEEDED


def _is_of(user: str) -> ColumnElement[bool]:
    """Tell whether a job is this user's. Not by the index of users: jobs are wanted in the order of ends."""
    return func.coalesce(jobs.c.user, "") == user


def _prune_jobs(tx: Connection, may_go: Sequence[ColumnElement[bool]], *, limit: int) -> Pruned:
    oldest = (
        select(jobs.c.submission_id).where(*may_go, _STANDS_FOR_FEW).order_by(jobs.c.ended_at).limit(limit)
    )
    ids = tx.scalars(oldest).all() if limit > 0 else ()
    return Pruned(jobs=len(ids), logs=_remove(tx, ids), more=bool(ids))


def _prune_to_number(tx: Connection, most: int, *, now: float, limit: int) -> Pruned:
    beyond = _beyond(tx, most)
    if not beyond:
        return Pruned()
    jobs_gone = logs_gone = 0
    for user, count in fair_cuts(_ended_by_user(tx), beyond).items():
        step = _prune_jobs(tx, (*_may_go_until(now), _is_of(user)), limit=min(count, limit - jobs_gone))
        jobs_gone, logs_gone = jobs_gone + step.jobs, logs_gone + step.logs
    if not jobs_gone:  # those who have the most have none that may go
        return _prune_jobs(tx, _may_go_until(now), limit=min(beyond, limit))
    return Pruned(jobs=jobs_gone, logs=logs_gone, more=jobs_gone > 0)


def _ended_by_user(tx: Connection, *, after: float | None = None) -> dict[str, int]:
    """Return how many ended jobs each user has. Without `after`, indexes suffice to count them."""

    def count(*where: ColumnElement[bool]) -> dict[str, int]:
        counted = select(jobs.c.user, func.count()).where(*where).group_by(jobs.c.user)
        return {row[0]: row[1] for row in tx.execute(counted)}

    if after is not None:
        return count(jobs.c.ended_at > after)
    still_open = count(jobs.c.ended_at.is_(None))
    return {user: number - still_open.get(user, 0) for user, number in count().items()}


def _remove(tx: Connection, ids: Sequence[str]) -> int:
    """Remove jobs with all their rows; return how many logs were removed."""
    texts = _DELETE_LOGS.run(tx, ids)
    for statement in _DELETES:
        statement.run(tx, ids)
    replace_heads(tx, ids)
    return texts


def _beyond(tx: Connection, most: int) -> int:
    """Return by how many the ended jobs exceed `most`."""
    oldest, newest = tx.execute(select(func.min(jobs.c.seq), func.max(jobs.c.seq))).one()
    if oldest is None or newest - oldest < most:  # there cannot be that many: no need to count
        return 0
    ended = tx.scalar(select(func.count()).select_from(jobs).where(jobs.c.ended_at > 0)) or 0
    return max(0, ended - most)


# The size of the store.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Oversize:
    """Jobs whose logs, and jobs that as a whole, have to go because the store is too large."""

    logs: Sequence[str] = ()
    jobs: Sequence[str] = ()


def _length(column: Column[Any]) -> ColumnElement[int]:
    return func.coalesce(func.length(cast(column, Bytes)), 0)


#: What the small rows of a job take, such as its events.
_SMALL_ROWS_BYTES = 2000
_ATTEMPT_BYTES = _length(attempts.c.runtime_env) + _length(attempts.c.entrypoint)
_LOG_BYTES = func.coalesce(
    select(func.sum(_length(logs.c.text)))
    .where(logs.c.submission_id == jobs.c.submission_id)
    .scalar_subquery(),
    0,
)
_ROW_BYTES = (
    _SMALL_ROWS_BYTES
    + _length(jobs.c.spec)
    + func.coalesce(
        select(_length(results.c.content))
        .where(results.c.submission_id == jobs.c.submission_id)
        .scalar_subquery(),
        0,
    )
    + func.coalesce(
        select(func.sum(_ATTEMPT_BYTES))
        .where(attempts.c.submission_id == jobs.c.submission_id)
        .scalar_subquery(),
        0,
    )
)


def _find_oversize(tx: Connection, *, excess: int, now: float, limit: int) -> _Oversize:
    """Choose what has to go for the store to lose so many bytes: of `limit` jobs at most.

    Each user who holds the most gives up logs first, then jobs, oldest first. It reads all jobs: not while
    other writers wait.
    """
    may_go = _may_go_until(now)
    held = select(jobs.c.user, func.sum(_ROW_BYTES + _LOG_BYTES)).where(*may_go).group_by(jobs.c.user)
    found = _Oversize()
    for user, cut in fair_cuts({row[0]: row[1] for row in tx.execute(held)}, excess).items():
        mine = (*may_go, _is_of(user))
        left = limit - len(found.logs) - len(found.jobs)
        texts = _oldest(tx, _LOG_BYTES, (*mine, _LOG_BYTES > 0), cut=cut, limit=left)
        rows = [] if texts else _oldest(tx, _ROW_BYTES, (*mine, _STANDS_FOR_FEW), cut=cut, limit=left)
        found = _Oversize(logs=(*found.logs, *texts), jobs=(*found.jobs, *rows))
    return found


def _oldest(
    tx: Connection, size: ColumnElement[int], where: Sequence[ColumnElement[bool]], *, cut: int, limit: int
) -> list[str]:
    """Return the oldest jobs that take so many bytes together, the one included that goes beyond that."""
    oldest = select(jobs.c.submission_id, size).where(*where).order_by(jobs.c.ended_at).limit(limit)
    rows = tx.execute(oldest).all() if limit > 0 else ()
    before = accumulate((taken for _, taken in rows), initial=0)
    return [submission_id for (submission_id, _), so_far in zip(rows, before, strict=False) if so_far < cut]


def _remove_oversize(tx: Connection, found: _Oversize) -> Pruned:
    """Remove what was chosen, except jobs that another one needs by now."""
    needed = {name for name, _, is_needed in _ENDS.rows(tx, found.jobs) if is_needed}
    ids = [name for name in found.jobs if name not in needed]
    texts = _DELETE_LOGS.run(tx, found.logs) + _remove(tx, ids)
    return Pruned(jobs=len(ids), logs=texts, more=bool(ids) or texts > 0)


# The secrets of ended jobs: in environments, texts and logs.

_Row = Mapping[Any, Any]
_WRITE_JOBS = Prepared(update(jobs).where(jobs.c.submission_id == bindparam("of_job")))
_WRITE_ATTEMPTS = Prepared(
    update(attempts).where(
        attempts.c.submission_id == bindparam("of_job"), attempts.c.number == bindparam("of_number")
    )
)
_WRITE_LOGS = Prepared(
    update(logs).where(logs.c.submission_id == bindparam("of_job"), logs.c.attempt == bindparam("of_attempt"))
)
_WRITE_EVENTS = Prepared(update(events).where(events.c.id == bindparam("of_event")))


def _forget_secrets(tx: Connection, submission_ids: Sequence[str]) -> int:
    """Remove the secrets of these jobs; return how many jobs had any. Other jobs are not written."""
    return sum(_forget(tx, chunk) for chunk in chunks(submission_ids))


def _forget(tx: Connection, ids: Sequence[str]) -> int:
    attempts_of = _by_job(_rows(tx, attempts, ids))
    with_secrets = [
        row
        for row in _rows(tx, jobs, ids)
        if _has_secrets(row["spec"]["runtime_env"])
        or any(_has_secrets(attempt["runtime_env"]) for attempt in attempts_of.get(row["submission_id"], ()))
    ]
    events_of = (
        _by_job(_rows(tx, events, [row["submission_id"] for row in with_secrets])) if with_secrets else {}
    )
    for row in with_secrets:
        _rewrite(tx, row, attempts_of.get(row["submission_id"], []), events_of.get(row["submission_id"], []))
    return len(with_secrets)


def _rewrite(tx: Connection, job: _Row, attempt_rows: Sequence[_Row], event_rows: Sequence[_Row]) -> None:
    envs = [job["spec"]["runtime_env"], *(attempt["runtime_env"] for attempt in attempt_rows)]
    secrets = tuple(dict.fromkeys(secret for env in envs for secret in secrets_of(env)))

    def clean(text: str | None) -> str | None:
        return None if text is None else redact_text(text, secrets)

    spec = {  # the rest as it is, with fields that this version does not know
        **job["spec"],
        "runtime_env": redact_env(envs[0]),
        "entrypoint": clean(job["spec"]["entrypoint"]),
        "metadata": {name: clean(value) for name, value in job["spec"]["metadata"].items()},
    }
    texts = {name: clean(job[name]) for name in ("reason", "stop_reason")}
    _WRITE_JOBS.run(tx, [{"of_job": job["submission_id"], "spec": spec, **texts}])
    _WRITE_ATTEMPTS.run(
        tx,
        [
            {
                "of_job": attempt["submission_id"],
                "of_number": attempt["number"],
                "runtime_env": redact_env(attempt["runtime_env"]),
                "entrypoint": clean(attempt["entrypoint"]),
                "reason": clean(attempt["reason"]),
            }
            for attempt in attempt_rows
        ],
    )
    for log in _rows(tx, logs, [job["submission_id"]]):
        if (text := clean(log["text"])) != log["text"]:
            _WRITE_LOGS.run(
                tx, [{"of_job": job["submission_id"], "of_attempt": log["attempt"], "text": text}]
            )
    _WRITE_EVENTS.run(
        tx, [{"of_event": event["id"], "reason": clean(event["reason"])} for event in event_rows]
    )


def _has_secrets(env: Mapping[str, Any]) -> bool:
    return bool(env) and redact_env(env) != env


def _rows(tx: Connection, table: Table, ids: Sequence[str]) -> Sequence[_Row]:
    return tx.execute(select(table).where(table.c.submission_id.in_(ids))).mappings().all()


def _by_job(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    by_job: dict[str, list[_Row]] = {}
    for row in rows:
        by_job.setdefault(row["submission_id"], []).append(row)
    return by_job
