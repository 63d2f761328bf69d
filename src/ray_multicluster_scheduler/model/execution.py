"""One attempt on a cluster, independent of Ray: the request to start it, and its observed status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ray_multicluster_scheduler.model.failure import FailureKind

#: The executor that runs an attempt as a job of Ray's own Jobs API.
RAY_JOBS = "ray-jobs"
#: The executor of sessions: a program outside the clusters is connected to one of them with Ray Client.
RAY_CLIENT = "ray-client"
#: All executors of this version. A job of another one was accepted by a newer version, and is left alone.
EXECUTORS = frozenset({RAY_JOBS, RAY_CLIENT})


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
