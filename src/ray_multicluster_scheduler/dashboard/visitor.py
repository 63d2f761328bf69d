"""Who looks at a page. Every read and every action asks anew whether that visitor may still do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from anyio import to_thread

from ray_multicluster_scheduler.errors import NotAuthenticated
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.callers import Callers
from ray_multicluster_scheduler.service.local_service import LocalService

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """The caller behind an open page, and what was shown to prove it."""

    caller: Caller
    #: As an `Authorization` header has it; empty on a server that asks for no token.
    shown: str
    callers: Callers
    service_for: Callable[[Caller], LocalService]

    def may(self, role: Role) -> bool:
        """Tell whether a button for this is worth showing. The service asks again when it is pressed."""
        return self.caller.may(role)

    async def now(self) -> Caller:
        """Return the caller as the token says it now."""
        caller = await self.callers.still(self.shown, self.caller.address)
        if caller is None:
            raise NotAuthenticated("this token is not valid any more; log in with another one")
        return caller

    async def ask(self, question: Callable[[LocalService], T], *, role: Role = Role.READ) -> T:
        """Call the service in a thread, in the name of the visitor as the token says it now.

        `role` is what the question needs: the service trusts whoever calls it with that.
        """
        caller = await self.now()
        caller.check(role)
        return await to_thread.run_sync(partial(question, self.service_for(caller)))
