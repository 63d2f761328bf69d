"""What the scheduler hears: everything that can change its mind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray_multicluster_scheduler.core.instructions import ReadJobs, ReadLog, WriteMoves
from ray_multicluster_scheduler.core.lifecycle.transitions import SendOutcome
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, DrainMark, Witness
from ray_multicluster_scheduler.model.execution import Sighting
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.result import LeftResult

# -- from the store: what others wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAccepted:
    """New jobs in the queue, each with the jobs that it still waits for."""

    jobs: Sequence[tuple[Job, Sequence[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopsRequested:
    """Jobs on clusters that somebody wants stopped, as they are now."""

    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsBlocked:
    """Jobs in the queue that must end now, each with its reason."""

    jobs: Sequence[tuple[Job, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainsRead:
    """Marks made by `drain` and `undrain`, by cluster: (drained, reason)."""

    drains: Mapping[str, DrainMark]


# -- from the store: answers


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRead:
    """The whole jobs that were asked for, by id: those that are still in the queue."""

    asked: ReadJobs
    jobs: Mapping[str, Job]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesWritten:
    """Moves are on disk. A job that is missing in `moved` is not where its move expected it."""

    asked: Sequence[WriteMoves]
    moved: Sequence[Job]


# -- from the clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProbed:
    """What was last seen of a cluster. `changed`: its health, session or size is not what it was."""

    snapshot: ClusterSnapshot
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsObserved:
    """A cluster's answer about some attempts, by their ids there; `answered` is False if there was none."""

    cluster: str
    jobs: Sequence[Job]
    answered: bool
    #: Those that the cluster has, and that are ours.
    found: Mapping[str, Sighting] = field(default_factory=dict)
    #: The cluster's incarnation, read in the same look.
    session_name: str | None = None
    #: It is a second read of these ids, before something bad is believed.
    confirmed: bool = False
    asked_at: float
    took_s: float = 0.0
    #: Why there was no answer, and whether dashboard and head address both refused to be connected.
    silence: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSeen:
    """A look at the addresses of a head that has just answered.

    `is_open`: both are open, and it is the head itself that listens there.
    """

    cluster: str
    head: Witness
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationFailed:
    """A bug of ours kept us from handling attempts of a cluster: they are looked at again at `again_at`."""

    cluster: str
    again_at: float
    #: Whatever was under way for these jobs has come to nothing.
    jobs: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEnded:
    """The try to start an attempt is over."""

    job: Job
    is_new: bool
    outcome: SendOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTaken:
    """A cluster has taken the request to stop an attempt."""

    cluster: str
    remote_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """The log of an attempt that has ended; None: it could not be read, and the job ends without it."""

    asked: ReadLog
    text: str | None
    result: LeftResult | None = None


# -- time


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: start the looks that are due and, if one is due, a placement pass."""


Event = (
    JobsAccepted
    | StopsRequested
    | JobsBlocked
    | DrainsRead
    | JobsRead
    | MovesWritten
    | ClusterProbed
    | AttemptsObserved
    | HeadSeen
    | ObservationFailed
    | SendEnded
    | StopTaken
    | LogRead
    | Tick
)
