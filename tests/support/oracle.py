"""What must hold after every fault, judged by what fake clusters really ran, not by what the scheduler says.

The names I1 to I8 are those of docs/failures.md.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ray_multicluster_scheduler.core.lifecycle.attempt_request import ORIGIN
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState, may_move
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import KILLED

#: Attempts that are over without anything having been executed.
NEVER_RAN = {"NOT_SENT", "NOT_STARTED", "REFUSED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One program that was really started."""

    submission_id: str
    attempt: int
    cluster: str
    start: float
    #: None: it runs.
    end: float | None
    exit_code: int | None


def runs_of(fakes: Iterable[FakeRay], submission_id: str) -> list[Run]:
    """Every run of a job on any cluster, in the order of the starts."""
    found = []
    for fake in fakes:
        for record in fake.runs:
            name, _, number = record.submission_id.partition("--r")
            if name == submission_id:
                found.append(
                    Run(
                        submission_id=name,
                        attempt=int(number or 1),
                        cluster=fake.name,
                        start=record.start,
                        end=record.end,
                        exit_code=record.exit_code,
                    )
                )
    return sorted(found, key=lambda run: run.start)


def overlaps(runs: Sequence[Run]) -> int:
    """How many runs began before the one before them had ended."""
    return sum(earlier.end is None or later.start < earlier.end for earlier, later in pairwise(runs))


def broken_promises(
    store: Store,
    fakes: Collection[FakeRay],
    accepted: Iterable[str],
    *,
    may_overlap: Collection[str] = (),
    max_infra_retries: int = 3,
) -> list[str]:
    """Return every invariant that does not hold for these jobs, all of which should have ended by now."""
    problems = []
    jobs = store.jobs.get_many(list(accepted))
    for submission_id in accepted:
        if submission_id not in jobs:
            problems.append(f"I1 {submission_id} was accepted and is gone")
            continue
        job, runs = jobs[submission_id], runs_of(fakes, submission_id)
        if overlaps(runs) and submission_id not in may_overlap:
            problems.append(f"I2 {submission_id} ran twice at the same time: {runs}")
        if job.state not in FINAL:
            problems.append(f"I3 {submission_id} has not ended: {job.state.value}, {job.reason}")
        if _given_up(job, runs, max_infra_retries):
            problems.append(
                f"I3 {submission_id} is FAILED, but it was killed and had retries left: {job.reason}"
            )
        problems += _moved_wrongly(store, job)
        problems += _tried_too_often(store, job, max_infra_retries)
        problems += _told_wrongly(job, runs)
    problems += _left_behind(store, fakes)
    return problems


def _given_up(job: Job, runs: Sequence[Run], max_infra_retries: int) -> bool:
    """Tell whether a job was ended although nothing but its cluster was to blame."""
    killed = bool(runs) and runs[-1].exit_code == KILLED
    left = job.infra_failures <= max_infra_retries and job.spec.on_unreachable != "fail"
    return job.state is JobState.FAILED and killed and left


def _moved_wrongly(store: Store, job: Job) -> list[str]:
    events = store.history.events(job.submission_id)
    moves = [(event.old, event.new) for event in events if event.old is not event.new]
    wrong = [
        f"I4 {job.submission_id} moved {old} -> {new}" for old, new in moves[1:] if not may_move(old, new)
    ]
    broken = [f"I4 {job.submission_id}: a gap in {moves}" for (_, a), (b, _) in pairwise(moves) if a is not b]
    silent = [f"I4 {job.submission_id}: an event without a reason" for event in events if not event.reason]
    return wrong + broken + silent


def _tried_too_often(store: Store, job: Job, max_infra_retries: int) -> list[str]:
    attempts = store.history.attempts(job.submission_id)
    if [attempt.number for attempt in attempts] != list(range(1, job.attempt + 1)):
        return [f"I5 {job.submission_id}: attempts are missing"]
    ran = [attempt for attempt in attempts if attempt.outcome not in NEVER_RAN]
    limit = 1 + max_infra_retries + job.spec.max_retries
    return [f"I5 {job.submission_id} was tried {len(ran)} times"] if len(ran) > limit else []


def _told_wrongly(job: Job, runs: Sequence[Run]) -> list[str]:
    mine = [run for run in runs if run.attempt == job.attempt]
    if job.state is JobState.SUCCEEDED and [run.exit_code for run in mine] != [0]:
        return [f"I8 {job.submission_id} is called SUCCEEDED, but ran like this: {runs}"]
    if job.state is JobState.FAILED and job.exit_code == 0:
        return [f"I8 {job.submission_id} is called FAILED with exit code 0"]
    return []


def _left_behind(store: Store, fakes: Collection[FakeRay]) -> list[str]:
    problems = []
    live = store.jobs.list(states=sorted(LIVE))
    for fake in fakes:
        held = {job.remote_id for job in live if job.cluster == fake.name}
        if store.history.live_remote_ids(fake.name) != held:
            problems.append(
                f"I7 {fake.name}: attempts {store.history.live_remote_ids(fake.name)}, jobs {held}"
            )
        problems += [
            f"I6 {fake.name} runs {name}, which nobody waits for"
            for name, remote in fake.jobs.items()
            if not remote.status.final
            and (remote.submission.metadata or {}).get(ORIGIN) == store.store_id
            and name not in held
        ]
    return problems
