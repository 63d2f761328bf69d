"""How long what is kept: the rules, and what was removed by them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What stays. Jobs that have not ended, and those that one of these waits for, always do."""

    #: Since the end of the job.
    jobs_s: float
    logs_s: float
    secrets_s: float
    #: Entries of the audit trail, and how many of them: the newest.
    audit_s: float
    audit: int
    #: The newest that have ended.
    jobs: int
    #: What the store may hold: beyond it the oldest logs go, then the oldest jobs.
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be."""

    jobs: int = 0
    logs: int = 0
    #: Jobs whose secrets were removed.
    secrets: int = 0
    #: There may be more to do.
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What a store takes on the disk, and how much of that holds something."""

    file_bytes: int
    used_bytes: int
