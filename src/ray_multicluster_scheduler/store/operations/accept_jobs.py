"""Accepting jobs: all of a call or none, each once per idempotency key, no circle of dependencies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice

from sqlalchemy import Connection, insert, select

from ray_multicluster_scheduler.core.quotas import over_quota, quota_of
from ray_multicluster_scheduler.environment.redact import REDACTED, is_redacted
from ray_multicluster_scheduler.errors import (
    DependencyProblem,
    DuplicateSubmission,
    InvalidRequest,
    QuotaExceeded,
    SchedulerError,
)
from ray_multicluster_scheduler.model.access import FREELY, AuditEntry, Quota, Terms, named_ids
from ray_multicluster_scheduler.model.job import Event, Job, JobSpec
from ray_multicluster_scheduler.model.resources import plus
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store.operations.audit_trail import write_audit
from ray_multicluster_scheduler.store.operations.job_events import WRITE_EVENTS
from ray_multicluster_scheduler.store.operations.job_reads import get_many, open_jobs
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared, chunks
from ray_multicluster_scheduler.store.schema.rows import ACCEPTED, event_row, new_job, new_job_row
from ray_multicluster_scheduler.store.schema.tables import dependencies, jobs, tags

#: What `remote_id_for` appends for further attempts: no job may look like the retry of another one.
_RETRY_ID = re.compile(r".*--r[0-9]+")

_INSERT_JOBS = Prepared(insert(jobs))
_INSERT_WAITS = Prepared(insert(dependencies))
_INSERT_TAGS = Prepared(insert(tags))
_NUMBERS = ForIds(lambda ids: select(jobs.c.submission_id, jobs.c.seq).where(jobs.c.submission_id.in_(ids)))
_STATES = ForIds(
    lambda ids: select(jobs.c.submission_id, jobs.c.user, jobs.c.state).where(jobs.c.submission_id.in_(ids))
)

#: Submission id, what is asked for, when, and on which terms.
_Request = tuple[str, JobSpec, float, Terms]
#: The same of those that are new, by submission id.
_New = dict[str, tuple[JobSpec, float, Terms]]
#: Whose job it is, and where it is.
_Known = tuple[str, JobState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The jobs that one caller hands in together."""

    requests: Sequence[tuple[str, JobSpec]]
    now: float
    terms: Terms = FREELY

    def each(self) -> list[_Request]:
        """Return the jobs one by one, each with what holds for all of them."""
        return [(submission_id, spec, self.now, self.terms) for submission_id, spec in self.requests]


def add_calls(tx: Connection, calls: Sequence[Call]) -> list[tuple[Job, ...] | SchedulerError]:
    """Write several calls; each gets its jobs, or why it was refused. A refusal leaves nothing behind.

    They are written as one, which costs little more than one of them, unless one of them is refused.
    """
    try:
        jobs = iter(_add(tx, [request for call in calls for request in call.each()]))
    except SchedulerError as error:
        return [error] if len(calls) == 1 else [_add_one(tx, call) for call in calls]
    accepted = [tuple(islice(jobs, len(call.requests))) for call in calls]
    _tell(tx, calls, accepted)
    return [*accepted]


def _add_one(tx: Connection, call: Call) -> tuple[Job, ...] | SchedulerError:
    try:
        accepted = _add(tx, call.each())
    except SchedulerError as error:
        return error
    _tell(tx, [call], [accepted])
    return accepted


def _tell(tx: Connection, calls: Sequence[Call], accepted: Sequence[Sequence[Job]]) -> None:
    """Write the audit entries of accepted calls."""
    entries: list[AuditEntry] = [
        replace(call.terms.audit, target=named_ids([job.submission_id for job in jobs]))
        for call, jobs in zip(calls, accepted, strict=True)
        if call.terms.audit is not None
    ]
    write_audit(tx, entries)


def _add(tx: Connection, requests: Sequence[_Request]) -> tuple[Job, ...]:
    """Write the new ones among the requests; return one job for each request, in order.

    Everything that can be refused is refused before the first row is written.
    """
    new, ids = _tell_new_from_known(tx, requests)
    _check_ids(tx, new)
    _check_secrets(new)
    aliases = {asked: known for (asked, *_), known in zip(requests, ids, strict=True) if asked != known}
    if aliases:
        new = {each: (_with_known_ids(spec, aliases), now, terms) for each, (spec, now, terms) in new.items()}
    states = _check_dependencies(tx, new)
    _check_quotas(tx, new)
    _insert(tx, new, states)
    known_ids = [submission_id for submission_id in ids if submission_id not in new]
    found = {**get_many(tx, known_ids), **_numbered(tx, new)}
    return tuple(found[submission_id] for submission_id in ids)


def _numbered(tx: Connection, new: _New) -> dict[str, Job]:
    """Return new jobs with the numbers that the database has given them; the rest of them is known."""
    found = {}
    for submission_id, seq in _NUMBERS.rows(tx, list(new)):
        spec, now, _ = new[submission_id]
        found[submission_id] = new_job(submission_id, spec, seq=seq, now=now)
    return found


def _tell_new_from_known(tx: Connection, requests: Sequence[_Request]) -> tuple[_New, list[str]]:
    """Return the requests that are new by their id, and for every request the id of its job."""
    known = _known_keys(tx, requests)
    new: _New = {}
    ids = []
    for asked, spec, now, terms in requests:
        key = (spec.user, spec.idempotency_key)
        if key in known:
            ids.append(known[key])
            continue
        if asked in new:
            raise DuplicateSubmission(f"submission id {asked!r} occurs twice in one call; ids are unique")
        new[asked] = spec, now, terms
        ids.append(asked)
        if spec.idempotency_key is not None:
            known[key] = asked
    return new, ids


def _known_keys(tx: Connection, requests: Sequence[_Request]) -> dict[tuple[str, str | None], str]:
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
    for submission_id, (user, state) in _states(tx, list(new)).items():
        if user != new[submission_id][0].user:  # that it is taken cannot be hidden; all else can
            raise DuplicateSubmission(f"submission id {submission_id!r} already exists; choose another one")
        raise DuplicateSubmission(
            f"submission id {submission_id!r} already exists (it is {state.value}); choose another one, "
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
    """Refuse jobs beyond a quota. Writers take turns: nobody adds some between this look and the write."""
    limited: dict[str, tuple[Quota, list[JobSpec]]] = {}
    for spec, _, terms in new.values():
        if (quota := quota_of(spec.user, terms.quotas)) != Quota():
            limited.setdefault(spec.user, (quota, []))[1].append(spec)
    for user, (quota, specs) in limited.items():
        open_now = open_jobs(tx, user, claims=bool(quota.resources))
        more: dict[str, float] = {}
        for spec in specs:
            more = plus(more, spec.claim)
        refused = over_quota(
            user, quota, jobs=open_now.count, more_jobs=len(specs), claimed=open_now.claim, more=more
        )
        if refused:
            raise QuotaExceeded(refused)


def _states(tx: Connection, submission_ids: Sequence[str]) -> dict[str, _Known]:
    return {name: (user, JobState(state)) for name, user, state in _STATES.rows(tx, submission_ids)}


def _with_known_ids(spec: JobSpec, aliases: Mapping[str, str]) -> JobSpec:
    """Let dependencies on a request that turned out to be known point to the known job."""
    return replace(spec, depends_on=tuple(dict.fromkeys(aliases.get(need, need) for need in spec.depends_on)))


def _check_dependencies(tx: Connection, new: _New) -> dict[str, JobState]:
    """Return the states of the needed jobs that were there before; refuse unknown ones and circles."""
    if not any(spec.depends_on for spec, *_ in new.values()):
        return {}
    outside = sorted({need for spec, *_ in new.values() for need in spec.depends_on} - set(new))
    known = _states(tx, outside)
    for submission_id, (spec, _, terms) in new.items():
        for need in spec.depends_on:
            # Calls share a transaction: a job of another user's call is no more known than an older one.
            user = known[need][0] if need in known else new[need][0].user if need in new else None
            if user is None or terms.only not in {None, user}:
                raise DependencyProblem(
                    f"job {submission_id!r} depends on {need!r}, which is not known; "
                    "submit that one first, or both in one call"
                )
    try:
        TopologicalSorter({each: spec.depends_on for each, (spec, *_) in new.items()}).prepare()
    except CycleError as error:
        circle = " -> ".join(repr(submission_id) for submission_id in reversed(error.args[1]))
        raise DependencyProblem(f"these jobs would wait for each other for ever: {circle}") from None
    return {need: state for need, (_, state) in known.items()}


def _insert(tx: Connection, new: _New, states: Mapping[str, JobState]) -> None:
    waits = [
        {"submission_id": submission_id, "needs": need, "failed": states.get(need) in FINAL}
        for submission_id, (spec, *_) in new.items()
        for need in spec.depends_on
        if states.get(need) is not JobState.SUCCEEDED
    ]
    tagged = [
        {"submission_id": submission_id, "tag": tag}
        for submission_id, (spec, *_) in new.items()
        for tag in dict.fromkeys(spec.tags)
    ]
    _INSERT_JOBS.run(tx, [new_job_row(each, spec, now=now) for each, (spec, now, _) in new.items()])
    _INSERT_WAITS.run(tx, waits)
    _INSERT_TAGS.run(tx, tagged)
    WRITE_EVENTS.run(tx, [event_row(_accepted(each, now=now)) for each, (_, now, _) in new.items()])


def _accepted(submission_id: str, *, now: float) -> Event:
    return Event(
        id=0,
        submission_id=submission_id,
        at=now,
        old=None,
        new=JobState.QUEUED,
        attempt=0,
        cluster=None,
        reason=ACCEPTED,
    )
