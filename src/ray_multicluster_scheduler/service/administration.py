"""What administrators do: make and revoke tokens, and read the audit trail."""

from __future__ import annotations

from dataclasses import asdict

from ray_multicluster_scheduler.errors import Forbidden, InvalidRequest
from ray_multicluster_scheduler.model.access import Token
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.tokens import Tokens
from ray_multicluster_scheduler.service.views import AuditPage, AuditView, NewTokenView, TokenView
from ray_multicluster_scheduler.store_ports import AccessStore

#: Entries per page: the default and the maximum.
PAGE_ENTRIES = 100
MOST_PAGE_ENTRIES = 1000


class Administration:
    """The tokens and the audit trail of one store, for one caller, who must be an administrator."""

    def __init__(self, tokens: Tokens, store: AccessStore, caller: Caller) -> None:
        if not caller.may(Role.ADMIN):
            raise Forbidden(f"this needs the role 'admin'; {caller.user!r} has {caller.role.word!r}")
        self._tokens = tokens
        self._store = store
        self._caller = caller

    def create_token(self, user: str, role: str, *, expires_s: float | None = None) -> NewTokenView:
        """Make a token. Its secret is in the answer and can never be shown again."""
        made = self._tokens.create(user, _role(role), expires_s=expires_s, by=self._caller)
        return NewTokenView(token=made.secret, **_shown(made.token))

    def list_tokens(self) -> tuple[TokenView, ...]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        return tuple(TokenView(**_shown(token)) for token in self._tokens.list_all())

    def revoke_token(self, token_id: str) -> TokenView:
        """Revoke a token from now on."""
        return TokenView(**_shown(self._tokens.revoke(token_id, by=self._caller)))

    def audit(
        self, *, user: str | None = None, limit: int = PAGE_ENTRIES, cursor: str | None = None
    ) -> AuditPage:
        """Return entries of the audit trail, newest first: all, or those of one user."""
        limit = arguments.whole("limit", limit, least=1)
        if limit > MOST_PAGE_ENTRIES:
            raise InvalidRequest(
                f"limit: a page has {MOST_PAGE_ENTRIES} entries at most; go on with next_cursor"
            )
        found = self._store.audit(
            user=arguments.text_or_none("user", user), before=arguments.cursor(cursor), limit=limit + 1
        )
        page = tuple(AuditView(**asdict(entry)) for entry in found[:limit])
        return AuditPage(entries=page, next_cursor=str(page[-1].id) if len(found) > limit else None)


def _role(word: str) -> Role:
    try:
        return Role.named(arguments.text("role", word))
    except KeyError:
        roles = ", ".join(role.word for role in Role)
        raise InvalidRequest(f"there is no role {arguments.shown(word)}; the roles are {roles}") from None


def _shown(token: Token) -> dict[str, object]:
    fields = asdict(token)
    del fields["digest"]
    return fields
