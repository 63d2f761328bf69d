"""Who calls: every call of a Ray Client shows the token of its user, in the metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from ray_multicluster_scheduler.service.caller import Caller
from ray_multicluster_scheduler.service.refused_logins import RefusedLogins
from ray_multicluster_scheduler.service.tokens import Authenticator

log = logging.getLogger(__name__)

BEARER = "Bearer "
_ADVICE = (
    "this server wants a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or pass "
    "_metadata=[('authorization', 'Bearer TOKEN')] to ray.init; whoever runs the server makes one with "
    "`raymc token create`"
)
_INVALID = "this token is not valid, or not any more; ask whoever runs this server for another one"
#: Lookups of tokens at once. A flood of wrong ones must not take the threads of others.
LOOKUPS = 4


class NotAuthenticated(Exception):
    """The call shows no valid token."""


class Callers:
    """Authenticates calls. Without tokens, a server that only this machine can reach knows one caller."""

    def __init__(
        self, authenticator: Authenticator, *, always: bool, local: Caller, logins: RefusedLogins
    ) -> None:
        """`always`: other machines can reach this server. `local`: the caller without a token."""
        self._authenticator = authenticator
        self._always = always
        self._local = local
        self._logins = logins
        self._lookups = asyncio.Semaphore(LOOKUPS)

    async def of(self, metadata: Mapping[str, str], address: str) -> Caller:
        """Return the caller; raises `NotAuthenticated` with the reason for the program."""
        if not (self._always or await self._required()):
            return replace(self._local, address=address)
        shown = metadata.get("authorization", "")
        if not shown:
            log.warning("a Ray Client from %s shows no token and is refused", address)
            raise NotAuthenticated(_ADVICE)
        credential = shown.removeprefix(BEARER)
        caller = await self._authenticate(credential) if shown.startswith(BEARER) else None
        if caller is None:
            await self._note(address)
            raise NotAuthenticated(_INVALID)
        return replace(caller, address=address)

    async def is_valid(self, authorization: str) -> bool:
        """Tell whether a caller with this authorization may still call."""
        if not (self._always or await self._required()):
            return True
        return await self._authenticate(authorization.removeprefix(BEARER)) is not None

    def at_once(self, metadata: Mapping[str, str]) -> Caller | None:
        """Return the caller if that needs no lookup; None: it does, or the call will be refused."""
        if not self._authenticator.ready():
            return None
        if not (self._always or self._authenticator.required()):
            return self._local
        credential = metadata.get("authorization", "").removeprefix(BEARER)
        if not credential or not self._authenticator.ready(credential):
            return None
        return self._authenticator.authenticate(credential)

    async def _required(self) -> bool:
        if self._authenticator.ready():
            return self._authenticator.required()
        async with self._lookups:
            return await asyncio.to_thread(self._authenticator.required)

    async def _authenticate(self, credential: str) -> Caller | None:
        if self._authenticator.ready(credential):
            return self._authenticator.authenticate(credential)
        async with self._lookups:
            return await asyncio.to_thread(self._authenticator.authenticate, credential)

    async def _note(self, address: str) -> None:
        log.warning("a Ray Client from %s shows an invalid token and is refused", address)
        if self._logins.count(address):
            async with self._lookups:
                await asyncio.to_thread(self._logins.record, address)
