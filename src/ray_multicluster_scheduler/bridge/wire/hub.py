"""The hub: one actor without CPUs on the other cluster, which starts our work there and collects the results.

It owns what it starts, so everything ends with it; and it ends with the Ray Client session of the bridge.
Calls come in batches. What is done soon goes back with the reply to `submit`: one round trip. The rest goes
out in batches through `take`, where the bridge always waits: a slow call delays no fast one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray import cloudpickle
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from ray_multicluster_scheduler.bridge.wire.faults import portable
from ray_multicluster_scheduler.bridge.wire.parcel import INLINE_BYTES, Parcel, in_band, pack, size_of, unpack

#: One answer carries at most this much, so that it does not keep later ones waiting.
TAKE_BYTES = 8 * 2**20
#: Answers that come this close to each other go out together, if that holds up none of them for long.
PAUSE_S = 0.001
#: So long a reply to `submit` waits for answers.
SOON_S = 0.05
LINGER_S = 0.02
BATCH_ANSWERS = 200

#: The number of a call, whether it went well, and its values or its error.
Answer = tuple[int, bool, Any]


class Hub:
    """Starts tasks and actors for one bridge. All answers carry the number of their call.

    A value in an answer is a parcel with the refs that it mentions, or, when it is large, its own ref.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_event_loop()
        self._next_batch = 0
        self._early: dict[int, Sequence[Any]] = {}
        self._code: dict[str, Any] = {}
        self._actors: dict[str, Any] = {}
        #: Why actors could not be created, for whoever calls them.
        self._stillborn: dict[str, str] = {}
        self._running: dict[int, Sequence[Any]] = {}
        self._answers: deque[Answer] = deque()
        #: Replies that wait for answers; while there are some, answers are left to them.
        self._replies = 0
        self._for_replies = asyncio.Event()
        self._for_takers = asyncio.Event()

    async def about(self) -> dict[str, Any]:
        """Return which process this is, and whether it had to import our package."""
        return {"pid": os.getpid(), "imported": "ray_multicluster_scheduler" in sys.modules}

    async def submit(self, batch_number: int, batch: Sequence[Any]) -> list[Answer]:
        """Start calls, and return answers if there are some soon.

        Batches are numbered, because Ray may run those of an async actor out of order.
        """
        self._early[batch_number] = batch
        while self._next_batch in self._early:
            for number, verb, *details in self._early.pop(self._next_batch):
                # The steps begin in this order, and nothing is awaited before Ray has the call.
                step = self._loop.create_task(getattr(self, f"_{verb}")(number, *details))
                step.add_done_callback(partial(self._finish, number))
            self._next_batch += 1
        self._replies += 1
        try:
            return await self._next_answers(self._for_replies, SOON_S)
        finally:
            self._replies -= 1
            if self._answers and not self._replies:
                self._for_takers.set()

    async def take(self, patience_s: float) -> list[Answer]:
        """Return answers as soon as there are some; nothing after `patience_s`: a sign of life."""
        return await self._next_answers(self._for_takers, patience_s)

    async def _next_answers(self, news: asyncio.Event, patience_s: float) -> list[Answer]:
        ends_at = self._loop.time() + patience_s
        while not self._answers and (left_s := ends_at - self._loop.time()) > 0:
            news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), left_s)
        await self._gather()
        taken, total = list[Answer](), 0
        while self._answers and total < TAKE_BYTES:
            taken.append(self._answers.popleft())
            total += _weight(taken[-1])
        return taken

    async def _gather(self) -> None:
        """Wait for more answers while they keep coming and others are under way: large batches are cheap."""
        ends_at, before = self._loop.time() + LINGER_S, 0
        while self._running and before < len(self._answers) < BATCH_ANSWERS and self._loop.time() < ends_at:
            before = len(self._answers)
            await asyncio.sleep(PAUSE_S)

    def _finish(self, number: int, done: asyncio.Task[list[Any]]) -> None:
        self._running.pop(number, None)
        error = done.exception()
        self._answers.append(
            (number, True, done.result()) if error is None else (number, False, portable(error))
        )
        (self._for_replies if self._replies else self._for_takers).set()

    async def _learn(self, _number: int, digest: str, code: bytes) -> list[Any]:
        """Keep a function or a class, which is sent once and used often."""
        self._code[digest] = code
        return []

    async def _run(
        self, number: int, digest: str, options: Mapping[str, Any], parcel: Parcel, contents: Sequence[Any]
    ) -> list[Any]:
        """Start a task and return its values."""
        args, kwargs = self._unpack(parcel, contents)
        return await self._values(number, self._startable(digest).options(**options).remote(*args, **kwargs))

    async def _create(
        self,
        _number: int,
        key: str,
        digest: str,
        options: Mapping[str, Any],
        parcel: Parcel,
        contents: Sequence[Any],
    ) -> list[Any]:
        """Start an actor and return its id; whether its constructor works shows in its first call."""
        try:
            args, kwargs = self._unpack(parcel, contents)
            actor = self._startable(digest).options(**options).remote(*args, **kwargs)
        except BaseException as problem:
            self._stillborn[key] = repr(problem)
            raise
        self._actors[key] = actor
        return [(in_band(pack(actor._actor_id.hex(), {})), [])]

    async def _call(
        self,
        number: int,
        key: str,
        method: str,
        options: Mapping[str, Any],
        parcel: Parcel,
        contents: Sequence[Any],
    ) -> list[Any]:
        """Call a method of an actor and return its values."""
        args, kwargs = self._unpack(parcel, contents)
        bound = getattr(self._actor(key), method)
        return await self._values(
            number, (bound.options(**options) if options else bound).remote(*args, **kwargs)
        )

    async def _cancel(self, _number: int, call: int, force: bool) -> list[Any]:  # noqa: FBT001
        """Cancel a call that has not ended."""
        for ref in self._running.get(call, ()):
            ray.cancel(ref, force=force)
        return []

    async def _kill(self, _number: int, key: str, no_restart: bool) -> list[Any]:  # noqa: FBT001
        """End an actor at once; one that is not here has ended."""
        if key in self._actors:
            ray.kill(self._actors[key], no_restart=no_restart)
        return []

    async def _release(self, _number: int, key: str) -> list[Any]:
        """Forget an actor: Ray ends it when the calls that it has are done."""
        self._actors.pop(key, None)
        return []

    def _startable(self, digest: str) -> Any:
        """Return a function or class ready to start; what cannot be loaded here fails each call of it."""
        if isinstance(self._code[digest], bytes):
            self._code[digest] = ray.remote(cloudpickle.loads(self._code[digest]))
        return self._code[digest]

    def _actor(self, key: str) -> Any:
        if key not in self._actors:
            why = (
                f"could not be created: {self._stillborn[key]}" if key in self._stillborn else "was given up"
            )
            raise RayActorError(error_msg=f"actor {key} {why}")
        return self._actors[key]

    def _unpack(self, parcel: Parcel, contents: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return arguments; refs came as refs, and actors of this cluster as their keys."""
        here = [self._actor(each) if isinstance(each, str) else each for each in contents]
        args, kwargs = unpack(parcel, here)
        return args, kwargs

    async def _values(self, number: int, returned: Any) -> list[Any]:
        refs = returned if isinstance(returned, list) else [] if returned is None else [returned]
        if not all(isinstance(ref, ray.ObjectRef) for ref in refs):
            raise TypeError("generators do not cross clusters; return a list, or keep the actor at home")
        self._running[number] = refs
        return [await _value(ref) for ref in refs]


async def _value(ref: Any) -> Any:
    """Wait for a value, and return its ref when it is large: then it is sent alone and not copied here."""
    value = await ref
    mentioned: list[Any] = []

    def number_ref(inner: Any) -> int:
        mentioned.append(inner)
        return len(mentioned) - 1

    parcel = pack(value, {ray.ObjectRef: number_ref, ActorHandle: _refuse_actor})
    if size_of(parcel) > INLINE_BYTES and not mentioned:
        return ref
    return in_band(parcel), mentioned


def _refuse_actor(_handle: Any) -> int:
    raise TypeError(
        "an actor handle cannot be returned to another cluster; create the actor with submit_actor"
    )


def _weight(answer: tuple[int, bool, Any]) -> int:
    _, good, content = answer
    if not good:
        return len(content)
    return sum(size_of(part[0]) for part in content if isinstance(part, tuple))
