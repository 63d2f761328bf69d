"""Requests to the hub and their responses, until the connection is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine
from typing import Any

from ray_multicluster_scheduler.tasks.wire.connection import LISTENERS, ConnectionLost, HubConnection
from ray_multicluster_scheduler.tasks.wire.hub import Response
from ray_multicluster_scheduler.tasks.wire.serialization import INLINE_BYTES

#: Limits of a batch, so that its first request starts soon.
BATCH_REQUESTS = 256
BATCH_BYTES = 4 * 2**20
#: Batches without a reply. The hub replies soon, so this delays little, and it makes batches larger.
MAX_BATCHES_IN_FLIGHT = 2


class Request:
    """One request: its number, its message and a future of its response."""

    __slots__ = ("message", "number", "response", "sent", "size")

    def __init__(self, number: int, message: tuple[Any, ...], size: int) -> None:
        self.number = number
        self.message = message
        self.size = size
        self.sent = False
        self.response: asyncio.Future[tuple[bool, Any]] = asyncio.get_running_loop().create_future()


class RequestChannel:
    """Sends posted requests in batches and completes them when responses arrive."""

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count()
        self._pending: dict[int, Request] = {}
        self._outbox: deque[Request] = deque()
        self._wake = asyncio.Event()
        self._loops: set[asyncio.Task[None]] = set()
        #: Resolves to the reason once the other cluster is lost.
        self.lost: asyncio.Future[str] = asyncio.get_event_loop().create_future()

    def start(self) -> None:
        """Start to send and to listen."""
        self._keep_running(self._send())
        for _ in range(LISTENERS):
            self._keep_running(self._listen())

    def post(self, verb: str, *details: Any, size: int = 0) -> Request:
        """Queue a request; raise `ConnectionLost` if it can no longer be sent."""
        if self.lost.done():
            raise ConnectionLost(self.lost.result(), sent=False)
        number = next(self._numbers)
        request = Request(number, (number, verb, *details), size)
        self._pending[number] = request
        self._outbox.append(request)
        self._wake.set()
        return request

    def fail_all(self, reason: str) -> None:
        """Fail all requests without a response, and all later requests."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        for running in self._loops:
            running.cancel()
        for request in self._pending.values():
            if not request.response.done():
                request.response.set_exception(ConnectionLost(reason, sent=request.sent))
                request.response.exception()  # mark as retrieved: nothing awaits the response to a release
        self._pending.clear()
        self._outbox.clear()

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        running = asyncio.get_running_loop().create_task(work)
        self._loops.add(running)
        running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[None]) -> None:
        """Fail all requests if a loop failed: only the loss of the connection does that."""
        self._loops.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            self.fail_all(_described(error))

    async def _send(self) -> None:
        unanswered: set[asyncio.Future[list[Response]]] = set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                batch, total = self._next_batch()
                reply = self._connection.send(batch)
                reply.add_done_callback(self._replied)
                unanswered.add(reply)
                # Requests posted meanwhile share a batch; and large batches must not fill the memory.
                while len(unanswered) >= (MAX_BATCHES_IN_FLIGHT if total <= INLINE_BYTES else 1):
                    _, unanswered = await asyncio.wait(unanswered, return_when=asyncio.FIRST_COMPLETED)

    def _next_batch(self) -> tuple[list[Any], int]:
        batch, total = list[Any](), 0
        while self._outbox and len(batch) < BATCH_REQUESTS and total < BATCH_BYTES:
            request = self._outbox.popleft()
            request.sent = True
            batch.append(request.message)
            total += request.size
        return batch, total

    def _replied(self, reply: asyncio.Future[list[Response]]) -> None:
        if reply.cancelled():
            return
        if (error := reply.exception()) is None:
            self._complete(reply.result())
        else:
            self.fail_all(_described(error))

    async def _listen(self) -> None:
        while True:
            self._complete(await self._connection.listen())

    def _complete(self, responses: list[Response]) -> None:
        for number, good, content in responses:
            request = self._pending.pop(number, None)
            if request is not None and not request.response.done():
                request.response.set_result((good, content))


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
