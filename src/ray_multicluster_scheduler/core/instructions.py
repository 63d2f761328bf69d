"""What the scheduler wants done. The result of an instruction comes back as an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.decision import Placement
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.result import LeftResult

# -- to the store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJobs:
    """Read whole jobs of the queue, to place them or to end them. Answered by `JobsRead`."""

    submission_ids: Sequence[str]
    placements: Sequence[Placement] = ()
    #: Why they end, if that is what they are read for.
    end_because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMoves:
    """Write moves, and only if they still hold. Answered by `MovesWritten`."""

    moves: Sequence[Transition]
    #: Jobs as they were last read or written: what nobody has changed since need not be read again.
    known: Mapping[str, Job] = field(default_factory=dict)
    #: The log of the attempt that has ended with these moves.
    log: str | None = None
    #: The result that it left, if the job has ended with it.
    result: LeftResult | None = None
    #: What they come from, such as "place" or "seen".
    occasion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadQueue:
    """Read which jobs of the queue must end: `JobsBlocked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSnapshots:
    """Let other processes know by what decisions are made. Not `urgent`: in a while will do."""

    urgent: bool


# -- to a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAttempt:
    """Start an attempt that is written down. Answered by `SendEnded`."""

    job: Job
    request: StartRequest
    #: Nothing was sent for this attempt before; else it is first looked up.
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveAttempts:
    """Look at attempts of a cluster. Answered by `AttemptsObserved`."""

    cluster: str
    jobs: Sequence[Job]
    #: These ids are read once more, before something bad is believed.
    confirms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Ask a cluster to stop an attempt. Answered by `StopTaken`, if it is taken."""

    cluster: str
    remote_id: str
    executor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Read the log of an attempt that has ended, before its end is written. Answered by `LogRead`.

    And the result that it left, if its job ends with it.
    """

    job: Job
    moves: Sequence[Transition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAttempt:
    """The result of an attempt is kept here: its cluster need not remember it for ever."""

    cluster: str
    remote_id: str
    executor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshUsage:
    """Ask a cluster what it uses now, because that has just changed. Answered by `ClusterProbed`."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCluster:
    """Look soon for attempts on a cluster that were given up and may still run there."""

    cluster: str


# -- to the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUp:
    """Nothing changes by itself before `at`: send a `Tick` then."""

    at: float


Instruction = (
    ReadJobs
    | WriteMoves
    | ReadQueue
    | PublishSnapshots
    | SendAttempt
    | ObserveAttempts
    | StopAttempt
    | ReadLog
    | ForgetAttempt
    | RefreshUsage
    | SweepCluster
    | WakeUp
)
