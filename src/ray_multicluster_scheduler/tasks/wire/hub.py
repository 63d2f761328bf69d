"""The hub: one actor without CPUs on the other cluster, which starts tasks and actors and collects results.

The hub owns the tasks and actors that it starts, so they end with it. The hub itself ends with the Ray Client
session of the bridge. Requests come in batches. Results that are ready soon are the reply to `submit`, in one
round trip. The bridge gets all others in batches from `next_responses`, so a slow call delays no fast one.

The hub uses threads and is not async: Ray wakes threads with less overhead, and one `ray.wait` for a batch is
cheaper than an `await` for each of its calls.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray import cloudpickle
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from ray_multicluster_scheduler.tasks.wire.serialization import (
    INLINE_BYTES,
    Payload,
    buffers_as_bytes,
    deserialize,
    serialize,
    serialize_error,
    size_of,
)

#: Enough for the listeners and for all batches that wait for first results.
THREADS = 32
#: Most bytes of a reply, so that it does not delay later ones.
RESPONSE_BYTES = 8 * 2**20
BATCH_RESPONSES = 200
#: How long `submit` waits for a first result; only PAUSE_S if the last batch had none in time.
SOON_S = 0.02
#: Results that come within PAUSE_S of each other are sent together, after LINGER_S at the latest.
PAUSE_S = 0.002
LINGER_S = 0.1

#: The number of a request, whether it succeeded, and its values or its error.
Response = tuple[int, bool, Any]


class Hub:
    """Starts tasks and actors for one bridge. Responses carry the number of their request.

    A value in a response is a payload with the refs in it, or, if it is large, its own ref.
    """

    def __init__(self) -> None:
        self._batch_order = threading.Condition()
        self._next_batch = 0
        self._code: dict[str, Any] = {}
        self._actors: dict[str, Any] = {}
        #: Why actors could not be created, by key: calls to them raise it.
        self._failed_creations: dict[str, str] = {}
        self._expect_early = True
        #: Refs of started calls without a response, by number.
        self._running: dict[int, list[Any]] = {}
        #: Calls that ended too late for the reply. Ray's own threads fill this queue. They must never
        #: wait for a lock, because its holder may wait for them.
        self._late_results: SimpleQueue[int] = SimpleQueue()

    def process_info(self) -> dict[str, Any]:
        """Return the process id, and whether the process has imported our package."""
        return {"pid": os.getpid(), "imported": "ray_multicluster_scheduler" in sys.modules}

    def submit(self, batch_number: int, batch: Sequence[Any]) -> list[Response]:
        """Start a batch of requests, and return the responses that are ready soon.

        Batches are numbered, because threads take them at the same time and calls start in their order.
        """
        with self._batch_order:
            self._batch_order.wait_for(lambda: self._next_batch == batch_number)
            at_once = [response for call in batch if (response := self._start(*call)) is not None]
            self._next_batch += 1
            self._batch_order.notify_all()
        started = [number for number, *_ in batch if number in self._running]
        return at_once + self._responses(self._finished_early(started)) if started else at_once

    def next_responses(self, timeout_s: float) -> list[Response]:
        """Return responses as soon as there are some; an empty list after `timeout_s`, as a heartbeat."""
        done: list[int] = []
        with suppress(Empty):
            done.append(self._late_results.get(timeout=timeout_s))
            ends_at = time.monotonic() + LINGER_S
            while len(done) < min(len(self._running), BATCH_RESPONSES) and time.monotonic() < ends_at:
                done.append(self._late_results.get(timeout=PAUSE_S))
        return self._responses(done)

    def _start(self, number: int, verb: str, *details: Any) -> Response | None:
        """Execute a request, and return its response unless its results are not ready yet."""
        try:
            returned = getattr(self, f"_{verb}")(*details)
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            return number, False, serialize_error(error)
        if verb not in {"run", "call"}:
            return number, True, returned
        if returned:
            self._running[number] = returned
            return None
        return number, True, []

    def _finished_early(self, started: Sequence[int]) -> list[int]:
        """Wait a moment and return the finished calls; the others are left to the listeners."""
        calls = {self._running[number][0]: number for number in started}
        done, rest = ray.wait(list(calls), num_returns=1, timeout=SOON_S if self._expect_early else PAUSE_S)
        self._expect_early = bool(done)
        more, ends_at = done, time.monotonic() + LINGER_S
        while more and rest and time.monotonic() < ends_at:
            more, rest = ray.wait(rest, num_returns=len(rest), timeout=PAUSE_S)
            done = done + more
        for ref in rest:
            ref.future().add_done_callback(lambda _, number=calls[ref]: self._late_results.put(number))
        return [calls[ref] for ref in done]

    def _responses(self, done: Iterable[int]) -> list[Response]:
        """Return the responses of finished calls, up to `RESPONSE_BYTES`."""
        responses, total = list[Response](), 0
        for number in done:
            if total < RESPONSE_BYTES:
                responses.append(self._response(number))
                total += _size_of_response(responses[-1])
            else:
                self._late_results.put(number)
        return responses

    def _response(self, number: int) -> Response:
        try:
            return number, True, [_value(ref) for ref in self._running[number]]
        except BaseException as error:  # noqa: BLE001 - what the user's code raised
            return number, False, serialize_error(error)
        finally:
            del self._running[number]

    def _register_code(self, digest: str, code: bytes) -> list[Any]:
        """Store a function or a class, which is sent once."""
        self._code[digest] = code
        return []

    def _run(
        self, digest: str, options: Mapping[str, Any], payload: Payload, replacements: Sequence[Any]
    ) -> list[Any]:
        """Start a task and return the refs of its values."""
        args, kwargs = self._arguments(payload, replacements)
        return _refs(self._remote_form(digest).options(**options).remote(*args, **kwargs))

    def _create(
        self, key: str, digest: str, options: Mapping[str, Any], payload: Payload, replacements: Sequence[Any]
    ) -> list[Any]:
        """Start an actor and return its id; an error of its constructor is raised by its first call."""
        try:
            args, kwargs = self._arguments(payload, replacements)
            actor = self._remote_form(digest).options(**options).remote(*args, **kwargs)
        except BaseException as problem:
            self._failed_creations[key] = repr(problem)
            raise
        self._actors[key] = actor
        return [(buffers_as_bytes(serialize(actor._actor_id.hex(), {})), [])]

    def _call(
        self, key: str, method: str, options: Mapping[str, Any], payload: Payload, replacements: Sequence[Any]
    ) -> list[Any]:
        """Call a method of an actor and return the refs of its values."""
        args, kwargs = self._arguments(payload, replacements)
        bound = getattr(self._actor(key), method)
        return _refs((bound.options(**options) if options else bound).remote(*args, **kwargs))

    def _cancel(self, call: int, force: bool) -> list[Any]:  # noqa: FBT001
        """Cancel a call that has not ended."""
        for ref in self._running.get(call, ()):
            ray.cancel(ref, force=force)
        return []

    def _kill(self, key: str, no_restart: bool) -> list[Any]:  # noqa: FBT001
        """Kill an actor; an unknown one has ended."""
        actor = self._actors.pop(key, None) if no_restart else self._actors.get(key)
        self._failed_creations.pop(key, None)
        if actor is not None:
            ray.kill(actor, no_restart=no_restart)
        return []

    def _release(self, key: str) -> list[Any]:
        """Drop the handle of an actor: Ray ends it after its calls."""
        self._actors.pop(key, None)
        self._failed_creations.pop(key, None)
        return []

    def _remote_form(self, digest: str) -> Any:
        """Return a remote function or actor class; if it cannot be loaded, every call of it fails."""
        if isinstance(self._code[digest], bytes):
            self._code[digest] = ray.remote(cloudpickle.loads(self._code[digest]))
        return self._code[digest]

    def _actor(self, key: str) -> Any:
        if key not in self._actors:
            why = (
                f"could not be created: {self._failed_creations[key]}"
                if key in self._failed_creations
                else "was given up"
            )
            raise RayActorError(error_msg=f"actor {key} {why}")
        return self._actors[key]

    def _arguments(
        self, payload: Payload, replacements: Sequence[Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments; refs are replaced by refs, and keys by actors of this cluster."""
        here = [self._actor(each) if isinstance(each, str) else each for each in replacements]
        args, kwargs = deserialize(payload, here)
        return args, kwargs


def _refs(returned: Any) -> list[Any]:
    refs = returned if isinstance(returned, list) else [] if returned is None else [returned]
    if not all(isinstance(ref, ray.ObjectRef) for ref in refs):
        raise TypeError("generators do not cross clusters; return a list, or keep the actor at home")
    return refs


def _value(ref: Any) -> Any:
    """Return a value that is ready, or its ref if it is large: then it is sent alone and not copied."""
    references: list[Any] = []

    def number_ref(inner: Any) -> int:
        references.append(inner)
        return len(references) - 1

    payload = serialize(ray.get(ref), {ray.ObjectRef: number_ref, ActorHandle: _refuse_actor})
    if size_of(payload) > INLINE_BYTES and not references:
        return ref
    return buffers_as_bytes(payload), references


def _refuse_actor(_handle: Any) -> int:
    raise TypeError(
        "an actor handle cannot be returned to another cluster; create the actor with submit_actor"
    )


def _size_of_response(response: tuple[int, bool, Any]) -> int:
    _, good, content = response
    if not good:
        return len(content)
    return sum(size_of(part[0]) for part in content if isinstance(part, tuple))
