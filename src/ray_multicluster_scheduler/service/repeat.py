"""`retry`: from jobs that have ended badly to new jobs that do the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, Job, JobSpec
from ray_multicluster_scheduler.model.states import JobState

#: The key of a job's metadata that tells which job it repeats.
RETRY_OF = "raymc.retry_of"
REPEATABLE = frozenset({JobState.FAILED, JobState.STOPPED})


def to_repeat(jobs: Sequence[Job]) -> list[Job]:
    """Return those of these jobs that can be repeated; raises `InvalidRequest` where none can."""
    found = [job for job in jobs if job.state in REPEATABLE and not job.spec.is_session]
    if found:
        return found
    if not jobs:
        raise InvalidRequest("no job was named; say which ones are to be repeated")
    only = jobs[0]
    if only.spec.is_session:
        raise InvalidRequest(
            f"{only.submission_id} is a Ray Client session; only its program can begin it again"
        )
    if len(jobs) > 1:
        raise InvalidRequest(f"none of these {len(jobs)} jobs has failed or was stopped")
    why = "has succeeded" if only.final else f"has not ended: it is {only.state.value}"
    raise InvalidRequest(f"{only.submission_id} {why}; only a job that failed or was stopped is repeated")


def repeats(jobs: Sequence[Job], *, user: str, taken: Callable[[str], bool]) -> list[tuple[str, JobSpec]]:
    """Return a new id and spec for each job: `train` becomes `train.2`, then `train.3`.

    Several jobs of one group make a new group. A dependency that is repeated as well is replaced.
    """
    groups = {job.spec.group for job in jobs}
    group = groups.pop() if len(jobs) > 1 and len(groups) == 1 else None
    ids = {job.submission_id: _next(job.submission_id, taken) for job in jobs}
    new_group = group and _next(group, taken)
    return [
        (
            ids[job.submission_id],
            replace(
                job.spec,
                metadata={**job.spec.metadata, RETRY_OF: job.submission_id},
                depends_on=tuple(ids.get(needed, needed) for needed in job.spec.depends_on),
                user=user,
                idempotency_key=None,
                group=new_group,
            ),
        )
        for job in jobs
    ]


def _next(word: str, taken: Callable[[str], bool]) -> str:
    """Return the first free one of `word.2`, `word.3`, ...; a repeated `word.2` becomes `word.3`."""
    root, _, number = word.rpartition(".")
    first, root = (int(number) + 1, root) if root and number.isdecimal() else (2, word)
    found = next(name for n in count(first) if not taken(name := f"{root}.{n}"))
    if not SUBMISSION_ID.fullmatch(found):
        raise InvalidRequest(f"{word!r} is too long to be repeated under a name of its own")
    return found
