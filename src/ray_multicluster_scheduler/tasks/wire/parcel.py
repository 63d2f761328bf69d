"""Python objects on their way between two clusters.

An ObjectRef or an actor handle means nothing on another cluster. So a payload is a pickle in which they are
numbered, and whoever packs it says for each number what to put there on the other side.

A payload is a plain tuple of the stream and the large buffers that are not part of it: a class of ours would
travel by value with every one of them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray import cloudpickle

#: Smaller values travel with the call; larger ones alone, so that they are neither copied nor held twice.
INLINE_BYTES = 2**20

Payload = tuple[bytes, list[Any]]
#: For each type that cannot travel: takes such an object and returns its number.
PersistentIds = Mapping[type, Callable[[Any], int]]


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def __init__(self, stream: io.BytesIO, buffers: list[Any], persistent_ids: PersistentIds) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)
        self._persistent_ids = persistent_ids

    def persistent_id(self, value: Any) -> int | None:
        number = self._persistent_ids.get(type(value))
        return None if number is None else number(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, payload: Payload, replacements: Sequence[Any]) -> None:
        stream, buffers = payload
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._replacements = replacements

    def persistent_load(self, number: int) -> Any:
        return self._replacements[number]


def pack(value: Any, persistent_ids: PersistentIds) -> Payload:
    """Pickle a value; objects of the types in `persistent_ids` are replaced by the numbers it returns."""
    stream, buffers = io.BytesIO(), list[Any]()
    _Pickler(stream, buffers, persistent_ids).dump(value)
    return stream.getvalue(), buffers


def size_of(payload: Payload) -> int:
    """Return how many bytes a payload has."""
    stream, buffers = payload
    return len(stream) + sum(memoryview(buffer).nbytes for buffer in buffers)


def buffers_as_bytes(payload: Payload) -> Payload:
    """Return the payload with copies of its buffers, so that any pickler can take it further."""
    stream, buffers = payload
    return stream, [bytes(buffer) for buffer in buffers]


def unpack(payload: Payload, replacements: Sequence[Any] = ()) -> Any:
    """Return the value of a payload; `replacements` has what stands for each number."""
    return _Unpickler(payload, replacements).load()
