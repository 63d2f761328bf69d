"""What becomes of jobs, as it happens: their changes and their logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Header
from starlette.requests import HTTPConnection
from starlette.responses import Response

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.server.streaming_responses import (
    EVENT_STREAM,
    SENT,
    TEXT,
    LastEventId,
    Stream,
    begun,
    event,
    following,
    number_of,
    server_sent,
    stopping_of,
)
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import JobView

router = APIRouter(prefix="/api/v1", tags=["streams"])
Reading = Annotated[LocalService, Depends(allowed(Role.READ))]
_TAIL: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": TEXT, SENT: TEXT}, "description": "The log as it grows."}
}


@router.post("/jobs/changes", summary="Wait for jobs", response_class=Response, responses=EVENT_STREAM)
async def changes(service: Reading, connection: HTTPConnection, given: bodies.Changes) -> Stream:
    """Send each `{"jobs": {id: job}}` that changed: first all, none every `tick_s`; ends when all ended."""
    found = service.changes_async(given.submission_ids, timeout_s=given.timeout_s, tick_s=given.tick_s)
    return Stream.of_events(server_sent(_changes(await begun(found), stopping_of(connection))))


async def _changes(
    found: AsyncGenerator[Mapping[str, JobView], None], stopping: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    known: Mapping[str, JobView] = {}
    async with aclosing(following(found, stopping)) as states:
        async for jobs in states:
            if jobs is not None:
                yield event({"jobs": dict(_unlike(jobs, known))})
                known = jobs


def _unlike(jobs: Mapping[str, JobView], known: Mapping[str, JobView]) -> Iterator[tuple[str, JobView]]:
    """Yield what differs: a job may be read again and be the same, when its events come one by one."""
    for name, job in jobs.items():
        before = known.get(name)
        if before is not job and before != job:
            yield name, job


@router.get(
    "/jobs/{submission_id}/logs/tail", summary="The log as it grows", response_class=Response, responses=_TAIL
)
async def tail(
    service: Reading,
    connection: HTTPConnection,
    submission_id: str,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: LastEventId = None,
) -> Stream:
    """Send the log from its start, over all attempts, until the job has ended.

    Plain text; with `Accept: text/event-stream` events of `{"text": ...}`, and one named `end` when the job
    has ended. Their ids count characters, and `Last-Event-ID` goes on after them. A text that ends without
    the end of its last chunk was cut off, because the server was stopped.
    """
    if not await to_thread.run_sync(service.get_many, [submission_id]):
        raise JobNotFound(submission_id)
    pieces = following(
        cast(AsyncGenerator[str, None], service.tail_async(submission_id)), stopping_of(connection)
    )
    if SENT in accept:
        return Stream.of_events(server_sent(_events_of(pieces, number_of(last_event_id) or 0)))
    return Stream(_text_of(pieces), "text/plain; charset=utf-8")


async def _events_of(pieces: AsyncGenerator[str | None, None], skip: int) -> AsyncGenerator[bytes, None]:
    passed = 0
    async with aclosing(pieces):
        async for piece in pieces:
            fresh = (piece or "")[max(0, skip - passed) :]
            passed += len(piece or "")
            yield event({"text": fresh}, event_id=passed) if fresh else b""
    yield event({}, name="end", event_id=passed)


async def _text_of(pieces: AsyncGenerator[str | None, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        async for piece in pieces:
            if piece:
                yield piece.encode(errors="replace")
