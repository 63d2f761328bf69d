"""Arguments and results: what a bridge moves from one cluster to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray._private.client_mode_hook import disable_client_hook
from ray.actor import ActorHandle

from ray_multicluster_scheduler.tasks.wire.connection import Link
from ray_multicluster_scheduler.tasks.wire.handle import FarActor
from ray_multicluster_scheduler.tasks.wire.parcel import INLINE_BYTES, Parcel, in_band, pack, size_of, unpack


class _Apart:
    """Stands for an argument that is so large that it is moved over by itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Cargo:
    """Packs arguments for the hub and unpacks its values.

    A home ref as an argument is replaced by its value, as Ray does it. A ref inside an argument stays a ref:
    its value is moved over and gets one there. The same holds for results.
    """

    def __init__(self, link: Link, bridge_id: str) -> None:
        self._link = link
        self._bridge_id = bridge_id

    async def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Parcel, list[Any], int]:
        """Return the parcel of the arguments, what stands for its numbers there, and its size."""
        args = [await _near(value) for value in args]
        kwargs = {name: await _near(value) for name, value in kwargs.items()}
        parcel, mentioned = self._pack((args, kwargs))
        if size_of(parcel) > INLINE_BYTES:
            light = [self._lighten(value) for value in args], {n: self._lighten(v) for n, v in kwargs.items()}
            parcel, mentioned = self._pack(light)
        contents = [await self._carry(each) for each in mentioned]
        return in_band(parcel), contents, size_of(parcel)

    async def unpack(self, part: Any) -> Any:
        """Return a value that the hub sent."""
        if not isinstance(part, tuple):  # a large value, which comes by itself
            return await self._link.fetch(part)
        parcel, mentioned = part
        return unpack(parcel, [_put(await self._link.fetch(ref)) for ref in mentioned])

    def _pack(self, value: Any) -> tuple[Parcel, list[Any]]:
        mentioned: list[Any] = []

        def number(found: Any) -> int:
            mentioned.append(found)
            return len(mentioned) - 1

        numbering = {ray.ObjectRef: number, FarActor: number, _Apart: number, ActorHandle: _refuse_actor}
        return pack(value, numbering), mentioned

    def _lighten(self, value: Any) -> Any:
        parcel, mentioned = self._pack(value)
        return value if mentioned or size_of(parcel) <= INLINE_BYTES else _Apart(value)

    async def _carry(self, found: Any) -> Any:
        """Move over what a parcel mentions, and return what stands for it there."""
        if isinstance(found, _Apart):
            return await self._link.put(found.value)
        if not isinstance(found, FarActor):
            return await self._link.put(await found)
        if found._raymc.bridge_id != self._bridge_id:
            raise TypeError(f"{found!r} cannot be called from another cluster than its own and the driver's")
        return found._raymc.key


async def _near(value: Any) -> Any:
    return await value if isinstance(value, ray.ObjectRef) else value


def _put(value: Any) -> Any:
    """Store a value at home: while a client is connected, Ray would send it to the other cluster."""
    with disable_client_hook():
        return ray.put(value)


def _refuse_actor(handle: Any) -> int:
    raise TypeError(
        f"{handle!r} lives on the home cluster and cannot be called from another one; give both actors the "
        "same preferred_cluster, or pass results instead of the handle"
    )
