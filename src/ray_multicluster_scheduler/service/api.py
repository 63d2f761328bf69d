"""The one door to the scheduler: the Python API, the command line, the server and its pages call these.

`service/local_service.py` answers in this process; `client/http.py` asks a server and behaves the same: the
same results, the same errors. What a caller may not see does not exist for that caller (`JobNotFound`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.views import (
    CallerView,
    ClusterView,
    EventView,
    Explanation,
    JobDetail,
    JobPage,
    JobView,
    LeaderView,
    PlanView,
    PruneView,
)


class Packages(Protocol):
    """Where packed directories are kept, by content: `packages/runtime_env.localise` puts them there."""

    def has(self, name: str) -> bool:
        """Tell whether a package is kept."""

    def put(self, name: str, content: Path) -> None:
        """Keep a package file under a name that its content decides."""


class Service(Protocol):
    """What can be asked of the scheduler by one caller."""

    # ---- jobs: accept and change
    def submit(self, requests: Sequence[JobRequest]) -> tuple[JobView, ...]:
        """Accept jobs, all or none; they are on disk when this returns."""

    def retry(self, submission_ids: Sequence[str]) -> tuple[JobView, ...]:
        """Accept new jobs that do the same as those of these that have failed or were stopped."""

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
        """Return the known ones among these ids."""

    def detail(self, submission_id: str) -> JobDetail:
        """Return all that is known of a job, with its attempts and the log so far."""

    def list_jobs(self, query: JobQuery = ...) -> JobPage:
        """Return jobs, newest first."""

    def counts(self, states: Collection[JobState]) -> dict[JobState, int]:
        """Return how many jobs are in each of these states."""

    def queue(self, *, limit: int = ...) -> tuple[JobView, ...]:
        """Return what waits: what may start now, the next one first, then what waits for something."""

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = ...
    ) -> tuple[EventView, ...]:
        """Return what has happened, in order: to one job, or to all."""

    def events_async(self, *, after: int | None = None) -> AsyncGenerator[EventView, None]:
        """Yield what happens, live, after this event (None: from now on), to all jobs; it has no end."""

    def log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the log of an attempt (the last one by default), from its cluster while it runs.

        None: there is none. Raises a `ClusterError` when its cluster cannot be asked now.
        """

    def tail(self, submission_id: str) -> Iterator[str]:
        """Yield the log as it grows, over all attempts, until the job has ended."""

    def tail_async(self, submission_id: str) -> AsyncIterator[str]:
        """Yield the same for asyncio, where no thread waits."""

    # ---- jobs: wait and understand
    def changes(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> Iterator[Mapping[str, JobView]]:
        """Yield these jobs at once, on each change, and every `tick_s`; ends when all have ended."""

    def changes_async(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> AsyncGenerator[Mapping[str, JobView], None]:
        """Yield the same for asyncio, where no thread waits."""

    def news(self, after: int, *, timeout_s: float) -> int:
        """Wait, at most this long, until something happens after an event; return the newest event's id."""

    def explain(self, submission_id: str) -> Explanation:
        """Say why a job is where it is, and what would let it start."""

    def plan(self, request: JobRequest) -> PlanView:
        """Say what would happen to a job if it were submitted now; nothing is stored or sent."""

    # ---- clusters
    def clusters(self) -> tuple[ClusterView, ...]:
        """Return every configured cluster with what was last seen of it."""

    def set_drained(self, cluster: str, *, drained: bool, reason: str = "") -> None:
        """Let a cluster have no new jobs, or let it have them again."""

    def me(self) -> CallerView:
        """Return who the caller is: whose jobs are submitted, and what that caller may do."""

    def leader(self) -> LeaderView | None:
        """Return who schedules now, if anybody."""

    def prune(
        self, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
    ) -> PruneView:
        """Remove history that need not be kept, by the settings or these; or say what would go."""

    @property
    def packages(self) -> Packages:
        """Where packed directories go before a job that needs them is submitted."""
