"""Which jobs a word means: a submission id, a `job_id`, or a group."""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.store_ports import JobStore
from ray_multicluster_scheduler.text.spelling import nearest

#: Spelling suggestions come from the newest jobs only: a history may hold a million.
GUESSED_FROM = 1000
#: Fewer characters are not taken as the beginning of an id.
SHORTEST_PREFIX = 4
#: How many ids with the same beginning are read: most of them may belong to other users.
MOST_BEGINNINGS = 100


def find(store: JobStore, word: str, *, only: str | None = None) -> tuple[Job, ...]:
    """Return the jobs that a word on a command line means, oldest first; raises `JobNotFound`.

    A submission id, or the beginning of exactly one. A `job_id`: the newest job with it, and the others of
    the same array. A group: all of it. `only`: jobs of this user; the others do not exist.
    """
    if by_id := _by_id(store, [word], only):
        return tuple(by_id.values())
    if newest := newest_named(store, word, only=only):
        group = newest.spec.group
        return (newest,) if group is None else store.list_jobs(name=word, group=group, user=only)[::-1]
    if grouped := store.list_jobs(group=word, user=only):
        return grouped[::-1]
    ids = store.ids_beginning(word, limit=MOST_BEGINNINGS) if len(word) >= SHORTEST_PREFIX else ()
    beginning = tuple(_by_id(store, ids, only).values())
    if len(beginning) > 1:
        more = " or more" if len(ids) == MOST_BEGINNINGS else ""
        raise JobNotFound(word, several=f"{len(beginning)}{more}")
    if not beginning:
        raise _not_found(store, word, only)
    return beginning


def find_each(store: JobStore, words: Sequence[str], *, only: str | None = None) -> tuple[Job, ...]:
    """Return for each word the job that it means, each job once; `JobNotFound` for one that means none."""
    by_id = _by_id(store, words, only)
    found = {}
    for word in words:
        job = by_id.get(word) or newest_named(store, word, only=only)
        if job is None:
            raise _not_found(store, word, only)
        found[job.submission_id] = job
    return tuple(found.values())


def newest_named(store: JobStore, name: str, *, only: str | None = None) -> Job | None:
    """Return the newest job with this `job_id`: users give every day's job the same one."""
    return next(iter(store.list_jobs(name=name, user=only, limit=1)), None)


def _by_id(store: JobStore, ids: Sequence[str], only: str | None) -> dict[str, Job]:
    found = store.get_many(ids)
    return {name: job for name, job in found.items() if only is None or job.spec.user == only}


def _not_found(store: JobStore, word: str, only: str | None) -> JobNotFound:
    newest = store.list_jobs(user=only, limit=GUESSED_FROM)
    ids = [job.submission_id for job in newest]
    names = [name for job in newest for name in (job.spec.name, job.spec.group) if name]
    return JobNotFound(word, nearest=nearest(word, [*ids, *names]))
