"""Jobs: accept them, read them, ask them to stop, and move them by compare-and-set."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from ray_multicluster_scheduler.core.lifecycle.transitions import Move, apply_transition, check, holds
from ray_multicluster_scheduler.errors import JobNotFound, SchedulerError, StaleTransition
from ray_multicluster_scheduler.model.access import FREELY, AuditEntry, OpenJobs, Terms
from ray_multicluster_scheduler.model.job import Job, JobSpec, Target, Transition
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import accept
from ray_multicluster_scheduler.store.group_commit import GroupCommit
from ray_multicluster_scheduler.store.history import save_logs, save_results
from ray_multicluster_scheduler.store.job_rows import (
    EXISTING_IDS,
    JOB_COLUMNS,
    WRITE_EVENTS,
    added_up,
    get_changed,
    get_job,
    get_jobs,
    read_jobs,
)
from ray_multicluster_scheduler.store.retention import end_found_late
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import (
    attempt_row,
    changed_values,
    event_row,
    job_from,
    move_event_row,
    note,
)
from ray_multicluster_scheduler.store.schema.tables import attempts, dependencies, jobs, tags
from ray_multicluster_scheduler.store.transactions import Transactions
from ray_multicluster_scheduler.text import storable

_MEMBER_COUNTS = ForIds(
    lambda ids: (
        select(jobs.c.head, jobs.c.state, func.count())
        .where(jobs.c.head.in_(ids))
        .group_by(jobs.c.head, jobs.c.state)
    )
)
_EXISTING_GROUPS = ForIds(lambda names: select(jobs.c.group).where(jobs.c.group.in_(names)).distinct())
_CHILDREN = ForIds(lambda ids: select(*JOB_COLUMNS).where(jobs.c.parent.in_(ids)))
_STOP = Prepared(update(jobs).where(jobs.c.submission_id == bindparam("of_job")))
_MOVE_JOB = Prepared(
    update(jobs).where(
        jobs.c.submission_id == bindparam("of_job"),
        jobs.c.state == bindparam("from_state"),
        jobs.c.attempt == bindparam("from_attempt"),
    )
)
_START_ATTEMPT = Prepared(insert(attempts))
_CHANGE_ATTEMPT = Prepared(
    update(attempts).where(
        attempts.c.submission_id == bindparam("of_job"), attempts.c.number == bindparam("of_number")
    )
)
_DELETE_DEPENDENCIES = ForIds(lambda ids: delete(dependencies).where(dependencies.c.submission_id.in_(ids)))
_RELEASE_DEPENDENTS = ForIds(lambda ids: delete(dependencies).where(dependencies.c.needs.in_(ids)))
_FAIL_DEPENDENTS = ForIds(
    lambda ids: update(dependencies).where(dependencies.c.needs.in_(ids)).values(failed=true())
)


class Jobs:
    """The jobs of the queue and the history."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._add = GroupCommit(self._add_calls)

    def add(
        self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = FREELY
    ) -> tuple[Job, ...]:
        """Accept jobs, all or none, as (submission_id, spec), each QUEUED with its first event.

        `DuplicateSubmission` if an id is taken, unless the idempotency key of that user matches: then the
        existing job is returned in its place. Dependencies must be existing ids or earlier ones of the same
        call (`DependencyProblem`). A job of a group is listed under the first of that user's group, one that
        depends on others under its first dependency, or with it. `terms`: `QuotaExceeded` if a user would
        exceed a quota, however many callers try at once; a job that the terms hide does not exist as a
        dependency.
        """
        return self._add(accept.Call(requests=jobs, now=now, terms=terms))

    def check_add(self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = FREELY) -> None:
        """Raise what `add` would raise for these jobs now. Nothing is written."""
        with self._transactions.read() as tx:
            accept.check_call(tx, accept.Call(requests=jobs, now=now, terms=terms))

    def get(self, submission_id: str) -> Job:
        """Return one job or raise `JobNotFound`."""
        with self._transactions.read() as tx:
            return get_job(tx, submission_id)

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Job]:
        """Return the jobs with these ids, without unknown ids."""
        with self._transactions.read() as tx:
            return get_jobs(tx, submission_ids)

    def taken(self, words: Sequence[str]) -> frozenset[str]:
        """Return those of these words that are the id or the group of a job."""
        with self._transactions.read() as tx:
            found = (*EXISTING_IDS.rows(tx, words), *_EXISTING_GROUPS.rows(tx, words))
        return frozenset(word for (word,) in found)

    def list(
        self,
        *,
        states: Sequence[JobState] | None = None,
        user: str | None = None,
        cluster: str | None = None,
        name: str | None = None,
        group: str | None = None,
        parent: str | None = None,
        tag: str | None = None,
        since: float | None = None,
        changed_since: float | None = None,
        changed_until: float | None = None,
        before: int | None = None,
        text: str | None = None,
        heads_only: bool = False,
        head: str | None = None,
        limit: int | None = None,
    ) -> tuple[Job, ...]:
        """Return jobs, newest first, that match every filter.

        `since` is the earliest time of acceptance; `changed_since` the earliest time at which a job came into
        its state, and `changed_until` is after that time. `before` is an upper bound of `seq`, and
        `text` a part of the id, name, group or command, case-insensitive. `heads_only` leaves out jobs that
        are listed under another one: however many these are, a page costs the same. `head` is a job with all
        listed under it.
        """
        equal = {"user": user, "cluster": cluster, "name": name, "group": group, "parent": parent}
        if heads_only:  # the group of a head is indexed by itself
            equal = {**equal, "group": None, "head_group": group}
        statement = _matching(equal, tag, since, before, text).limit(limit)
        if changed_since is not None:
            statement = statement.where(jobs.c.changed_at >= changed_since)
        if changed_until is not None:
            statement = statement.where(jobs.c.changed_at < changed_until)
        if heads_only:
            statement = statement.where(jobs.c.head.is_(None))
        with self._transactions.read() as tx:
            if states is None and head is None:
                return read_jobs(tx, statement)
            # One query for each state: it reads the index backwards, up to the limit, and need not sort.
            wanted = tuple(JobState) if states is None else tuple(dict.fromkeys(states))
            if head is not None:
                members = statement.where(jobs.c.head == head)
                found = [_read_in_state(tx, members, state) for state in wanted]
                itself = read_jobs(tx, statement.where(jobs.c.submission_id == head))
                found.append(tuple(job for job in itself if job.state in wanted))
            elif heads_only and user is None:  # SQLite would sort all heads of a user
                found = [_read_in_state(tx, statement, state) for state in wanted]
            else:
                found = [read_jobs(tx, statement.where(jobs.c.state == state.value)) for state in wanted]
        return tuple(sorted(chain.from_iterable(found), key=lambda job: job.seq, reverse=True)[:limit])

    def member_counts(self, submission_ids: Sequence[str]) -> dict[str, dict[JobState, int]]:
        """Return how many jobs are listed under each of these, by state; those without any are left out.

        They belong to the same user as the job that they are listed under.
        """
        counts: dict[str, dict[JobState, int]] = {}
        with self._transactions.read() as tx:
            for head, state, count in _MEMBER_COUNTS.rows(tx, submission_ids):
                counts.setdefault(head, {})[JobState(state)] = count
        return counts

    def ids_beginning(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        """Return submission ids with this prefix, sorted. The cost depends only on the number returned."""
        column = jobs.c.submission_id
        in_range = select(column).where(column >= prefix, column < prefix + chr(sys.maxunicode))
        with self._transactions.read() as tx:
            return tuple(tx.scalars(in_range.order_by(column).limit(limit)))

    def counts(
        self, states: Collection[JobState], *, user: str | None = None, changed_since: float | None = None
    ) -> dict[JobState, int]:
        """Return the number of jobs in each of these states, of all users or of one; no zeros.

        With `changed_since` only those that came into their state at this time or later.
        """
        statement = (
            select(jobs.c.state, func.count())
            .where(jobs.c.state.in_(sorted(state.value for state in states)))
            .group_by(jobs.c.state)
        )
        if user is not None:
            statement = statement.where(jobs.c.user == user)
        if changed_since is not None:
            statement = statement.where(jobs.c.changed_at >= changed_since)
        with self._transactions.read() as tx:
            return {JobState(state): count for state, count in tx.execute(statement)}

    def open_jobs(self) -> dict[str, OpenJobs]:
        """Return for each user with jobs that have not ended how many these are, and what they claim."""
        specs: dict[str, list[str]] = {}
        statement = select(jobs.c.user, cast(jobs.c.spec, Text)).where(jobs.c.ended_at.is_(None))
        with self._transactions.read() as tx:
            for user, spec in tx.execute(statement):
                specs.setdefault(user, []).append(spec)
        return {user: added_up(found) for user, found in specs.items()}

    def request_stop(
        self, submission_ids: Sequence[str], *, now: float, reason: str, audit: AuditEntry | None = None
    ) -> tuple[Job, ...]:
        """Set the target of these jobs to STOPPED, except of ended ones. Returns their rows.

        For a job with `stop_children`, this includes the open jobs of the same user with this `parent`. An
        unknown id is `JobNotFound`, and none is stopped.
        """
        reason = storable(reason)
        with self._transactions.write(audit=audit) as tx:
            requested = get_jobs(tx, submission_ids)
            for submission_id in submission_ids:
                if submission_id not in requested:
                    raise JobNotFound(submission_id)
            stopping = [
                (job, why)
                for job, why in _with_children(tx, requested, reason)
                if not job.final and job.target is not Target.STOPPED
            ]
            stopped = Target.STOPPED.value
            _STOP.run(
                tx,
                [
                    {"of_job": job.submission_id, "target": stopped, "stop_reason": why, "reason": why}
                    for job, why in stopping
                ],
            )
            WRITE_EVENTS.run(tx, [event_row(note(job, now=now, reason=why)) for job, why in stopping])
            changed = get_jobs(tx, submission_ids)
            return tuple(changed[submission_id] for submission_id in submission_ids)

    def apply(
        self,
        transitions: Sequence[Transition],
        *,
        epoch: int,
        now: float,
        logs: Sequence[tuple[str, int, str]] = (),
        results: Sequence[tuple[str, int, LeftResult]] = (),
        known: Mapping[str, Job] = MappingProxyType({}),
    ) -> tuple[Job, ...]:
        """Apply all transitions that still hold, in one transaction with their events; return the jobs.

        Each comes once, as it is after its last move. A job that was changed meanwhile by another caller is
        left alone and missing in the result. A transition that the state table forbids is a bug and raises
        ValueError before anything is written. The (bounded) `logs` of attempts, as (submission_id, attempt,
        text), are stored with it and replace former ones, and so are `results`. `known` are jobs as the
        leader of this epoch last read or wrote them: those that have not changed since are not read again.
        """
        for transition in transitions:
            check(transition)
        with self._transactions.write(epoch=epoch) as tx:
            save_logs(tx, logs)
            save_results(tx, results)
            return _apply(tx, [_storable(transition) for transition in transitions], now=now, known=known)

    def _add_calls(self, calls: Sequence[accept.Call]) -> Sequence[tuple[Job, ...] | SchedulerError]:
        with self._transactions.write(notify=False) as tx:
            outcomes = accept.add_calls(tx, calls)
            accepted = any(isinstance(outcome, tuple) for outcome in outcomes)
            if accepted:
                self._transactions.count_change(tx)
        if accepted:
            self._transactions.notify()
        return outcomes


def _read_in_state(tx: Connection, statement: Select[Any], state: JobState) -> tuple[Job, ...]:
    """Read jobs in one state, newest first, by an index that has the state before the age.

    The state is a range, and the order begins with it. Otherwise PostgreSQL would go through jobs in all
    states, from the newest on, in the hope of finding some soon.
    """
    in_state = statement.where(jobs.c.state.between(state.value, state.value))
    return read_jobs(tx, in_state.order_by(None).order_by(jobs.c.state.desc(), jobs.c.seq.desc()))


def _matching(
    equal: Mapping[str, str | None],
    tag: str | None,
    since: float | None,
    before: int | None,
    text: str | None,
) -> Select[Any]:
    """Return a SELECT of the jobs that match these filters, newest first."""
    statement = select(*JOB_COLUMNS).order_by(jobs.c.seq.desc())
    for column, value in equal.items():
        if value is not None:
            statement = statement.where(jobs.c[column] == value)
    if tag is not None:
        statement = statement.where(
            jobs.c.submission_id.in_(select(tags.c.submission_id).where(tags.c.tag == tag))
        )
    if since is not None:
        statement = statement.where(jobs.c.accepted_at >= since)
    if before is not None:
        statement = statement.where(jobs.c.seq < before)
    if text is not None:
        searched = (jobs.c.submission_id, jobs.c.name, jobs.c.group, jobs.c.spec["entrypoint"].as_string())
        statement = statement.where(or_(*(column.icontains(text, autoescape=True) for column in searched)))
    return statement


def _with_children(tx: Connection, requested: Mapping[str, Job], reason: str) -> list[tuple[Job, str]]:
    """Return the requested jobs and the children that stop with them, each with its reason."""
    stops = [(job, reason) for job in requested.values()]
    visited, parents = set(requested), requested
    while parents := {name: job for name, job in parents.items() if job.spec.stop_children}:
        children = [job_from(row) for row in _CHILDREN.rows(tx, list(parents))]
        parents = {
            job.submission_id: job
            for job in children
            if job.submission_id not in visited and job.spec.user == parents[str(job.spec.parent)].spec.user
        }
        visited |= set(parents)
        stops += [(job, f"stopped with its parent {job.spec.parent}: {reason}") for job in parents.values()]
    return stops


def _apply(
    tx: Connection, transitions: Sequence[Transition], *, now: float, known: Mapping[str, Job]
) -> tuple[Job, ...]:
    current = get_changed(tx, {transition.submission_id for transition in transitions}, known)
    moves: list[Move] = []
    for transition in transitions:
        job = current.get(transition.submission_id)
        if job is not None and holds(job, transition):
            moves.append(apply_transition(job, transition, now=now))
            current[job.submission_id] = moves[-1].after
    if moves:
        _write_jobs(tx, moves)
        _write_attempts(tx, moves)
        WRITE_EVENTS.run(
            tx, [move_event_row(move.before, move.after, now=now, reason=move.reason) for move in moves]
        )
        _settle_dependencies(tx, [move.after for move in moves if move.after.final])
        ends = [move.after.ended_at or now for move in moves if move.after.final and not move.before.final]
        if (earliest := min(ends, default=now)) < now:
            end_found_late(tx, earliest)
    return tuple({move.after.submission_id: move.after for move in moves}.values())


def _storable(transition: Transition) -> Transition:
    """Replace what no database can keep: a reason may hold whatever a program has written."""
    texts = (transition.reason, *transition.changes.values(), *transition.attempt_changes.values())
    if all(not isinstance(text, str) or storable(text) is text for text in texts):  # nearly always
        return transition
    return replace(
        transition,
        reason=storable(transition.reason),
        changes=_storable_values(transition.changes),
        attempt_changes=_storable_values(transition.attempt_changes),
    )


def _storable_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: storable(value) if isinstance(value, str) else value for name, value in values.items()}


def _write_jobs(tx: Connection, moves: Sequence[Move]) -> None:
    """Write each job once, with the changed columns of all its moves."""
    merged: dict[str, tuple[Job, Job, frozenset[str]]] = {}
    for move in moves:
        job_id = move.before.submission_id
        before, _, changed = merged.get(job_id, (move.before, move.after, frozenset()))
        merged[job_id] = before, move.after, changed | move.changed
    rows = [
        {
            "of_job": job_id,
            "from_state": before.state.value,
            "from_attempt": before.attempt,
            **changed_values(before, after, changed),
        }
        for job_id, (before, after, changed) in merged.items()
    ]
    if _run_by_columns(tx, _MOVE_JOB, rows) != len(rows):
        raise StaleTransition("a job was moved by somebody else while it was locked; nothing was written")


def _write_attempts(tx: Connection, moves: Sequence[Move]) -> None:
    _START_ATTEMPT.run(tx, [attempt_row(move.new_attempt) for move in moves if move.new_attempt])
    changes: dict[tuple[str, int], dict[str, Any]] = {}
    for move in moves:
        if move.attempt_values:
            key = move.after.submission_id, move.after.attempt
            changes.setdefault(key, {}).update(move.attempt_values)
    rows = [{"of_job": job, "of_number": number, **values} for (job, number), values in changes.items()]
    _run_by_columns(tx, _CHANGE_ATTEMPT, rows)


def _run_by_columns(tx: Connection, statement: Prepared, rows: Iterable[dict[str, Any]]) -> int:
    """Run a statement for rows with different columns: once for each set of columns."""
    rows_by_columns: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row in rows:
        rows_by_columns.setdefault(frozenset(row), []).append(row)
    return sum(statement.run(tx, same) for same in rows_by_columns.values())


def _settle_dependencies(tx: Connection, ended: Sequence[Job]) -> None:
    """Release jobs whose dependency succeeded, mark jobs whose dependency failed."""
    _DELETE_DEPENDENCIES.run(tx, [job.submission_id for job in ended if job.spec.depends_on])
    _RELEASE_DEPENDENTS.run(tx, [job.submission_id for job in ended if job.state is JobState.SUCCEEDED])
    _FAIL_DEPENDENTS.run(tx, [job.submission_id for job in ended if job.state is not JobState.SUCCEEDED])
