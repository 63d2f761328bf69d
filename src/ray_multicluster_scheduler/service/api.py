"""The one interface of the scheduler. The Python API, the command line and the server all use it.

`service/service.py` answers in this process; `client/http.py` asks a server, with the same
results and the same errors. A job that the caller may not see is reported as `JobNotFound`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.model.cluster import TRIAL_S
from ray_multicluster_scheduler.model.job import JobEvent, Lease
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.request import JobRequest
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


class Packages(Protocol):
    """Where packed directories are kept, by content: `packages/runtime_env.localise` puts them there."""

    def has(self, name: str) -> bool:
        """Tell whether a package is kept."""

    def put(self, name: str, content: Path) -> None:
        """Keep a package file. Its name is derived from its content."""


class Service(Protocol):
    """All calls that one caller can make to the scheduler."""

    # ---- jobs: accept and change
    def submit(self, requests: Sequence[JobRequest]) -> tuple[JobView, ...]:
        """Accept jobs, all or none; they are on disk when this returns."""

    def retry(self, submission_ids: Sequence[str]) -> tuple[JobView, ...]:
        """Accept a new job for each of these that has failed or was stopped, with the same options."""

    def stop(self, submission_ids: Sequence[str], *, reason: str = ...) -> tuple[JobView, ...]:
        """Ask for these jobs to be stopped, wherever they are; returns them as they are now."""

    def delete(self, submission_ids: Sequence[str]) -> None:
        """Forget ended jobs, all or none, here and on their clusters; their ids are free again."""

    # ---- jobs: look
    def find(self, word: str) -> tuple[JobView, ...]:
        """Return the jobs that a word means, oldest first: an id or its beginning, a `job_id`, a group."""

    def find_each(self, words: Sequence[str]) -> tuple[JobView, ...]:
        """Return for each word the job with this id, else the newest with this `job_id`, each job once."""

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, JobView]:
        """Return the jobs with these ids; unknown ids are left out."""

    def detail(self, submission_id: str) -> JobDetail:
        """Return all that is known of a job, with its attempts and the log so far."""

    def attempts(self, submission_id: str) -> tuple[AttemptView, ...]:
        """Return the last placements of a job, oldest first. No cluster is asked."""

    def list_jobs(self, query: JobQuery = ...) -> JobPage:
        """Return jobs, newest first."""

    def timeline(
        self, *, since: float, until: float | None = None, cluster: str | None = None, limit: int = ...
    ) -> TimelineView:
        """Return the attempts that were on their clusters in this time, up to now if no end is given."""

    def counts(
        self, states: Collection[JobState], *, changed_since: float | None = None
    ) -> dict[JobState, int]:
        """Return how many jobs are in each of these states, at all or since this time or later."""

    def queue(self, *, limit: int = ...) -> tuple[JobView, ...]:
        """Return the queue: the jobs that may start now, in order, then those that wait for something."""

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = ...
    ) -> tuple[JobEvent, ...]:
        """Return what has happened, in order: to one job, or to all."""

    def events_async(self, *, after: int | None = None) -> AsyncGenerator[JobEvent, None]:
        """Yield what happens, live, after this event (None: from now on), to all jobs; it has no end."""

    def log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the log of an attempt (the last one by default), from its cluster while it runs.

        None: there is none. Raises a `ClusterError` when its cluster cannot be asked now.
        """

    def result(self, submission_id: str) -> ResultView:
        """Return what a job that has ended has left as its result; `NoResult` says why there is none."""

    def tail(self, submission_id: str) -> Iterator[str]:
        """Yield the log as it grows, over all attempts, until the job has ended."""

    def tail_async(self, submission_id: str) -> AsyncIterator[str]:
        """Like the blocking version, for asyncio: no thread waits."""

    # ---- jobs: wait and understand
    def changes(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> Iterator[Mapping[str, JobView]]:
        """Yield these jobs at once, on each change, and every `tick_s`; ends when all have ended."""

    def changes_async(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> AsyncGenerator[Mapping[str, JobView], None]:
        """Like the blocking version, for asyncio: no thread waits."""

    def news(self, after: int, *, timeout_s: float) -> int:
        """Wait, at most this long, until something happens after an event; return the newest event's id."""

    def explain(self, submission_id: str) -> Explanation:
        """Say why a job is where it is, and what would let it start."""

    def plan(self, request: JobRequest) -> PlanView:
        """Say what would happen to a job if it were submitted now; nothing is stored or sent.

        Raises what `submit` would raise.
        """

    def sessions(self) -> tuple[SessionView, ...]:
        """Return the open Ray Client sessions, oldest first. `stop` ends one."""

    # ---- clusters
    def clusters(self) -> tuple[ClusterView, ...]:
        """Return every configured cluster with what was last seen of it."""

    def set_drained(self, cluster: str, *, drained: bool, reason: str = "") -> None:
        """Drain a cluster, so that it gets no new jobs, or undo that."""

    def wait_reasons(self) -> tuple[WaitView, ...]:
        """Return for each reason how many jobs in the queue wait for it: everybody's, in numbers only."""

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, ours or not, and which clusters cannot be looked at."""

    def run_doctor(
        self, clusters: Sequence[str] | None = None, *, timeout_s: float = TRIAL_S
    ) -> tuple[ClusterReport, ...]:
        """Examine these clusters, or all, also with a short job on each that tells what jobs get there.

        `timeout_s` is how long each job may take. A job that has not ended then is stopped.
        """

    def configuration(self) -> ConfigView:
        """Return the configuration as it was loaded, with secrets hidden."""

    def me(self) -> CallerView:
        """Return who the caller is: whose jobs are submitted, and what that caller may do."""

    def leader(self) -> Lease | None:
        """Return who schedules now, if anybody."""

    def prune(
        self, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
    ) -> PruneView:
        """Remove old history by the settings or by these limits; a dry run only counts it."""

    @property
    def packages(self) -> Packages:
        """The package store. A job's directories are packed into it before the job is submitted."""
