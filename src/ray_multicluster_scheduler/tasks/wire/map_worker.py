"""What runs on the clusters for a map: workers, and holders of what all workers of a cluster share.

All values travel as bytes, so that whoever stands between needs none of the user's modules.
"""

from __future__ import annotations

import asyncio
import pickle
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import cloudpickle

from ray_multicluster_scheduler.tasks.wire.serialization import (
    Payload,
    buffers_as_bytes,
    deserialize,
    serialize,
)

#: Of one item: its position in the chunk, its pickled exception, its traceback.
ItemError = tuple[int, bytes, str]


class Holder:
    """Keeps one value in the object store of its cluster.

    Its methods are coroutines: workers may ask before the value is there, and wait for it.
    """

    def __init__(self) -> None:
        self._ref: asyncio.Future[Any] = asyncio.get_event_loop().create_future()

    async def put(self, payload: Payload) -> None:
        """Keep a value."""
        try:
            self._ref.set_result(ray.put(deserialize(payload)))
        except Exception as problem:  # noqa: BLE001 - raised in the workers, such as for a missing module
            self._ref.set_exception(problem)

    async def ref(self) -> list[Any]:
        """Return its ref, in a list, so that the value is not sent along."""
        return [await asyncio.shield(self._ref)]


class SharedHere:
    """What a shared value is where it was sent to."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self._values: list[Any] = []

    @property
    def value(self) -> Any:
        """The value, read from the object store of this machine once in each process."""
        if not self._values:
            (ref,) = ray.get(self._holder.ref.remote())
            self._values.append(ray.get(ref))
        return self._values[0]


class MapWorker:
    """Calls one function with the items of chunks, one after the other."""

    def __init__(self) -> None:
        self._shared: dict[str, SharedHere] = {}
        self._func: Any = None

    def load(self, payload: Payload, shared: Sequence[str], holders: Mapping[str, Any]) -> None:
        """Take the function; raises what prevents it from being loaded here."""
        self._func = self._value(payload, shared, holders)

    def run(
        self, payload: Payload, shared: Sequence[str], holders: Mapping[str, Any]
    ) -> tuple[float, Payload, list[ItemError]]:
        """Return how long the chunk took, the results, and the errors of items."""
        items = self._value(payload, shared, holders)
        results: list[Any] = []
        errors: list[ItemError] = []
        started = time.perf_counter()
        func, add = self._func, results.append
        for item in items:
            try:
                add(func(item))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised where the results are read
                errors.append((len(results), *_told(error)))
                add(None)
        seconds = time.perf_counter() - started
        try:
            found = serialize(results, {})
        except Exception:  # noqa: BLE001 - whatever a result raises that cannot be pickled
            results = [_checked(position, result, errors) for position, result in enumerate(results)]
            found = serialize(results, {})
        return seconds, buffers_as_bytes(found), errors

    def _value(self, payload: Payload, shared: Sequence[str], holders: Mapping[str, Any]) -> Any:
        self._shared |= {key: SharedHere(holder) for key, holder in holders.items()}
        return deserialize(payload, [self._shared[key] for key in shared])


def _checked(position: int, result: Any, errors: list[ItemError]) -> Any:
    try:
        serialize(result, {})
    except Exception as error:  # noqa: BLE001 - see above
        errors.append((position, *_told(error)))
        return None
    return result


def _told(error: BaseException) -> tuple[bytes, str]:
    """Return an exception as bytes, and its traceback without the frame of the worker."""
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, trace))
    bare = error.with_traceback(None)
    try:
        content: bytes = cloudpickle.dumps(bare)
        pickle.loads(content)  # noqa: S301 - written above; some exceptions can be written and not read
    except Exception:  # noqa: BLE001 - whatever the exception raises while it is pickled
        content = cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content, text
