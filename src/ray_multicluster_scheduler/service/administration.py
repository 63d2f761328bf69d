"""What administrators do: make and revoke tokens, see the users, and read the audit trail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.errors import Forbidden, InvalidRequest
from ray_multicluster_scheduler.model.access import (
    EVERYBODY,
    AuditEntry,
    NewToken,
    OpenJobs,
    Quota,
    Token,
    quota_of,
)
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.auth import Tokens
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.views import View

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

# What administrators see: tokens, users and the audit trail.


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


class AuditPage(View):
    """Some entries of the audit trail, newest first; `next_cursor` gets the following ones."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None


#: Entries per page: the default and the maximum.
PAGE_ENTRIES = 100
MOST_PAGE_ENTRIES = 1000


class Administration:
    """The tokens, users and audit trail of one store, for one caller, who must be an administrator."""

    def __init__(
        self, tokens: Tokens, store: Store, caller: Caller, *, quotas: Mapping[str, Quota], clock: Clock
    ) -> None:
        if not caller.may(Role.ADMIN):
            raise Forbidden(f"this needs the role 'admin'; {caller.user!r} has {caller.role.word!r}")
        self._tokens = tokens
        self._store = store
        self._caller = caller
        self._quotas = quotas
        self._clock = clock

    def create_token(self, user: str, role: str, *, expires_s: float | None = None) -> NewToken:
        """Make a token. Its secret is in the answer and can never be shown again."""
        return self._tokens.create(user, _role(role), expires_s=expires_s, by=self._caller)

    def list_tokens(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        return self._tokens.list_all()

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a token from now on."""
        return self._tokens.revoke(token_id, by=self._caller)

    def users(self) -> tuple[UserView, ...]:
        """Return everybody who has a token, a quota of their own or open jobs, by name."""
        now, valid = self._clock.now(), defaultdict[str, list[Token]](list)
        for token in self._tokens.list_all():
            if token.valid(now=now):
                valid[token.user].append(token)
        open_jobs = self._store.jobs.open_jobs()
        names = {*valid, *open_jobs, *self._quotas} - {EVERYBODY}
        return tuple(self._user(name, valid[name], open_jobs.get(name)) for name in sorted(names))

    def _user(self, name: str, tokens: Sequence[Token], jobs: OpenJobs | None) -> UserView:
        quota, roles = quota_of(name, self._quotas), {token.role for token in tokens}
        return UserView(
            user=name,
            roles=tuple(role.word for role in Role if role.word in roles),
            tokens=len(tokens),
            open_jobs=0 if jobs is None else jobs.count,
            claimed={} if jobs is None else dict(jobs.claim),
            quota_jobs=quota.jobs,
            quota_resources=dict(quota.resources),
        )

    def audit(
        self, *, user: str | None = None, limit: int = PAGE_ENTRIES, cursor: str | None = None
    ) -> AuditPage:
        """Return entries of the audit trail, newest first: all, or those of one user."""
        limit = arguments.whole("limit", limit, least=1)
        if limit > MOST_PAGE_ENTRIES:
            raise InvalidRequest(
                f"limit: a page has {MOST_PAGE_ENTRIES} entries at most; go on with next_cursor"
            )
        found = self._store.access.audit(
            user=arguments.text_or_none("user", user), before=arguments.cursor(cursor), limit=limit + 1
        )
        page = found[:limit]
        return AuditPage(entries=page, next_cursor=str(page[-1].id) if len(found) > limit else None)


def _role(word: str) -> Role:
    try:
        return Role.named(arguments.text("role", word))
    except KeyError:
        roles = ", ".join(role.word for role in Role)
        raise InvalidRequest(f"there is no role {arguments.shown(word)}; the roles are {roles}") from None
