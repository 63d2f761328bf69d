"""What Ray's HTTP API says, as records. Jobs REST version 4 is the same on Ray 2.9 and 2.60."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class RemoteStatus(str, Enum):
    """Ray's own five words for a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        """Tell whether Ray will never change this status again."""
        return self in _FINAL


_FINAL = frozenset({RemoteStatus.STOPPED, RemoteStatus.SUCCEEDED, RemoteStatus.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVersion:
    """`GET /api/version`: not a health check, it answers for a minute after the GCS died."""

    api_version: str
    ray_version: str
    session_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSubmit:
    """What is POSTed to start a job."""

    submission_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    entrypoint_num_cpus: float | None = None
    entrypoint_num_gpus: float | None = None
    entrypoint_memory: int | None = None
    entrypoint_resources: Mapping[str, float] | None = None
    entrypoint_label_selector: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteJob:
    """One submission as Ray lists it. Times are seconds, as ours are."""

    submission_id: str
    status: RemoteStatus
    entrypoint: str
    message: str = ""
    error_type: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    driver_node_id: str | None = None
    driver_exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a cluster lists: the submissions that were wanted, and how many rows it remembers in all."""

    jobs: tuple[RemoteJob, ...]
    remembered: int
