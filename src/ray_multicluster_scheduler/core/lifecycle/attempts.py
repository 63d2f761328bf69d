"""In-memory state of the attempts on one cluster: looks, silence, refusals and stop requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.core.events import AttemptsObserved
from ray_multicluster_scheduler.core.lifecycle.observe import Observation, still_runs
from ray_multicluster_scheduler.core.lifecycle.stopping import StopRequests
from ray_multicluster_scheduler.core.pacing import look_interval_s
from ray_multicluster_scheduler.core.rules import PollRules
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Witness
from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.job import Job

# The time for which a cluster has not answered, as evidence about its jobs.


#: Failed looks that are further apart than this and than twenty polls do not count as one silence: this
#: process was suspended in between.
LONGEST_GAP_S = 60.0
LONGEST_GAP_POLLS = 20
#: After so many looks in a row that found an address closed, its refusal is no evidence. Not after one:
#: a head that is being stopped closes its ports one after the other.
CLOSED_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Consecutive looks without an answer."""

    since: float
    last_at: float
    #: Since when dashboard and head address have both refused connections; None if they have not.
    refused_since: float | None

    @property
    def lasts_s(self) -> float:
        """How long it had lasted at the last look."""
        return self.last_at - self.since

    @property
    def refused_s(self) -> float:
        """How long all connections had been refused at the last look."""
        return 0.0 if self.refused_since is None else self.last_at - self.refused_since


def after_silent_look(
    silence: Silence | None, *, refused: bool, now: float, poll_interval_s: float
) -> Silence:
    """Count another look without an answer. `refused`: dashboard and head address refused connections."""
    longest_gap_s = LONGEST_GAP_S + LONGEST_GAP_POLLS * poll_interval_s
    if silence is None or now - silence.last_at > longest_gap_s:
        return Silence(since=now, last_at=now, refused_since=now if refused else None)
    refused_since = silence.refused_since if silence.refused_since is not None else now
    return Silence(since=silence.since, last_at=now, refused_since=refused_since if refused else None)


def after_head_look(known: Witness | None, head: Witness, *, is_open: bool) -> Witness | None:
    """Return what is known of a head after a look at its addresses while it was well.

    `is_open`: both are open, and it is the head itself that listens there.
    """
    if is_open:
        return head
    if known is None or (known.session_name, known.addresses) != (head.session_name, head.addresses):
        return None
    closed_looks = known.closed_looks + 1
    return None if closed_looks >= CLOSED_LOOKS else replace(known, closed_looks=closed_looks)


def refusal_counts(witness: Witness | None, spec: ClusterSpec, job: Job) -> bool:
    """Tell whether refused connections are evidence that the head on which a job was started is gone."""
    return (
        witness is not None
        and witness.session_name == job.session_name
        and witness.addresses == spec.addresses
    )


AttemptKey = tuple[str, int]
NEVER = float("inf")
AT_ONCE = float("-inf")


def attempt_key(job: Job) -> AttemptKey:
    """Return the unique key of an attempt."""
    return job.submission_id, job.attempt


class ClusterAttempts:
    """The attempts on one cluster, and the time of the next look."""

    def __init__(self, rules: PollRules) -> None:
        self._rules = rules
        #: A look is under way.
        self.is_observing = False
        #: Jobs of the first look whose transitions are not written yet; None before the first answer.
        self._unsettled: set[str] | None = None
        self.observe_at = AT_ONCE
        self._observed_at = AT_ONCE
        self._took_s = 0.0
        self._silence: Silence | None = None
        #: How the last look that found an attempt open found it, and when that look began, by its id there.
        self._last_open: dict[str, tuple[AttemptStatus, float]] = {}
        self._dead_nodes: frozenset[str] = frozenset()
        self._refusals: dict[AttemptKey, list[str]] = {}
        self.stops = StopRequests()

    @property
    def is_caught_up(self) -> bool:
        """Tell whether the present state of all jobs of this cluster is known and written."""
        return self._unsettled is not None and not self._unsettled

    # -- when

    def observe_now(self) -> None:
        """Schedule the next look at once: a stop was requested, or the cluster has changed."""
        self.observe_at = self._observed_at = AT_ONCE

    def postpone(self, until: float) -> None:
        """Delay the next look, because our own code fails with this cluster."""
        self.is_observing = False
        self.observe_at = self._observed_at = until

    def schedule(self, jobs: Collection[Job], *, now: float) -> None:
        """Set the time of the next look, with these jobs on the cluster."""
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
        """Begin a look. The node list is older than the answers of this look, which is the safe order."""
        self.is_observing, self._observed_at = True, now
        self._dead_nodes = frozenset(node.node_id for node in snapshot.nodes or () if not node.alive)

    def nothing_to_observe(self, *, is_empty: bool, now: float) -> None:
        """Note that there is no job to look at now: the cluster has none, or all of them are busy."""
        self._observed_at, self.observe_at = now, NEVER
        if is_empty and self._unsettled is None:
            self._unsettled = set()

    def answered(self, event: AttemptsObserved, *, now: float) -> Callable[[Job], Observation | None]:
        """Return a function from a job to what a look says about it; None: nothing new."""
        self.is_observing = False
        if not event.confirmed:
            self._took_s = event.took_s
        if not event.answered:
            return self._silent(event, now=now)
        self._silence = None
        before = self._last_open
        if not event.confirmed:
            self._last_open = before | {
                remote_id: (sighting.status, event.asked_at)
                for remote_id, sighting in event.found.items()
                if not sighting.status.final
            }
        return lambda job: self._of(job, event, before, now=now)

    def settle(self, observed: Collection[str], *, unsettled: Collection[str]) -> None:
        """Note the jobs whose transitions are still to be written after a look."""
        left = {each for each in observed if each in unsettled}
        if self._unsettled is None:
            self._unsettled = left
        else:
            self._unsettled.difference_update(each for each in observed if each not in left)

    def written(self, submission_id: str) -> None:
        """Note that the transition of a job is written."""
        if self._unsettled:
            self._unsettled.discard(submission_id)

    def _silent(self, event: AttemptsObserved, *, now: float) -> Callable[[Job], Observation]:
        silence = self._silence = after_silent_look(
            self._silence, refused=event.refused, now=now, poll_interval_s=self._rules.poll_interval_s
        )
        common = Observation(
            answered=False,
            silent_s=silence.lasts_s,
            silence=event.silence,
            refused_s=silence.refused_s,
        )
        return lambda _job: common

    def _of(
        self,
        job: Job,
        event: AttemptsObserved,
        last_open: Mapping[str, tuple[AttemptStatus, float]],
        *,
        now: float,
    ) -> Observation | None:
        remote_id = job.remote_id or ""
        sighting = event.found.get(remote_id)
        if sighting is not None and still_runs(job, sighting, self._dead_nodes):
            return None
        status, at = last_open.get(remote_id, (None, None))
        return Observation(
            answered=True,
            sighting=sighting,
            session_name=event.session_name,
            dead_nodes=self._dead_nodes,
            confirmed=event.confirmed,
            pending_at=at if status is AttemptStatus.PENDING else None,
            running_at=at if status is AttemptStatus.RUNNING else None,
            stopping_s=self.stops.stopping_s(remote_id, now=now),
        )

    # -- sends

    def refused(self, job: Job, detail: str) -> None:
        """Count a start that the cluster refused."""
        self._refusals.setdefault(attempt_key(job), []).append(detail)

    def refusals(self, job: Job) -> tuple[str, ...]:
        """Return the reasons for which starts of this attempt were refused so far."""
        return tuple(self._refusals.get(attempt_key(job), ()))

    def forget(self, job: Job) -> None:
        """Drop the state of an attempt that has left the cluster."""
        self._refusals.pop(attempt_key(job), None)
        self._last_open.pop(job.remote_id or "", None)
        self.stops.forget(job.remote_id or "")
