"""Which jobs a word means: a submission id, a `job_id`, or a group."""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.policy.guess import nearest
from ray_multicluster_scheduler.ports import JobStore

#: Who mistypes a name means one of the newest jobs, and a history may hold a million.
GUESSED_FROM = 1000
#: Fewer characters are a slip of the finger, not the beginning of an id.
SHORTEST_PREFIX = 4


def find(store: JobStore, word: str) -> tuple[Job, ...]:
    """Return the jobs that a word on a command line means, oldest first; raises `JobNotFound`.

    A submission id, or the beginning of exactly one. A `job_id`: the newest job with it, and the others of
    the same array. A group: all of it.
    """
    if by_id := tuple(store.get_many([word]).values()):
        return by_id
    if newest := newest_named(store, word):
        group = newest.spec.group
        return (newest,) if group is None else store.list_jobs(name=word, group=group)[::-1]
    if grouped := store.list_jobs(group=word):
        return grouped[::-1]
    ids = store.ids_beginning(word, limit=2) if len(word) >= SHORTEST_PREFIX else ()
    if len(ids) == 1:
        return (store.get(ids[0]),)
    if ids:
        raise JobNotFound(word, nearest=" or ".join(ids))
    raise _not_found(store, word)


def find_each(store: JobStore, words: Sequence[str]) -> tuple[Job, ...]:
    """Return for each word the job that it means, each job once; `JobNotFound` for one that means none."""
    by_id = store.get_many(words)
    found = {}
    for word in words:
        job = by_id.get(word) or newest_named(store, word)
        if job is None:
            raise _not_found(store, word)
        found[job.submission_id] = job
    return tuple(found.values())


def newest_named(store: JobStore, name: str) -> Job | None:
    """Return the newest job with this `job_id`: users give every day's job the same one."""
    return next(iter(store.list_jobs(name=name, limit=1)), None)


def _not_found(store: JobStore, word: str) -> JobNotFound:
    newest = store.list_jobs(limit=GUESSED_FROM)
    ids = [job.submission_id for job in newest]
    names = [name for job in newest for name in (job.spec.name, job.spec.group) if name]
    return JobNotFound(word, nearest=nearest(word, [*ids, *names]))
