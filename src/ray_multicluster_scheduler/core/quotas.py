"""What one user may have at once, and the words of a refusal."""

from __future__ import annotations

from collections.abc import Mapping

from ray_multicluster_scheduler.model.access import Quota
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall, show

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
