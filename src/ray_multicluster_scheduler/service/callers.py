"""Who calls a server: each request and each call shows a token, or comes from this machine.

A server that only this machine can reach and that has no tokens takes every caller for the user who runs it,
as the library does.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum

from ray_multicluster_scheduler.service.caller import Caller
from ray_multicluster_scheduler.service.refused_logins import RefusedLogins
from ray_multicluster_scheduler.service.tokens import Authenticator

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

    async def of(self, shown: str, address: str | None) -> Caller | Unknown:
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

    def at_once(self, shown: str) -> Caller | None:
        """Return the caller if that needs no lookup; None: it does, or the call will be refused."""
        if not self._authenticator.ready():
            return None
        if not (self._always or self._authenticator.required()):
            return self._local
        credential = shown.removeprefix(BEARER)
        return self._authenticator.authenticate(credential) if self._authenticator.ready(credential) else None

    async def still(self, shown: str, address: str | None) -> Caller | None:
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
