"""What happens to all jobs: read, waited for, or followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Query
from starlette.requests import HTTPConnection
from starlette.responses import Response

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.server.streaming_responses import (
    EVENT_STREAM,
    LastEventId,
    Stopping,
    Stream,
    event,
    following,
    next_of,
    number_of,
    server_sent,
    stopping_of,
)
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.query import EVENTS, MOST_EVENTS
from ray_multicluster_scheduler.service.views import EventView

router = APIRouter(prefix="/api/v1", tags=["events"])
Reading = Annotated[LocalService, Depends(allowed(Role.READ))]
After = Annotated[int, Query(ge=0, le=2**53, description="Only what came after this event.")]
#: The longest wait for news.
MOST_WAIT_S = 60.0


@router.get("/events", summary="What has happened to all jobs")
def events(
    service: Reading,
    after: After = 0,
    limit: Annotated[int, Query(ge=0, le=MOST_EVENTS)] = EVENTS,
) -> bodies.EventList:
    """Return what has happened, in order, to all jobs that the caller sees."""
    return bodies.EventList(events=service.events(after=after, limit=limit))


@router.get(
    "/events/stream", summary="What happens, as it happens", response_class=Response, responses=EVENT_STREAM
)
async def stream(
    service: Reading,
    connection: HTTPConnection,
    after: Annotated[
        int | None, Query(ge=0, le=2**53, description="Begin after this event; by default with the next.")
    ] = None,
    last_event_id: LastEventId = None,
) -> Stream:
    """Send every move of every job that the caller sees; `Last-Event-ID` goes on where it broke off."""
    known = number_of(last_event_id)
    found = service.events_async(after=after if known is None else known)
    return Stream.of_events(server_sent(_events(found, stopping_of(connection))))


async def _events(
    found: AsyncGenerator[EventView, None], stopping: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    async with aclosing(following(found, stopping)) as views:
        async for view in views:
            yield b"" if view is None else event(view, event_id=view.id)


@router.get("/news", summary="Wait until something happens")
async def news(
    service: Reading,
    connection: HTTPConnection,
    after: After,
    timeout_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S, allow_inf_nan=False)] = 0.0,
) -> bodies.News:
    """Return the newest event once there is one after this, or when the time is over. No thread waits."""
    newest = partial(service.news, after, timeout_s=0)
    found = await to_thread.run_sync(newest)
    if found <= after and timeout_s > 0:
        views = following(service.events_async(after=after), stopping_of(connection))
        async with aclosing(views):
            with suppress(asyncio.TimeoutError, Stopping):
                await within(timeout_s, next_of(views))
        found = await to_thread.run_sync(newest)
    return bodies.News(newest=found)
