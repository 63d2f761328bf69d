"""Logs as Ray's clients read them: all at once, and over a websocket as they grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import Depends
from fastapi.routing import APIWebSocketRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from ray_multicluster_scheduler.errors import JobNotFound, SchedulerError
from ray_multicluster_scheduler.server.ray_jobs import found
from ray_multicluster_scheduler.server.ray_route import RayJSON, RayRoutes, refusal, refusal_of
from ray_multicluster_scheduler.server.request_caller import allowed, service_of
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService

#: Ray's frames have at most about this many characters.
FRAME_CHARS = 20_000
NORMAL, TROUBLE = 1000, 1011
_LOGS, _TAIL = "/api/jobs/{submission_id}/logs", "/api/jobs/{submission_id}/logs/tail"

routes = RayRoutes()


@routes.on("GET", _LOGS, role=Role.READ)
async def logs(request: Request) -> Response:
    """Return the log so far, over all attempts; empty while there is none."""
    service = service_of(request)
    job = await run_in_threadpool(found, request, service)
    return RayJSON({"logs": await service.whole_log(job.submission_id)})


@routes.on("GET", _TAIL, role=Role.READ)
def tail_without_upgrade(request: Request) -> Response:
    """Say that this path wants a websocket."""
    found(request, service_of(request))
    return refusal(400, "WebSocket proxy error: this path is a websocket; ask for an upgrade")


async def tail(websocket: WebSocket, service: Annotated[LocalService, Depends(allowed(Role.READ))]) -> None:
    """Send the log as it grows, over all attempts, and close when the job's end can be read."""
    try:
        job = await run_in_threadpool(found, websocket, service)
    except JobNotFound as error:
        await websocket.send_denial_response(refusal_of(error))
        return
    await websocket.accept()
    sending = asyncio.create_task(_send(websocket, service.tail_async(job.submission_id)))
    leaving = asyncio.create_task(_left(websocket))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    if sending.done() and not sending.cancelled():
        await websocket.close(sending.result())


async def _send(websocket: WebSocket, pieces: AsyncIterator[str]) -> int:
    """Send pieces as frames; return the code to close with."""
    try:
        async with aclosing(pieces):  # type: ignore[type-var]
            async for piece in pieces:
                for start in range(0, len(piece), FRAME_CHARS):
                    await websocket.send_text(piece[start : start + FRAME_CHARS])
    except JobNotFound:
        return NORMAL  # it was deleted: there will be no more
    except WebSocketDisconnect:
        return NORMAL  # the client has gone while it was sent something
    except SchedulerError:
        return TROUBLE
    return NORMAL


async def _left(websocket: WebSocket) -> None:
    """Return when the client has gone; what it says is not looked at."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


routes.append(APIWebSocketRoute(_TAIL, tail))
