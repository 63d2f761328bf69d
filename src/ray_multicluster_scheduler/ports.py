"""The protocols between the engine and the outside world. The docstrings are the contracts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.model.access import AuditEntry, Terms, Token
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import Inventory, InventoryRow, Sighting, StartRequest
from ray_multicluster_scheduler.model.job import Attempt, Event, Job, JobSpec, Lease, Transition
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.retention import Keep, Pruned, Space
from ray_multicluster_scheduler.model.states import JobState

#: A clock that is off by less than this was not set; it was only read a little later.
CLOCK_STEP_S = 1.0


class Clock(Protocol):
    """Time as an argument, so that tests never sleep."""

    def now(self) -> float:
        """Return seconds since the epoch: for what people read and what is stored."""

    def monotonic(self) -> float:
        """Return seconds that never jump: for deadlines, back-off and durations."""

    def uptime(self) -> float:
        """Return seconds since the machine was started: the same for all of its processes."""

    def boot(self) -> str:
        """Return which start of the machine `uptime` counts from."""


class ClusterProbe(Protocol):
    """What one cluster tells about itself. Errors as of `ClusterConnection`."""

    async def version(self) -> RemoteVersion:
        """Return API and Ray version and the session name. Proves nothing about health."""

    async def python_version(self) -> str | None:
        """Return the Python version of the head, or None where this Ray does not tell."""

    async def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, dead ones included."""

    async def usage(self) -> Usage:
        """Return totals, use and pending demand; a part that the cluster does not tell is None."""


class Executor(Protocol):
    """One way to run attempts on one cluster. Errors as of `ClusterConnection`.

    An attempt is known by its `remote_id`, which we choose before it is started.
    """

    @property
    def name(self) -> str:
        """Which way it is, such as "ray-jobs"; every attempt records it."""

    async def start(self, request: StartRequest) -> None:
        """Start an attempt under the id of the request.

        `RemoteJobExists` when the id is taken. Safe to repeat: an id is never started twice.
        """

    async def get(self, remote_id: str) -> Sighting:
        """Return one attempt, or raise `RemoteJobNotFound`."""

    async def observe(self, remote_ids: Collection[str]) -> Mapping[str, Sighting]:
        """Return those of these attempts that the cluster has, by their ids.

        An id that is missing in the answer is not there. It may be somebody else's: see `is_ours`.
        Made for frequent use: the executor reads in the way that costs the cluster least.
        """

    async def inventory(self, keep: Callable[[InventoryRow], bool] = ...) -> Inventory:
        """Return the attempts that `keep` wants, others' included; all of them by default.

        It costs the cluster and us as much as the cluster remembers: not for frequent use. Only what `keep`
        wants is read in full. It is called once for each entry, in the order of the list.
        """

    async def stop(self, remote_id: str) -> bool:
        """Ask to stop an attempt (SIGTERM, 3 s, SIGKILL); False when it had ended. Asynchronous."""

    async def delete(self, remote_id: str) -> None:
        """Forget an attempt that has ended; `ClusterRefused` when it has not."""

    async def log(self, remote_id: str, *, last_bytes: int = ...) -> str:
        """Return the log so far, at most its `last_bytes`; what is missing is said in it (`model.kept_log`).

        A log that stops coming is returned as far as it came, which it says too.
        """

    def follow_log(self, remote_id: str) -> AsyncIterator[str]:
        """Yield the log from its start in pieces while it grows.

        It may end while the attempt still runs: look at the status, and call again.
        """


class ClusterPackages(Protocol):
    """The packages on one cluster. Errors as of `ClusterConnection`."""

    async def has_package(self, name: str) -> bool:
        """Tell whether `gcs://name` is there; if so, Ray keeps it for ten more minutes."""

    async def put_package(self, name: str, content: Path) -> None:
        """Upload a package file as `gcs://name`, replacing what is there."""


class ClusterConnection(Protocol):
    """All that can be done with one cluster, over connections of its own.

    Every call ends within its deadline. Failures are `ClusterError`s: `ClusterUnreachable` means that
    nothing was executed; `ClusterTimeout` and `ClusterBadAnswer` mean that the outcome is unknown.
    """

    @property
    def probe(self) -> ClusterProbe:
        """What the cluster tells about itself."""

    @property
    def executor(self) -> Executor:
        """How attempts are run there."""

    @property
    def packages(self) -> ClusterPackages:
        """The packages that are there."""

    async def close(self) -> None:
        """Close the connections. Calls after it fail."""


#: By the names of the clusters.
Connections = Mapping[str, ClusterConnection]


class AccessStore(Protocol):
    """Tokens and the audit trail, in the job store. A change and its audit entry are written as one."""

    def add_token(self, token: Token, *, audit: AuditEntry) -> None:
        """Keep a new token."""

    def token(self, token_id: str) -> Token | None:
        """Return one token, valid or not."""

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first."""

    def has_tokens(self) -> bool:
        """Tell whether there is or was any token."""

    def revoke_token(self, token_id: str, *, now: float, audit: AuditEntry) -> Token:
        """Let a token be of no use from now on; `InvalidRequest` when there is none with this id."""

    def touch_token(self, token_id: str, *, used_at: float) -> None:
        """Note when a token was last used."""

    def job_key(self) -> bytes:
        """Return the key that proves the tokens of jobs: one for all who have opened this store."""

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries that belong to no other change."""

    def audit(
        self, *, user: str | None = None, before: int | None = None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """Return entries, newest first, of all or of one user; `before` is an `id` that theirs is below."""


class JobStore(Protocol):
    """The durable queue and history. Safe for several threads and several processes at once.

    Everything that returns normally is on disk (fsynced). Calls are synchronous and short.
    A write that takes an `epoch` happens only while that epoch holds the leader lease; otherwise
    `LeaseLost` is raised and nothing is written.
    """

    @property
    def store_id(self) -> str:
        """Identity of this store, made once when it was created. Our jobs carry it as their origin."""

    @property
    def access(self) -> AccessStore:
        """Tokens and the audit trail."""

    def add(self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = ...) -> tuple[Job, ...]:
        """Accept jobs, all or none, as (submission_id, spec), each QUEUED with its first event.

        `DuplicateSubmission` when an id is taken, except when the idempotency key of that user matches:
        then the known job is returned in its place. Dependencies must be known ids or earlier ones of
        the same call (`DependencyProblem`). `terms`: `QuotaExceeded` when a user would have more than
        that, however many callers try at once; a job that the terms hide is not known as a dependency.
        """

    def get(self, submission_id: str) -> Job:
        """Return one job or raise `JobNotFound`."""

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Job]:
        """Return the known ones among these ids."""

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
        before: int | None = None,
        text: str | None = None,
        limit: int | None = None,
    ) -> tuple[Job, ...]:
        """Return jobs, newest first, that match every given filter.

        `since` is when they were accepted, `before` a `seq` that theirs is smaller than, `text` a part of
        their id, name, group or command in any case of letters.
        """

    def ids_beginning(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        """Return submission ids that begin so, in their order; it costs as much as it returns."""

    def counts(self, states: Collection[JobState], *, user: str | None = None) -> dict[JobState, int]:
        """Return how many jobs are in each of these states, of all users or of one; no zeros."""

    def runnable(self, *, now: float, limit: int | None = None) -> tuple[Job, ...]:
        """Return QUEUED jobs to plan: not stopped, `not_before` past, dependencies all SUCCEEDED."""

    def arrivals(self, *, after: int, limit: int) -> tuple[tuple[Job, tuple[str, ...]], ...]:
        """Return QUEUED jobs with a `seq` beyond `after`, in that order, and what each still waits for.

        It costs as much as it returns, however long the queue and the history are. Stopped ones are left out.
        """

    def live(self) -> tuple[Job, ...]:
        """Return all jobs that hold an attempt on a cluster (PLACED to LOST)."""

    def stopping(self) -> tuple[Job, ...]:
        """Return those of the live jobs that somebody wants stopped."""

    def blocked(self, *, now: float) -> tuple[tuple[Job, str], ...]:
        """Return QUEUED jobs that must end now, each with its reason.

        Those are jobs of which a dependency ended without success (the chain is in the reason), jobs that
        waited longer than their `queue_timeout_s`, and those whose target is STOPPED.
        """

    def next_due(self, *, now: float) -> float | None:
        """Return when the next QUEUED job's `not_before` or queue time-out passes; None: never."""

    def apply(
        self,
        transitions: Sequence[Transition],
        *,
        epoch: int,
        now: float,
        logs: Sequence[tuple[str, int, str]] = (),
        known: Mapping[str, Job] = ...,
    ) -> tuple[Job, ...]:
        """Make all moves that still hold, in one transaction with their events; return the moved jobs.

        A job that somebody else moved meanwhile is left alone and missing in the answer. A move that the
        state table forbids is a bug and raises ValueError before anything is written. The (bounded) `logs` of
        attempts, as (submission_id, attempt, text), are kept with it and replace what was kept.
        `known` are jobs as the leader of this epoch has last read or written them: what nobody has changed
        since is not read again.
        """

    def request_stop(
        self, submission_ids: Sequence[str], *, now: float, reason: str, audit: AuditEntry | None = None
    ) -> tuple[Job, ...]:
        """Set the target of these jobs to STOPPED; jobs that ended stay. Returns their rows.

        Of a job with `stop_children`, the open jobs of the same user that have it as `parent` follow.
        """

    def attempts(self, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
        """Return the attempts of a job, oldest first: all of them, or so many of the last."""

    def live_remote_ids(self, cluster: str) -> frozenset[str]:
        """Return the remote ids of the attempts that live on a cluster now."""

    def mark_attempt(
        self, submission_id: str, number: int, *, outcome: str, reason: str, epoch: int, now: float
    ) -> None:
        """Record what became of a former attempt (such as SUPERSEDED), with an event; the job stays."""

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = 1000, user: str | None = None
    ) -> tuple[Event, ...]:
        """Return events in order, of one job, of one user's jobs, or of all."""

    def changed_since(self, submission_ids: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
        """Return the newest event, and which of these jobs those after `after` are about.

        It costs as much as was asked for, or as has happened since, whichever is less.
        """

    def moves_since(self, after: int, *, limit: int) -> tuple[int, tuple[PastMove, ...]]:
        """Return changes of state after an event, in order, and after which event to go on.

        Events that are only notes are passed over; fewer than `limit` means that there are no more now.
        """

    def last_event(self) -> int:
        """Return the `id` of the newest event; 0: there is none. Whatever changes a job writes one."""

    def load_log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the kept log of an attempt (of the last one by default), or None."""

    def kept_ends(self, remote_ids: Sequence[str]) -> frozenset[str]:
        """Return those of these attempts, by remote id, whose end and log are kept here."""

    def delete(self, submission_ids: Sequence[str], *, audit: AuditEntry | None = None) -> None:
        """Remove ended jobs with their attempts, events and logs, all or none; their ids are free again.

        `JobNotFound` for an unknown id, `InvalidRequest` for a job that has not ended, `DependencyProblem`
        for one that open jobs wait for.
        """

    def set_drained(
        self, cluster: str, *, drained: bool, reason: str, now: float, audit: AuditEntry | None = None
    ) -> None:
        """Mark a cluster so that it gets no new jobs, or unmark it; survives restarts."""

    def drained(self) -> dict[str, tuple[bool, str]]:
        """Return the marks made with `set_drained` by cluster name: (drained, reason)."""

    def save_snapshots(self, snapshots: Sequence[ClusterSnapshot], *, epoch: int) -> None:
        """Publish what the leader sees, for followers and for `explain`."""

    def load_snapshots(self, names: Sequence[str] | None = None) -> dict[str, ClusterSnapshot]:
        """Return the last published snapshots by cluster name: of these clusters, or of all."""

    def prune(self, keep: Keep, *, now: float, limit: int, epoch: int | None = None) -> Pruned:
        """Remove what need not be kept, of about `limit` jobs in a short transaction; repeat while `more`.

        Secrets of ended jobs go first, then logs, then jobs with their attempts and events, oldest first.
        Jobs that have not ended and those that one of these waits for stay. Safe beside a leader.
        """

    def prunable(self, keep: Keep, *, now: float) -> Pruned:
        """Count the jobs and logs that `prune` would remove because of their age and number."""

    def space(self) -> Space:
        """Return what the store takes on the disk, and how much of that holds something."""

    def shrink(self, *, most_bytes: int) -> bool:
        """Give some free space back to the file system, if there is much; tell whether there is more."""

    def compact(self, *, rewrite: bool) -> bool:
        """Give all free space back; False: only a rewrite can, because an older version made this store."""

    def acquire_lease(self, holder: str, *, ttl_s: float, now: float) -> Lease | None:
        """Take the leader lease if it is free, expired or already ours; a new holder gets a larger epoch.

        A lease is free as well as soon as the store can tell that its holder has ended, and an end that lies
        further ahead than any lease lasts counts as past: the clock was set back.
        """

    def renew_lease(self, lease: Lease, *, ttl_s: float, now: float) -> Lease:
        """Extend the lease, or raise `LeaseLost`."""

    def release_lease(self, lease: Lease) -> None:
        """Give the lease up if it is still ours, so that the next one need not wait."""

    def leader(self, *, now: float) -> Lease | None:
        """Return who leads now, if anybody: by the same rules as `acquire_lease`."""

    def settle_clock(self, *, boot: str, offset: float, epoch: int, now: float) -> float:
        """Note that the time is `offset` more than the uptime since `boot`; call it before leading.

        Where a former leader's note says that the clock was set meanwhile, the times of all open jobs are
        moved with it: nobody has waited or run longer because of it. Returns by how much.
        """

    def wait_for_change(self, seen: int, *, timeout_s: float) -> int:
        """Block until something was committed after `seen` (by any process), or the time is over.

        Returns the newest mark; pass it as `seen` next time. Cheap: it sleeps, it does not poll hotly.
        """

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from some thread after each commit of any process; returns what ends that."""

    def close(self) -> None:
        """Release files and connections."""
