"""Tokens and the audit trail of a server, over HTTP: what `service.administration` does in its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic_core import to_json

from ray_multicluster_scheduler.client.http_responses import parsed
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.client.transport import Call, Transport, part
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.admin_views import AuditPage, NewTokenView, TokenView, UserView

T = TypeVar("T")
TOKENS, AUDIT, USERS = "/api/v1/tokens", "/api/v1/audit", "/api/v1/users"
#: Entries per page by default.
PAGE_ENTRIES = 100


class ServerAdministration:
    """The requests of an administrator to a server. The server refuses any other caller."""

    def __init__(self, server: ServerAddress, transport: Transport) -> None:
        self._server = server
        self._transport = transport

    def create_token(self, user: str, role: str, *, expires_s: float | None = None) -> NewTokenView:
        """Make a token. Its secret is in the answer and can never be shown again."""
        body = to_json({"user": user, "role": role, "expires_s": expires_s})
        # Not repeated: a token whose secret nobody has seen would stay valid.
        call = Call(method="POST", path=TOKENS, body=body, repeatable=False)
        return self._ask(NewTokenView.model_validate, call)

    def list_tokens(self) -> tuple[TokenView, ...]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        return self._ask(_tokens, Call(method="GET", path=TOKENS))

    def revoke_token(self, token_id: str) -> TokenView:
        """Revoke a token from now on."""
        path = f"{TOKENS}/{part(arguments.text('token', token_id))}"
        return self._ask(TokenView.model_validate, Call(method="DELETE", path=path))

    def users(self) -> tuple[UserView, ...]:
        """Return everybody who has a token, a quota or open jobs."""
        return self._ask(_users, Call(method="GET", path=USERS))

    def audit(
        self, *, user: str | None = None, limit: int = PAGE_ENTRIES, cursor: str | None = None
    ) -> AuditPage:
        """Return entries of the audit trail, newest first: all, or those of one user."""
        asked = {"user": user, "limit": str(limit), "cursor": cursor}
        query = [(name, value) for name, value in asked.items() if value is not None]
        return self._ask(AuditPage.model_validate, Call(method="GET", path=AUDIT, query=query))

    def _ask(self, parse: Callable[[Any], T], call: Call) -> T:
        return parsed(self._server, parse, self._transport.ask(call))


def _users(answer: Mapping[str, Any]) -> tuple[UserView, ...]:
    return tuple(map(UserView.model_validate, answer["users"]))


def _tokens(answer: Mapping[str, Any]) -> tuple[TokenView, ...]:
    return tuple(map(TokenView.model_validate, answer["tokens"]))
