"""How long is it until the next look at a cluster? Little while something is about to change."""

from __future__ import annotations

from collections.abc import Collection

from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import JobState

#: A silent cluster is looked at after this many poll intervals; the watch calls when it answers again.
UNREACHABLE_POLLS = 5
#: What has run for an hour does not end in this second, but what has just begun may: looks are as far apart
#: as a sixteenth of the time since the last change, from an eighth of the poll interval on.
PATIENCE = 16
#: So few jobs are read one by one, which costs a cluster next to nothing; somebody may wait for each of them.
FEW = 4
EAGER = 8
#: Looks are work for the cluster too. One that is busy answers late, and is asked less often: no more than a
#: tenth of the time is spent on looking.
LOOKS_PART = 10


def look_interval_s(
    jobs: Collection[Job], *, now: float, look_took_s: float, poll_interval_s: float, probe_interval_s: float
) -> float:
    """Return how much time is between two looks at a cluster that has these jobs."""
    if not jobs:
        return probe_interval_s
    heard = [job for job in jobs if job.state is not JobState.UNREACHABLE]
    if not heard:
        return poll_interval_s * UNREACHABLE_POLLS
    moving = any(job.state is not JobState.RUNNING or job.target is Target.STOPPED for job in heard)
    longest_s = poll_interval_s / 2 if moving or len(heard) <= FEW else poll_interval_s
    age_s = now - max(job.changed_at for job in heard)
    shortest_s = max(poll_interval_s / EAGER, look_took_s * LOOKS_PART)
    return min(longest_s, max(shortest_s, age_s / PATIENCE))
