"""Accept jobs: all jobs of a call or none, one job per idempotency key, no cycle of dependencies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice

from sqlalchemy import Connection, insert, select

from ray_multicluster_scheduler.environment.redact import REDACTED, is_redacted
from ray_multicluster_scheduler.errors import (
    DependencyProblem,
    DuplicateSubmission,
    InvalidRequest,
    QuotaExceeded,
    SchedulerError,
)
from ray_multicluster_scheduler.model.access import (
    FREELY,
    AuditEntry,
    Quota,
    Terms,
    named_ids,
    over_quota,
    quota_of,
)
from ray_multicluster_scheduler.model.execution import Session
from ray_multicluster_scheduler.model.job import Job, JobEvent, JobSpec
from ray_multicluster_scheduler.model.resources import plus
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store.job_rows import WRITE_EVENTS, get_jobs, heads_of, open_jobs_of
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared, chunks
from ray_multicluster_scheduler.store.schema.rows import ACCEPTED, event_row, new_job, new_job_row
from ray_multicluster_scheduler.store.schema.tables import dependencies, jobs, tags
from ray_multicluster_scheduler.store.sessions import add_sessions
from ray_multicluster_scheduler.store.transactions import write_audit

#: The suffix that `remote_id_for` appends for a further attempt. No submission id may look like one.
_RETRY_ID = re.compile(r".*--r[0-9]+")

_INSERT_JOBS = Prepared(insert(jobs))
_INSERT_DEPENDENCIES = Prepared(insert(dependencies))
_INSERT_TAGS = Prepared(insert(tags))
_SEQS = ForIds(lambda ids: select(jobs.c.submission_id, jobs.c.seq).where(jobs.c.submission_id.in_(ids)))
_EXISTING = ForIds(
    lambda ids: select(jobs.c.submission_id, jobs.c.user, jobs.c.state, jobs.c.head).where(
        jobs.c.submission_id.in_(ids)
    )
)

#: (submission id, spec, time of the call, terms)
_Request = tuple[str, JobSpec, float, Terms]
#: New jobs by submission id: (spec, time of the call, terms).
_New = dict[str, tuple[JobSpec, float, Terms]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Existing:
    """What matters of a job that existed before."""

    user: str
    state: JobState
    head: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The jobs of one call of `add`."""

    requests: Sequence[tuple[str, JobSpec]]
    now: float
    terms: Terms = FREELY

    def split(self) -> list[_Request]:
        """Return one request for each job, with the time and the terms of the call."""
        return [(submission_id, spec, self.now, self.terms) for submission_id, spec in self.requests]


def add_calls(tx: Connection, calls: Sequence[Call]) -> list[tuple[Job, ...] | SchedulerError]:
    """Write several calls; return for each its jobs, or its refusal. Of a refused call nothing is written.

    All calls are written together, which costs little more than one call. If one of them is refused, each is
    written by itself.
    """
    try:
        jobs = iter(_add(tx, [request for call in calls for request in call.split()]))
    except SchedulerError as error:
        return [error] if len(calls) == 1 else [_add_one(tx, call) for call in calls]
    accepted = [tuple(islice(jobs, len(call.requests))) for call in calls]
    _write_audit_entries(tx, calls, accepted)
    return [*accepted]


def _add_one(tx: Connection, call: Call) -> tuple[Job, ...] | SchedulerError:
    try:
        accepted = _add(tx, call.split())
    except SchedulerError as error:
        return error
    _write_audit_entries(tx, [call], [accepted])
    return accepted


def _write_audit_entries(tx: Connection, calls: Sequence[Call], accepted: Sequence[Sequence[Job]]) -> None:
    """Write the audit entries of accepted calls."""
    entries: list[AuditEntry] = [
        replace(call.terms.audit, target=named_ids([job.submission_id for job in jobs]))
        for call, jobs in zip(calls, accepted, strict=True)
        if call.terms.audit is not None
    ]
    write_audit(tx, entries)


def check_call(tx: Connection, call: Call) -> None:
    """Raise the refusal of a call, if it would be refused. Nothing is written."""
    _checked(tx, call.split())


def _add(tx: Connection, requests: Sequence[_Request]) -> tuple[Job, ...]:
    """Write the new jobs; return one job for each request, in order.

    All checks come before the first row is written.
    """
    new, ids, needed = _checked(tx, requests)
    heads = heads_of(
        tx,
        {submission_id: spec for submission_id, (spec, *_) in new.items()},
        {need: (job.user, job.head) for need, job in needed.items()},
    )
    _insert(tx, new, {need: job.state for need, job in needed.items()}, heads)
    known_ids = [submission_id for submission_id in ids if submission_id not in new]
    jobs_by_id = {**get_jobs(tx, known_ids), **_with_seq(tx, new, heads)}
    return tuple(jobs_by_id[submission_id] for submission_id in ids)


def _checked(tx: Connection, requests: Sequence[_Request]) -> tuple[_New, list[str], dict[str, _Existing]]:
    """Return the new jobs, for every request the id of its job, and the dependencies that existed before."""
    new, ids = _split_off_new(tx, requests)
    _check_ids(tx, new)
    _check_secrets(new)
    aliases = {new_id: old_id for (new_id, *_), old_id in zip(requests, ids, strict=True) if new_id != old_id}
    if aliases:
        new = {each: (_with_known_ids(spec, aliases), now, terms) for each, (spec, now, terms) in new.items()}
    needed = _check_dependencies(tx, new)
    _check_quotas(tx, new)
    return new, ids, needed


def _with_seq(tx: Connection, new: _New, heads: Mapping[str, str]) -> dict[str, Job]:
    """Return the new jobs, each with the `seq` that the database has assigned."""
    jobs_by_id = {}
    for submission_id, seq in _SEQS.rows(tx, list(new)):
        spec, now, _ = new[submission_id]
        head = heads.get(submission_id)
        jobs_by_id[submission_id] = new_job(submission_id, spec, seq=seq, now=now, head=head)
    return jobs_by_id


def _split_off_new(tx: Connection, requests: Sequence[_Request]) -> tuple[_New, list[str]]:
    """Return the new jobs, and for every request the id of its job.

    A request whose idempotency key is known already has a job.
    """
    id_by_key = _ids_by_key(tx, requests)
    new: _New = {}
    ids = []
    for submission_id, spec, now, terms in requests:
        key = (spec.user, spec.idempotency_key)
        if key in id_by_key:
            ids.append(id_by_key[key])
            continue
        if submission_id in new:
            raise DuplicateSubmission(
                f"submission id {submission_id!r} occurs twice in one call; ids are unique"
            )
        new[submission_id] = spec, now, terms
        ids.append(submission_id)
        if spec.idempotency_key is not None:
            id_by_key[key] = submission_id
    return new, ids


def _ids_by_key(tx: Connection, requests: Sequence[_Request]) -> dict[tuple[str, str | None], str]:
    keys = sorted({spec.idempotency_key for _, spec, *_ in requests if spec.idempotency_key is not None})
    columns = (jobs.c.user, jobs.c.idempotency_key, jobs.c.submission_id)
    users = sorted({spec.user for _, spec, *_ in requests})
    return {
        (user, key): submission_id
        for chunk in chunks(keys)
        for user, key, submission_id in tx.execute(
            select(*columns).where(jobs.c.user.in_(users), jobs.c.idempotency_key.in_(chunk))
        )
    }


def _check_ids(tx: Connection, new: _New) -> None:
    for submission_id in new:
        if _RETRY_ID.fullmatch(submission_id):
            raise InvalidRequest(
                f"submission id {submission_id!r} ends like the retry of another job; "
                "choose one that does not end in '--r' and a number"
            )
    for submission_id, job in _existing(tx, list(new)).items():
        if job.user != new[submission_id][0].user:  # tell another user only that the id is taken
            raise DuplicateSubmission(f"submission id {submission_id!r} already exists; choose another one")
        raise DuplicateSubmission(
            f"submission id {submission_id!r} already exists (it is {job.state.value}); choose another one, "
            "or repeat the idempotency_key of the first submission to get that job back"
        )


def _check_secrets(new: _New) -> None:
    for submission_id, (spec, *_) in new.items():
        if is_redacted(spec.runtime_env):
            raise InvalidRequest(
                f"the runtime_env of {submission_id!r} holds {REDACTED!r} for a secret: it comes from a "
                "screen, or from a job that ended longer ago than keep_secrets_days; submit the job with its "
                "real values"
            )


def _check_quotas(tx: Connection, new: _New) -> None:
    """Refuse jobs beyond a quota. No other writer can add jobs between this check and the insert."""
    limited: dict[str, tuple[Quota, list[JobSpec]]] = {}
    for spec, _, terms in new.values():
        if (quota := quota_of(spec.user, terms.quotas)) != Quota():
            limited.setdefault(spec.user, (quota, []))[1].append(spec)
    for user, (quota, specs) in limited.items():
        open_now = open_jobs_of(tx, user, claims=bool(quota.resources))
        requested: dict[str, float] = {}
        for spec in specs:
            requested = plus(requested, spec.claim)
        refused = over_quota(
            user, quota, jobs=open_now.count, more_jobs=len(specs), claimed=open_now.claim, more=requested
        )
        if refused:
            raise QuotaExceeded(refused)


def _existing(tx: Connection, submission_ids: Sequence[str]) -> dict[str, _Existing]:
    return {
        submission_id: _Existing(user=user, state=JobState(state), head=head)
        for submission_id, user, state, head in _EXISTING.rows(tx, submission_ids)
    }


def _with_known_ids(spec: JobSpec, aliases: Mapping[str, str]) -> JobSpec:
    """Let dependencies on a request that already has a job point to that job."""
    return replace(spec, depends_on=tuple(dict.fromkeys(aliases.get(need, need) for need in spec.depends_on)))


def _check_dependencies(tx: Connection, new: _New) -> dict[str, _Existing]:
    """Refuse unknown dependencies and cycles; return the dependencies that existed before."""
    if not any(spec.depends_on for spec, *_ in new.values()):
        return {}
    existing_ids = sorted({need for spec, *_ in new.values() for need in spec.depends_on} - set(new))
    existing = _existing(tx, existing_ids)
    for submission_id, (spec, _, terms) in new.items():
        for need in spec.depends_on:
            # Calls of several users share a transaction: their new jobs are as hidden as their old ones.
            user = existing[need].user if need in existing else new[need][0].user if need in new else None
            if user is None or terms.only not in {None, user}:
                raise DependencyProblem(
                    f"job {submission_id!r} depends on {need!r}, which is not known; "
                    "submit that one first, or both in one call"
                )
    try:
        TopologicalSorter({each: spec.depends_on for each, (spec, *_) in new.items()}).prepare()
    except CycleError as error:
        cycle = " -> ".join(repr(submission_id) for submission_id in reversed(error.args[1]))
        raise DependencyProblem(f"these jobs would wait for each other for ever: {cycle}") from None
    return existing


def _insert(tx: Connection, new: _New, states: Mapping[str, JobState], heads: Mapping[str, str]) -> None:
    dependency_rows = [
        {"submission_id": submission_id, "needs": need, "failed": states.get(need) in FINAL}
        for submission_id, (spec, *_) in new.items()
        for need in spec.depends_on
        if states.get(need) is not JobState.SUCCEEDED
    ]
    tag_rows = [
        {"submission_id": submission_id, "tag": tag}
        for submission_id, (spec, *_) in new.items()
        for tag in dict.fromkeys(spec.tags)
    ]
    _INSERT_JOBS.run(
        tx,
        [new_job_row(each, spec, now=now, head=heads.get(each)) for each, (spec, now, _) in new.items()],
    )
    _INSERT_DEPENDENCIES.run(tx, dependency_rows)
    _INSERT_TAGS.run(tx, tag_rows)
    add_sessions(
        tx,
        [
            Session(submission_id=submission_id, alive_at=now)
            for submission_id, (spec, now, _) in new.items()
            if spec.client_address is not None
        ],
    )
    WRITE_EVENTS.run(tx, [event_row(_accepted(each, now=now)) for each, (_, now, _) in new.items()])


def _accepted(submission_id: str, *, now: float) -> JobEvent:
    return JobEvent(
        id=0,
        submission_id=submission_id,
        at=now,
        old=None,
        new=JobState.QUEUED,
        attempt=0,
        cluster=None,
        reason=ACCEPTED,
    )
