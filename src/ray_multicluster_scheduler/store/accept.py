"""Accepting jobs: all of a call or none, each once per idempotency key, no circle of dependencies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from sqlalchemy import Connection, insert, select

from ray_multicluster_scheduler.errors import DependencyProblem, DuplicateSubmission, InvalidRequest
from ray_multicluster_scheduler.model.job import Event, Job, JobSpec
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store.queue import chunks, get_many
from ray_multicluster_scheduler.store.rows import event_row, new_job_row
from ray_multicluster_scheduler.store.tables import dependencies, events, jobs, tags

#: What `remote_id_for` appends for further attempts: no job may look like the retry of another one.
_RETRY_ID = re.compile(r".*--r[0-9]+")


def add(tx: Connection, requests: Sequence[tuple[str, JobSpec]], *, now: float) -> tuple[Job, ...]:
    """Write the new ones among the requests; return one job for each request, in order."""
    new, ids = _tell_new_from_known(tx, requests)
    _check_ids(tx, new)
    aliases = {asked: known for (asked, _), known in zip(requests, ids, strict=True) if asked not in new}
    new = {submission_id: _with_known_ids(spec, aliases) for submission_id, spec in new.items()}
    states = _check_dependencies(tx, new)
    _insert(tx, new, states, now=now)
    found = get_many(tx, ids)
    return tuple(found[submission_id] for submission_id in ids)


def _tell_new_from_known(
    tx: Connection, requests: Sequence[tuple[str, JobSpec]]
) -> tuple[dict[str, JobSpec], list[str]]:
    """Return the requests that are new by their id, and for every request the id of its job."""
    known = _known_keys(tx, requests)
    new: dict[str, JobSpec] = {}
    ids = []
    for asked, spec in requests:
        key = (spec.user, spec.idempotency_key)
        if key in known:
            ids.append(known[key])
            continue
        if asked in new:
            raise DuplicateSubmission(f"submission id {asked!r} occurs twice in one call; ids are unique")
        new[asked] = spec
        ids.append(asked)
        if spec.idempotency_key is not None:
            known[key] = asked
    return new, ids


def _known_keys(tx: Connection, requests: Sequence[tuple[str, JobSpec]]) -> dict[tuple[str, str | None], str]:
    keys = sorted({spec.idempotency_key for _, spec in requests if spec.idempotency_key is not None})
    columns = (jobs.c.user, jobs.c.idempotency_key, jobs.c.submission_id)
    users = sorted({spec.user for _, spec in requests})
    return {
        (user, key): submission_id
        for chunk in chunks(keys)
        for user, key, submission_id in tx.execute(
            select(*columns).where(jobs.c.user.in_(users), jobs.c.idempotency_key.in_(chunk))
        )
    }


def _check_ids(tx: Connection, new: Mapping[str, JobSpec]) -> None:
    for submission_id in new:
        if _RETRY_ID.fullmatch(submission_id):
            raise InvalidRequest(
                f"submission id {submission_id!r} ends like the retry of another job; "
                "choose one that does not end in '--r' and a number"
            )
    for submission_id, state in _states(tx, list(new)).items():
        raise DuplicateSubmission(
            f"submission id {submission_id!r} already exists (it is {state.value}); choose another one, "
            "or repeat the idempotency_key of the first submission to get that job back"
        )


def _states(tx: Connection, submission_ids: Sequence[str]) -> dict[str, JobState]:
    return {
        submission_id: JobState(state)
        for chunk in chunks(submission_ids)
        for submission_id, state in tx.execute(
            select(jobs.c.submission_id, jobs.c.state).where(jobs.c.submission_id.in_(chunk))
        )
    }


def _with_known_ids(spec: JobSpec, aliases: Mapping[str, str]) -> JobSpec:
    """Let dependencies on a request that turned out to be known point to the known job."""
    return replace(spec, depends_on=tuple(dict.fromkeys(aliases.get(need, need) for need in spec.depends_on)))


def _check_dependencies(tx: Connection, new: Mapping[str, JobSpec]) -> dict[str, JobState]:
    """Return the states of the needed jobs that were there before; refuse unknown ones and circles."""
    outside = sorted({need for spec in new.values() for need in spec.depends_on} - set(new))
    states = _states(tx, outside)
    for submission_id, spec in new.items():
        for need in spec.depends_on:
            if need not in states and need not in new:
                raise DependencyProblem(
                    f"job {submission_id!r} depends on {need!r}, which is not known; "
                    "submit that one first, or both in one call"
                )
    try:
        TopologicalSorter({submission_id: spec.depends_on for submission_id, spec in new.items()}).prepare()
    except CycleError as error:
        circle = " -> ".join(repr(submission_id) for submission_id in reversed(error.args[1]))
        raise DependencyProblem(f"these jobs would wait for each other for ever: {circle}") from None
    return states


def _insert(
    tx: Connection, new: Mapping[str, JobSpec], states: Mapping[str, JobState], *, now: float
) -> None:
    waits = [
        {"submission_id": submission_id, "needs": need, "failed": states.get(need) in FINAL}
        for submission_id, spec in new.items()
        for need in spec.depends_on
        if states.get(need) is not JobState.SUCCEEDED
    ]
    tagged = [
        {"submission_id": submission_id, "tag": tag}
        for submission_id, spec in new.items()
        for tag in dict.fromkeys(spec.tags)
    ]
    rows = {
        jobs: [new_job_row(submission_id, spec, now=now) for submission_id, spec in new.items()],
        dependencies: waits,
        tags: tagged,
        events: [event_row(_accepted(submission_id, now=now)) for submission_id in new],
    }
    for table, values in rows.items():
        if values:
            tx.execute(insert(table), values)


def _accepted(submission_id: str, *, now: float) -> Event:
    return Event(
        id=0,
        submission_id=submission_id,
        at=now,
        old=None,
        new=JobState.QUEUED,
        attempt=0,
        cluster=None,
        reason="accepted",
    )
