"""Python objects on their way between two clusters.

An ObjectRef or an actor handle means nothing on another cluster. So a parcel is a pickle in which they are
numbered, and whoever packs it says for each number what to put there on the other side.

A parcel is a plain tuple of the stream and the large buffers that are not part of it: a class of ours would
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

Parcel = tuple[bytes, list[Any]]
#: For each type that cannot travel: takes such an object and returns its number.
Numbering = Mapping[type, Callable[[Any], int]]


class _Packer(cloudpickle.CloudPickler):  # type: ignore[misc]
    def __init__(self, stream: io.BytesIO, buffers: list[Any], numbering: Numbering) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)
        self._numbering = numbering

    def persistent_id(self, value: Any) -> int | None:
        number = self._numbering.get(type(value))
        return None if number is None else number(value)


class _Unpacker(pickle.Unpickler):
    def __init__(self, parcel: Parcel, contents: Sequence[Any]) -> None:
        stream, buffers = parcel
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._contents = contents

    def persistent_load(self, number: int) -> Any:
        return self._contents[number]


def pack(value: Any, numbering: Numbering) -> Parcel:
    """Pickle a value; objects of the types in `numbering` are replaced by the numbers it returns."""
    stream, buffers = io.BytesIO(), list[Any]()
    _Packer(stream, buffers, numbering).dump(value)
    return stream.getvalue(), buffers


def size_of(parcel: Parcel) -> int:
    """Return how many bytes a parcel has."""
    stream, buffers = parcel
    return len(stream) + sum(memoryview(buffer).nbytes for buffer in buffers)


def in_band(parcel: Parcel) -> Parcel:
    """Return the parcel with copies of its buffers, so that any pickler can take it further."""
    stream, buffers = parcel
    return stream, [bytes(buffer) for buffer in buffers]


def unpack(parcel: Parcel, contents: Sequence[Any] = ()) -> Any:
    """Return the value of a parcel; `contents` has what stands for each number."""
    return _Unpacker(parcel, contents).load()
