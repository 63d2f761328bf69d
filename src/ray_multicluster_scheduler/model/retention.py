"""Retention: how long jobs, logs and secrets are kept, and how many were removed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Retention limits. Open jobs, and jobs that an open job depends on, are always kept."""

    #: Seconds after the end of the job.
    jobs_s: float
    logs_s: float
    secrets_s: float
    #: Entries of the audit trail: their largest age and number; the newest are kept.
    audit_s: float
    audit: int
    #: Number of ended jobs; the newest are kept.
    jobs: int
    #: Size of the store: above it the oldest logs are removed, then the oldest jobs.
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Numbers of removed items, or of items that would be removed."""

    jobs: int = 0
    logs: int = 0
    #: Jobs whose secrets were removed.
    secrets: int = 0
    #: There may be more to remove.
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The size of a store on the disk, and the part of it that holds data."""

    file_bytes: int
    used_bytes: int
