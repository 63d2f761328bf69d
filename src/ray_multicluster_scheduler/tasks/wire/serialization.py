"""Serialization of arguments, results and errors between two clusters.

An ObjectRef or an actor handle means nothing on another cluster. So a payload is a pickle in which they are
persistent ids (numbers), and is sent with a replacement for each: a ref or an actor of the other cluster.

A payload is a plain tuple of the stream and the large buffers that are not part of it: a class of ours would
be pickled by value with each payload.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle
from ray._private.client_mode_hook import disable_client_hook
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError, RayTaskError

from ray_multicluster_scheduler.errors import ClusterUnreachable, OutcomeUnknown
from ray_multicluster_scheduler.tasks.wire.handle import CrossClusterActor

if TYPE_CHECKING:
    from ray_multicluster_scheduler.tasks.wire.connection import HubConnection

#: Smaller values are part of the request; larger ones are sent alone, so that they are not copied.
INLINE_BYTES = 2**20

Payload = tuple[bytes, list[Any]]
#: For each type that cannot be pickled: returns the number of an object, or raises.
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


def serialize(value: Any, persistent_ids: PersistentIds) -> Payload:
    """Pickle a value; objects of the types in `persistent_ids` are replaced by the numbers it returns."""
    stream, buffers = io.BytesIO(), list[Any]()
    _Pickler(stream, buffers, persistent_ids).dump(value)
    return stream.getvalue(), buffers


def size_of(payload: Payload) -> int:
    """Return how many bytes a payload has."""
    stream, buffers = payload
    return len(stream) + sum(memoryview(buffer).nbytes for buffer in buffers)


def buffers_as_bytes(payload: Payload) -> Payload:
    """Return the payload with its buffers copied to bytes, so that any pickler can pickle it."""
    stream, buffers = payload
    return stream, [bytes(buffer) for buffer in buffers]


def deserialize(payload: Payload, replacements: Sequence[Any] = ()) -> Any:
    """Return the value of a payload; `replacements` has the object for each number."""
    return _Unpickler(payload, replacements).load()


class _LargeArgument:
    """Wraps an argument that is so large that it is sent alone."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ValueTransfer:
    """Serializes arguments for the hub and deserializes its results.

    A home ref as an argument is replaced by its value, as in Ray. A ref inside an argument stays a ref: its
    value is put on the other cluster. The same holds for results.
    """

    def __init__(self, connection: HubConnection, bridge_id: str) -> None:
        self._connection = connection
        self._bridge_id = bridge_id

    async def serialize_arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Payload, list[Any], int]:
        """Return the payload of the arguments, the replacements for its numbers, and its size."""
        args = [await _resolved(value) for value in args]
        kwargs = {name: await _resolved(value) for name, value in kwargs.items()}
        payload, references = self._serialize((args, kwargs))
        if size_of(payload) > INLINE_BYTES:
            light = (
                [self._separate_if_large(value) for value in args],
                {n: self._separate_if_large(v) for n, v in kwargs.items()},
            )
            payload, references = self._serialize(light)
        replacements = [await self._transfer(each) for each in references]
        return buffers_as_bytes(payload), replacements, size_of(payload)

    async def deserialize_result(self, part: Any) -> Any:
        """Return a value that the hub sent."""
        if not isinstance(part, tuple):  # the ref of a large value
            return await self._connection.fetch(part)
        payload, references = part
        return deserialize(payload, [_put_at_home(await self._connection.fetch(ref)) for ref in references])

    def _serialize(self, value: Any) -> tuple[Payload, list[Any]]:
        references: list[Any] = []

        def number(value: Any) -> int:
            references.append(value)
            return len(references) - 1

        persistent_ids = {
            ray.ObjectRef: number,
            CrossClusterActor: number,
            _LargeArgument: number,
            ActorHandle: _refuse_actor,
        }
        return serialize(value, persistent_ids), references

    def _separate_if_large(self, value: Any) -> Any:
        payload, references = self._serialize(value)
        return value if references or size_of(payload) <= INLINE_BYTES else _LargeArgument(value)

    async def _transfer(self, reference: Any) -> Any:
        """Send an object to the other cluster, and return its replacement there."""
        if isinstance(reference, _LargeArgument):
            return await self._connection.put(reference.value)
        if not isinstance(reference, CrossClusterActor):
            return await self._connection.put(await reference)
        if reference._raymc.bridge_id != self._bridge_id:
            raise TypeError(
                f"{reference!r} cannot be called from another cluster than its own and the driver's"
            )
        return reference._raymc.key


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


class ActorOutcomeUnknown(OutcomeUnknown, RayActorError):  # type: ignore[misc]
    """The actor is lost, and it is unknown whether this call was executed. It was not repeated."""

    def __init__(self, cluster: str, message: str) -> None:
        OutcomeUnknown.__init__(self, cluster, message)
        RayActorError.__init__(self, error_msg=f"cluster {cluster!r}: {message}")


def actor_lost_error(cluster: str, reason: str, *, sent: bool) -> Exception:
    """Return the error for a call to an actor whose cluster is lost; if `sent`, it may have been executed."""
    if sent:
        return ActorOutcomeUnknown(cluster, f"lost during the call, which may have been executed ({reason})")
    error: Exception = RayActorError(
        error_msg=f"the actor is gone with the connection to cluster {cluster!r} ({reason}); this call was "
        "not sent. Create the actor anew with submit_actor"
    )
    return error


def task_lost_error(cluster: str, reason: str, *, sent: bool) -> Exception:
    """Return the error for a task whose cluster is lost and that must not run elsewhere."""
    if sent:
        return OutcomeUnknown(
            cluster,
            f"lost while it ran the task, which may have been executed ({reason}); "
            "set max_retries to let it run again",
        )
    return ClusterUnreachable(
        cluster,
        f"connection lost before the task was sent, and no other cluster is large enough for it ({reason})",
    )


def serialize_error(error: BaseException) -> bytes:
    """Pickle the exception of a call, with the remote traceback as text."""
    cause = getattr(error, "cause", error) if isinstance(error, RayTaskError) else error
    try:
        content: bytes = cloudpickle.dumps((cause, str(error), cause is not error))
    except (TypeError, AttributeError, pickle.PicklingError):
        content = cloudpickle.dumps((RuntimeError(str(error)), str(error), False))
    return content


def deserialize_error(content: bytes) -> BaseException:
    """Return the exception to raise at home, as native Ray would raise it."""
    cause, text, from_user_code = pickle.loads(content)  # noqa: S301  (the hub sent it)
    error: BaseException = cause
    if from_user_code:
        if isinstance(cause, RayError):
            cause.from_user_code = True  # it tells nothing of the actor that was called
        error = RayTaskError("remote", text, cause).as_instanceof_cause()
    return error
