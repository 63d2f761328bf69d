"""Arguments and results: what a bridge moves from one cluster to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray._private.client_mode_hook import disable_client_hook
from ray.actor import ActorHandle

from ray_multicluster_scheduler.tasks.wire.connection import HubConnection
from ray_multicluster_scheduler.tasks.wire.handle import CrossClusterActor
from ray_multicluster_scheduler.tasks.wire.parcel import (
    INLINE_BYTES,
    Payload,
    buffers_as_bytes,
    pack,
    size_of,
    unpack,
)


class _LargeArgument:
    """Stands for an argument that is so large that it is moved over by itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ValueTransfer:
    """Packs arguments for the hub and unpacks its values.

    A home ref as an argument is replaced by its value, as Ray does it. A ref inside an argument stays a ref:
    its value is moved over and gets one there. The same holds for results.
    """

    def __init__(self, connection: HubConnection, bridge_id: str) -> None:
        self._connection = connection
        self._bridge_id = bridge_id

    async def serialize_arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Payload, list[Any], int]:
        """Return the payload of the arguments, what stands for its numbers there, and its size."""
        args = [await _resolved(value) for value in args]
        kwargs = {name: await _resolved(value) for name, value in kwargs.items()}
        payload, references = self._pack((args, kwargs))
        if size_of(payload) > INLINE_BYTES:
            light = (
                [self._separate_if_large(value) for value in args],
                {n: self._separate_if_large(v) for n, v in kwargs.items()},
            )
            payload, references = self._pack(light)
        replacements = [await self._transfer(each) for each in references]
        return buffers_as_bytes(payload), replacements, size_of(payload)

    async def deserialize_result(self, part: Any) -> Any:
        """Return a value that the hub sent."""
        if not isinstance(part, tuple):  # a large value, which comes by itself
            return await self._connection.fetch(part)
        payload, references = part
        return unpack(payload, [_put_at_home(await self._connection.fetch(ref)) for ref in references])

    def _pack(self, value: Any) -> tuple[Payload, list[Any]]:
        references: list[Any] = []

        def number(found: Any) -> int:
            references.append(found)
            return len(references) - 1

        persistent_ids = {
            ray.ObjectRef: number,
            CrossClusterActor: number,
            _LargeArgument: number,
            ActorHandle: _refuse_actor,
        }
        return pack(value, persistent_ids), references

    def _separate_if_large(self, value: Any) -> Any:
        payload, references = self._pack(value)
        return value if references or size_of(payload) <= INLINE_BYTES else _LargeArgument(value)

    async def _transfer(self, found: Any) -> Any:
        """Move over what a payload mentions, and return what stands for it there."""
        if isinstance(found, _LargeArgument):
            return await self._connection.put(found.value)
        if not isinstance(found, CrossClusterActor):
            return await self._connection.put(await found)
        if found._raymc.bridge_id != self._bridge_id:
            raise TypeError(f"{found!r} cannot be called from another cluster than its own and the driver's")
        return found._raymc.key


async def _resolved(value: Any) -> Any:
    return await value if isinstance(value, ray.ObjectRef) else value


def _put_at_home(value: Any) -> Any:
    """Store a value at home: while a client is connected, Ray would send it to the other cluster."""
    with disable_client_hook():
        return ray.put(value)


def _refuse_actor(handle: Any) -> int:
    raise TypeError(
        f"{handle!r} lives on the home cluster and cannot be called from another one; give both actors the "
        "same preferred_cluster, or pass results instead of the handle"
    )
