"""The one Ray Client connection of a bridge to its cluster: connect, send, listen, move large values."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import ray
from ray.util import client as ray_client
from ray.util.client.worker import grpc  # no package of ours, but Ray Client has it

from ray_multicluster_scheduler.tasks.wire.auth import Secret, metadata
from ray_multicluster_scheduler.tasks.wire.connect_retry import NOT_CONNECTED, insist
from ray_multicluster_scheduler.tasks.wire.hub import THREADS, Answer, Hub
from ray_multicluster_scheduler.tasks.wire.log_filters import silence_the_client
from ray_multicluster_scheduler.tasks.wire.session_check import check_session, one_at_a_time

T = TypeVar("T")

#: The hub answers at least this often.
HEARTBEAT_S = 10.0
#: Ray Client mends a broken connection for 30 s. After that, and a heartbeat, there is no hope left.
SILENCE_S = 60.0
#: Two listeners: while the answer of one is on its way, the other one waits at the hub.
LISTENERS = 2
#: Large values that move at once.
MOVERS = 3


class Target(NamedTuple):
    """The cluster at the other end."""

    #: A hub outlives a bridge that was killed for a while, so the next one must not have the same name.
    bridge_id: str
    name: str
    address: str
    runtime_env: Mapping[str, Any]
    namespace: str
    #: Who uses it: the hub is called so, for people who look at that cluster.
    purpose: str
    #: What the dashboard of the cluster calls its present session; None: it does not say.
    session_name: str | None
    #: The dashboard is used over https, so its token must not be sent unencrypted.
    over_https: bool


class LinkLost(Exception):
    """The other cluster is gone; `sent` tells whether the call may have been executed there."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Link:
    """A connection to a cluster, for an event loop.

    Calls to the hub do not block: Ray Client's own thread takes them on from step to step. What does block
    (connecting, large values) has threads here.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pool = ThreadPoolExecutor(MOVERS, "link", initializer=self._enter)
        self._session: Any = None
        self._context: Any = None
        self._hub: Any = None
        self._batches = 0

    async def open(self, token: Secret) -> dict[str, Any]:
        """Connect, start the hub, and return who it is."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as connecting:
            return await loop.run_in_executor(connecting, self._connect, token)

    def send(self, batch: Sequence[Any]) -> asyncio.Future[list[Answer]]:
        """Send calls, and return the reply that will come: the answers that are there soon."""
        number, self._batches = self._batches, self._batches + 1
        return self._ask(lambda: self._hub.submit.remote(number, batch))

    async def listen(self) -> list[Answer]:
        """Return the next answers; raises what ended the connection."""
        return await asyncio.wait_for(self._ask(lambda: self._hub.take.remote(HEARTBEAT_S)), SILENCE_S)

    async def put(self, value: Any) -> Any:
        """Put a value on the remote cluster and return its ref. If this fails, the call was never sent."""
        with _loss(sent=False):
            return await self._in_thread(lambda: ray.put(value))

    async def fetch(self, far_ref: Any) -> Any:
        """Bring a value over, which must be there."""
        with _loss(sent=True):
            return await self._in_thread(lambda: ray.get(far_ref))

    async def close(self) -> None:
        """Disconnect: the cluster ends the hub and all it started."""
        if self._session is not None:
            await self._in_thread(self._session.disconnect)
        self._pool.shutdown(wait=False)

    def _connect(self, token: Secret) -> dict[str, Any]:
        target = self._target
        warnings.filterwarnings("ignore", message="More than 10MB of messages", category=UserWarning)
        silence_the_client()
        carried = metadata(token, cluster=target.name, address=target.address, over_https=target.over_https)

        def connect() -> Any:
            with one_at_a_time(target.address):
                session = ray.init(
                    f"ray://{target.address}",
                    allow_multiple=True,
                    namespace=target.namespace,
                    runtime_env=dict(target.runtime_env),
                    _metadata=carried,
                )
            with ExitStack() as undo:
                undo.callback(session.disconnect)
                with session:
                    check_session(target.name, target.session_name, target.runtime_env)
                undo.pop_all()
            return session

        try:
            self._session = insist(connect)
        except NOT_CONNECTED as problem:
            raise ConnectionError(f"no Ray Client session on cluster {target.name!r}: {problem}") from problem
        with self._session:
            self._context = ray_client.ray.get_context()
            name = f"raymc hub {self._target.bridge_id} for {self._target.purpose}"
            self._hub = ray.remote(Hub).options(num_cpus=0, max_concurrency=THREADS, name=name).remote()
            asked = self._hub.about.remote()
            asked._on_completed(lambda _: self._enter())  # Ray Client's thread, which receives answers
            about: dict[str, Any] = asked.future().result()
            return about

    def _enter(self) -> None:
        """Give a thread the client's view of Ray; all other threads keep that of home."""
        ray_client.ray.set_context(self._context)

    def _ask(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Make a call, and have Ray Client's thread ask for its answer as soon as there is a ref of it.

        Not with `ray.get`: for that one, a thread of Ray's helper process waits on the cluster. If the
        session ends meanwhile, the thread waits for ever, with all of a CPU, and the process never ends (seen
        on Ray 2.60). And not with `ref.future()`, which blocks until the ref is there.
        """
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        with self._session:
            ref = call()

        def when_taken(known: Future[bytes]) -> None:
            problem = known.exception()
            if problem is not None:
                when_done(problem)
                return
            try:
                ref._on_completed(when_done)
            except (
                ConnectionError,
                RuntimeError,
            ) as closed:  # the session ends
                when_done(closed)

        def when_done(outcome: Any) -> None:
            nonlocal ref
            ref = None  # until now it was held: Ray need not keep a result to which nobody refers
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, answer, outcome)

        ref._id_future.add_done_callback(when_taken)
        return answer

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)


def _settle(answer: asyncio.Future[Any], outcome: Any) -> None:
    if answer.done():  # nobody waits for it any more
        return
    if isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


@contextmanager
def _loss(*, sent: bool) -> Iterator[None]:
    """Tell the loss of the connection by our own name for it."""
    try:
        yield
    except (ConnectionError, grpc.RpcError) as problem:
        raise LinkLost(str(problem), sent=sent) from problem
