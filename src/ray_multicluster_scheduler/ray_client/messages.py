"""The few messages of Ray Client that are read or made here; all others pass as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from ray.core.generated import ray_client_pb2 as pb

from ray_multicluster_scheduler.environment.overlay import for_ray_client
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.ray_client.job_config import (
    HostileJobConfig,
    read_job_config,
    write_job_config,
)

#: Methods by the last part of their paths.
DATAPATH, LOGSTREAM, CLUSTER_INFO = "Datapath", "Logstream", "ClusterInfo"
KV_GET, KV_PUT, KV_EXISTS, PIN_URI = "KVGet", "KVPut", "KVExists", "PinRuntimeEnvURI"
#: Calls that last as long as the session does.
LASTING = (f"/{DATAPATH}", f"/{LOGSTREAM}")
#: What clients ask for before their session begins.
BEFORE_SESSIONS = frozenset({KV_GET, KV_PUT, KV_EXISTS, PIN_URI})
DATAPATH_PATH = "/ray.rpc.RayletDataStreamer/Datapath"
CLUSTER_INFO_PATH = "/ray.rpc.RayletDriver/ClusterInfo"


class Unreadable(ValueError):
    """The bytes are no such message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """The first message of a client: how it wants to be connected."""

    message: Any
    #: The fields of its job configuration.
    job_config: Mapping[str, Any]
    init_kwargs: Mapping[str, Any]

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The environment that the program asks for. Ray has put uploaded directories into the first one."""
        return dict(self.job_config.get("runtime_env") or self.init_kwargs.get("runtime_env") or {})

    def composed(self, runtime_env: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
        """Return the message with another environment: in both places, because Ray reads both."""
        runtime_env = for_ray_client(runtime_env)
        message = pb.DataRequest()
        message.CopyFrom(self.message)
        message.init.job_config = write_job_config(
            self.job_config, runtime_env=runtime_env, metadata=metadata
        )
        message.init.ray_init_kwargs = json.dumps({**self.init_kwargs, "runtime_env": runtime_env})
        return bytes(message.SerializeToString())

    def refused(self, reason: str) -> bytes:
        """Return the answer that the program raises as `ConnectionAbortedError`, with this reason."""
        return _answer(self.message.req_id, reason)


def read_init(raw: bytes) -> Init:
    """Read the first message of a data path; raises `Unreadable` or `InvalidRequest`, or is hostile."""
    message = _parsed(pb.DataRequest, raw)
    if message.WhichOneof("type") != "init":
        raise Unreadable("the first message of a client must be Init")
    try:
        kwargs = dict(json.loads(message.init.ray_init_kwargs or "{}"))
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("the arguments of ray.init are no JSON object") from None
    try:
        return Init(message=message, job_config=read_job_config(message.init.job_config), init_kwargs=kwargs)
    except HostileJobConfig as problem:
        raise InvalidRequest(f"the job configuration is refused: {problem}") from None


def refused_unread(raw: bytes, reason: str) -> bytes:
    """Return the refusal of a first message whose content was not even looked at."""
    return _answer(_parsed(pb.DataRequest, raw).req_id, reason)


def _answer(req_id: int, reason: str) -> bytes:
    init = pb.InitResponse(ok=False, msg=reason)
    return bytes(pb.DataResponse(req_id=req_id, init=init).SerializeToString())


def empty_init() -> bytes:
    """Return the first message of a client that wants nothing."""
    return bytes(pb.DataRequest(req_id=1, init=pb.InitRequest()).SerializeToString())


def is_accepted(raw: bytes) -> bool:
    """Tell whether an answer to Init is a yes."""
    return bool(_parsed(pb.DataResponse, raw).init.ok)


def refusal_in(raw: bytes) -> str:
    """Return why an answer to Init is a no."""
    return str(_parsed(pb.DataResponse, raw).init.msg)


def cleanup() -> bytes:
    """Return the message by which a client ends its session at once."""
    request = pb.DataRequest(req_id=2**31 - 1, connection_cleanup=pb.ConnectionCleanupRequest())
    return bytes(request.SerializeToString())


def is_ping(raw: bytes) -> bool:
    """Tell whether a request about the cluster only asks whether somebody is there."""
    return bool(_parsed(pb.ClusterInfoRequest, raw).type == pb.ClusterInfoType.PING)


def pong() -> bytes:
    """Return the answer to a ping."""
    return bytes(pb.ClusterInfoResponse(json="{}").SerializeToString())


def context_request() -> bytes:
    """Return the request for the runtime context of the helper process."""
    return bytes(pb.ClusterInfoRequest(type=pb.ClusterInfoType.RUNTIME_CONTEXT).SerializeToString())


def ray_job_id(raw: bytes) -> str:
    """Return Ray's id of the helper process as a driver, from its runtime context."""
    return str(_parsed(pb.ClusterInfoResponse, raw).runtime_context.job_id.hex())


def uploaded(raw: bytes) -> tuple[str, bytes]:
    """Return name and content of a package that a client uploads before it connects."""
    request = _parsed(pb.KVPutRequest, raw)
    return _package(request.key), request.value


def asked_for(raw: bytes) -> str:
    """Return the name of the package that a client asks for before it connects."""
    return _package(_parsed(pb.KVExistsRequest, raw).key)


def no_value() -> bytes:
    """Return the answer that there is no value under a key."""
    return bytes(pb.KVGetResponse().SerializeToString())


def put_answer() -> bytes:
    """Return the answer to an upload."""
    return bytes(pb.KVPutResponse(already_exists=False).SerializeToString())


def exists_answer(*, exists: bool) -> bytes:
    """Return the answer whether a package is there."""
    return bytes(pb.KVExistsResponse(exists=exists).SerializeToString())


def pin_answer() -> bytes:
    """Return the answer to the request to keep a package for a while."""
    return bytes(pb.ClientPinRuntimeEnvURIResponse().SerializeToString())


def _package(key: bytes) -> str:
    scheme, _, name = key.decode(errors="replace").partition("://")
    if scheme != "gcs":
        raise InvalidRequest("only packages (gcs://...) can be uploaded before the session begins")
    return name


def _parsed(kind: Any, raw: bytes) -> Any:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise Unreadable(f"this is no {kind.DESCRIPTOR.name}") from None
