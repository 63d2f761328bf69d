"""Who calls: tokens of users and of jobs, what a request shows to be known, and logins that were refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import threading
from contextlib import suppress
from dataclasses import asdict, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ray_multicluster_scheduler.environment.redact import JOB_TOKEN_PREFIX, TOKEN_PREFIX
from ray_multicluster_scheduler.errors import InvalidRequest, StoreError
from ray_multicluster_scheduler.model.access import AuditEntry, NewToken, StoredToken, Token
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.caller import Caller, Role, audit_entry

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store
    from ray_multicluster_scheduler.store.access import Access

# Tokens of users, with their roles. A token is shown once, when it is made; only its digest is stored.
#
# A token is 256 random bits behind an id, so that a plain SHA-256 protects it: nobody can try them all, and
# a slow hash would only slow down every request.


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


class Tokens:
    """The tokens of one store. Safe for several threads; other processes may make and revoke tokens too."""

    def __init__(self, store: Access, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        #: By id: the token, or None where there is none, and until when that is believed.
        self._known: dict[str, tuple[StoredToken | None, float]] = {}
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
            created_at=now,
            expires_at=None if expires_s is None else now + expires_s,
        )
        target = f"{token_id} ({user}, {role.word})"
        self._store.add_token(token, _digest(secret), audit=audit_entry(by, "token create", target, now=now))
        with self._lock:
            self._required = True
        return NewToken(**asdict(token), token=secret)

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

    def _look_up(self, token_id: str) -> StoredToken | None:
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


# Refused logins for the audit trail. Repeated ones from an address are counted, not recorded one by one.


#: One entry per address in this time.
EVERY_S = 60.0
#: Addresses with a counter of their own.
MOST_ADDRESSES = 1000
ACTION = "login"


class RefusedLogins:
    """Decides which refused login is written down, and writes it. Safe for several threads."""

    def __init__(self, store: Access, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        #: By address: when an entry was written last, and how many were refused since.
        self._told: dict[str | None, tuple[float, int]] = {}

    def count(self, address: str | None) -> bool:
        """Count a login that is refused; tell whether it is to be recorded."""
        with self._lock:
            told_at, since = self._told.get(address, (None, 0))
            if told_at is not None and self._clock.monotonic() - told_at < EVERY_S:
                self._told[address] = told_at, since + 1
                return False
            return True

    def record(self, address: str | None) -> None:
        """Write down that a login was refused, and how many were before it; as far as the store works."""
        with self._lock:
            _, since = self._told.get(address, (0.0, 0))
            if len(self._told) >= MOST_ADDRESSES:
                self._told.clear()
            self._told[address] = self._clock.monotonic(), 0
        before = f"; {since} more since the entry before" if since else ""
        outcome = f"refused: invalid token{before}"
        entry = AuditEntry(at=self._clock.now(), user=None, action=ACTION, outcome=outcome, address=address)
        with suppress(StoreError):
            self._store.record([entry])


# Who calls a server: each request and each call shows a token, or comes from this machine.
#
# A server that only this machine can reach and that has no tokens takes every caller for the user who runs
# it, as the library does.


BEARER = "Bearer "
#: Lookups of tokens at once. A flood of wrong ones must not take the threads that answer others.
LOOKUPS = 4


class Unknown(Enum):
    """Why a caller is not known."""

    MISSING = "no token"
    INVALID = "a token that is not valid, or not any more"


class Callers:
    """Identifies the callers of a server. What they show is written as in an `Authorization` header."""

    def __init__(
        self, authenticator: Authenticator, logins: RefusedLogins, *, always: bool, local: Caller
    ) -> None:
        """`always`: other machines can reach this server. `local`: the caller without a token."""
        self._authenticator = authenticator
        self._logins = logins
        self._always = always
        self._local = local
        self._lookups = asyncio.Semaphore(LOOKUPS)

    async def identify(self, shown: str, address: str | None) -> Caller | Unknown:
        """Return the caller, or why there is none; an invalid token is written down."""
        if not await self._are_asked():
            return replace(self._local, address=address)
        if not shown:
            return Unknown.MISSING
        caller = await self._authenticate(shown)
        if caller is not None:
            return replace(caller, address=address)
        if self._logins.count(address):
            async with self._lookups:
                await asyncio.to_thread(self._logins.record, address)
        return Unknown.INVALID

    def identify_cached(self, shown: str) -> Caller | None:
        """Return the caller if that needs no lookup; None: it does, or the call will be refused."""
        if not self._authenticator.ready():
            return None
        if not (self._always or self._authenticator.required()):
            return self._local
        credential = shown.removeprefix(BEARER)
        return self._authenticator.authenticate(credential) if self._authenticator.ready(credential) else None

    async def identify_again(self, shown: str, address: str | None) -> Caller | None:
        """Return the caller who has shown this before, as of now; None: it is not valid any more."""
        if not await self._are_asked():
            return replace(self._local, address=address)
        caller = await self._authenticate(shown)
        return None if caller is None else replace(caller, address=address)

    async def is_valid(self, shown: str) -> bool:
        """Tell whether a caller who has shown this before may still call."""
        return not await self._are_asked() or await self._authenticate(shown) is not None

    async def _are_asked(self) -> bool:
        if self._always:
            return True
        if self._authenticator.ready():
            return self._authenticator.required()
        async with self._lookups:
            return await asyncio.to_thread(self._authenticator.required)

    async def _authenticate(self, shown: str) -> Caller | None:
        if not shown.startswith(BEARER):
            return None
        credential = shown.removeprefix(BEARER)
        if self._authenticator.ready(credential):
            return self._authenticator.authenticate(credential)
        async with self._lookups:
            return await asyncio.to_thread(self._authenticator.authenticate, credential)


# Tokens of jobs: the program of a job uses its own token to call the server that submitted the job.
#
# Such a token is computed, not stored: it is the job's number with an HMAC by the key of the store, so every
# server on that store can verify it. It stands for the user of the job with the role `submit`, even if that
# user has a higher role, and it is valid until the job ends.


_JOB_TOKEN = re.compile(rf"{JOB_TOKEN_PREFIX}(?P<seq>[1-9][0-9]{{0,17}})_[A-Za-z0-9_-]{{43}}")


class JobTokens:
    """Authenticates the programs of open jobs, and all other callers by `others`."""

    def __init__(self, store: Store, clock: Clock, others: Authenticator) -> None:
        self._store = store
        self._clock = clock
        self._others = others
        self._key = store.access.job_key()
        self._lock = threading.Lock()
        #: By number of the job: its token and who that is, or None where no open job is, and until when
        #: that is believed.
        self._known: dict[int, tuple[tuple[str, Caller] | None, float]] = {}

    def token_of(self, job: Job) -> str:
        """Return the token of a job, the same each time.

        The HMAC covers the id and the user too: a restored store could assign a number again.
        """
        said = "\0".join((str(job.seq), job.submission_id, job.spec.user)).encode()
        proof = base64.urlsafe_b64encode(hmac.digest(self._key, said, hashlib.sha256)).rstrip(b"=")
        return f"{JOB_TOKEN_PREFIX}{job.seq}_{proof.decode()}"

    def ready(self, credential: str | None = None) -> bool:
        """Tell whether `authenticate` (or `required`, without a credential) needs no access to the store."""
        parsed = None if credential is None else _JOB_TOKEN.fullmatch(credential)
        if parsed is None:
            return self._others.ready(credential)
        with self._lock:
            _, until = self._known.get(int(parsed["seq"]), (None, 0.0))
        return self._clock.monotonic() < until

    def required(self) -> bool:
        """Tell whether callers have to show a token at all."""
        return self._others.required()

    def authenticate(self, credential: str) -> Caller | None:
        """Return who has this token; None: it is no token, or its job has ended."""
        parsed = _JOB_TOKEN.fullmatch(credential)
        if parsed is None:
            return self._others.authenticate(credential)
        found = self._look_up(int(parsed["seq"]))
        return found[1] if found and hmac.compare_digest(credential, found[0]) else None

    def _look_up(self, seq: int) -> tuple[str, Caller] | None:
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(seq)
        if known is not None and now < known[1]:
            return known[0]
        found = self._read(seq)
        with self._lock:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[seq] = found, now + BELIEVED_S
        return found

    def _read(self, seq: int) -> tuple[str, Caller] | None:
        # The job of this number, or an earlier one where it is gone: that has another token.
        job = next(iter(self._store.jobs.list(before=seq + 1, limit=1)), None)
        if job is None or job.final:
            return None
        name = job.submission_id
        caller = Caller(user=job.spec.user, role=Role.SUBMIT, token_id=f"job {name}", job=name)
        return self.token_of(job), caller
