"""What the log says of moves and decisions. The data are in the message: `basicConfig` shows nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ray_multicluster_scheduler.model.decision import Placement
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text.visible import visible

log = logging.getLogger(__name__)

#: Between where a job went and how it ended, only those look who search for something.
_DETAILS = frozenset({JobState.SUBMITTED, JobState.RUNNING})


def tell_moves(jobs: Iterable[Job]) -> None:
    """Say where jobs are now, and why: at INFO where they went and how they ended."""
    if not log.isEnabledFor(logging.INFO):
        return
    for job in jobs:
        where = f" on {job.cluster!r}" if job.cluster else ""
        log.log(
            logging.DEBUG if job.state in _DETAILS else logging.INFO,
            "job %s (%s): %s%s: %s",
            job.submission_id,
            visible(job.spec.name or "no name"),
            job.state.value,
            where,
            visible(job.reason),
        )


def tell_decisions(placements: Iterable[Placement]) -> None:
    """Say at DEBUG how each cluster was judged for a job that got a place."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for placed in placements:
        scores = ", ".join(f"{name} {score.total:.2f}" for name, score in placed.scores.items())
        refused = "; ".join(f"not {name!r}: {why.sentence}" for name, why in placed.refusals.items())
        log.debug(
            "job %s goes to %r: %s; scores: %s%s",
            placed.submission_id,
            placed.cluster,
            placed.sentence,
            scores,
            f"; {visible(refused)}" if refused else "",
        )
