"""The few messages of Ray Client that are read or made here; all others pass as they are."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from ray._private.ray_logging.logging_config import LoggingConfig
from ray.core.generated import ray_client_pb2 as pb
from ray.job_config import JobConfig

from ray_multicluster_scheduler.environment.compose import for_ray_client
from ray_multicluster_scheduler.errors import InvalidRequest

# The job configuration in the first message of a Ray Client: a pickle, so it is read with care.
#
# A pickle may run any code, and even Ray's own records read files in their constructors. So only the names
# of these records are known here, each stands for a plain container, and everything else is refused. A few
# bytes of it may also ask for any amount of memory: its opcodes are counted before one is obeyed.


#: A configuration holds names and variables. Directories are uploaded before.
MOST_BYTES = 4 * 2**20
#: About four for each variable; and the values of what they make, where one may be named in many places.
MOST_OPCODES = 200_000
MOST_VALUES = 200_000


class HostileJobConfig(ValueError):
    """The pickle holds something that is no part of a job configuration."""


class _Record:
    """Stands for an object of Ray: holds its fields, and does nothing."""

    def __init__(self) -> None:
        """Take no arguments: constructors are not called in an honest pickle."""


class _Environment(dict[str, Any]):
    """Stands for Ray's `RuntimeEnv`, which is a dictionary."""

    def __init__(self) -> None:
        super().__init__()


_KNOWN = {
    ("ray.job_config", "JobConfig"): _Record,
    ("ray._private.ray_logging.logging_config", "LoggingConfig"): _Record,
    ("ray.runtime_env", "RuntimeEnv"): _Environment,
    ("ray.runtime_env", "RuntimeEnvConfig"): _Environment,
    ("ray.runtime_env.runtime_env", "RuntimeEnv"): _Environment,
    ("ray.runtime_env.runtime_env", "RuntimeEnvConfig"): _Environment,
}


class _CarefulUnpickler(pickle._Unpickler):
    """Python's own unpickler, not the one in C: each key is seen before it is hashed.

    Of a tuple whose parts are shared tuples the hash takes twice as long with each level, in one call that
    nothing interrupts.
    """

    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)

    def _checked(self, obey: Callable[[Any], None], keys: list[Any]) -> None:
        if any(type(key) is not str for key in keys):
            raise HostileJobConfig("a key in it is no text")
        obey(self)

    def find_class(self, module: str, name: str) -> Any:
        """Return a container for a known record; refuse everything else."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise HostileJobConfig(f"{module}.{name} is no part of a job configuration") from None

    def persistent_load(self, _: Any) -> Any:
        """Refuse references to elsewhere."""
        raise HostileJobConfig("it refers to something outside of itself")


def _check_keys() -> None:
    dispatch, checked = _CarefulUnpickler.dispatch, _CarefulUnpickler._checked
    for opcode, keys in (
        (pickle.SETITEM, lambda stack: stack[-2:-1]),
        (pickle.SETITEMS, lambda stack: stack[::2]),
        (pickle.DICT, lambda stack: stack[::2]),
    ):
        obey = dispatch[opcode[0]]
        dispatch[opcode[0]] = lambda self, obey=obey, keys=keys: checked(self, obey, keys(self.stack))


_check_keys()


def read_job_config(pickled: bytes) -> dict[str, Any]:
    """Return the fields of a pickled `JobConfig`; raises `HostileJobConfig`."""
    if not pickled:
        return {}
    if len(pickled) > MOST_BYTES:
        raise HostileJobConfig(f"it has {len(pickled)} bytes; {MOST_BYTES} are allowed")
    try:
        _check_opcodes(pickled)
        found = _CarefulUnpickler(io.BytesIO(pickled)).load()
        return _Plain().fields(found)
    except HostileJobConfig:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever a broken pickle makes Python raise
        raise HostileJobConfig(f"it cannot be read: {type(problem).__name__}") from None


def _check_opcodes(pickled: bytes) -> None:
    """Refuse a pickle that makes more than it brings: nothing is built here."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > MOST_OPCODES:
            raise HostileJobConfig(f"it has more than {MOST_OPCODES} parts")
        if "SET" in opcode.name and "ITEM" not in opcode.name:  # its members are hashed
            raise HostileJobConfig("it holds a set")
        # Python makes room for all places of its memory up to the one that is named.
        if "PUT" in opcode.name and argument is not None and int(argument) > count:
            raise HostileJobConfig("it asks for memory that it does not use")


def write_job_config(
    fields: Mapping[str, Any], *, runtime_env: Mapping[str, Any], metadata: Mapping[str, str]
) -> bytes:
    """Return the pickle of the same configuration with another environment and more metadata."""
    config = JobConfig()
    vars(config).update(fields)
    config.set_runtime_env(dict(runtime_env))
    config.metadata = {**(fields.get("metadata") or {}), **metadata}
    return pickle.dumps(config)


class _Plain:
    """Copies values without containers of ours. The copies are counted: a pickle may name one value often."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def fields(self, found: Any) -> dict[str, Any]:
        """Return the fields of a configuration."""
        if type(found) is not _Record:
            raise HostileJobConfig("it is no job configuration")
        return {name: self._field(name, value) for name, value in vars(found).items()}

    def _field(self, name: str, value: Any) -> Any:
        if name == "py_logging_config" and type(value) is _Record:
            logging = LoggingConfig.__new__(LoggingConfig)
            vars(logging).update(vars(value))
            return logging
        return self._copied(value)

    def _copied(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise HostileJobConfig(f"it holds more than {MOST_VALUES} values")
        if isinstance(value, Mapping):
            return {key: self._copied(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._copied(each) for each in value)
        if isinstance(value, _Record):
            raise HostileJobConfig("a record is where there can be none")
        return value


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
