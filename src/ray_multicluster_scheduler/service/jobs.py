"""The jobs of one caller: which ones a word or a list means, running them again, and forgetting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core.lifecycle.attempt_request import is_ours
from ray_multicluster_scheduler.errors import ClusterError, InvalidRequest, JobNotFound
from ray_multicluster_scheduler.executors.contract import Capabilities, Executor
from ray_multicluster_scheduler.executors.registry import Executors
from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.model.decision import REASONS
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, Attempt, Job, JobSpec
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.model.storage import Keep, Pruned
from ray_multicluster_scheduler.ports import Connections
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.logs import Reach
from ray_multicluster_scheduler.service.make_views import show_span
from ray_multicluster_scheduler.service.query import MOST_PAGE_JOBS, JobQuery, spans_limit
from ray_multicluster_scheduler.service.views import JobPage, JobView, PruneView, TimelineView
from ray_multicluster_scheduler.text import nearest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

# Which jobs a word means: a submission id, a `job_id`, or a group.


#: Spelling suggestions come from the newest jobs only: a history may hold a million.
GUESSED_FROM = 1000
#: Fewer characters are not taken as the beginning of an id.
SHORTEST_PREFIX = 4
#: How many ids with the same beginning are read: most of them may belong to other users.
MOST_BEGINNINGS = 100


def find(store: Store, word: str, *, only: str | None = None) -> tuple[Job, ...]:
    """Return the jobs that a word on a command line means, oldest first; raises `JobNotFound`.

    A submission id, or the beginning of exactly one. A `job_id`: the newest job with it, and the others of
    the same array. A group: all of it. `only`: jobs of this user; the others do not exist.
    """
    if by_id := _by_id(store, [word], only):
        return tuple(by_id.values())
    if newest := newest_named(store, word, only=only):
        group = newest.spec.group
        return (newest,) if group is None else store.jobs.list(name=word, group=group, user=only)[::-1]
    if grouped := store.jobs.list(group=word, user=only):
        return grouped[::-1]
    ids = store.jobs.ids_beginning(word, limit=MOST_BEGINNINGS) if len(word) >= SHORTEST_PREFIX else ()
    beginning = tuple(_by_id(store, ids, only).values())
    if len(beginning) > 1:
        more = " or more" if len(ids) == MOST_BEGINNINGS else ""
        raise JobNotFound(word, several=f"{len(beginning)}{more}")
    if not beginning:
        raise _not_found(store, word, only)
    return beginning


def find_each(store: Store, words: Sequence[str], *, only: str | None = None) -> tuple[Job, ...]:
    """Return for each word the job that it means, each job once; `JobNotFound` for one that means none."""
    by_id = _by_id(store, words, only)
    found = {}
    for word in words:
        job = by_id.get(word) or newest_named(store, word, only=only)
        if job is None:
            raise _not_found(store, word, only)
        found[job.submission_id] = job
    return tuple(found.values())


def newest_named(store: Store, name: str, *, only: str | None = None) -> Job | None:
    """Return the newest job with this `job_id`: users give every day's job the same one."""
    return next(iter(store.jobs.list(name=name, user=only, limit=1)), None)


def _by_id(store: Store, ids: Sequence[str], only: str | None) -> dict[str, Job]:
    found = store.jobs.get_many(ids)
    return {name: job for name, job in found.items() if only is None or job.spec.user == only}


def _not_found(store: Store, word: str, only: str | None) -> JobNotFound:
    newest = store.jobs.list(user=only, limit=GUESSED_FROM)
    ids = [job.submission_id for job in newest]
    names = [name for job in newest for name in (job.spec.name, job.spec.group) if name]
    return JobNotFound(word, nearest=nearest(word, [*ids, *names]))


# Lists of jobs and of attempts for one caller: what was asked for is checked, and read from the store.


#: How many pages of the queue are looked through for jobs that wait for one reason; the cursor goes on.
MOST_LOOKS = 5

_Show = Callable[[Sequence[Job]], tuple[JobView, ...]]
_Read = Callable[[int | None, Sequence[JobState] | None, int], tuple[Job, ...]]


def list_jobs(
    store: Store,
    query: JobQuery,
    *,
    only: str | None,
    show: _Show,
) -> JobPage:
    """Return a page of jobs, newest first; `only`: those of this user."""
    limit = query.page_limit()
    if only is not None and query.user not in {None, only}:
        return JobPage(jobs=(), next_cursor=None)

    def read(before: int | None, states: Sequence[JobState] | None, most: int) -> tuple[Job, ...]:
        return store.jobs.list(
            states=states,
            user=only or arguments.text_or_none("user", query.user),
            cluster=arguments.text_or_none("cluster", query.cluster),
            name=arguments.text_or_none("job_id", query.job_id),
            group=arguments.text_or_none("group", query.group),
            parent=arguments.text_or_none("parent", query.parent),
            tag=arguments.text_or_none("tag", query.tag),
            since=arguments.amount("since", query.since),
            changed_since=arguments.amount("changed_since", query.changed_since),
            changed_until=arguments.amount("changed_until", query.changed_until),
            text=arguments.text_or_none("text", query.text),
            heads_only=query.heads_only,
            head=arguments.text_or_none("head", query.head),
            before=before,
            limit=most,
        )

    if query.wait_reason is not None:
        if query.heads_only:
            raise InvalidRequest("wait_reason finds single jobs; leave heads_only out")
        return _waiting(read, query, limit, show)
    found = read(arguments.cursor(query.cursor), query.states, limit + 1)
    page, more = found[:limit], len(found) > limit
    return JobPage(
        jobs=show(page),
        next_cursor=str(page[-1].seq) if more and page else None,
        members=_members(store, page) if query.heads_only else {},
    )


def _waiting(read: _Read, query: JobQuery, limit: int, show: _Show) -> JobPage:
    """Look through the queue for jobs that wait for one reason: the store knows none."""
    if query.wait_reason not in REASONS:
        given = arguments.shown(query.wait_reason)
        raise InvalidRequest(f"wait_reason: there is no {given}; the reasons are {', '.join(REASONS)}")
    states = [state for state in (JobState.QUEUED,) if query.states is None or state in query.states]
    before, found = arguments.cursor(query.cursor), list[JobView]()
    for _ in range(MOST_LOOKS):
        jobs = read(before, states, MOST_PAGE_JOBS)
        for job, view in zip(jobs, show(jobs), strict=True):
            if view.wait_reason == query.wait_reason:
                if len(found) >= limit:
                    return JobPage(jobs=tuple(found), next_cursor=None if before is None else str(before))
                found.append(view)
            before = job.seq
        if len(jobs) < MOST_PAGE_JOBS:
            return JobPage(jobs=tuple(found), next_cursor=None)
    return JobPage(jobs=tuple(found), next_cursor=str(before))


def _members(store: Store, heads: Sequence[Job]) -> dict[str, dict[JobState, int]]:
    """Count what each of these stands for, itself included. All of it belongs to the user of the head."""
    counts = store.jobs.member_counts([job.submission_id for job in heads])
    for job in heads:
        if job.submission_id in counts:
            states = counts[job.submission_id]
            states[job.state] = states.get(job.state, 0) + 1
    return counts


def timeline(
    store: Store,
    *,
    since: float,
    until: float,
    cluster: str | None,
    only: str | None,
    limit: int,
) -> TimelineView:
    """Return the attempts of a span of time; `only`: those of this user's jobs."""
    since, until = arguments.moment("since", since), arguments.moment("until", until)
    if until < since:
        raise InvalidRequest(
            f"until ({until:.0f}) is before since ({since:.0f}); give the earlier time as since"
        )
    limit = spans_limit(limit)
    found = store.history.spans(
        since=since,
        until=until,
        cluster=arguments.text_or_none("cluster", cluster),
        user=only,
        limit=limit + 1,
    )
    return TimelineView(
        since=since,
        until=until,
        spans=tuple(map(show_span, found[-limit:])),
        truncated=len(found) > limit,
    )


# `retry`: from jobs that have ended badly to new jobs that do the same.


#: The key of a job's metadata that tells which job it repeats.
RETRY_OF = "raymc.retry_of"
REPEATABLE = frozenset({JobState.FAILED, JobState.STOPPED})


def to_repeat(jobs: Sequence[Job], can: Callable[[str], Capabilities]) -> list[Job]:
    """Return those of these jobs that can be repeated; raises `InvalidRequest` where none can.

    `can` tells what an executor can do.
    """
    found = [job for job in jobs if job.state in REPEATABLE and can(job.spec.executor).restartable]
    if found:
        return found
    if not jobs:
        raise InvalidRequest("no job was named; say which ones are to be repeated")
    only = jobs[0]
    if not can(only.spec.executor).restartable:
        raise InvalidRequest(
            f"{only.submission_id} can be begun again by its program only (executor {only.spec.executor!r})"
        )
    if len(jobs) > 1:
        raise InvalidRequest(f"none of these {len(jobs)} jobs has failed or was stopped")
    why = "has succeeded" if only.final else f"has not ended: it is {only.state.value}"
    raise InvalidRequest(f"{only.submission_id} {why}; only a job that failed or was stopped is repeated")


def repeats(
    jobs: Sequence[Job], *, user: str, taken: Callable[[Sequence[str]], Set[str]]
) -> list[tuple[str, JobSpec]]:
    """Return a new id and spec for each job: `train` becomes `train.2`, then `train.3`.

    Several jobs of one group make a new group. A dependency that is repeated as well is replaced. `taken`
    returns those of many names that are in use; it is asked once, rarely more often.
    """
    groups = {job.spec.group for job in jobs}
    group = groups.pop() if len(jobs) > 1 and len(groups) == 1 else None
    old = [job.submission_id for job in jobs]
    names = _next_names(old if group is None else [group, *old], taken)
    ids = {submission_id: names[submission_id] for submission_id in old}
    return [
        (
            ids[job.submission_id],
            replace(
                job.spec,
                metadata={**job.spec.metadata, RETRY_OF: job.submission_id},
                depends_on=tuple(ids.get(needed, needed) for needed in job.spec.depends_on),
                user=user,
                idempotency_key=None,
                group=group and names[group],
            ),
        )
        for job in jobs
    ]


def _next_names(words: Iterable[str], taken: Callable[[Sequence[str]], Set[str]]) -> dict[str, str]:
    """Return for each word the first free one of `word.2`, `word.3`, ...; `word.2` becomes `word.3`."""
    found: dict[str, str] = {}
    left = {word: _root_and_number(word) for word in words}
    tries = 1
    while left:
        names = {word: [f"{root}.{n + more}" for more in range(tries)] for word, (root, n) in left.items()}
        used = set(taken([name for each in names.values() for name in each]))
        used.update(found.values())
        for word, candidates in names.items():
            free = next((name for name in candidates if name not in used), None)
            if free is not None:
                found[word] = _checked(free, word)
                used.add(free)
        left = {word: (root, n + tries) for word, (root, n) in left.items() if word not in found}
        tries *= 4
    return found


def _root_and_number(word: str) -> tuple[str, int]:
    """Return the word without its number, and the number to try next."""
    root, _, number = word.rpartition(".")
    return (root, int(number) + 1) if root and number.isdecimal() else (word, 2)


def _checked(name: str, word: str) -> str:
    if not SUBMISSION_ID.fullmatch(name):
        raise InvalidRequest(f"{word!r} is too long to be repeated under a name of its own")
    return name


# Forget ended jobs: on their clusters as far as those answer, and here for good.


def delete(
    reach: Reach, executors: Executors, store: Store, submission_ids: Sequence[str], *, audit: AuditEntry
) -> None:
    """Delete jobs, all or none; see `Store.delete` for what is refused.

    The clusters come first: as soon as an id is free here, another job may get it there. A job that a silent
    cluster still has is told from the new one by its number (`core/lifecycle/attempt_request.is_ours`).
    """
    jobs = store.jobs.get_many(submission_ids)
    if len(jobs) == len(set(submission_ids)) and all(job.final for job in jobs.values()):
        tried = [
            (job, attempt) for job in jobs.values() for attempt in store.history.attempts(job.submission_id)
        ]
        reach(lambda connections: _forget_all(connections, executors, tried, origin=store.store_id)).result()
    store.retention.delete(submission_ids, audit=audit)


async def _forget_all(
    connections: Connections, executors: Executors, tried: Sequence[tuple[Job, Attempt]], *, origin: str
) -> None:
    await together(
        _forget(
            executors.on(connections[attempt.cluster], attempt.executor),
            job,
            attempt.remote_id,
            origin=origin,
        )
        for job, attempt in tried
        if attempt.cluster in connections and executors.can(attempt.executor).deletable
    )


async def _forget(executor: Executor, job: Job, remote_id: str, *, origin: str) -> None:
    with suppress(ClusterError):
        if is_ours(await executor.get(remote_id), job, origin=origin):
            await executor.delete(remote_id)


# How long history is kept: from the settings to the rules, and removing all that need not be kept.


DAY_S = 86400.0
MIB = 2**20
#: About 100 MB, so that a flood of audit entries cannot fill the disk.
MOST_AUDIT_ENTRIES = 500_000
#: Jobs per transaction. Other writers wait for each transaction.
STEP_JOBS = 100


def keep_rules(settings: Settings) -> Keep:
    """Return the retention rules of the settings."""
    return Keep(
        jobs_s=settings.keep_jobs_days * DAY_S,
        logs_s=settings.keep_logs_days * DAY_S,
        secrets_s=settings.keep_secrets_days * DAY_S,
        audit_s=settings.keep_audit_days * DAY_S,
        audit=MOST_AUDIT_ENTRIES,
        jobs=settings.keep_jobs,
        size_bytes=settings.keep_store_mib * MIB,
    )


def prune_all(store: Store, keep: Keep, *, now: float) -> Pruned:
    """Remove at once all that need not be kept, in short transactions."""
    total, step = Pruned(), Pruned(more=True)
    while step.more:
        step = store.retention.prune(keep, now=now, limit=STEP_JOBS)
        total = Pruned(
            jobs=total.jobs + step.jobs, logs=total.logs + step.logs, secrets=total.secrets + step.secrets
        )
    return total


def prune(store: Store, keep: Keep, *, now: float, dry_run: bool) -> PruneView:
    """Remove all that need not be kept and give its space back; or only say what would go."""
    before = store.retention.space().file_bytes
    if dry_run:
        found = store.retention.prunable(keep, now=now)
        return PruneView(
            dry_run=True,
            jobs=found.jobs,
            logs=found.logs,
            secrets=None,
            bytes_before=before,
            bytes_after=None,
            given_back=True,
        )
    pruned = prune_all(store, keep, now=now)
    given_back = store.retention.compact(rewrite=store.leases.current(now=now) is None)
    return PruneView(
        dry_run=False,
        jobs=pruned.jobs,
        logs=pruned.logs,
        secrets=pruned.secrets,
        bytes_before=before,
        bytes_after=store.retention.space().file_bytes,
        given_back=given_back,
    )
