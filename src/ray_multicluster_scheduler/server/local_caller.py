"""Who calls a server that listens on loopback and asks for no token: whoever runs it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ray_multicluster_scheduler.runtime import this_user
from ray_multicluster_scheduler.service.access import Caller, Role


class LocalCaller:
    """Lets every request be one of the user of this process, who may do all."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._caller = Caller(user=this_user(), role=Role.ADMIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its caller."""
        if scope["type"] in {"http", "websocket"}:
            scope.setdefault("state", {})["caller"] = self._caller
        await self._app(scope, receive, send)
