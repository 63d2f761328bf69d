"""What administrators see: tokens, users and the audit trail."""

from __future__ import annotations

from ray_multicluster_scheduler.service.views import View


class TokenView(View):
    """A token without its secret, which nobody can get any more."""

    id: str
    user: str
    role: str
    created_at: float
    #: None: never.
    expires_at: float | None
    revoked_at: float | None
    #: To the hour; None: not yet.
    used_at: float | None


class NewTokenView(TokenView):
    """A token that was just made. This is the only time that its secret is shown."""

    token: str


class UserView(View):
    """Somebody who has a token, a quota or open jobs."""

    user: str
    #: Of the tokens that are valid now, each once.
    roles: tuple[str, ...]
    #: How many of these tokens there are.
    tokens: int
    open_jobs: int
    #: What the open jobs claim together, `memory` in bytes.
    claimed: dict[str, float]
    #: What is allowed at once; None, or a resource that is not named: no limit.
    quota_jobs: int | None
    quota_resources: dict[str, float]


class AuditView(View):
    """Who did what to what, from where, and what came of it."""

    id: int
    at: float
    user: str | None
    token_id: str | None
    action: str
    target: str
    outcome: str
    address: str | None


class AuditPage(View):
    """Some entries of the audit trail, newest first; `next_cursor` gets the following ones."""

    entries: tuple[AuditView, ...]
    next_cursor: str | None
