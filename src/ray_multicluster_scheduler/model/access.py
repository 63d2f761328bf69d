"""Access to the scheduler: tokens, quotas, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall, show

#: The outcome of an action that succeeded.
DONE = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as everybody sees it. Its secret is not kept, only a digest to verify it."""

    id: str
    user: str
    #: The name of a role; see `service/caller.py`.
    role: str
    created_at: float
    #: None if it never expires.
    expires_at: float | None = None
    revoked_at: float | None = None
    #: The last use, to the hour; None if it was not used yet.
    used_at: float | None = None

    def valid(self, *, now: float) -> bool:
        """Tell whether this token still grants access."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken(Token):
    """A token with what verifies it, which is for nobody to see."""

    #: SHA-256 of the whole token, in hexadecimal digits.
    digest: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(Token):
    """A token that was just made, with its secret: show it once, keep it nowhere."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry of the audit trail: user, action, target, origin and outcome."""

    #: Assigned by the store; 0 before that.
    id: int = 0
    at: float
    #: None if the caller was not authenticated.
    user: str | None
    #: None for a call within the process, and for a caller that was not authenticated.
    token_id: str | None = None
    action: str
    #: Ids of jobs, the name of a cluster, or the id of a token.
    target: str = ""
    outcome: str = DONE
    #: The address of the caller; None for a call on this machine, without a server.
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits on the open jobs of one user. A resource that is not named is not limited."""

    #: Jobs that have not ended.
    jobs: int | None = None
    #: The sum of their claims, `memory` in bytes.
    resources: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJobs:
    """The jobs of a user that have not ended: how many, and what they claim together."""

    count: int
    claim: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Conditions for accepting the jobs of one call, checked in the transaction that writes them."""

    #: By user; `*` applies to every user that is not named.
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    #: The jobs may depend only on jobs of this user; None for jobs of any user.
    only: str | None = None
    #: Written with the jobs; the store sets its target to their ids.
    audit: AuditEntry | None = None


#: No conditions.
FREELY = Terms()

#: Most ids in one audit entry.
_MAX_IDS = 20


def named_ids(submission_ids: Sequence[str]) -> str:
    """List ids of jobs in one line of bounded length."""
    more = len(submission_ids) - _MAX_IDS
    return " ".join(submission_ids[:_MAX_IDS]) + (f" and {more} more" if more > 0 else "")


EVERYBODY = "*"
_NO_QUOTA = Quota()


def quota_of(user: str, quotas: Mapping[str, Quota]) -> Quota:
    """Return what holds for a user: the user's own entry, or else that of everybody."""
    return quotas.get(user) or quotas.get(EVERYBODY) or _NO_QUOTA


def over_quota(
    user: str, quota: Quota, *, jobs: int, more_jobs: int, claimed: Resources, more: Resources
) -> str | None:
    """Say why a user with these open jobs may not have `more` of them now; None: that is within the quota."""
    advice = "wait until some have ended, or stop some; whoever runs this scheduler sets scheduler.quotas"
    if quota.jobs is not None and jobs + more_jobs > quota.jobs:
        return (
            f"{user!r} has {jobs} open job(s) and would have {jobs + more_jobs}; "
            f"the quota is {quota.jobs} at once: {advice}"
        )
    limited = {name: amount for name, amount in more.items() if name in quota.resources}
    wanted = {name: plus(claimed, more)[name] for name in limited}
    beyond = shortfall(wanted, quota.resources)
    if not beyond:
        return None
    name = min(beyond)
    return (
        f"the open jobs of {user!r} claim {show({name: claimed.get(name, 0.0)})} and would claim "
        f"{show({name: wanted[name]})}; the quota is {show({name: quota.resources[name]})} at once: {advice}"
    )
