"""Calls on their way to the hub and answers on their way back, until the link is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine
from typing import Any

from ray_multicluster_scheduler.tasks.wire.connection import LISTENERS, Link, LinkLost
from ray_multicluster_scheduler.tasks.wire.hub import Answer
from ray_multicluster_scheduler.tasks.wire.parcel import INLINE_BYTES

#: One batch has at most this much, so that the first of its calls starts soon.
BATCH_CALLS = 256
BATCH_BYTES = 4 * 2**20
#: Batches without a reply. The hub replies soon: this keeps nothing back for long, and makes batches large.
BATCHES = 2


class Call:
    """One call: its number and message, and the answer when there is one."""

    __slots__ = ("answer", "message", "number", "sent", "size")

    def __init__(self, number: int, message: tuple[Any, ...], size: int) -> None:
        self.number = number
        self.message = message
        self.size = size
        self.sent = False
        self.answer: asyncio.Future[tuple[bool, Any]] = asyncio.get_running_loop().create_future()


class Calls:
    """Sends what is posted in batches, as fast as the link takes them, and completes it when answers come."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count()
        self._open: dict[int, Call] = {}
        self._outbox: deque[Call] = deque()
        self._wake = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        #: Why the other cluster is lost, once it is.
        self.lost: asyncio.Future[str] = asyncio.get_event_loop().create_future()

    def start(self) -> None:
        """Begin to send and to listen."""
        self._keep_running(self._send())
        for _ in range(LISTENERS):
            self._keep_running(self._listen())

    def post(self, verb: str, *details: Any, size: int = 0) -> Call:
        """Hand a call to the sender; raises `LinkLost` when it can no longer be sent."""
        if self.lost.done():
            raise LinkLost(self.lost.result(), sent=False)
        number = next(self._numbers)
        call = Call(number, (number, verb, *details), size)
        self._open[number] = call
        self._outbox.append(call)
        self._wake.set()
        return call

    def give_up(self, reason: str) -> None:
        """Fail all calls without an answer, and all later ones."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        for running in self._working:
            running.cancel()
        for call in self._open.values():
            if not call.answer.done():
                call.answer.set_exception(LinkLost(reason, sent=call.sent))
                call.answer.exception()  # nobody waits for the answer to a release: that is no mistake
        self._open.clear()
        self._outbox.clear()

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        running = asyncio.get_running_loop().create_task(work)
        self._working.add(running)
        running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[None]) -> None:
        """Work fails only when the link does, whatever that raises."""
        self._working.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            self.give_up(_told(error))

    async def _send(self) -> None:
        unanswered: set[asyncio.Future[list[Answer]]] = set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                batch, total = self._next_batch()
                reply = self._link.send(batch)
                reply.add_done_callback(self._replied)
                unanswered.add(reply)
                # What is posted meanwhile goes together; and a flood of data must not fill our memory.
                while len(unanswered) >= (BATCHES if total <= INLINE_BYTES else 1):
                    _, unanswered = await asyncio.wait(unanswered, return_when=asyncio.FIRST_COMPLETED)

    def _next_batch(self) -> tuple[list[Any], int]:
        batch, total = list[Any](), 0
        while self._outbox and len(batch) < BATCH_CALLS and total < BATCH_BYTES:
            call = self._outbox.popleft()
            call.sent = True
            batch.append(call.message)
            total += call.size
        return batch, total

    def _replied(self, reply: asyncio.Future[list[Answer]]) -> None:
        if reply.cancelled():
            return
        if (error := reply.exception()) is None:
            self._complete(reply.result())
        else:
            self.give_up(_told(error))

    async def _listen(self) -> None:
        while True:
            self._complete(await self._link.listen())

    def _complete(self, answers: list[Answer]) -> None:
        for number, good, content in answers:
            call = self._open.pop(number, None)
            if call is not None and not call.answer.done():
                call.answer.set_result((good, content))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
