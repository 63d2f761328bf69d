"""Tokens, users and the audit trail, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from ray_multicluster_scheduler.model import access
from ray_multicluster_scheduler.server.authentication import allowed
from ray_multicluster_scheduler.server.v1.bodies import Body
from ray_multicluster_scheduler.service.administration import (
    MOST_PAGE_ENTRIES,
    PAGE_ENTRIES,
    AuditPage,
    UserView,
)
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import View

router = APIRouter(prefix="/api/v1", tags=["administration"])
Administering = Annotated[LocalService, Depends(allowed(Role.ADMIN))]


class TokenRequest(Body):
    """Whose token it is to be."""

    user: Annotated[str, Field(description="Whose token it is.")]
    role: Annotated[str, Field(description="read, read-all, submit, operate or admin.")]
    expires_s: Annotated[float | None, Field(description="For how long it is valid; null: for ever.")] = None


class TokenList(View):
    """All tokens, oldest first."""

    tokens: tuple[access.Token, ...]


class UserList(View):
    """All users, by name."""

    users: tuple[UserView, ...]


@router.get("/users", summary="Who has a token, a quota or open jobs")
def users(service: Administering) -> UserList:
    """Return what each user may do, has at once, and may have at once."""
    return UserList(users=service.admin.users())


@router.get("/tokens", summary="All tokens, without their secrets")
def list_tokens(service: Administering) -> TokenList:
    """Return all tokens; those that are of no use any more as well."""
    return TokenList(tokens=service.admin.list_tokens())


@router.post("/tokens", status_code=201, summary="Make a token")
def create_token(service: Administering, given: TokenRequest) -> access.NewToken:
    """Make a token. Its secret is in this answer only; a digest of it is kept."""
    return service.admin.create_token(given.user, given.role, expires_s=given.expires_s)


@router.delete("/tokens/{token_id}", summary="Revoke a token")
def revoke_token(service: Administering, token_id: str) -> access.Token:
    """Let a token be of no use from now on."""
    return service.admin.revoke_token(token_id)


@router.get("/audit", summary="Who has changed what, newest first")
def audit(
    service: Administering,
    user: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PAGE_ENTRIES)] = PAGE_ENTRIES,
    cursor: str | None = None,
) -> AuditPage:
    """Return entries of the audit trail: all, or those of one user."""
    return service.admin.audit(user=user, limit=limit, cursor=cursor)
