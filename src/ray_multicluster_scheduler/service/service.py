"""The service in the process that has the store: what `api.Service` promises, for one caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.checks import has_versions_of_client
from ray_multicluster_scheduler.core.placement.inputs import Fits, World, cluster_views
from ray_multicluster_scheduler.environment.redact import GrowingText, redact_text
from ray_multicluster_scheduler.errors import (
    ClusterError,
    Forbidden,
    InvalidRequest,
    JobNotFound,
    NoClusterAvailable,
    TooManyRequests,
)
from ray_multicluster_scheduler.executors.contract import Capabilities
from ray_multicluster_scheduler.executors.registry import RAY_SESSION, Executors, Registry
from ray_multicluster_scheduler.model.access import Terms, named_ids
from ray_multicluster_scheduler.model.cluster import TRIAL_S, ClusterSnapshot
from ray_multicluster_scheduler.model.execution import SessionClient
from ray_multicluster_scheduler.model.job import Job, JobEvent, JobSpec, Lease
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.uploads import Uploads
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.administration import Administration
from ray_multicluster_scheduler.service.admission import Admission
from ray_multicluster_scheduler.service.auth import JobTokens, Tokens
from ray_multicluster_scheduler.service.caller import Caller, Role, audit_entry, check_may_act_for
from ray_multicluster_scheduler.service.events import (
    EventHub,
    ShownJobs,
    Waiting,
    changes,
    changes_async,
    event_stream,
)
from ray_multicluster_scheduler.service.jobs import (
    delete,
    find,
    find_each,
    keep_rules,
    list_jobs,
    prune,
    repeats,
    timeline,
    to_repeat,
)
from ray_multicluster_scheduler.service.logs import Reach, Tails, whole_log
from ray_multicluster_scheduler.service.make_views import (
    Secrets,
    show_attempts,
    show_cluster,
    show_config,
    show_detail,
    show_event,
    show_job,
    show_result,
    show_session,
    warnings_of,
)
from ray_multicluster_scheduler.service.packages import KeptPackages, UploadedPackages
from ray_multicluster_scheduler.service.query import (
    EVENTS,
    MOST_ATTEMPTS,
    MOST_PAGE_JOBS,
    SPANS,
    JobQuery,
    events_limit,
)
from ray_multicluster_scheduler.service.request import JobRequest, checked
from ray_multicluster_scheduler.service.sessions import SessionRecords
from ray_multicluster_scheduler.service.views import (
    AttemptView,
    CallerView,
    ClusterReport,
    ClusterView,
    ConfigView,
    Explanation,
    JobDetail,
    JobPage,
    JobView,
    PlanView,
    ProcessList,
    PruneView,
    ResultView,
    SessionView,
    TimelineView,
    WaitView,
)
from ray_multicluster_scheduler.store import Store

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.explain import Explainer, WaitNumbers


# Jobs as callers see them: accept, stop, wait.


class JobService:
    """The use cases around the store. It decides nothing about placement."""

    def __init__(
        self,
        config: Config,
        store: Store,
        clock: Clock,
        hub: EventHub,
        executors: Registry,
        look: Callable[[], Mapping[str, ClusterSnapshot] | None] = lambda: None,
    ) -> None:
        """`look` probes the clusters where nobody leads; it returns None where somebody does."""
        self._config = config
        self._executors = executors
        self._fits = Fits(config.clusters)
        self._admission = Admission(config, store, clock, self._fits, look)
        self._store = store
        self._clock = clock
        self._hub = hub

    def submit(self, requests: Sequence[JobRequest], *, by: Caller | None = None) -> tuple[Job, ...]:
        """Accept jobs, all or none; they are on disk when this returns."""
        return self._add(self._admitted(requests), "submit", by)

    def check(
        self,
        request: JobRequest,
        *,
        by: Caller,
        snapshots: Mapping[str, ClusterSnapshot],
    ) -> tuple[str, JobSpec]:
        """Refuse what `submit` would refuse, with the same error; return id and spec. Nothing is stored."""
        accepted = self._admitted([request], snapshots=snapshots)
        self._store.jobs.check_add(accepted, now=self._clock.now(), terms=self._terms(by))
        return accepted[0]

    def _admitted(
        self, requests: Sequence[JobRequest], *, snapshots: Mapping[str, ClusterSnapshot] | None = None
    ) -> list[tuple[str, JobSpec]]:
        """Return ids and specs of jobs that some cluster may run one day."""
        for executor in {request.executor for request in requests}:
            self._executors.check(executor)
        admitted = [checked(request, fits=self._fits) for request in requests]
        self._admission.check([spec for _, spec in admitted], snapshots=snapshots)
        return admitted

    def open_session(self, request: JobRequest, client: SessionClient, *, by: Caller) -> Job:
        """Accept a Ray Client session: a job that a program outside the clusters runs."""
        submission_id, spec = checked(request, fits=self._fits)
        session = replace(
            spec,
            executor=RAY_SESSION.name,
            client_address=client.address,
            client_ray=client.ray,
            client_python=client.python,
        )
        self._check_versions(client)
        self._admission.check([session])
        return self._add([(submission_id, session)], "session", by)[0]

    def _check_versions(self, client: SessionClient) -> None:
        """Refuse a program whose Ray or Python no cluster has; one of unknown version may have it."""
        seen = self._store.clusters.load_snapshots([spec.name for spec in self._config.clusters])
        others = {
            name: f"Ray {snapshot.ray_version} and Python {snapshot.python_version}"
            for name, snapshot in seen.items()
            if has_versions_of_client(
                client.ray, client.python, snapshot.ray_version, snapshot.python_version
            )
        }
        if others and len(others) == len(self._config.clusters):
            raise InvalidRequest(
                f"this program has Ray {client.ray or 'of an unknown version'} and Python "
                f"{client.python or 'of an unknown version'}, and Ray Client needs the same Ray and the same "
                "minor version of Python at both ends: "
                + "; ".join(f"cluster {name!r} has {versions}" for name, versions in others.items())
            )

    def retry(self, submission_ids: Sequence[str], *, user: str, by: Caller | None = None) -> tuple[Job, ...]:
        """Accept a new job for each of these that has failed or was stopped, with the same options."""
        jobs = to_repeat(list(find_each(self._store, submission_ids)), self._executors.can)
        return self._add(repeats(jobs, user=user, taken=self._store.jobs.taken), "retry", by)

    def _add(self, jobs: Sequence[tuple[str, JobSpec]], action: str, by: Caller | None) -> tuple[Job, ...]:
        if by is not None and by.job is not None:  # proved by its token, whatever the request says
            jobs = [(name, replace(spec, parent=by.job)) for name, spec in jobs]
        now = self._clock.now()
        audit = None if by is None else audit_entry(by, action, now=now)
        return self._store.jobs.add(jobs, now=now, terms=replace(self._terms(by), audit=audit))

    def _terms(self, by: Caller | None) -> Terms:
        quotas = {user: entry.quota() for user, entry in self._config.settings.quotas.items()}
        return Terms(quotas=quotas, only=None if by is None else by.only)

    def stop(
        self,
        submission_ids: Sequence[str],
        *,
        reason: str = "stopped by the user",
        by: Caller | None = None,
    ) -> tuple[Job, ...]:
        """Ask for these jobs to be stopped, wherever they are; returns their rows as they are now."""
        ids = arguments.words("submission_ids", submission_ids)
        why = arguments.text("reason", reason)
        now = self._clock.now()
        audit = None if by is None else audit_entry(by, "stop", named_ids(ids), now=now)
        return self._store.jobs.request_stop(ids, now=now, reason=why, audit=audit)

    def set_drained(self, cluster: str, *, drained: bool, reason: str, by: Caller | None = None) -> None:
        """Drain a cluster, so that it gets no new jobs, or undo that."""
        why = arguments.text("reason", reason, empty=True)
        now = self._clock.now()
        action = "drain" if drained else "undrain"
        audit = None if by is None else audit_entry(by, action, cluster, now=now)
        self._store.clusters.set_drained(cluster, drained=drained, reason=why, now=now, audit=audit)

    def changes(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> Iterator[Mapping[str, Job]]:
        """Yield these jobs at once, on each change, and every `tick_s`; ends when all have ended.

        Raises `WaitTimeout` when that takes longer than `timeout_s`.
        """
        yield from changes(self._hub, self._waiting(submission_ids, timeout_s), tick_s=tick_s)

    async def changes_async(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> AsyncGenerator[Mapping[str, Job], None]:
        """Like the blocking version, for asyncio: no thread waits."""
        waiting = self._waiting(submission_ids, timeout_s)
        async with aclosing(changes_async(self._hub, waiting, tick_s=tick_s)) as found:
            async for jobs in found:
                yield jobs

    def _waiting(self, submission_ids: Sequence[str], timeout_s: float | None) -> Waiting:
        # Checked here, because one query reads the jobs of all waiters: a bad id must not fail the others.
        ids = arguments.words("submission_ids", submission_ids)
        return Waiting(self._clock, ids, timeout_s=timeout_s)


# What the service works with, and what is handed to it.


T = TypeVar("T")


class _Later:
    """Stands for an object that is made when it is first used: what makes it is slow to import."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def _it(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._it(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._it()(*args, **kwargs)


def later(make: Callable[[], T]) -> T:
    """Return what `make` returns, which is called when that is first used."""
    return cast(T, _Later(make))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The components that the service uses."""

    config: Config
    #: The same as it was read: without packed directories and the address of a server.
    loaded: Config
    store: Store
    packages: PackageStore
    clock: Clock
    hub: EventHub
    jobs: JobService
    explainer: Explainer
    #: Probes the clusters when there is no leader; returns None when the published snapshots are fresh.
    look: Callable[[], Mapping[str, ClusterSnapshot] | None]
    #: Why the jobs in the queue wait.
    waits: WaitNumbers
    #: Asks the clusters what runs there.
    processes: Callable[[], ProcessList]
    #: Examines these clusters, or all of them (None), with a short job that may take so many seconds.
    run_doctor: Callable[[Sequence[str] | None, float], tuple[ClusterReport, ...]]
    #: Packages that callers from other processes have uploaded.
    uploads: Uploads
    #: Runs a coroutine that talks to clusters.
    reach: Reach
    executors: Executors
    tails: Tails
    tokens: Tokens
    #: Says why no job is accepted at all; None: jobs are.
    closed: Callable[[], str | None] = lambda: None
    #: Says which clusters are also used by another queue of this machine, for whoever submits a job.
    kept_apart: Callable[[], Sequence[str]] = tuple


#: Each holds a thread for minutes, and others need threads too. One for each user.
DOCTORS_AT_ONCE = 4
_doctors_of: set[str] = set()
_doctors = threading.Lock()


_ALL = JobQuery()


class LocalService:
    """Answers one caller from the store. It decides nothing about placement."""

    def __init__(self, parts: ServiceParts, caller: Caller, *, remote: bool = False) -> None:
        """`remote`: the caller is another process, and its packages are what its user has uploaded."""
        self._parts = parts
        self._store = parts.store
        self._jobs = parts.jobs
        self._caller = caller
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
        delete(self._parts.reach, self._parts.executors, self._store, ids, audit=audit)

    def find(self, word: str) -> tuple[JobView, ...]:
        """Return the jobs that a word means, oldest first: an id or its beginning, a `job_id`, a group."""
        return self._show_rows(find(self._store, arguments.text("id", word), only=self._only))

    def find_each(self, words: Sequence[str]) -> tuple[JobView, ...]:
        """Return for each word the job with this id, else the newest with this `job_id`, each job once."""
        return self._show(self._found(words))

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, JobView]:
        """Return the jobs with these ids; unknown ids are left out."""
        found = self._store.jobs.get_many(arguments.words("submission_ids", submission_ids))
        return {name: self._show_one(job) for name, job in found.items() if self._caller.sees(job.spec.user)}

    def detail(self, submission_id: str) -> JobDetail:
        """Return all that is known of a job, with its attempts and the log so far."""
        job = self._get(submission_id)
        attempts = self._store.history.attempts(submission_id, last=MOST_ATTEMPTS)
        log = None
        with suppress(ClusterError, InvalidRequest):  # the rest of the answer does not need the cluster
            log = self._store.history.load_log(submission_id, job.attempt) if job.final else self._log(job)
        return show_detail(
            job,
            attempts,
            log,
            self._secrets.of(job, attempts),
            cluster_envs=self._cluster_envs(),
            can=self._can(job),
            warnings=self._warnings_of(job),
            waits=self._reasons([job]).get(submission_id),
        )

    def attempts(self, submission_id: str) -> tuple[AttemptView, ...]:
        """Return the last placements of a job, oldest first. No cluster is asked."""
        job = self._get(submission_id)
        attempts = self._store.history.attempts(submission_id, last=MOST_ATTEMPTS)
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
        return self._store.jobs.counts(states, user=self._only, changed_since=since)

    def queue(self, *, limit: int = MOST_PAGE_JOBS) -> tuple[JobView, ...]:
        """Return the queue: the jobs that may start now, in order, then those that wait for something."""
        ready = self._store.queue.runnable(now=self._parts.clock.now(), user=self._only, limit=limit)
        known = {job.submission_id for job in ready}
        waiting = self._store.jobs.list(states=[JobState.QUEUED], user=self._only, limit=limit)
        found = (*ready, *(job for job in waiting[::-1] if job.submission_id not in known))
        return self._show_rows(found[:limit])

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = EVENTS
    ) -> tuple[JobEvent, ...]:
        """Return what has happened, in order: to one job, or to all that this caller sees."""
        if submission_id is not None:
            self._check_visible([submission_id])
        after, limit = arguments.whole("after", after, least=0), events_limit(limit)
        events = self._store.history.events(submission_id, after=after, limit=limit, user=self._only)
        jobs = self._store.jobs.get_many(list(dict.fromkeys(event.submission_id for event in events)))
        return tuple(
            show_event(event, self._secrets.of(jobs[event.submission_id]))
            for event in events
            if event.submission_id in jobs
        )

    async def events_async(self, *, after: int | None = None) -> AsyncGenerator[JobEvent, None]:
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
        return self._store.changes.subscribe(callback)

    def log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the log of an attempt (the last one by default), from its cluster while it runs."""
        job = self._get(submission_id)
        is_last = attempt is None or attempt == job.attempt
        log = self._log(job) if is_last else self._store.history.load_log(submission_id, attempt)
        return None if log is None else redact_text(log, self._secrets_in_log(job))

    def result(self, submission_id: str) -> ResultView:
        """Return what a job has left as its result; `NoResult` says why there is none."""
        job = self._get(submission_id)
        left = self._store.history.load_result(job.submission_id) if job.final else None
        return show_result(job, left, self._secrets_in_log(job), can=self._can(job))

    def news(self, after: int, *, timeout_s: float) -> int:
        """Wait, at most this long, until something happens after an event; return the newest event's id."""
        clock, store = self._parts.clock, self._store
        ends_at = clock.monotonic() + timeout_s
        mark = store.changes.wait(0, timeout_s=0)
        while (newest := store.history.last_event()) <= after and (left := ends_at - clock.monotonic()) > 0:
            mark = store.changes.wait(mark, timeout_s=left)
        return newest

    def kept_log(self, submission_id: str) -> str | None:
        """Return the log of the last attempt if it is kept here: no cluster is asked."""
        job = self._get(submission_id)
        log = self._store.history.load_log(job.submission_id)
        return None if log is None else redact_text(log, self._secrets_in_log(job))

    async def whole_log(self, submission_id: str) -> str:
        """Return what `tail` has yielded so far, without the part that only a silent cluster has."""
        job = await asyncio.to_thread(self._get, submission_id)
        log = await whole_log(self._parts.reach, self._parts.executors, self._store, job)
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
        return self._parts.explainer.explain(job, snapshots=snapshots)

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
        jobs = self._store.jobs.get_many([session.submission_id for session in sessions])
        return tuple(
            show_session(job, session, self._secrets.of(job))
            for session in sessions
            if (job := jobs.get(session.submission_id)) is not None and self._caller.sees(job.spec.user)
        )

    @property
    def session_records(self) -> SessionRecords:
        """The records of everybody's sessions, for the server that they are connected to."""
        self._check_role(Role.ADMIN)
        return SessionRecords(self._store, self._parts.clock, self._parts.reach)

    # -- clusters, the queue as a whole, and the scheduler itself

    def clusters(self) -> tuple[ClusterView, ...]:
        """Return every configured cluster with what was last seen of it."""
        world = World(
            specs=self._parts.config.clusters,
            snapshots=self._store.clusters.load_snapshots(),
            live=LiveJobs(self._store.queue.live()),
            drains=self._store.clusters.drained(),
            now=self._parts.clock.now(),
        )
        return tuple(show_cluster(planned, now=world.now) for planned in cluster_views(world))

    def set_drained(self, cluster: str, *, drained: bool, reason: str = "") -> None:
        """Drain a cluster, so that it gets no new jobs, or undo that."""
        self._parts.config.cluster(cluster)
        self._jobs.set_drained(cluster, drained=drained, reason=reason, by=self._caller)

    def wait_reasons(self) -> tuple[WaitView, ...]:
        """Return for each reason how many jobs in the queue wait for it: everybody's, in numbers only."""
        return tuple(
            WaitView(reason=wait.reason, jobs=wait.jobs, oldest=wait.oldest) for wait in self._parts.waits()
        )

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, ours or not, and which clusters cannot be looked at."""
        self._check_role(Role.READ_ALL)
        return self._parts.processes()

    def run_doctor(
        self, clusters: Sequence[str] | None = None, *, timeout_s: float = TRIAL_S
    ) -> tuple[ClusterReport, ...]:
        """Examine these clusters, or all, also with a short job on each that tells what jobs get there."""
        self._check_role(Role.SUBMIT)
        only = None if clusters is None else arguments.words("clusters", clusters)
        wait_s = arguments.seconds("timeout_s", timeout_s) or TRIAL_S
        for name in only or ():
            self._parts.loaded.cluster(name)
        user = self._caller.user
        with _doctors:
            if user in _doctors_of or len(_doctors_of) >= DOCTORS_AT_ONCE:
                whose = "one of yours is" if user in _doctors_of else f"{DOCTORS_AT_ONCE} are"
                raise TooManyRequests(f"of checks with jobs, {whose} under way; try again in a minute")
            _doctors_of.add(user)
        try:
            entry = audit_entry(self._caller, "doctor", ", ".join(only or ()), now=self._parts.clock.now())
            self._store.access.record([entry])
            return self._parts.run_doctor(only, wait_s)
        finally:
            with _doctors:
                _doctors_of.remove(user)

    def configuration(self) -> ConfigView:
        """Return the configuration as it was loaded, with secrets hidden."""
        self._check_role(Role.READ_ALL)
        return show_config(self._parts.loaded)

    def me(self) -> CallerView:
        """Return who the caller is: whose jobs are submitted, and what that caller may do."""
        return CallerView(user=self._caller.user, role=self._caller.role.word)

    def leader(self) -> Lease | None:
        """Return who schedules now, if anybody."""
        return self._store.leases.current(now=self._parts.clock.now())

    def prune(
        self, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
    ) -> PruneView:
        """Remove old history by the settings or by these limits; a dry run only counts it."""
        rules = keep_rules(self._parts.config.settings)
        if older_than_s is not None:
            rules = replace(rules, jobs_s=older_than_s)
        if keep is not None:
            rules = replace(rules, jobs=keep)
        now = self._parts.clock.now()
        if not dry_run:
            self._store.access.record([audit_entry(self._caller, "prune", now=now)])
        return prune(self._store, rules, now=now, dry_run=dry_run)

    @property
    def admin(self) -> Administration:
        """Tokens, users and the audit trail; raises `Forbidden` unless the caller is an administrator."""
        settings, clock = self._parts.config.settings, self._parts.clock
        quotas = {user: entry.quota() for user, entry in settings.quotas.items()}
        return Administration(self._parts.tokens, self._store, self._caller, quotas=quotas, clock=clock)

    def _check_role(self, role: Role) -> None:
        if not self._caller.may(role):
            raise Forbidden(
                f"this needs the role {role.word!r}; {self._caller.user!r} has {self._caller.role.word!r}"
            )

    # -- what the calls share

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
        job = self._store.jobs.get(arguments.text("submission_id", submission_id, empty=True))
        if not self._caller.sees(job.spec.user):
            raise JobNotFound(submission_id)
        return job

    def _check_visible(self, submission_ids: Sequence[str]) -> None:
        if self._only is not None:
            found = self._store.jobs.get_many(submission_ids)
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
        return show_job(
            job, self._secrets.of(job), can=self._can(job), warnings=self._warnings_of(job), waits=waits
        )

    def _can(self, job: Job) -> Capabilities:
        return self._parts.executors.can(job.spec.executor)

    def _warnings_of(self, job: Job) -> tuple[str, ...]:
        known = self._parts.executors.registry.find(job.spec.executor) is not None
        return warnings_of(job, self._clusters, has_executor=known)

    def _reasons(self, jobs: Sequence[Job]) -> dict[str, tuple[str, str]]:
        queued = [job for job in jobs if job.state is JobState.QUEUED]
        # What explains imports the planner, which a list without queued jobs does not need.
        return self._parts.explainer.reasons(queued, self._parts.waits.of) if queued else {}

    def _secrets_in_log(self, job: Job) -> frozenset[str]:
        return self._secrets.of(job, self._store.history.attempts(job.submission_id, last=MOST_ATTEMPTS))

    @staticmethod
    def _redacted(pieces: Iterator[str], shown: GrowingText) -> Iterator[str]:
        for piece in pieces:
            if text := shown.add(piece):
                yield text
        if text := shown.rest():
            yield text

    def _log(self, job: Job) -> str | None:
        """Return the kept log, or, while the job runs, the log from its cluster."""
        kept = self._store.history.load_log(job.submission_id, job.attempt)
        cluster, remote_id = job.cluster, job.remote_id
        if kept is not None or cluster is None or remote_id is None or job.seen_at is None:
            return kept
        executors, name = self._parts.executors, job.spec.executor
        if not self._can(job).keeps_log:
            return None
        self._parts.config.cluster(cluster)  # raises if it is no longer configured
        read: str = self._parts.reach(
            lambda connections: executors.on(connections[cluster], name).log(remote_id)
        ).result()
        return read


# What a scheduler opens together: it outlives no change of the configuration.


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The components that share one store."""

    #: With the local directories of the clusters' own environments packed.
    config: Config
    store: Store
    packages: PackageStore
    #: Notifies the waiters of this process of changes.
    hub: EventHub
    service: LocalService
    tokens: Tokens
    job_tokens: JobTokens
