"""The bridge: one actor without CPUs at home for each other cluster that a driver uses.

Every call to that cluster is a call to the bridge, so its result is an ObjectRef of the home cluster like any
other. The bridge ends with its driver (see `watch_driver`).
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any

import ray
from ray import cloudpickle
from ray._private.client_mode_hook import disable_client_hook
from ray.exceptions import RayActorError, RayError

from ray_multicluster_scheduler.asyncio_tools import wait_for
from ray_multicluster_scheduler.tasks.wire.connection import (
    ConnectionLost,
    ConnectionSpec,
    HubConnection,
    Request,
    RequestChannel,
)
from ray_multicluster_scheduler.tasks.wire.serialization import (
    ValueTransfer,
    actor_lost_error,
    deserialize_error,
    task_lost_error,
)
from ray_multicluster_scheduler.tasks.wire.sessions import Secret

#: A release does not wait longer for a missing call: it was cancelled before it arrived.
LATE_S = 30.0
#: Later calls do not wait longer for a missing call.
GAP_S = 10.0


# Ray starts the calls of a handle in the order in which they were made. But the bridge is an async actor, and
# Ray delivers calls to async actors in any order. So a call may arrive before the creation of its actor, and
# the release before the last call. Calls carry numbers, and each request waits here for the earlier ones.


class CallerOrder:
    """The order of the calls of one caller, that is, of one copy of a handle."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self._gap_s = gap_s
        self._next = 0
        #: Calls that have arrived and are not sent.
        self._arrived: dict[int, asyncio.Event] = {}
        #: Calls after the next one that were cancelled before their turn.
        self._passed: set[int] = set()

    @asynccontextmanager
    async def in_order(self, number: int) -> AsyncIterator[None]:
        """Wait until all earlier calls have left this context."""
        mine = self._arrived[number] = asyncio.Event()
        try:
            while number > self._next:
                await self._wait(mine)
            yield
        finally:
            del self._arrived[number]
            self._passed.add(number)
            self._wake_next()

    async def _wait(self, mine: asyncio.Event) -> None:
        """Wait for a change; skip the next call if it does not arrive in time."""
        mine.clear()
        woken = await wait_for(mine, None if self._next in self._arrived else self._gap_s)
        if not woken and self._next not in self._arrived:
            self._next = min(self._arrived)
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the next call; if it has not arrived, wake all, which then wait for it for `gap_s`."""
        while self._next in self._passed:
            self._next += 1
        self._passed = {number for number in self._passed if number > self._next}
        next_one = self._arrived.get(self._next)
        for each in [next_one] if next_one is not None else self._arrived.values():
            each.set()


class ActorOrder:
    """The order of the requests for one actor."""

    def __init__(self, late_s: float = LATE_S) -> None:
        self._late_s = late_s
        self._created = asyncio.Event()
        self._problem: BaseException | None = None
        self._callers: defaultdict[str, CallerOrder] = defaultdict(CallerOrder)
        self._arrived = 0
        self._departed = 0
        self._changed = asyncio.Event()

    @contextmanager
    def creation(self) -> Iterator[None]:
        """Delay calls until the creation is sent; if that fails, they fail too."""
        try:
            yield
        except BaseException as problem:
            self._problem = problem
            raise
        finally:
            self._created.set()

    async def wait_until_created(self) -> None:
        """Wait until the creation is sent or has failed."""
        await self._created.wait()

    @asynccontextmanager
    async def call(self, position: tuple[str, int] | None) -> AsyncIterator[None]:
        """Wait until a call may be sent; `position` is caller and number, None if unordered."""
        self._arrived += 1
        try:
            await self.wait_until_created()
            if self._problem is not None:
                raise RayActorError(error_msg=f"the actor could not be created: {self._problem!r}")
            async with self._callers[position[0]].in_order(position[1]) if position else nullcontext():
                yield
        finally:
            self._departed += 1
            self._changed.set()

    async def all_sent(self, calls: int) -> bool:
        """Wait until this many calls were sent or have failed; False if some never arrived."""
        await self.wait_until_created()
        while self._departed < calls:
            self._changed.clear()
            late_s = self._late_s if self._departed == self._arrived else None
            if not await wait_for(self._changed, late_s) and self._departed == self._arrived:
                return False
        return True


CLOSE_TIMEOUT_S = 5.0
#: The bridge ends if no driver has called `watch_driver` by then.
UNWATCHED_S = 60.0
#: Killed actors to remember: calls to a forgotten one would wait for its creation for ever.
MAX_KILLED = 10_000

#: Whether a task may run at home after its cluster was lost: never, only if it was not sent, always.
NEVER, IF_UNSENT, ALWAYS = "never", "if unsent", "always"


class Bridge:
    """Forwards calls to the hub of one cluster and returns their results at home."""

    def __init__(self, target: ConnectionSpec) -> None:
        self._cluster = target.name
        self._connection = HubConnection(target)
        self._values = ValueTransfer(self._connection, target.bridge_id)
        self._requests = RequestChannel(self._connection)
        self._code: dict[str, bytes] = {}
        self._code_known: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._tasks: dict[str, Request] = {}
        self._orders: defaultdict[str, ActorOrder] = defaultdict(ActorOrder)
        #: Actors that were killed: calls to them fail at once.
        self._killed: OrderedDict[str, None] = OrderedDict()
        self._is_closed = asyncio.Event()
        self._me = ray.get_runtime_context().current_actor
        self._watching: asyncio.Task[None] | None = None
        self._unwatched = asyncio.get_event_loop().call_later(UNWATCHED_S, self._exit)

    async def open(self, token: Secret) -> dict[str, Any]:
        """Connect to the cluster and return the process ids of bridge and hub.

        The token comes with this call and not with the constructor: the home cluster keeps the arguments of a
        constructor in its GCS for as long as it remembers the actor.
        """
        hub = await self._connection.open(token)
        self._requests.start()
        return {"hub": hub, "pid": os.getpid()}

    async def watch_driver(self, closed: Sequence[Any]) -> None:
        """End with the driver: `closed` holds a ref to the result of `Bridge.closed`, owned by the driver.

        The bridge is a detached actor. Ray would kill any other actor with its driver, before it could
        disconnect. The other cluster would take that for a broken connection, and keep the driver's actors
        while it waits for a reconnect.
        """
        self._unwatched.cancel()
        self._watching = asyncio.create_task(self._close_after(closed[0]))

    async def closed(self) -> None:
        """Wait until the bridge is closed."""
        await self._is_closed.wait()

    async def lost(self) -> str:
        """Wait until the other cluster is lost, and return why."""
        return await asyncio.shield(self._requests.lost)

    async def close(self) -> None:
        """Disconnect, which ends everything that was started through this bridge."""
        self._is_closed.set()
        self._requests.fail_all("the scheduler was stopped")
        await asyncio.wait_for(self._connection.close(), CLOSE_TIMEOUT_S)

    async def register_code(self, digest: str, code: bytes) -> None:
        """Store a function or a class under its digest, and send it to the hub."""
        self._code[digest] = code
        self._code_known[digest].set()
        with suppress(ConnectionLost):
            self._requests.post("register_code", digest, code, size=len(code))

    async def run(
        self,
        task_id: str,
        digest: str,
        options: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        fallback: str,
    ) -> Any:
        """Run a task on the other cluster, or at home if that is lost and `fallback` allows it."""
        try:
            await self._code_known[digest].wait()
            payload, replacements, size = await self._values.serialize_arguments(args, kwargs)
            request = self._requests.post("run", digest, options, payload, replacements, size=size)
            self._tasks[task_id] = request
            return _returned(await self._response(request), options)
        except ConnectionLost as lost:
            if fallback == NEVER or (fallback == IF_UNSENT and lost.sent):
                raise task_lost_error(self._cluster, str(lost), sent=lost.sent) from None
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
        """Start an actor on the other cluster and return its Ray id."""
        try:
            with self._orders[key].creation():
                await self._code_known[digest].wait()
                payload, replacements, size = await self._values.serialize_arguments(args, kwargs)
            request = self._requests.post("create", key, digest, options, payload, replacements, size=size)
            actor_id: str = (await self._response(request))[0]
        except ConnectionLost as lost:
            raise actor_lost_error(self._cluster, str(lost), sent=lost.sent) from None
        return actor_id

    async def call(
        self,
        key: str,
        method: str,
        position: tuple[str, int] | None,
        options: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a method of an actor; `position` is caller and number of the call, None if unordered."""
        if key in self._killed:
            raise RayActorError(error_msg=f"actor {key} was killed")
        try:
            async with self._orders[key].call(position):
                payload, replacements, size = await self._values.serialize_arguments(args, kwargs)
                request = self._requests.post("call", key, method, options, payload, replacements, size=size)
            return _returned(await self._response(request), options)
        except ConnectionLost as lost:
            raise actor_lost_error(self._cluster, str(lost), sent=lost.sent) from None

    async def force_cancel(self, task_id: str) -> None:
        """Force-cancel a task on the other cluster; the caller also uses `ray.cancel` on its result."""
        if task_id in self._tasks:
            with suppress(ConnectionLost):
                self._requests.post("cancel", self._tasks[task_id].number, True)  # noqa: FBT003

    async def kill(self, key: str, *, no_restart: bool) -> None:
        """Kill an actor; if its cluster is lost, the actor has ended."""
        if key in self._orders:
            await self._orders[key].wait_until_created()
        with suppress(ConnectionLost):
            await self._response(self._requests.post("kill", key, no_restart))
        if no_restart:
            self._orders.pop(key, None)
            self._killed[key] = None
            if len(self._killed) > MAX_KILLED:
                self._killed.popitem(last=False)

    async def release(self, key: str, calls: int) -> None:
        """Release an actor without handles: it ends after the calls that were made."""
        if key in self._killed:
            return
        if await self._orders[key].all_sent(calls):
            self._orders.pop(key, None)
        with suppress(ConnectionLost):
            self._requests.post("release", key)

    async def _close_after(self, closed: Any) -> None:
        with suppress(RayError):
            await closed
            return  # the driver has closed the bridge, and kills it
        with suppress(asyncio.TimeoutError, ConnectionError):
            await self.close()
        self._exit()

    def _exit(self) -> None:
        with disable_client_hook():
            ray.kill(self._me)

    async def _response(self, request: Request) -> list[Any]:
        """Wait for the response to a request and return its values, or raise its error."""
        try:
            good, content = await request.response
        except asyncio.CancelledError:  # by ray.cancel of the caller
            with suppress(ConnectionLost):
                self._requests.post("cancel", request.number, False)  # noqa: FBT003
            raise
        if not good:
            raise deserialize_error(content)
        return [await self._values.deserialize_result(part) for part in content]

    async def _run_at_home(
        self, digest: str, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        with disable_client_hook():  # else Ray Client would use the lost cluster
            function = ray.remote(cloudpickle.loads(self._code[digest]))
            refs = function.options(**options).remote(*args, **kwargs)
        return _returned([await ref for ref in (refs if isinstance(refs, list) else [refs])], options)


def _returned(values: list[Any], options: Mapping[str, Any]) -> Any:
    """Return values the way a remote function does."""
    return values[0] if options.get("num_returns", 1) == 1 else tuple(values)
