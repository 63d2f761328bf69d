"""The service in the process that has the store: what `api.Service` promises, for one caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from ray_multicluster_scheduler.environment.redact import GrowingText, redact_text
from ray_multicluster_scheduler.errors import ClusterError, InvalidRequest, JobNotFound, NoClusterAvailable
from ray_multicluster_scheduler.model.access import named_ids
from ray_multicluster_scheduler.model.client_session import SessionClient
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.caller import Caller, audit_entry, check_may_act_for
from ray_multicluster_scheduler.service.delete import delete
from ray_multicluster_scheduler.service.event_stream import event_stream
from ray_multicluster_scheduler.service.find_jobs import find, find_each
from ray_multicluster_scheduler.service.job_lists import list_jobs, timeline
from ray_multicluster_scheduler.service.kept_packages import KeptPackages
from ray_multicluster_scheduler.service.make_views import (
    Secrets,
    show_attempts,
    show_detail,
    show_event,
    show_job,
    show_session,
    warnings_of,
)
from ray_multicluster_scheduler.service.query import (
    EVENTS,
    MOST_ATTEMPTS,
    MOST_PAGE_JOBS,
    SPANS,
    JobQuery,
    events_limit,
)
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.scheduler_calls import SchedulerCalls
from ray_multicluster_scheduler.service.service_parts import ServiceParts
from ray_multicluster_scheduler.service.shown_jobs import ShownJobs
from ray_multicluster_scheduler.service.uploaded_packages import UploadedPackages
from ray_multicluster_scheduler.service.views import (
    AttemptView,
    EventView,
    Explanation,
    JobDetail,
    JobPage,
    JobView,
    PlanView,
    SessionView,
    TimelineView,
)
from ray_multicluster_scheduler.service.whole_log import whole_log

_ALL = JobQuery()


class LocalService(SchedulerCalls):
    """Answers one caller from the store. It decides nothing about placement."""

    def __init__(self, parts: ServiceParts, caller: Caller, *, remote: bool = False) -> None:
        """`remote`: the caller is another process, and its packages are what its user has uploaded."""
        super().__init__(parts, caller)
        self._uploaded = UploadedPackages(parts.uploads, parts.packages, caller.user) if remote else None
        self._secrets = Secrets(parts.config.clusters)
        self._clusters = tuple(spec.name for spec in parts.config.clusters)
        #: Whose jobs exist for this caller; None: everybody's.
        self._only = caller.only

    def as_caller(self, caller: Caller) -> LocalService:
        """Return the same service for somebody else, in another process."""
        return LocalService(self._parts, caller, remote=True)

    @property
    def packages(self) -> KeptPackages | UploadedPackages:
        """The package store. A job's directories are packed into it before the job is submitted."""
        return self._uploaded or KeptPackages(self._parts.packages)

    def submit(self, requests: Sequence[JobRequest]) -> tuple[JobView, ...]:
        """Accept jobs, all or none; they are on disk when this returns."""
        check_may_act_for(self._caller, {request.user for request in requests})
        self._check_open()
        named = [self._with_content_names(request) for request in requests]
        accepted = self._show(self._jobs.submit(named, by=self._caller))
        apart = self._parts.kept_apart()
        if not accepted or not apart:
            return accepted
        first = accepted[0]  # said once, however many jobs there are
        return first.model_copy(update={"warnings": (*first.warnings, *apart)}), *accepted[1:]

    def open_session(self, request: JobRequest, client: SessionClient) -> JobView:
        """Accept a Ray Client session: a job that a program outside the clusters runs."""
        check_may_act_for(self._caller, {request.user})
        self._check_open()
        named = self._with_content_names(request)
        return self._show_one(self._jobs.open_session(named, client, by=self._caller))

    def retry(self, submission_ids: Sequence[str]) -> tuple[JobView, ...]:
        """Accept a new job for each of these that has failed or was stopped, with the same options."""
        self._check_open()
        jobs = self._found(submission_ids)
        for name in {name for job in jobs for name in package_names(job.spec.runtime_env)}:
            self._parts.packages.ask_for(name)  # marks it as used, so that it is not removed as too old
        ids = [job.submission_id for job in jobs]
        return self._show(self._jobs.retry(ids, user=self._caller.user, by=self._caller))

    def stop(
        self, submission_ids: Sequence[str], *, reason: str = "stopped by the user"
    ) -> tuple[JobView, ...]:
        """Ask for these jobs to be stopped, wherever they are; returns them as they are now."""
        ids = arguments.words("submission_ids", submission_ids)
        self._check_visible(ids)
        return self._show(self._jobs.stop(ids, reason=reason, by=self._caller))

    def delete(self, submission_ids: Sequence[str]) -> None:
        """Forget ended jobs, all or none, here and on their clusters; their ids are free again."""
        ids = arguments.words("submission_ids", submission_ids)
        self._check_visible(ids)
        audit = audit_entry(self._caller, "delete", named_ids(ids), now=self._parts.clock.now())
        delete(self._parts.reach, self._store, ids, audit=audit)

    def find(self, word: str) -> tuple[JobView, ...]:
        """Return the jobs that a word means, oldest first: an id or its beginning, a `job_id`, a group."""
        return self._show_rows(find(self._store, arguments.text("id", word), only=self._only))

    def find_each(self, words: Sequence[str]) -> tuple[JobView, ...]:
        """Return for each word the job with this id, else the newest with this `job_id`, each job once."""
        return self._show(self._found(words))

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, JobView]:
        """Return the jobs with these ids; unknown ids are left out."""
        found = self._store.get_many(arguments.words("submission_ids", submission_ids))
        return {name: self._show_one(job) for name, job in found.items() if self._caller.sees(job.spec.user)}

    def detail(self, submission_id: str) -> JobDetail:
        """Return all that is known of a job, with its attempts and the log so far."""
        job = self._get(submission_id)
        attempts = self._store.attempts(submission_id, last=MOST_ATTEMPTS)
        log = None
        with suppress(ClusterError, InvalidRequest):  # the rest of the answer does not need the cluster
            log = self._store.load_log(submission_id, job.attempt) if job.final else self._log(job)
        return show_detail(
            job,
            attempts,
            log,
            self._secrets.of(job, attempts),
            cluster_envs=self._cluster_envs(),
            warnings=warnings_of(job, self._clusters),
            waits=self._reasons([job]).get(submission_id),
        )

    def attempts(self, submission_id: str) -> tuple[AttemptView, ...]:
        """Return the last placements of a job, oldest first. No cluster is asked."""
        job = self._get(submission_id)
        attempts = self._store.attempts(submission_id, last=MOST_ATTEMPTS)
        secrets = self._secrets.of(job, attempts)
        return show_attempts(job, attempts, secrets, cluster_envs=self._cluster_envs())

    def list_jobs(self, query: JobQuery = _ALL) -> JobPage:
        """Return jobs, newest first."""
        return list_jobs(self._store, query, only=self._only, show=self._show_rows)

    def timeline(
        self, *, since: float, until: float | None = None, cluster: str | None = None, limit: int = SPANS
    ) -> TimelineView:
        """Return the attempts that were on their clusters in this time, up to now if no end is given."""
        until = self._parts.clock.now() if until is None else until
        return timeline(self._store, since=since, until=until, cluster=cluster, only=self._only, limit=limit)

    def counts(
        self, states: Collection[JobState], *, changed_since: float | None = None
    ) -> dict[JobState, int]:
        """Return how many jobs are in each of these states, at all or since this time or later."""
        since = arguments.amount("changed_since", changed_since)
        return self._store.counts(states, user=self._only, changed_since=since)

    def queue(self, *, limit: int = MOST_PAGE_JOBS) -> tuple[JobView, ...]:
        """Return the queue: the jobs that may start now, in order, then those that wait for something."""
        ready = self._store.runnable(now=self._parts.clock.now(), user=self._only, limit=limit)
        known = {job.submission_id for job in ready}
        waiting = self._store.list_jobs(states=[JobState.QUEUED], user=self._only, limit=limit)
        found = (*ready, *(job for job in waiting[::-1] if job.submission_id not in known))
        return self._show_rows(found[:limit])

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = EVENTS
    ) -> tuple[EventView, ...]:
        """Return what has happened, in order: to one job, or to all that this caller sees."""
        if submission_id is not None:
            self._check_visible([submission_id])
        after, limit = arguments.whole("after", after, least=0), events_limit(limit)
        events = self._store.events(submission_id, after=after, limit=limit, user=self._only)
        jobs = self._store.get_many(list(dict.fromkeys(event.submission_id for event in events)))
        return tuple(
            show_event(event, self._secrets.of(jobs[event.submission_id]))
            for event in events
            if event.submission_id in jobs
        )

    async def events_async(self, *, after: int | None = None) -> AsyncGenerator[EventView, None]:
        """Yield what happens, live, after this event (None: from now on), to all that this caller sees."""
        async with aclosing(event_stream(self._parts.hub, after)) as stream:
            async for told in stream:
                for event, job in told:
                    if job is not None and self._caller.sees(job.spec.user):
                        yield show_event(event, self._secrets.of(job))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change by any process, in any thread; returns what ends that.

        It tells nothing but that, and costs nothing else. It must return at once.
        """
        return self._store.subscribe(callback)

    def log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the log of an attempt (the last one by default), from its cluster while it runs."""
        job = self._get(submission_id)
        is_last = attempt is None or attempt == job.attempt
        log = self._log(job) if is_last else self._store.load_log(submission_id, attempt)
        return None if log is None else redact_text(log, self._secrets_in_log(job))

    def news(self, after: int, *, timeout_s: float) -> int:
        """Wait, at most this long, until something happens after an event; return the newest event's id."""
        clock, store = self._parts.clock, self._store
        ends_at = clock.monotonic() + timeout_s
        mark = store.wait_for_change(0, timeout_s=0)
        while (newest := store.last_event()) <= after and (left := ends_at - clock.monotonic()) > 0:
            mark = store.wait_for_change(mark, timeout_s=left)
        return newest

    def kept_log(self, submission_id: str) -> str | None:
        """Return the log of the last attempt if it is kept here: no cluster is asked."""
        job = self._get(submission_id)
        log = self._store.load_log(job.submission_id)
        return None if log is None else redact_text(log, self._secrets_in_log(job))

    async def whole_log(self, submission_id: str) -> str:
        """Return what `tail` has yielded so far, without the part that only a silent cluster has."""
        job = await asyncio.to_thread(self._get, submission_id)
        log = await whole_log(self._parts.reach, self._store, job)
        return await asyncio.to_thread(lambda: redact_text(log, self._secrets_in_log(job)))

    def tail(self, submission_id: str) -> Iterator[str]:
        """Yield the log as it grows, over all attempts, until the job has ended."""
        shown = GrowingText(self._secrets_in_log(self._get(submission_id)))
        return self._redacted(self._parts.tails.tail(submission_id), shown)

    async def tail_async(self, submission_id: str) -> AsyncIterator[str]:
        """Like the blocking version, for asyncio: no thread waits."""
        job = await asyncio.to_thread(self._get, submission_id)
        shown = GrowingText(await asyncio.to_thread(self._secrets_in_log, job))
        async with aclosing(self._parts.tails.tail_async(submission_id)) as pieces:
            async for piece in pieces:
                if text := shown.add(piece):
                    yield text
        if text := shown.rest():
            yield text

    def changes(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> Iterator[Mapping[str, JobView]]:
        """Yield these jobs at once, on each change, and every `tick_s`; ends when all have ended."""
        shown = ShownJobs(self._caller, self._show_one)
        for jobs in self._jobs.changes(submission_ids, timeout_s=timeout_s, tick_s=tick_s):
            yield shown.of(jobs)

    async def changes_async(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> AsyncGenerator[Mapping[str, JobView], None]:
        """Like the blocking version, for asyncio: no thread waits."""
        shown = ShownJobs(self._caller, self._show_one)
        found = self._jobs.changes_async(submission_ids, timeout_s=timeout_s, tick_s=tick_s)
        async with aclosing(found):
            async for jobs in found:
                yield shown.of(jobs)

    def explain(self, submission_id: str) -> Explanation:
        """Say why a job is where it is, and what would let it start."""
        job = self._get(submission_id)
        snapshots = self._parts.look() if job.state is JobState.QUEUED else None
        return self._parts.explainer.explain(submission_id, snapshots=snapshots)

    def plan(self, request: JobRequest) -> PlanView:
        """Say what would happen to a job if it were submitted now; nothing is stored or sent.

        Raises what `submit` would raise.
        """
        check_may_act_for(self._caller, {request.user})
        self._check_open()
        named, explainer = self._with_content_names(request), self._parts.explainer
        looked = self._parts.look()
        snapshots = explainer.after_first_look() if looked is None else looked
        submission_id, spec = self._jobs.check(named, by=self._caller, snapshots=snapshots)
        return explainer.plan(submission_id, spec, snapshots=snapshots)

    def sessions(self) -> tuple[SessionView, ...]:
        """Return the open Ray Client sessions, oldest first."""
        sessions = self._store.sessions.open()
        jobs = self._store.get_many([session.submission_id for session in sessions])
        return tuple(
            show_session(job, session, self._secrets.of(job))
            for session in sessions
            if (job := jobs.get(session.submission_id)) is not None and self._caller.sees(job.spec.user)
        )

    def _check_open(self) -> None:
        if (why := self._parts.closed()) is not None:
            raise NoClusterAvailable(why)

    def _with_content_names(self, request: JobRequest) -> JobRequest:
        return request if self._uploaded is None else self._uploaded.localised(request)

    def _found(self, words: Sequence[str]) -> tuple[Job, ...]:
        return find_each(self._store, arguments.words("submission_ids", words), only=self._only)

    def _cluster_envs(self) -> dict[str, Mapping[str, Any]]:
        return {spec.name: spec.runtime_env for spec in self._parts.loaded.clusters}

    def _get(self, submission_id: str) -> Job:
        job = self._store.get(arguments.text("submission_id", submission_id, empty=True))
        if not self._caller.sees(job.spec.user):
            raise JobNotFound(submission_id)
        return job

    def _check_visible(self, submission_ids: Sequence[str]) -> None:
        if self._only is not None:
            found = self._store.get_many(submission_ids)
            for submission_id in submission_ids:  # unknown and hidden jobs must look the same
                if submission_id not in found or not self._caller.sees(found[submission_id].spec.user):
                    raise JobNotFound(submission_id)

    def _show(self, jobs: Sequence[Job]) -> tuple[JobView, ...]:
        return tuple(map(self._show_one, jobs))

    def _show_rows(self, jobs: Sequence[Job]) -> tuple[JobView, ...]:
        """Show jobs, and of those that wait, why: in one look at the queue for all of them."""
        reasons = self._reasons(jobs)
        return tuple(self._show_one(job, reasons.get(job.submission_id)) for job in jobs)

    def _show_one(self, job: Job, waits: tuple[str, str] | None = None) -> JobView:
        return show_job(job, self._secrets.of(job), warnings=warnings_of(job, self._clusters), waits=waits)

    def _reasons(self, jobs: Sequence[Job]) -> dict[str, tuple[str, str]]:
        return self._parts.explainer.reasons(jobs, self._parts.waits.of)

    def _secrets_in_log(self, job: Job) -> frozenset[str]:
        return self._secrets.of(job, self._store.attempts(job.submission_id, last=MOST_ATTEMPTS))

    @staticmethod
    def _redacted(pieces: Iterator[str], shown: GrowingText) -> Iterator[str]:
        for piece in pieces:
            if text := shown.add(piece):
                yield text
        if text := shown.rest():
            yield text

    def _log(self, job: Job) -> str | None:
        """Return the kept log, or, while the job runs, the log from its cluster."""
        kept = self._store.load_log(job.submission_id, job.attempt)
        cluster, remote_id = job.cluster, job.remote_id
        if kept is not None or cluster is None or remote_id is None or job.seen_at is None:
            return kept
        if job.spec.is_session:  # its program writes where it runs
            return None
        self._parts.config.cluster(cluster)  # raises if it is no longer configured
        read: str = self._parts.reach(
            lambda connections: connections[cluster].executor.log(remote_id)
        ).result()
        return read
