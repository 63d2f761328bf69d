"""One attempt on a cluster, independent of Ray: the request to start it, its status, kinds of failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

# Kinds of failures, which retries and limits treat differently.


class FailureKind(str, Enum):
    """Why an attempt failed. Only `USER` and `TIMED_OUT` are caused by the program itself."""

    LOST = "LOST"  # evidence that the attempt is gone: head restarted, driver node dead, cluster dead
    ENVIRONMENT = (
        "ENVIRONMENT"  # Ray could not set up the runtime_env; a retry or another cluster may succeed
    )
    NO_ENVIRONMENT = (
        "NO_ENVIRONMENT"  # a retry there would fail too: no such package, conda environment or version
    )
    UNSCHEDULABLE = "UNSCHEDULABLE"  # Ray found no room for the driver
    SUPERVISOR = "SUPERVISOR"  # Ray's own helper for the job died or never started
    REFUSED = "REFUSED"  # the cluster answered the submission with an error
    SILENT = "SILENT"  # no answer for as long as the user allows; it may still run
    USER = "USER"  # the program ended with an exit code
    TIMED_OUT = "TIMED_OUT"  # it ran longer than its timeout_s
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"  # it ended, and its result was deleted before we read it


#: The executor of a job that asks for none (`executors/`).
DEFAULT_EXECUTOR = "ray-jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an executor can do and wants: all that others decide by, so that nobody asks for its name."""

    #: Its cluster has a log of each attempt.
    keeps_log: bool = True
    #: Its cluster remembers attempts that have ended until they are deleted.
    deletable: bool = True
    #: We can begin the work of an attempt again; False: only whoever has begun it can.
    restartable: bool = True
    #: An attempt costs the head of its cluster a process.
    needs_driver_slot: bool = True
    #: The program of an attempt gets this package, where its cluster says so (`ship_package`).
    carries_package: bool = True
    #: An attempt can leave a result: `Executor.result_place` and `Executor.result` are asked for it.
    leaves_result: bool = False
    #: That an attempt ends quickly says something about its cluster.
    quick_ends_count: bool = True
    #: A program outside of the clusters begins the work. So nobody can submit a job to this executor.
    begun_by_program: bool = False


#: Of an executor of which nothing special is said.
ORDINARY = Capabilities()
#: Of an executor that this version does not have: nothing is asked of it.
UNKNOWN_EXECUTOR = Capabilities(
    keeps_log=False, deletable=False, restartable=False, carries_package=False, quick_ends_count=False
)


def not_here(executor: str) -> str:
    """Say that this version does not have an executor."""
    return f"its executor {executor!r} is not known to this version of the scheduler"


class AttemptStatus(str, Enum):
    """How far an attempt has come on its cluster."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def final(self) -> bool:
        """Tell whether this status will never change again."""
        return self in _FINAL


_FINAL = frozenset({AttemptStatus.SUCCEEDED, AttemptStatus.FAILED, AttemptStatus.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A request to start an attempt, under an id that we have chosen."""

    remote_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    entrypoint_num_cpus: float | None = None
    entrypoint_num_gpus: float | None = None
    entrypoint_memory: int | None = None
    entrypoint_resources: Mapping[str, float] | None = None
    entrypoint_label_selector: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One attempt as its cluster shows it now."""

    remote_id: str
    status: AttemptStatus
    #: The cluster's message about it, for people.
    message: str = ""
    #: Why it failed; None unless the status is FAILED.
    failure: FailureKind | None = None
    #: The cluster's own name for the failure, for people.
    error_type: str | None = None
    exit_code: int | None = None
    #: Seconds since the epoch, by the clock of the cluster. Ray's start is when it accepted the submission.
    started_at: float | None = None
    ended_at: float | None = None
    #: The node that the driver runs on.
    node_id: str | None = None
    #: What a good end looks like.
    good_end: str = "its driver ended with exit code 0"
    #: The metadata of the `StartRequest`.
    metadata: Mapping[str, str] = field(default_factory=dict)


class InventoryRow(NamedTuple):
    """The part of a list entry that is cheap to read, to filter a list of 100,000 entries."""

    remote_id: str
    #: None if the cluster reports an unknown status.
    status: AttemptStatus | None
    #: As the cluster sent it, unchecked.
    metadata: Mapping[str, Any]
    #: A program that is connected with Ray Client, such as a session. It is never selected.
    is_driver: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The selected entries of a cluster's job list, and the length of the whole list."""

    sightings: tuple[Sighting, ...]
    remembered: int


# A Ray Client session: what the server that it is connected through knows about it, beside its job.

#: The id of a session's job is made of the id that Ray Client has chosen, so that any server finds it.
SESSION_PREFIX = "session-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session. Its user, cluster and state are those of its job."""

    submission_id: str
    #: When a server last said that the program is there; only needed until it is connected.
    alive_at: float
    #: Ray's id of the helper process as a driver; None: not connected yet.
    ray_job_id: str | None = None
    helper_pid: int | None = None
    helper_address: str | None = None
    #: Why it broke off; None: it has not.
    failure: str | None = None
    #: The attempt whose cluster could not begin it, as `failure` says; another cluster may.
    refused_attempt: int | None = None
    #: Its program has taken leave.
    disconnected: bool = False
    #: The leader has asked for its end.
    stop_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClient:
    """The program that a session belongs to: its address, and its versions if it tells them."""

    address: str
    ray: str | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDriver:
    """The driver of a program on a cluster, by Ray's id of it."""

    is_alive: bool
    pid: int | None
    address: str | None
    metadata: dict[str, str]


def session_id(client_id: str) -> str:
    """Return the submission id of the session of a Ray Client."""
    return f"{SESSION_PREFIX}{client_id}"


def attempt_of(remote_id: str) -> tuple[str, int]:
    """Return the submission id and the number of an attempt from its id: see `remote_id_for`."""
    submission_id, _, number = remote_id.partition("--r")
    return submission_id, int(number or 1)
