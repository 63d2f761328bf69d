"""`retry`: from jobs that have ended badly to new jobs that do the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace

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
