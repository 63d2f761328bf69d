"""What is known of the attempts on one cluster beyond their rows: looks, silence, refusals and stops."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ray_multicluster_scheduler.core.events import AttemptsObserved
from ray_multicluster_scheduler.core.flow.poll_interval import look_interval_s
from ray_multicluster_scheduler.core.lifecycle.observe import Observation
from ray_multicluster_scheduler.core.lifecycle.silence import Silence, after_silent_look
from ray_multicluster_scheduler.core.lifecycle.stopping import StopRequests
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.job import Job

AttemptKey = tuple[str, int]
NEVER = float("inf")
AT_ONCE = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRules:
    """How often a cluster is looked at: its jobs while there are any, and else the cluster."""

    poll_interval_s: float
    probe_interval_s: float


def attempt_key(job: Job) -> AttemptKey:
    """Return what tells an attempt from all others."""
    return job.submission_id, job.attempt


class ClusterAttempts:
    """The attempts on one cluster, and when they are looked at next."""

    def __init__(self, rules: PollRules) -> None:
        self._rules = rules
        #: A look is under way.
        self.is_observing = False
        #: Jobs of the first look whose moves are not written yet; None: there was no answer yet.
        self._unsettled: set[str] | None = None
        self.observe_at = AT_ONCE
        self._observed_at = AT_ONCE
        self._took_s = 0.0
        self._silence: Silence | None = None
        #: When former looks have last found attempts PENDING, by their ids on the cluster.
        self._pending_at: dict[str, float] = {}
        self._dead_nodes: frozenset[str] = frozenset()
        self._refusals: dict[AttemptKey, list[str]] = {}
        self.stops = StopRequests()

    @property
    def is_caught_up(self) -> bool:
        """Tell whether it is known, and written down, how the jobs of this cluster are."""
        return self._unsettled is not None and not self._unsettled

    # -- when

    def observe_now(self) -> None:
        """Look as soon as possible: somebody wants a job stopped, or the cluster has changed."""
        self.observe_at = self._observed_at = AT_ONCE

    def postpone(self, until: float) -> None:
        """Leave the cluster alone for a while, because our own code fails with it."""
        self.is_observing = False
        self.observe_at = self._observed_at = until

    def schedule(self, jobs: Collection[Job], *, now: float) -> None:
        """Work out when to look next, with these jobs on the cluster."""
        if not jobs:
            self._silence, self.observe_at = None, NEVER
            return
        interval_s = look_interval_s(
            jobs,
            now=now,
            look_took_s=self._took_s,
            poll_interval_s=self._rules.poll_interval_s,
            probe_interval_s=self._rules.probe_interval_s,
        )
        self.observe_at = self._observed_at + interval_s

    # -- looks

    def begin(self, snapshot: ClusterSnapshot, *, now: float) -> None:
        """Begin a look. What is known of the nodes is older than what is read now: that is the safe order."""
        self.is_observing, self._observed_at = True, now
        self._dead_nodes = frozenset(node.node_id for node in snapshot.nodes or () if not node.alive)

    def nothing_to_observe(self, *, now: float) -> None:
        """Take note that no job of this cluster is to be looked at now."""
        self._observed_at, self.observe_at = now, NEVER
        self._unsettled = self._unsettled or set()

    def answered(self, event: AttemptsObserved, *, now: float) -> Mapping[str, Observation]:
        """Return what a look says about each of its jobs, by submission id."""
        self.is_observing = False
        if not event.confirmed:
            self._took_s = event.took_s
        if not event.answered:
            return self._silent(event, now=now)
        self._silence = None
        pending_at = self._pending_at
        if not event.confirmed:
            self._pending_at = {
                remote_id: event.asked_at
                for remote_id, sighting in event.found.items()
                if sighting.status is AttemptStatus.PENDING
            }
        return {job.submission_id: self._of(job, event, pending_at, now=now) for job in event.jobs}

    def settle(self, observed: Collection[str], *, unsettled: Collection[str]) -> None:
        """Take note of the jobs about which something is still to be done after a look."""
        left = {each for each in observed if each in unsettled}
        if self._unsettled is None:
            self._unsettled = left
        else:
            self._unsettled.difference_update(each for each in observed if each not in left)

    def written(self, submission_id: str) -> None:
        """Take note that what followed for a job is written."""
        if self._unsettled:
            self._unsettled.discard(submission_id)

    def _silent(self, event: AttemptsObserved, *, now: float) -> Mapping[str, Observation]:
        silence = self._silence = after_silent_look(
            self._silence, refused=event.refused, now=now, poll_interval_s=self._rules.poll_interval_s
        )
        common = Observation(
            answered=False,
            silent_s=silence.lasts_s,
            silence=event.silence,
            refused_s=silence.refused_s,
        )
        return {job.submission_id: common for job in event.jobs}

    def _of(
        self, job: Job, event: AttemptsObserved, pending_at: Mapping[str, float], *, now: float
    ) -> Observation:
        remote_id = job.remote_id or ""
        return Observation(
            answered=True,
            sighting=event.found.get(remote_id),
            session_name=event.session_name,
            dead_nodes=self._dead_nodes,
            confirmed=event.confirmed,
            pending_at=pending_at.get(remote_id),
            stopping_s=self.stops.stopping_s(remote_id, now=now),
        )

    # -- sends

    def refused(self, job: Job, detail: str) -> None:
        """Count a start that the cluster refused."""
        self._refusals.setdefault(attempt_key(job), []).append(detail)

    def refusals(self, job: Job) -> tuple[str, ...]:
        """Return why starts of this attempt were refused so far."""
        return tuple(self._refusals.get(attempt_key(job), ()))

    def forget(self, job: Job) -> None:
        """Forget what was remembered of an attempt that has left the cluster."""
        self._refusals.pop(attempt_key(job), None)
        self._pending_at.pop(job.remote_id or "", None)
        self.stops.forget(job.remote_id or "")
