"""Tokens of users, with their roles. A token is shown once, when it is made; only its digest is stored.

A token is 256 random bits behind an id, so that a plain SHA-256 protects it: nobody can try them all, and a
slow hash would only slow down every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ray_multicluster_scheduler.environment.redact import TOKEN_PREFIX
from ray_multicluster_scheduler.errors import InvalidRequest, StoreError
from ray_multicluster_scheduler.model.access import Token
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.caller import Caller, Role, audit_entry
from ray_multicluster_scheduler.store_ports import AccessStore

#: How long a lookup in the store is cached, and so how long a token revoked elsewhere may still work here.
BELIEVED_S = 1.0
#: Resolution of the recorded last use: one write per request would be too many.
USED_EVERY_S = 3600.0
#: Tokens in the cache.
MOST_REMEMBERED = 10_000
#: A century: what is meant is "never".
LONGEST_S = 100 * 366 * 86_400.0

_ID_BYTES = 5
_SECRET_BYTES = 32
_TOKEN = re.compile(rf"{TOKEN_PREFIX}(?P<id>[0-9a-f]{{10}})_[A-Za-z0-9_-]{{43}}")
#: Compared with when there is no such token, so that this takes as long.
_NOBODY = hashlib.sha256(b"").hexdigest()


class Authenticator(Protocol):
    """Identifies callers. Another implementation, such as OIDC, would replace `Tokens` here only."""

    def ready(self, credential: str | None = None) -> bool:
        """Tell whether `authenticate` (or `required`, without a credential) answers from memory."""

    def required(self) -> bool:
        """Tell whether callers have to show credentials at all."""

    def authenticate(self, credential: str) -> Caller | None:
        """Return the caller; None: the credentials are invalid, expired or revoked. May read the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token that was just made, with its secret: show it once, keep it nowhere."""

    token: Token
    secret: str

    def __repr__(self) -> str:
        return f"NewToken({self.token!r})"


class Tokens:
    """The tokens of one store. Safe for several threads; other processes may make and revoke tokens too."""

    def __init__(self, store: AccessStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        #: By id: the token, or None where there is none, and until when that is believed.
        self._known: dict[str, tuple[Token | None, float]] = {}
        self._required = False
        self._asked_at: float | None = None

    def create(self, user: str, role: Role, *, expires_s: float | None, by: Caller) -> NewToken:
        """Make a token; its secret is in the answer and nowhere else."""
        user = arguments.text("user", user)
        if expires_s is not None and not 0 < expires_s <= LONGEST_S:
            raise InvalidRequest("a token expires after more than 0 seconds and less than a century")
        now = self._clock.now()
        token_id = secrets.token_hex(_ID_BYTES)
        secret = f"{TOKEN_PREFIX}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        token = Token(
            id=token_id,
            user=user,
            role=role.word,
            digest=_digest(secret),
            created_at=now,
            expires_at=None if expires_s is None else now + expires_s,
        )
        target = f"{token_id} ({user}, {role.word})"
        self._store.add_token(token, audit=audit_entry(by, "token create", target, now=now))
        with self._lock:
            self._required = True
        return NewToken(token=token, secret=secret)

    def list_all(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        return self._store.tokens()

    def revoke(self, token_id: str, *, by: Caller) -> Token:
        """Revoke a token: here at once, in other processes within `BELIEVED_S`."""
        now = self._clock.now()
        audit = audit_entry(by, "token revoke", arguments.text("token id", token_id), now=now)
        revoked = self._store.revoke_token(token_id, now=now, audit=audit)
        with self._lock:
            self._known.pop(token_id, None)
        return revoked

    def ready(self, credential: str | None = None) -> bool:
        """Tell whether `authenticate` (or `required`, without a credential) needs no access to the store."""
        now = self._clock.monotonic()
        with self._lock:
            if credential is None:
                asked_at = self._asked_at
                return self._required or (asked_at is not None and now - asked_at < BELIEVED_S)
            if (parsed := _TOKEN.fullmatch(credential)) is None:
                return True
            token, until = self._known.get(parsed["id"], (None, 0.0))
        return now < until and (token is None or not self._unnoted(token))

    def required(self) -> bool:
        """Tell whether callers have to show a token: as soon as there is one, and then for good.

        This stays so when all tokens are revoked or expired: the server must not become open.
        """
        with self._lock:
            asked_at, now = self._asked_at, self._clock.monotonic()
            if self._required or (asked_at is not None and now - asked_at < BELIEVED_S):
                return self._required
        found = self._store.has_tokens()
        with self._lock:
            self._required = self._required or found
            self._asked_at = now
            return self._required

    def authenticate(self, credential: str) -> Caller | None:
        """Return who has this token; None: it is no token, not known, revoked or expired."""
        parsed = _TOKEN.fullmatch(credential)
        found = self._look_up(parsed["id"]) if parsed else None
        proved = hmac.compare_digest(_digest(credential), _NOBODY if found is None else found.digest)
        if found is None or not proved or not found.valid(now=self._clock.now()):
            return None
        self._note_use(found)
        return Caller(user=found.user, role=Role.named(found.role), token_id=found.id)

    def _look_up(self, token_id: str) -> Token | None:
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(token_id)
        if known is not None and now < known[1]:
            return known[0]
        found = self._store.token(token_id)
        with self._lock:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[token_id] = found, now + BELIEVED_S
        return found

    def _note_use(self, token: Token) -> None:
        if self._unnoted(token):
            used_at = self._hour()
            with suppress(StoreError):  # only informative: a full disk must not refuse callers
                self._store.touch_token(token.id, used_at=used_at)
            with self._lock:
                self._known.pop(token.id, None)

    def _unnoted(self, token: Token) -> bool:
        return token.used_at is None or token.used_at < self._hour()

    def _hour(self) -> float:
        return self._clock.now() // USED_EVERY_S * USED_EVERY_S


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
