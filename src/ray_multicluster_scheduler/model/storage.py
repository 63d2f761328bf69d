"""What the store keeps beside jobs: packages and who uploaded them, its size, and how long anything stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPackage:
    """A package in the store. Its bytes are read chunk by chunk."""

    id: int
    size: int
    #: They are numbered from 0.
    chunks: int
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A name that a user has chosen, and the package that it refers to."""

    user: str
    name: str
    #: The name of a package, which says what is inside.
    content: str
    size: int
    used_at: float


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
    #: Number of ended jobs. Above it, those users who have the most lose their oldest ones.
    jobs: int
    #: Size of the store. Above it, those users who take the most lose their oldest logs, then oldest jobs.
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


def fair_cuts(held: Mapping[str, int], excess: int) -> dict[str, int]:
    """Say how much each user gives up so that `excess` goes in all, largest amount first.

    Those who hold the most come down to one level. Who holds less than that loses nothing.
    """
    if excess <= 0:
        return {}
    most_first = sorted(held, key=lambda user: (-held[user], user))
    total = level = sharing = 0
    for user in most_first:
        if sharing and held[user] <= level:
            break
        sharing, total = sharing + 1, total + held[user]
        level = -(-max(0, total - excess) // sharing)
    cuts = {user: held[user] - level for user in most_first[:sharing]}
    rest = min(excess, total) - sum(cuts.values())  # less than one each
    return {user: cut + (n < rest) for n, (user, cut) in enumerate(cuts.items()) if cut + (n < rest)}
