"""The job store: each method is one transaction around functions of `store/operations`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from sqlalchemy import Connection

from ray_multicluster_scheduler.core.lifecycle.apply_transition import check
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.model.access import FREELY, AuditEntry, OpenJobs, Terms
from ray_multicluster_scheduler.model.attempt_span import AttemptSpan
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, DrainMark
from ray_multicluster_scheduler.model.decision import Wait
from ray_multicluster_scheduler.model.job import Attempt, Event, Job, JobSpec, Lease, Transition
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.retention import Keep, Pruned, Space
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.backend import ChangeNotifier, Database, HolderLiveness
from ray_multicluster_scheduler.store.change_feed import ChangeFeed
from ray_multicluster_scheduler.store.group_commit import GroupCommit
from ray_multicluster_scheduler.store.leader_lease import LeaderLease
from ray_multicluster_scheduler.store.operations import (
    accept_jobs,
    attempt_logs,
    attempt_spans,
    blocked_jobs,
    clock_steps,
    cluster_records,
    job_attempts,
    job_events,
    job_heads,
    job_reads,
    job_retention,
    package_chunks,
    queue_reads,
    stop_requests,
    store_identity,
    write_transitions,
)
from ray_multicluster_scheduler.store.sql_access import SqlAccess
from ray_multicluster_scheduler.store.sql_packages import SqlPackages
from ray_multicluster_scheduler.store.sql_sessions import SqlSessions
from ray_multicluster_scheduler.store.sql_uploads import SqlUploads
from ray_multicluster_scheduler.store.transactions import Transactions

#: Returned to the file system in one transaction: little enough not to hold up other writers.
SHRINK_BYTES = 8 * 2**20


class SqlStore:
    """`store_ports.JobStore` on a SQL database; open it with `open_store` or `open_memory_store`."""

    def __init__(
        self,
        database: Database,
        notifier: ChangeNotifier,
        liveness: HolderLiveness,
        *,
        closing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """`closing` is the context in which the database is closed."""
        self._database = database
        self._closing = closing
        self._transactions = Transactions(database, notifier)
        self._lease = LeaderLease(self._transactions, liveness)
        self._changes = ChangeFeed(self._transactions, notifier)
        self._add = GroupCommit(self._add_calls)
        #: Tokens and the audit trail.
        self.access = SqlAccess(self._transactions)
        #: Ray Client sessions, beside their jobs.
        self.sessions = SqlSessions(self._transactions)
        self.packages = SqlPackages(self._transactions)
        self.uploads = SqlUploads(self._transactions)
        with self._transactions.read() as tx:
            self._store_id = store_identity.read_store_id(tx)

    @property
    def store_id(self) -> str:
        """Identity of this store, made once when it was created."""
        return self._store_id

    @property
    def ahead_s(self) -> float:
        """Seconds to add to the time of this machine to get that of the store, as far as is known."""
        return self._database.ahead_s

    def tell_times(self, took: Callable[[str, float], None]) -> None:
        """Call `took` with the duration of each "read", "write" and "commit", in the thread that did it."""
        self._database.took = took

    # The queue

    def add(
        self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = FREELY
    ) -> tuple[Job, ...]:
        """Accept jobs, all or none, as (submission_id, spec), each QUEUED with its first event."""
        return self._add(accept_jobs.Call(requests=jobs, now=now, terms=terms))

    def check_add(self, jobs: Sequence[tuple[str, JobSpec]], *, now: float, terms: Terms = FREELY) -> None:
        """Raise what `add` would raise for these jobs now. Nothing is written."""
        with self._transactions.read() as tx:
            accept_jobs.check_call(tx, accept_jobs.Call(requests=jobs, now=now, terms=terms))

    def get(self, submission_id: str) -> Job:
        """Return one job or raise `JobNotFound`."""
        with self._transactions.read() as tx:
            return job_reads.get(tx, submission_id)

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, Job]:
        """Return those of these jobs that exist."""
        with self._transactions.read() as tx:
            return job_reads.get_many(tx, submission_ids)

    def taken(self, words: Sequence[str]) -> frozenset[str]:
        """Return those of these words that are the id or the group of a job."""
        with self._transactions.read() as tx:
            return job_reads.taken(tx, words)

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
        """Return jobs, newest first, that match every filter."""
        equal = {"user": user, "cluster": cluster, "name": name, "group": group, "parent": parent}
        with self._transactions.read() as tx:
            return job_reads.list_jobs(
                tx,
                states=states,
                equal=equal,
                tag=tag,
                since=since,
                changed=(changed_since, changed_until),
                before=before,
                text=text,
                heads_only=heads_only,
                head=head,
                limit=limit,
            )

    def member_counts(self, submission_ids: Sequence[str]) -> dict[str, dict[JobState, int]]:
        """Return how many jobs are listed under each of these, by state; those without any are left out."""
        with self._transactions.read() as tx:
            return job_heads.member_counts(tx, submission_ids)

    def ids_beginning(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        """Return submission ids with this prefix, in order."""
        with self._transactions.read() as tx:
            return job_reads.ids_beginning(tx, prefix, limit=limit)

    def counts(
        self, states: Collection[JobState], *, user: str | None = None, changed_since: float | None = None
    ) -> dict[JobState, int]:
        """Return how many jobs are in each of these states; states without any are left out."""
        with self._transactions.read() as tx:
            return job_reads.counts(tx, states, user=user, changed_since=changed_since)

    def open_jobs(self) -> dict[str, OpenJobs]:
        """Return for each user with open jobs how many these are, and what they claim."""
        with self._transactions.read() as tx:
            return job_reads.open_jobs_by_user(tx)

    def runnable(self, *, now: float, user: str | None = None, limit: int | None = None) -> tuple[Job, ...]:
        """Return QUEUED jobs to plan: the highest priority first, then the oldest."""
        with self._transactions.read() as tx:
            return queue_reads.runnable(tx, now=now, user=user, limit=limit)

    def arrivals(self, *, after: int, limit: int) -> tuple[tuple[Job, tuple[str, ...]], ...]:
        """Return QUEUED jobs with a `seq` beyond `after`, in order, each with its open dependencies."""
        with self._transactions.read() as tx:
            return queue_reads.arrivals(tx, after=after, limit=limit)

    def live(self) -> tuple[Job, ...]:
        """Return all jobs that hold an attempt on a cluster (PLACED to LOST)."""
        with self._transactions.read() as tx:
            return queue_reads.live(tx)

    def stopping(self) -> tuple[Job, ...]:
        """Return the live jobs with a stop request."""
        with self._transactions.read() as tx:
            return queue_reads.stopping(tx)

    def blocked(self, *, now: float) -> tuple[tuple[Job, str], ...]:
        """Return QUEUED jobs that must end now, each with its reason."""
        with self._transactions.read() as tx:
            return blocked_jobs.blocked(tx, now=now)

    def apply(
        self,
        transitions: Sequence[Transition],
        *,
        epoch: int,
        now: float,
        logs: Sequence[tuple[str, int, str]] = (),
        known: Mapping[str, Job] = MappingProxyType({}),
    ) -> tuple[Job, ...]:
        """Make all moves that still hold, in one transaction with events and logs; return the moved jobs."""
        for transition in transitions:
            check(transition)
        with self._transactions.write(epoch=epoch) as tx:
            attempt_logs.save_logs(tx, logs)
            return write_transitions.apply(tx, transitions, now=now, known=known)

    def request_stop(
        self, submission_ids: Sequence[str], *, now: float, reason: str, audit: AuditEntry | None = None
    ) -> tuple[Job, ...]:
        """Set the target of these jobs to STOPPED; an unknown id is `JobNotFound`, and none is stopped."""
        with self._transactions.write(audit=audit) as tx:
            return stop_requests.request_stop(tx, submission_ids, now=now, reason=reason)

    # History

    def attempts(self, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
        """Return the attempts of a job, oldest first: all of them, or only the `last` ones."""
        with self._transactions.read() as tx:
            return job_attempts.list_attempts(tx, submission_id, last=last)

    def spans(
        self, *, since: float, until: float, cluster: str | None = None, user: str | None = None, limit: int
    ) -> tuple[AttemptSpan, ...]:
        """Return the newest `limit` attempts that overlap a span of time, oldest first."""
        with self._transactions.read() as tx:
            return attempt_spans.spans(tx, since=since, until=until, cluster=cluster, user=user, limit=limit)

    def live_remote_ids(self, cluster: str) -> frozenset[str]:
        """Return Ray submission ids of the attempts that live on a cluster now."""
        with self._transactions.read() as tx:
            return job_attempts.live_remote_ids(tx, cluster)

    def mark_attempt(
        self, submission_id: str, number: int, *, outcome: str, reason: str, epoch: int, now: float
    ) -> None:
        """Record the outcome of a former attempt (such as SUPERSEDED), with an event; the job stays."""
        with self._transactions.write(epoch=epoch) as tx:
            job_attempts.mark_attempt(tx, submission_id, number, outcome=outcome, reason=reason, now=now)

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = 1000, user: str | None = None
    ) -> tuple[Event, ...]:
        """Return events in order, of one job, of one user's jobs, or of all."""
        with self._transactions.read() as tx:
            return job_events.list_events(tx, submission_id, after=after, limit=limit, user=user)

    def changed_since(self, submission_ids: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
        """Return the id of the newest event, and which of these jobs have events after `after`."""
        with self._transactions.read() as tx:
            return job_events.changed_since(tx, submission_ids, after=after)

    def moves_since(self, after: int, *, limit: int) -> tuple[int, tuple[PastMove, ...]]:
        """Return changes of state after an event, in order, and the event to continue after."""
        with self._transactions.read() as tx:
            return job_events.moves_since(tx, after=after, limit=limit)

    def last_event(self) -> int:
        """Return the `id` of the newest event; 0: there is none."""
        with self._transactions.read() as tx:
            return job_events.last_event(tx)

    def load_log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the kept log of an attempt (of the last one by default), or None."""
        with self._transactions.read() as tx:
            return attempt_logs.load_log(tx, submission_id, attempt)

    def kept_ends(self, remote_ids: Sequence[str]) -> frozenset[str]:
        """Return the attempts among these, by their ids in Ray, whose end and log are kept here."""
        with self._transactions.read() as tx:
            return attempt_logs.kept_ends(tx, remote_ids)

    def delete(self, submission_ids: Sequence[str], *, audit: AuditEntry | None = None) -> None:
        """Remove ended jobs with their attempts, events and logs, all or none; their ids are free again."""
        with self._transactions.write(audit=audit) as tx:
            job_retention.delete_jobs(tx, submission_ids)

    # Clusters

    def set_drained(
        self, cluster: str, *, drained: bool, reason: str, now: float, audit: AuditEntry | None = None
    ) -> None:
        """Mark a cluster so that it gets no new jobs, or unmark it. The mark survives restarts."""
        with self._transactions.write(audit=audit) as tx:
            cluster_records.set_drained(tx, cluster, drained=drained, reason=reason, now=now)

    def drained(self) -> dict[str, DrainMark]:
        """Return the marks made with `set_drained` by cluster name."""
        with self._transactions.read() as tx:
            return cluster_records.list_drained(tx)

    def save_snapshots(self, snapshots: Sequence[ClusterSnapshot], *, epoch: int) -> None:
        """Publish what the leader sees, without a notification: snapshots are written all the time."""
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            cluster_records.save_snapshots(tx, snapshots)

    def load_snapshots(self, names: Sequence[str] | None = None) -> dict[str, ClusterSnapshot]:
        """Return the last published snapshots by cluster name: of these clusters, or of all."""
        with self._transactions.read() as tx:
            return cluster_records.load_snapshots(tx, names)

    def publish_waits(self, waits: Sequence[Wait], *, epoch: int) -> None:
        """Publish why jobs wait, without a notification."""
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            cluster_records.save_waits(tx, waits, epoch=epoch)

    def published_waits(self, *, now: float) -> tuple[Wait, ...] | None:
        """Return why jobs wait, as the leader says; None: nobody leads, or the leader has just begun."""
        leader = self.leader(now=now)
        if leader is None:
            return None
        with self._transactions.read() as tx:
            return cluster_records.load_waits(tx, epoch=leader.epoch)

    # Retention

    def prune(self, keep: Keep, *, now: float, limit: int, epoch: int | None = None) -> Pruned:
        """Remove one small portion of what need not be kept."""
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            pruned = job_retention.prune(tx, keep, now=now, limit=limit)
        if pruned.more:
            return pruned
        with self._transactions.read() as tx:
            excess = self._history_bytes(tx) - keep.size_bytes
            if excess <= 0:
                return pruned
            found = job_retention.find_oversize(tx, excess=excess, now=now, limit=limit)
        with self._transactions.write(epoch=epoch, notify=False) as tx:
            return job_retention.remove_oversize(tx, found)

    def prunable(self, keep: Keep, *, now: float) -> Pruned:
        """Count what the rules about age and number would remove."""
        with self._transactions.read() as tx:
            return job_retention.prunable(tx, keep, now=now)

    def space(self) -> Space:
        """Return the size of the store on disk, and how much of it holds data."""
        with self._transactions.read() as tx:
            return self._database.space(tx)

    def shrink(self, *, most_bytes: int) -> bool:
        """Return some free space to the file system; tell whether there is more to return."""
        with self._transactions.write(notify=False) as tx:
            return self._database.shrink(tx, most_bytes=most_bytes)

    def compact(self, *, rewrite: bool) -> bool:
        """Return all free space to the file system. False: the store of an older version needs a rewrite."""
        with self._transactions.read() as tx:
            in_place = self._database.can_shrink(tx)
        if rewrite and not in_place:
            self._database.rewrite()
            return True
        while self.shrink(most_bytes=SHRINK_BYTES):
            pass
        self._database.flush()
        return in_place

    # The leader lease

    def acquire_lease(self, holder: str, *, ttl_s: float, now: float) -> Lease | None:
        """Take the leader lease if it is free, expired, held by a dead process or already ours."""
        return self._lease.acquire(holder, ttl_s=ttl_s, now=now)

    def renew_lease(self, lease: Lease, *, ttl_s: float, now: float) -> Lease:
        """Extend the lease, or raise `LeaseLost`."""
        return self._lease.renew(lease, ttl_s=ttl_s, now=now)

    def release_lease(self, lease: Lease) -> None:
        """Give the lease up if it is still ours, and wake the processes that wait for it."""
        self._lease.release(lease)

    def leader(self, *, now: float) -> Lease | None:
        """Return the lease of the current leader, if there is one."""
        return self._lease.current(now=now)

    def settle_clock(self, *, boot: str, offset: float, epoch: int, now: float) -> float:
        """Note how time and uptime relate; move the times of open jobs if the clock was set since."""
        with self._transactions.write(epoch=epoch) as tx:
            return clock_steps.settle(tx, boot=boot, offset=offset, now=now)

    # Changes

    def wait_for_change(self, seen: int, *, timeout_s: float) -> int:
        """Block until something was committed after `seen` (by any process), or the time is over.

        Returns the newest mark; pass it as `seen` next time. Snapshots and lease renewals do not count.
        """
        return self._changes.wait(seen, timeout_s=timeout_s)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change by any process; returns a function that ends this.

        It is called from any thread and must return at once, as `loop.call_soon_threadsafe(event.set)` does.
        """
        return self._changes.subscribe(callback)

    def close(self) -> None:
        """Release files and connections. Waiting threads are woken and get a `StoreError`."""
        self._changes.close()
        self._lease.close()
        with self._closing():
            self._database.close()
        self._changes.wake()  # subscribers look at the store and get the error

    def _history_bytes(self, tx: Connection) -> int:
        """Return how many bytes hold data other than packages, for which no job has to go."""
        return self._database.used_bytes(tx) - package_chunks.stored_bytes(tx)

    def _add_calls(self, calls: Sequence[accept_jobs.Call]) -> list[tuple[Job, ...] | SchedulerError]:
        with self._transactions.write(notify=False) as tx:
            outcomes = accept_jobs.add_calls(tx, calls)
            accepted = any(isinstance(outcome, tuple) for outcome in outcomes)
            if accepted:
                self._transactions.count_change(tx)
        if accepted:
            self._transactions.notify()
        return outcomes
