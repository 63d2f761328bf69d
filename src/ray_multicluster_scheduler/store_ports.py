"""The store as protocols. The docstrings are the contracts; those of the clusters: `ports`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ray_multicluster_scheduler.model.access import AuditEntry, OpenJobs, Terms, Token
from ray_multicluster_scheduler.model.attempt_span import AttemptSpan
from ray_multicluster_scheduler.model.client_session import Session
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, DrainMark
from ray_multicluster_scheduler.model.decision import Wait
from ray_multicluster_scheduler.model.job import Attempt, Event, Job, JobSpec, Lease, Transition
from ray_multicluster_scheduler.model.package_records import StoredPackage, Upload
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.retention import Keep, Pruned, Space
from ray_multicluster_scheduler.model.states import JobState


class AccessStore(Protocol):
    """Tokens and the audit trail, in the job store. A change and its audit entry are one transaction."""

    def add_token(self, token: Token, *, audit: AuditEntry) -> None:
        """Store a new token."""

    def token(self, token_id: str) -> Token | None:
        """Return one token, valid or not."""

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first."""

    def has_tokens(self) -> bool:
        """Tell whether any token was ever created."""

    def revoke_token(self, token_id: str, *, now: float, audit: AuditEntry) -> Token:
        """Revoke a token; `InvalidRequest` if there is none with this id."""

    def touch_token(self, token_id: str, *, used_at: float) -> None:
        """Note when a token was last used."""

    def job_key(self) -> bytes:
        """Return the key that signs the tokens of jobs: the same for all processes on this store."""

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries that do not belong to another change."""

    def audit(
        self, *, user: str | None = None, before: int | None = None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """Return entries, newest first, of all users or of one; only those with an `id` below `before`."""


class SessionStore(Protocol):
    """What servers know about Ray Client sessions. A session is stored when its job is accepted."""

    def update(self, submission_ids: Sequence[str], **values: Any) -> None:
        """Set fields of sessions; unknown ids are ignored."""

    def open(self) -> tuple[Session, ...]:
        """Return the sessions that have not ended, oldest first."""

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Session]:
        """Return those of these sessions that there are, by their ids."""


class PackageChunks(Protocol):
    """Packages in the job store, written and read in chunks, so that no transaction is long.

    Others see a package when it is finished, not before. What was begun and never finished, and what was
    removed, stays invisible until `discard` deletes it.
    """

    def begin(self, *, now: float) -> int:
        """Begin a package; return its id."""

    def append(self, package: int, content: bytes, *, now: float) -> None:
        """Add the next chunk; `StoreError` if the package was discarded or is finished."""

    def finish(self, package: int, name: str, *, now: float) -> None:
        """Make a package visible under its name. If there is one with this name, that one stays."""

    def abandon(self, package: int) -> None:
        """Let a package that was not finished be discarded at once."""

    def find(self, name: str) -> StoredPackage | None:
        """Return the package with this name."""

    def read_chunk(self, package: int, number: int) -> bytes | None:
        """Return one chunk; None: the package has been removed."""

    def touch(self, name: str, *, now: float) -> bool:
        """Note that a package is used; False: there is none with this name."""

    def last_used(self) -> dict[str, float]:
        """Return when each package was last used, by name."""

    def remove(self, name: str, *, unused_since: float) -> bool:
        """Hide a package that was not used since; tell whether there was one."""

    def discard(self, *, unused_since: float, limit: int) -> bool:
        """Delete up to `limit` chunks of what is invisible and was not written to since; True: call it again.

        What was removed or abandoned is deleted at any `unused_since`.
        """


class UploadStore(Protocol):
    """Which user has uploaded which package. Each user has names of their own."""

    def save(self, uploads: Sequence[Upload]) -> None:
        """Store uploads, all or none; each replaces what its user had under this name."""

    def find(self, user: str, name: str) -> Upload | None:
        """Return the upload of a user with this name, or else one with this content."""

    def of_user(self, user: str) -> tuple[Upload, ...]:
        """Return the uploads of a user, the least recently used first."""

    def touch(self, user: str, name: str, *, now: float) -> None:
        """Note that an upload is used; nothing happens if there is none."""

    def forget(self, upload: Upload) -> bool:
        """Remove an upload; tell whether no other one, of any user, refers to its content."""


class JobStore(Protocol):
    """The durable queue and history. Safe for several threads, processes and machines at once.

    **Durable.** Everything that returns normally is on disk (fsynced). Calls are synchronous and short.
    **Order.** Writes happen one after the other. Numbers (`seq`, the `id` of an event) grow in the order in
    which they become visible, so a reader that continues after the last one it has seen skips nothing.
    **Fencing.** A write that takes an `epoch` happens only while that epoch holds the leader lease; otherwise
    `LeaseLost` is raised and nothing is written. Once a later epoch has begun, no earlier one writes.
    **Clocks.** Leases are measured by the clock of the store, whatever `now` says; a leader must also give up
    by its own monotonic clock. `now` in other calls is the time of the store too: see `ahead_s`.
    **Failures.** `StoreBusy`: nothing was written, try again. `StoreOutcomeUnknown`: the connection broke off
    during the commit; repeat with the same ids, or read again what there is.
    """

    @property
    def ahead_s(self) -> float:
        """Seconds to add to the time of this machine to get that of the store."""

    @property
    def store_id(self) -> str:
        """Identity of this store, made once when it was created. Our jobs carry it as their origin."""

    @property
    def access(self) -> AccessStore:
        """Tokens and the audit trail."""

    @property
    def sessions(self) -> SessionStore:
        """Ray Client sessions."""

    @property
    def packages(self) -> PackageChunks:
        """Packages that are kept in the store. Their size does not count when the history is pruned."""

    @property
    def uploads(self) -> UploadStore:
        """Which user has uploaded which package."""

    def add(self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = ...) -> tuple[Job, ...]:
        """Accept jobs, all or none, as (submission_id, spec), each QUEUED with its first event.

        `DuplicateSubmission` if an id is taken, unless the idempotency key of that user matches: then the
        existing job is returned in its place. Dependencies must be existing ids or earlier ones of the same
        call (`DependencyProblem`). A job of a group is listed under the first of that user's group, one that
        depends on others under its first dependency, or with it. `terms`: `QuotaExceeded` if a user would
        exceed a quota, however many callers try at once; a job that the terms hide does not exist as a
        dependency.
        """

    def check_add(self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = ...) -> None:
        """Raise what `add` would raise for these jobs now. Nothing is written."""

    def get(self, submission_id: str) -> Job:
        """Return one job or raise `JobNotFound`."""

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Job]:
        """Return the jobs with these ids, without unknown ids."""

    def taken(self, words: Sequence[str]) -> frozenset[str]:
        """Return those of these words that are the id or the group of a job."""

    def list_jobs(
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

    def member_counts(self, submission_ids: Sequence[str]) -> dict[str, dict[JobState, int]]:
        """Return how many jobs are listed under each of these, by state; those without any are left out.

        They belong to the same user as the job that they are listed under.
        """

    def ids_beginning(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        """Return submission ids with this prefix, sorted. The cost depends only on the number returned."""

    def counts(
        self, states: Collection[JobState], *, user: str | None = None, changed_since: float | None = None
    ) -> dict[JobState, int]:
        """Return the number of jobs in each of these states, of all users or of one; no zeros.

        With `changed_since` only those that came into their state at this time or later.
        """

    def open_jobs(self) -> dict[str, OpenJobs]:
        """Return for each user with jobs that have not ended how many these are, and what they claim."""

    def runnable(self, *, now: float, user: str | None = None, limit: int | None = None) -> tuple[Job, ...]:
        """Return QUEUED jobs to plan: not stopped, `not_before` past, dependencies all SUCCEEDED.

        Of one user, or of all.
        """

    def arrivals(self, *, after: int, limit: int) -> tuple[tuple[Job, tuple[str, ...]], ...]:
        """Return QUEUED jobs with a `seq` above `after`, in that order, with their open dependencies.

        The cost depends only on the number returned, not on the queue or the history. Jobs with a stop
        request are left out.
        """

    def live(self) -> tuple[Job, ...]:
        """Return all jobs that hold an attempt on a cluster (PLACED to LOST)."""

    def stopping(self) -> tuple[Job, ...]:
        """Return the live jobs with a stop request."""

    def blocked(self, *, now: float) -> tuple[tuple[Job, str], ...]:
        """Return QUEUED jobs that must end now, each with its reason.

        These are jobs with a dependency that ended without success (the reason has the chain), jobs that
        waited longer than their `queue_timeout_s`, and jobs whose target is STOPPED.
        """

    def apply(
        self,
        transitions: Sequence[Transition],
        *,
        epoch: int,
        now: float,
        logs: Sequence[tuple[str, int, str]] = (),
        known: Mapping[str, Job] = ...,
    ) -> tuple[Job, ...]:
        """Apply all transitions that still hold, in one transaction with their events; return the jobs.

        A job that was changed meanwhile by another caller is left alone and missing in the result. A
        transition that the state table forbids is a bug and raises ValueError before anything is written.
        The (bounded) `logs` of attempts, as (submission_id, attempt, text), are stored with it and replace
        former ones. `known` are jobs as the leader of this epoch last read or wrote them: those that have not
        changed since are not read again.
        """

    def request_stop(
        self, submission_ids: Sequence[str], *, now: float, reason: str, audit: AuditEntry | None = None
    ) -> tuple[Job, ...]:
        """Set the target of these jobs to STOPPED, except of ended ones. Returns their rows.

        For a job with `stop_children`, this includes the open jobs of the same user with this `parent`.
        """

    def attempts(self, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
        """Return the attempts of a job, oldest first: all of them, or only the `last` ones."""

    def spans(
        self, *, since: float, until: float, cluster: str | None = None, user: str | None = None, limit: int
    ) -> tuple[AttemptSpan, ...]:
        """Return the newest `limit` attempts that were on their cluster between `since` and `until`.

        They come in the order in which they were placed: of all clusters and users, or of one. The cost does
        not grow with the attempts that ended before `since`.
        """

    def live_remote_ids(self, cluster: str) -> frozenset[str]:
        """Return the remote ids of the live attempts on a cluster."""

    def mark_attempt(
        self, submission_id: str, number: int, *, outcome: str, reason: str, epoch: int, now: float
    ) -> None:
        """Record the outcome of a former attempt (such as SUPERSEDED), with an event; the job stays."""

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = 1000, user: str | None = None
    ) -> tuple[Event, ...]:
        """Return events in order, of one job, of one user's jobs, or of all."""

    def changed_since(self, submission_ids: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
        """Return the id of the newest event, and those of these jobs that have events after `after`.

        The cost grows with the number of ids or of events since then, whichever is less.
        """

    def moves_since(self, after: int, *, limit: int) -> tuple[int, tuple[PastMove, ...]]:
        """Return changes of state after an event, in order, and the event after which to continue.

        Notes are skipped. Fewer than `limit` changes mean that there are no more now.
        """

    def last_event(self) -> int:
        """Return the `id` of the newest event, or 0. Every change of a job writes an event."""

    def load_log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the kept log of an attempt (of the last one by default), or None."""

    def kept_ends(self, remote_ids: Sequence[str]) -> frozenset[str]:
        """Return those of these attempts, by remote id, whose end and log are stored here."""

    def delete(self, submission_ids: Sequence[str], *, audit: AuditEntry | None = None) -> None:
        """Remove ended jobs with their attempts, events and logs, all or none; their ids can be used again.

        `JobNotFound` for an unknown id, `InvalidRequest` for a job that has not ended, `DependencyProblem`
        for one that open jobs wait for. The oldest of those listed under such a job takes its place.
        """

    def set_drained(
        self, cluster: str, *, drained: bool, reason: str, now: float, audit: AuditEntry | None = None
    ) -> None:
        """Mark a cluster so that it gets no new jobs, or unmark it; survives restarts.

        A cluster that is drained already gets the new reason, and stays drained since the first call.
        """

    def drained(self) -> dict[str, DrainMark]:
        """Return the marks of `set_drained` by cluster name."""

    def save_snapshots(self, snapshots: Sequence[ClusterSnapshot], *, epoch: int) -> None:
        """Publish the leader's snapshots, for other processes and for `explain`."""

    def load_snapshots(self, names: Sequence[str] | None = None) -> dict[str, ClusterSnapshot]:
        """Return the last published snapshots by cluster name: of these clusters, or of all."""

    def publish_waits(self, waits: Sequence[Wait], *, epoch: int) -> None:
        """Publish why jobs wait, for other processes."""

    def published_waits(self, *, now: float) -> tuple[Wait, ...] | None:
        """Return why jobs wait, as the leader says; None: nobody leads, or the leader has just begun."""

    def prune(self, keep: Keep, *, now: float, limit: int, epoch: int | None = None) -> Pruned:
        """Remove data beyond the limits, of about `limit` jobs in a short transaction; repeat while `more`.

        Secrets of ended jobs go first, then logs, then jobs with their attempts and events, oldest first.
        Open jobs, and jobs that an open job depends on, stay; a job that many are listed under goes after
        them. Safe while another process leads.
        """

    def prunable(self, keep: Keep, *, now: float) -> Pruned:
        """Count the jobs and logs that `prune` would remove because of their age and number."""

    def space(self) -> Space:
        """Return the size of the store on the disk, and the part of it that holds data."""

    def shrink(self, *, most_bytes: int) -> bool:
        """Return some free space to the file system, if there is much; tell whether there is more."""

    def compact(self, *, rewrite: bool) -> bool:
        """Return all free space; False if only a rewrite can, because an older version created this store."""

    def acquire_lease(self, holder: str, *, ttl_s: float, now: float) -> Lease | None:
        """Take the leader lease if it is free, expired or already ours; a new holder gets a larger epoch.

        A lease is also free as soon as the store can tell that its holder has ended. An expiry further ahead
        than the longest lease counts as past: the clock was set back.
        """

    def renew_lease(self, lease: Lease, *, ttl_s: float, now: float) -> Lease:
        """Extend the lease, or raise `LeaseLost`."""

    def release_lease(self, lease: Lease) -> None:
        """Release the lease if it is still ours, so that the next leader need not wait."""

    def leader(self, *, now: float) -> Lease | None:
        """Return the present lease, or None, by the same rules as `acquire_lease`."""

    def settle_clock(self, *, boot: str, offset: float, epoch: int, now: float) -> float:
        """Record that the time is `offset` more than the uptime since `boot`; call it before leading.

        If the record of a former leader shows that the clock was set meanwhile, the times of all open jobs
        are shifted by the difference, so that no wait or run seems longer. Returns the difference.
        """

    def wait_for_change(self, seen: int, *, timeout_s: float) -> int:
        """Block until any process commits after `seen`, or until the time-out.

        Returns the newest mark; pass it as `seen` next time. It sleeps and does not busy-wait.
        """

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from some thread after each commit of any process; returns a function to end it."""

    def close(self) -> None:
        """Release files and connections."""
