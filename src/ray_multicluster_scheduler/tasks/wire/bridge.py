"""The bridge: one actor without CPUs at home for each other cluster that a driver uses.

Every call to that cluster is a call to the bridge, so its result is an ObjectRef of the home cluster like any
other. The bridge ends with its driver (see `watch`).
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray import cloudpickle
from ray._private.client_mode_hook import disable_client_hook
from ray.exceptions import RayActorError, RayError

from ray_multicluster_scheduler.tasks.wire.auth import Secret
from ray_multicluster_scheduler.tasks.wire.cargo import Cargo
from ray_multicluster_scheduler.tasks.wire.connection import Link, LinkLost, Target
from ray_multicluster_scheduler.tasks.wire.errors import actor_lost, revive, task_lost
from ray_multicluster_scheduler.tasks.wire.lives import Life
from ray_multicluster_scheduler.tasks.wire.requests import Call, Calls

CLOSE_TIMEOUT_S = 5.0
#: A driver that has not told us by then whom to watch is gone.
UNWATCHED_S = 60.0
#: Killed actors that are remembered: calls to others would wait for a creation that never comes.
MAX_KILLED = 10_000

#: When a task may run at home because its cluster was lost: never, if it was not sent yet, always.
FALLBACKS = NEVER, IF_UNSENT, ALWAYS = "never", "if unsent", "always"


class Bridge:
    """Passes calls to the hub of one cluster and hands their results to whoever asked at home."""

    def __init__(self, target: Target) -> None:
        self._cluster = target.name
        self._link = Link(target)
        self._cargo = Cargo(self._link, target.bridge_id)
        self._calls = Calls(self._link)
        self._code: dict[str, bytes] = {}
        self._learned: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._tasks: dict[str, Call] = {}
        self._lives: defaultdict[str, Life] = defaultdict(Life)
        #: Actors that were killed, for whoever still calls them.
        self._killed: OrderedDict[str, None] = OrderedDict()
        self._is_closed = asyncio.Event()
        self._me = ray.get_runtime_context().current_actor
        self._watching: asyncio.Task[None] | None = None
        self._unwatched = asyncio.get_event_loop().call_later(UNWATCHED_S, self._end)

    async def open(self, token: Secret) -> dict[str, Any]:
        """Connect to the cluster and return which processes serve it.

        The token comes with this call and not with the constructor: the home cluster keeps the arguments of a
        constructor in its GCS for as long as it remembers the actor.
        """
        hub = await self._link.open(token)
        self._calls.start()
        return {"hub": hub, "pid": os.getpid()}

    async def watch(self, closed: Sequence[Any]) -> None:
        """End with the driver: `closed` has the result of our own `closed`, which belongs to the driver.

        The bridge is a detached actor. Ray would end any other one together with its driver, and so hard that
        it could not say goodbye: the other cluster would take it for a broken connection, and keep the
        driver's actors there for the grace of a second session.
        """
        self._unwatched.cancel()
        self._watching = asyncio.create_task(self._follow(closed[0]))

    async def closed(self) -> None:
        """Wait until the bridge is closed."""
        await self._is_closed.wait()

    async def lost(self) -> str:
        """Wait until the other cluster is lost, and return why."""
        return await asyncio.shield(self._calls.lost)

    async def close(self) -> None:
        """End everything on the other cluster that was started through this bridge."""
        self._is_closed.set()
        self._calls.give_up("the scheduler was stopped")
        await asyncio.wait_for(self._link.close(), CLOSE_TIMEOUT_S)

    async def learn(self, digest: str, code: bytes) -> None:
        """Take a function or a class, which later calls name by its digest."""
        self._code[digest] = code
        self._learned[digest].set()
        with suppress(LinkLost):
            self._calls.post("learn", digest, code, size=len(code))

    async def run(
        self,
        task_id: str,
        digest: str,
        options: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        fallback: str,
    ) -> Any:
        """Run a task there; at home instead when that cluster is lost and `fallback` allows it."""
        try:
            await self._learned[digest].wait()
            parcel, contents, size = await self._cargo.pack(args, kwargs)
            call = self._calls.post("run", digest, options, parcel, contents, size=size)
            self._tasks[task_id] = call
            return _returned(await self._answer(call), options)
        except LinkLost as lost:
            if fallback == NEVER or (fallback == IF_UNSENT and lost.sent):
                raise task_lost(self._cluster, str(lost), sent=lost.sent) from None
        finally:
            self._tasks.pop(task_id, None)
        return await self._run_at_home(digest, options, args, kwargs)

    async def create(
        self,
        key: str,
        digest: str,
        options: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> str:
        """Start an actor there and return Ray's id of it."""
        try:
            with self._lives[key].creation():
                await self._learned[digest].wait()
                parcel, contents, size = await self._cargo.pack(args, kwargs)
            call = self._calls.post("create", key, digest, options, parcel, contents, size=size)
            actor_id: str = (await self._answer(call))[0]
        except LinkLost as lost:
            raise actor_lost(self._cluster, str(lost), sent=lost.sent) from None
        return actor_id

    async def call(
        self,
        key: str,
        method: str,
        turn: tuple[str, int] | None,
        options: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a method of an actor there; `turn` is who calls and the number of the call, or None."""
        if key in self._killed:
            raise RayActorError(error_msg=f"actor {key} was killed")
        try:
            async with self._lives[key].call(turn):
                parcel, contents, size = await self._cargo.pack(args, kwargs)
                call = self._calls.post("call", key, method, options, parcel, contents, size=size)
            return _returned(await self._answer(call), options)
        except LinkLost as lost:
            raise actor_lost(self._cluster, str(lost), sent=lost.sent) from None

    async def crush(self, task_id: str) -> None:
        """End the process of a task that runs there; `ray.cancel` on its result does all the rest."""
        if task_id in self._tasks:
            with suppress(LinkLost):
                self._calls.post("cancel", self._tasks[task_id].number, True)  # noqa: FBT003

    async def kill(self, key: str, *, no_restart: bool) -> None:
        """End an actor at once; one whose cluster is lost has ended."""
        if key in self._lives:
            await self._lives[key].created()
        with suppress(LinkLost):
            await self._answer(self._calls.post("kill", key, no_restart))
        if no_restart:
            self._lives.pop(key, None)
            self._killed[key] = None
            if len(self._killed) > MAX_KILLED:
                self._killed.popitem(last=False)

    async def release(self, key: str, calls: int) -> None:
        """Give up an actor of which no handle is left: it ends when the calls that were made are done."""
        if key in self._killed:
            return
        if await self._lives[key].over(calls):
            self._lives.pop(key, None)
        with suppress(LinkLost):
            self._calls.post("release", key)

    async def _follow(self, closed: Any) -> None:
        with suppress(RayError):
            await closed
            return  # the driver has closed it, and ends it now
        with suppress(asyncio.TimeoutError, ConnectionError):
            await self.close()
        self._end()

    def _end(self) -> None:
        with disable_client_hook():
            ray.kill(self._me)

    async def _answer(self, call: Call) -> list[Any]:
        """Wait for the answer to a call and return its values, or raise its error."""
        try:
            good, content = await call.answer
        except asyncio.CancelledError:  # the caller used ray.cancel
            with suppress(LinkLost):
                self._calls.post("cancel", call.number, False)  # noqa: FBT003
            raise
        if not good:
            raise revive(content)
        return [await self._cargo.unpack(part) for part in content]

    async def _run_at_home(
        self, digest: str, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        with disable_client_hook():  # or Ray would look for the cluster that is lost
            function = ray.remote(cloudpickle.loads(self._code[digest]))
            refs = function.options(**options).remote(*args, **kwargs)
        return _returned([await ref for ref in (refs if isinstance(refs, list) else [refs])], options)


def _returned(values: list[Any], options: Mapping[str, Any]) -> Any:
    """Return values the way a remote function does."""
    return values[0] if options.get("num_returns", 1) == 1 else tuple(values)
