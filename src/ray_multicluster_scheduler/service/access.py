"""Who asks, and what that caller may do. Every door says it to the service with each call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What a caller may do; each role includes those before it."""

    READ = 1  # look at one's own jobs and at the clusters
    SUBMIT = 2  # submit, stop and retry one's own jobs
    OPERATE = 3  # everybody's jobs; drain clusters
    ADMIN = 4  # users and tokens, configuration, retention

    @classmethod
    def named(cls, word: str) -> Role:
        """Return the role of this name; raises KeyError."""
        return cls[word.upper()]

    @property
    def word(self) -> str:
        """The name that people write and read."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who uses the service."""

    user: str
    role: Role = Role.ADMIN
    #: By which token the caller was recognised, for the audit trail; None: the program's own process.
    token_id: str | None = None

    def may(self, role: Role) -> bool:
        """Tell whether this caller has a role or a higher one."""
        return self.role >= role

    def sees(self, user: str) -> bool:
        """Tell whether the jobs of this user exist for this caller."""
        return self.user == user or self.role >= Role.OPERATE
