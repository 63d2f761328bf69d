"""The Ray Client connection of a bridge to the hub: requests, responses and large values."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.util import client as ray_client
from ray.util.client.worker import grpc  # not a dependency of ours, but Ray Client has it

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.tasks.wire.hub import THREADS, Hub, Response
from ray_multicluster_scheduler.tasks.wire.serialization import INLINE_BYTES
from ray_multicluster_scheduler.tasks.wire.sessions import (
    NOT_CONNECTED,
    Secret,
    auth_metadata,
    check_session,
    connect_with_retries,
    session_gate,
    silence_ray_client,
)

T = TypeVar("T")

#: The hub responds at least this often.
HEARTBEAT_S = 10.0
#: Without a response for this long the connection is lost: Ray Client reconnects for 30 s only.
SILENCE_S = 60.0
#: Two listeners: while one receives a response, the other one waits at the hub.
LISTENERS = 2
#: Large values that are transferred at the same time.
TRANSFER_THREADS = 3


@dataclass(frozen=True, kw_only=True)  # Ray 2.9 cannot pickle a NamedTuple of a module that is sent along
class ConnectionSpec:
    """The cluster to connect to, and how."""

    #: Part of the hub's name: the hub of a killed bridge lives on for a while, so names must differ.
    bridge_id: str
    name: str
    address: str
    runtime_env: Mapping[str, Any]
    namespace: str
    #: The user of the bridge, for display: part of the hub's name.
    purpose: str
    #: The name of the Ray session, from the cluster's dashboard; None if unknown.
    session_name: str | None
    #: Whether the dashboard is used over https: then its token must not be sent unencrypted.
    over_https: bool


class ConnectionLost(Exception):
    """The other cluster is lost; `sent` tells whether it may have executed the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class HubConnection:
    """A connection to the hub, for an event loop.

    Requests do not block: callbacks on Ray Client's own thread complete them. Connecting and large values
    block, so they have threads here.
    """

    def __init__(self, target: ConnectionSpec) -> None:
        self._target = target
        self._pool = ThreadPoolExecutor(TRANSFER_THREADS, "connection", initializer=self._set_client_context)
        self._session: Any = None
        self._context: Any = None
        self._hub: Any = None
        self._batches = 0

    async def open(self, token: Secret) -> dict[str, Any]:
        """Connect, start the hub, and return its process info."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as connecting:
            return await loop.run_in_executor(connecting, self._connect, token)

    def send(self, batch: Sequence[Any]) -> asyncio.Future[list[Response]]:
        """Send a batch of requests, and return a future of the responses that are ready soon."""
        number, self._batches = self._batches, self._batches + 1
        return self._request(lambda: self._hub.submit.remote(number, batch))

    async def listen(self) -> list[Response]:
        """Return the next responses; raise the error that ended the connection."""
        return await within(SILENCE_S, self._request(lambda: self._hub.next_responses.remote(HEARTBEAT_S)))

    async def put(self, value: Any) -> Any:
        """Put a value on the other cluster and return its ref. If this fails, the request was never sent."""
        with _raising_connection_lost(sent=False):
            return await self._in_thread(lambda: ray.put(value))

    async def fetch(self, remote_ref: Any) -> Any:
        """Fetch a value, which must be ready."""
        with _raising_connection_lost(sent=True):
            return await self._in_thread(lambda: ray.get(remote_ref))

    async def close(self) -> None:
        """Disconnect: the cluster ends the hub and everything it started."""
        if self._session is not None:
            await self._in_thread(self._session.disconnect)
        self._pool.shutdown(wait=False)

    def _connect(self, token: Secret) -> dict[str, Any]:
        target = self._target
        warnings.filterwarnings("ignore", message="More than 10MB of messages", category=UserWarning)
        silence_ray_client()
        metadata = auth_metadata(
            token, cluster=target.name, address=target.address, over_https=target.over_https
        )

        def connect() -> Any:
            with session_gate(target.address):
                session = ray.init(
                    f"ray://{target.address}",
                    allow_multiple=True,
                    namespace=target.namespace,
                    runtime_env=dict(target.runtime_env),
                    _metadata=metadata,
                )
            with ExitStack() as undo:
                undo.callback(session.disconnect)
                with session:
                    check_session(target.name, target.session_name, target.runtime_env)
                undo.pop_all()
            return session

        try:
            self._session = connect_with_retries(connect)
        except NOT_CONNECTED as problem:
            raise ConnectionError(f"no Ray Client session on cluster {target.name!r}: {problem}") from problem
        with self._session:
            self._context = ray_client.ray.get_context()
            name = f"raymc hub {self._target.bridge_id} for {self._target.purpose}"
            self._hub = ray.remote(Hub).options(num_cpus=0, max_concurrency=THREADS, name=name).remote()
            info_ref = self._hub.process_info.remote()
            # The callback runs on Ray Client's thread, which receives responses.
            info_ref._on_completed(lambda _: self._set_client_context())
            process_info: dict[str, Any] = info_ref.future().result()
            return process_info

    def _set_client_context(self) -> None:
        """Make Ray calls of this thread go to the other cluster; other threads stay at home."""
        ray_client.ray.set_context(self._context)

    def _request(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Make a call, and have Ray Client's thread request its result as soon as its ref is known.

        Not with `ray.get`: that makes a thread of Ray's helper process wait on the cluster. If the session
        ends meanwhile, the thread spins for ever on a full CPU and the process never exits (Ray 2.60). Not
        with `ref.future()` either, which blocks until the ref is known.
        """
        loop = asyncio.get_running_loop()
        response = loop.create_future()
        with self._session:
            ref = call()

        def on_ref_known(ref_id: Future[bytes]) -> None:
            problem = ref_id.exception()
            if problem is not None:
                on_done(problem)
                return
            try:
                ref._on_completed(on_done)
            except (ConnectionError, RuntimeError) as closed:  # the session ends
                on_done(closed)

        def on_done(outcome: Any) -> None:
            nonlocal ref
            ref = None  # held until now, or Ray might drop the result
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_resolve, response, outcome)

        ref._id_future.add_done_callback(on_ref_known)
        return response

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)


def _resolve(response: asyncio.Future[Any], outcome: Any) -> None:
    if response.done():  # cancelled
        return
    if isinstance(outcome, BaseException):
        response.set_exception(outcome)
    else:
        response.set_result(outcome)


@contextmanager
def _raising_connection_lost(*, sent: bool) -> Iterator[None]:
    """Raise `ConnectionLost` if the connection is lost."""
    try:
        yield
    except (ConnectionError, grpc.RpcError) as problem:
        raise ConnectionLost(str(problem), sent=sent) from problem


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
    """Sends posted requests in batches and completes them when responses arrive, until the hub is lost."""

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
