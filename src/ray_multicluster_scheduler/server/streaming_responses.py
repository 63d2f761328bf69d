"""Streaming responses: server-sent events and growing text.

Nothing is buffered for a slow reader: the next piece is fetched when the last one was taken. When the server
stops, its streams end without a terminator, which tells clients to reconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, TypeVar, cast

from fastapi import Header
from pydantic_core import to_json
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ray_multicluster_scheduler.asyncio_tools import cancel_all
from ray_multicluster_scheduler.errors import InvalidRequest, SchedulerError
from ray_multicluster_scheduler.service.error_json import error_json

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
