"""What happens to all jobs: read, waited for, or followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query
from pydantic_core import to_json
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ray_multicluster_scheduler.asyncio_tools import cancel_all, within
from ray_multicluster_scheduler.errors import InvalidRequest, JobNotFound, SchedulerError, error_json
from ray_multicluster_scheduler.model.job import JobEvent
from ray_multicluster_scheduler.server.authentication import allowed
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import EVENTS, MOST_EVENTS
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import JobView

# Streaming responses: server-sent events and growing text.
#
# Nothing is buffered for a slow reader: the next piece is fetched when the last one was taken. When
# the server
# stops, its streams end without a terminator, which tells clients to reconnect.

T = TypeVar("T")
#: A sign of life after so much silence: proxies close what is silent for a minute.
SIGN_OF_LIFE_S = 15.0
_END: Any = object()

SENT = "text/event-stream"
TEXT = {"schema": {"type": "string"}}
#: What OpenAPI says of a route that answers with such a stream.
EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {SENT: TEXT}, "description": "Server-sent events."}
}
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="Go on after this event.", max_length=20)
]


class Stopping(Exception):
    """The server ends."""


class Stream(Response):
    """Sends pieces as they come, until they end, the client goes away, or the server ends."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], media_type: str) -> None:
        super().__init__(
            media_type=media_type, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        del self.headers["content-length"]
        self._pieces = pieces

    @classmethod
    def of_events(cls, events: AsyncGenerator[bytes, None]) -> Stream:
        """Return a stream of server-sent events."""
        return cls(events, SENT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer one request."""
        gone = asyncio.create_task(_gone(receive))
        sending = asyncio.create_task(self._send(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await cancel_all([gone, sending])

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._pieces) as pieces:
            try:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except Stopping:
                return  # without an end: the client sees that the answer was cut, and comes back
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def following(
    stream: AsyncGenerator[T, None], stopping: asyncio.Event
) -> AsyncGenerator[T | None, None]:
    """Yield what a stream yields, and None after each long silence; raises `Stopping`."""
    stopped = asyncio.create_task(stopping.wait())
    upcoming: asyncio.Task[T] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.create_task(next_of(stream))
            await asyncio.wait(
                {upcoming, stopped}, timeout=SIGN_OF_LIFE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if upcoming.done():
                item, upcoming = upcoming.result(), None
                if item is _END:
                    return
                yield item
            elif stopped.done():
                raise Stopping
            else:
                yield None
    finally:
        await cancel_all([task for task in (stopped, upcoming) if task is not None])
        await stream.aclose()


async def begun(stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Return the same stream with its first item fetched: what is wrong is known before an answer begins."""
    first = await next_of(stream)
    return _from(first, stream)


async def _from(first: T, stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    async with aclosing(stream):
        if first is not _END:
            yield first
            async for item in stream:
                yield item


async def next_of(stream: AsyncIterator[T]) -> T:
    """Return what comes next; `_END` when nothing does."""
    return await anext(stream, _END)


def event(data: Any, *, name: str = "", event_id: str | int | None = None) -> bytes:
    """Return one server-sent event."""
    lines = [b"event: " + name.encode()] if name else []
    if event_id is not None:
        lines.append(b"id: " + str(event_id).encode())
    return b"\n".join([*lines, b"data: " + to_json(data), b"", b""])


async def server_sent(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield events; an error of ours becomes the last one, and when the server ends the stream just ends."""
    async with aclosing(events):
        try:
            async for each in events:
                yield each or b": still here\n\n"
        except SchedulerError as error:
            yield event(error_json(error), name="error")
        except Stopping:
            return


def stopping_of(connection: HTTPConnection) -> asyncio.Event:
    """Return what is set when the server is about to end."""
    return cast(asyncio.Event, connection.app.state.stopping)


def number_of(last_event_id: str | None) -> int | None:
    """Return which event a client has seen last."""
    if last_event_id is None:
        return None
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) <= 15):
        raise InvalidRequest("Last-Event-ID is none of ours; take the id of the last event that came")
    return int(last_event_id)


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
    found: AsyncGenerator[JobEvent, None], stopping: asyncio.Event
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


# What becomes of jobs, as it happens: their changes and their logs.


streams_router = APIRouter(prefix="/api/v1", tags=["streams"])
_TAIL: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": TEXT, SENT: TEXT}, "description": "The log as it grows."}
}


@streams_router.post(
    "/jobs/changes", summary="Wait for jobs", response_class=Response, responses=EVENT_STREAM
)
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


@streams_router.get(
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
