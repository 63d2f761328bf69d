"""Which jobs a word means: a submission id, a `job_id`, or a group."""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.policy.guess import nearest
from ray_multicluster_scheduler.ports import JobStore

#: Who mistypes a name means one of the newest jobs, and a history may hold a million.
GUESSED_FROM = 1000


def find_all(store: JobStore, word: str) -> tuple[Job, ...]:
    """Return the jobs that a word means; raises `JobNotFound` with the nearest word that is known.

    A submission id is one job. Else it is all jobs with this `job_id`, else all of this group, newest first.
    """
    by_id = tuple(store.get_many([word]).values())
    found = by_id or store.list_jobs(name=word) or store.list_jobs(group=word)
    if not found:
        raise _not_found(store, word)
    return found


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
