"""Who may use the scheduler, and who has: tokens, quotas, the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.resources import Resources

#: How an audit entry ends when what it tells of has happened.
DONE = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token. Its secret is not: only a digest that proves it."""

    id: str
    user: str
    #: The word of a role; see `service/caller.py`.
    role: str
    #: SHA-256 of the whole token, in hexadecimal digits.
    digest: str = field(repr=False)
    created_at: float
    #: None: never.
    expires_at: float | None = None
    revoked_at: float | None = None
    #: To the hour; None: not yet.
    used_at: float | None = None

    def valid(self, *, now: float) -> bool:
        """Tell whether whoever has this token is let in."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line of the audit trail: who did what to what, from where, and what came of it."""

    #: Given by the store; 0 before that.
    id: int = 0
    at: float
    #: None: nobody was recognised.
    user: str | None
    #: None: the program's own process, or nobody.
    token_id: str | None = None
    action: str
    #: What it was done to: ids of jobs, the name of a cluster, the id of a token.
    target: str = ""
    outcome: str = DONE
    #: Where the request came from; None: this machine, without a server.
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one user may have at once. What is not named is not limited."""

    #: Jobs that have not ended.
    jobs: int | None = None
    #: What these claim together, `memory` in bytes.
    resources: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms the jobs of one call are accepted, checked and written in their transaction."""

    #: By user, `*` for everybody who is not named.
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    #: Whose jobs theirs may depend on; None: everybody's.
    only: str | None = None
    #: Written with the jobs; its target becomes their ids.
    audit: AuditEntry | None = None


#: Without any.
FREELY = Terms()

#: Ids that are named in one audit entry.
_NAMED = 20


def named_ids(submission_ids: Sequence[str]) -> str:
    """Name jobs in one line of bounded length."""
    more = len(submission_ids) - _NAMED
    return " ".join(submission_ids[:_NAMED]) + (f" and {more} more" if more > 0 else "")
