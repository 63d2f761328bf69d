"""Connects this process to a Ray cluster with a checked environment, and verifies which cluster it is."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc
from ray.exceptions import RuntimeEnvSetupError, WorkerCrashedError
from ray.experimental.internal_kv import _internal_kv_get

from ray_multicluster_scheduler.client.tracebacks import ends_at_the_caller
from ray_multicluster_scheduler.environment.compose import compose, for_ray_client, has_overlay, normalise
from ray_multicluster_scheduler.environment.options import is_below, package_name
from ray_multicluster_scheduler.environment.setup_failure import setup_error
from ray_multicluster_scheduler.errors import ClusterError, ClusterUnreachable, InvalidRuntimeEnv
from ray_multicluster_scheduler.packages.pack import too_large
from ray_multicluster_scheduler.packages.runtime_env import WORKING_DIR_EXCLUDES, local_path, reader
from ray_multicluster_scheduler.packages.to_cluster import NODE_CODE
from ray_multicluster_scheduler.packages.tree import Source, list_tree
from ray_multicluster_scheduler.tasks.wire.sessions import (
    BAD_ENVIRONMENT,
    WrongCluster,
    connect_with_retries,
    drop_noise,
    loss_as_connection_error,
    session_gate,
)

# Checks that a Ray Client session is on the cluster of its address.
#
# Only the address is known here, no dashboard. But a head answers a query about its own cluster without a
# session, and the same query can be sent through the session.


try:
    from ray._private.grpc_utils import init_grpc_channel
except ImportError:  # older Ray
    from ray._private.utils import init_grpc_channel

#: The process id of the GCS, which differs between heads on one machine.
KEY = b"gcs_pid"
TIMEOUT_S = 10.0


def head_process(address: str) -> bytes:
    """Return the process id of the GCS behind `host:port`; empty if the head does not report it."""
    with loss_as_connection_error():
        channel = _channel(address)
        try:
            # The head itself answers a client id that it does not know; for others, a helper process answers.
            answer = ray_client_pb2_grpc.RayletDriverStub(channel).KVGet(
                ray_client_pb2.KVGetRequest(key=KEY),
                metadata=[("client_id", uuid.uuid4().hex)],
                timeout=TIMEOUT_S,
            )
        finally:
            channel.close()
    return bytes(answer.value)


def check_head(address: str, process: bytes) -> None:
    """Raise `WrongCluster` if the present session is not on the cluster with this head process."""
    with loss_as_connection_error():
        reached = _internal_kv_get(KEY) or b""
    if process and reached != process:
        raise WrongCluster(f"Ray Client has reached another cluster than that of {address}")


def _channel(address: str) -> Any:
    """Open a channel like Ray does, with its TLS and its token if they are enabled."""
    return init_grpc_channel(address)


# Hints about an environment that works but could be better. Pure: the caller logs them.


#: Installing one of these takes minutes on each node.
LARGE = frozenset(
    {"jax", "jaxlib", "mxnet", "paddlepaddle", "pyspark", "tensorflow", "torch", "torchvision", "vllm"}
)
#: The first versions that work beside numpy 2. Earlier ones take any numpy, and then cannot be imported.
FOR_NUMPY_2 = {"pandas": "2.2.2", "scikit-learn": "1.4.2", "scipy": "1.13.0"}
#: The last numpy 1, and a pyarrow that takes it: Ray imports the pyarrow of the node in every worker.
NUMPY_1 = "numpy==1.26.4 and pyarrow==17.0.0"
_VERSION = re.compile(r"\s*[^*\s,]+\s*")


def environment_hints(env: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence for each problem that may cost time later; `env` is in canonical form."""
    packages = packages_of(env)
    if unpinned := [item for item in packages if not _is_pinned(item)]:
        yield (
            f"pip: {', '.join(unpinned)} {'has' if len(unpinned) == 1 else 'have'} no exact version: "
            "nodes that install on different days may differ. Write name==version"
        )
    if large := [item for item in packages if package_name(item) in LARGE]:
        yield (
            f"pip: {', '.join(large)} is large: each node needs minutes to install it the first time. "
            "A conda environment or an image that has it already starts at once"
        )
    if older := for_numpy_1(packages):
        yield (
            f"pip: {', '.join(older)} {'was' if len(older) == 1 else 'were'} built for numpy 1 and cannot be "
            f"imported beside numpy 2, which the nodes may have. Take later ones, or add {NUMPY_1}"
        )
    for name in env.get("env_vars", {}):
        if name == "CUDA_VISIBLE_DEVICES":
            yield (
                f"env_vars: {name} is seen by tasks without GPUs only. For one that asks for some (num_gpus) "
                "Ray sets it to those that the task gets; older versions of Ray empty it for the others"
            )
        elif (why := _without_effect(name)) is not None:
            yield f"env_vars: {name} will not take effect: {why}"


def _is_pinned(item: str) -> bool:
    _, equals, version = item.partition(";")[0].rpartition("==")
    return bool(equals) and _VERSION.fullmatch(version) is not None


def for_numpy_1(packages: Iterable[str]) -> list[str]:
    """Return the items whose versions were built for numpy 1, unless the list keeps numpy there."""
    names = {item: package_name(item) for item in packages}
    if any(name == "numpy" and is_below(item, "2") for item, name in names.items()):
        return []
    return [item for item, name in names.items() if name in FOR_NUMPY_2 and is_below(item, FOR_NUMPY_2[name])]


def packages_of(env: Mapping[str, Any]) -> list[str]:
    """Return what pip installs for an environment, be it by itself, by uv or by conda."""
    value = env.get("pip", env.get("uv", []))
    items = list(value["packages"] if isinstance(value, Mapping) else value)
    conda = env.get("conda")
    dependencies = conda.get("dependencies", []) if isinstance(conda, Mapping) else []
    items += [each for item in dependencies if isinstance(item, Mapping) for each in item["pip"]]
    return [item for item in items if package_name(item) is not None]


def _without_effect(name: str) -> str | None:
    if name == "RAY_ADDRESS":
        return "a worker belongs to its own cluster, whatever this says"
    if name.startswith("RAY_") and not name.startswith(("RAY_MULTICLUSTER_", "RAY_DATA_", "RAY_TRAIN_")):
        return "Ray reads its own settings when the node is started, not when a worker is"
    return None


log = logging.getLogger(__name__)

#: Enough for a distant cluster; short, because the address may be mistyped.
CONNECT_TIMEOUT_S = 5.0
#: The largest directory that `ray.init` uploads. Jobs upload over HTTP, with a lower limit.
MAX_BYTES = 500 * 1024**2
_CLIENT = "ray://"
#: Whether Ray looks for a head of this machine at the machine's address; on macOS it does so at 127.0.0.1.
_AT_OWN_ADDRESS = getattr(ray_constants, "ENABLE_RAY_CLUSTER", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The cluster that this process is connected to."""

    #: The requested address; None for a cluster that this process started, or the one that its job runs on.
    address: str | None
    #: The address of the GCS; None over Ray Client, which does not expose it.
    gcs_address: str | None
    nodes: int
    ray_version: str
    namespace: str


@ends_at_the_caller
def init_ray(
    address: str | None = None, runtime_env_json: str | None = None, namespace: str | None = None
) -> Connection:
    """Connect this process to a Ray cluster and make sure that it is the one that was asked for.

    A connection to another cluster is closed first; so is one to the same cluster where a new environment or
    namespace is given. Advice about the environment is logged.

    Args:
        address: `host:port` from a machine of the cluster, `ray://host:port` from anywhere, `auto` for the
            cluster that runs on this machine. Without it: inside a job the job's own cluster, else a new one
            on this machine.
        runtime_env_json: The environment of the work, as JSON; docs/environments.md has all options.
        namespace: Ray's namespace for named actors.

    Raises:
        ValueError: The JSON or the environment is wrong; nothing was connected.
        ClusterError: No cluster answers there, or another one does.
    """
    return connect(address, parse_environment(runtime_env_json), namespace)


def connect(
    address: str | None, env: dict[str, Any], namespace: str | None, *, worker_logs: bool = True
) -> Connection:
    """Connect like `init_ray`, with a checked environment. The logs of workers are optional."""
    if ray.is_initialized():
        if not env and namespace is None and _is_at(address):
            return _connection(address)
        log.info("closing the connection to %s", _gcs_address() or "a cluster over Ray Client")
        ray.shutdown()
    _check_listening(address)
    try:
        _init(address, env, namespace, worker_logs=worker_logs)
    except Exception as problem:  # Ray raises a bare Exception for a node that is slow to start
        if BAD_ENVIRONMENT in str(problem):
            raise _bad_environment(problem) from None
        raise ClusterError(
            address or "local", f"Ray cannot connect: {_advice(address, problem)}"
        ) from problem
    if not _is_at(address):
        reached = _gcs_address()
        ray.shutdown()
        raise ClusterError(str(address), f"another cluster answered: {reached}")
    connection = _connection(address)
    if connection.nodes == 1 and address is not None and not _on_this_machine(address):
        log.warning("%s has one node only: all work runs there. Have the others joined it?", address)
    return connection


def _init(address: str | None, env: dict[str, Any], namespace: str | None, *, worker_logs: bool) -> None:
    over_client = str(address).startswith(_CLIENT)
    sent = for_ray_client(env) if over_client else env

    def init() -> None:
        ray.init(address=address, runtime_env=sent or None, namespace=namespace, log_to_driver=worker_logs)

    def init_client() -> None:
        place = str(address).removeprefix(_CLIENT)
        process = head_process(place)
        with session_gate(place):
            init()
        with ExitStack() as undo:
            undo.callback(ray.shutdown)
            check_head(place, process)
            undo.pop_all()

    drop_noise()
    if over_client:
        connect_with_retries(init_client)
    else:
        init()


def parse_environment(text: str | None, *, cwd: Path | None = None) -> dict[str, Any]:
    """Parse the JSON of a runtime_env and return it as Ray accepts it; hints about it are logged."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InvalidRuntimeEnv(
            f"the runtime environment is not valid JSON: {problem.msg}, at line {problem.lineno}, "
            f"column {problem.colno}"
        ) from None
    here = cwd or Path.cwd()
    env = normalise(value, where="runtime_env", read=reader(here))
    if (directory := env.get("working_dir")) is not None and "://" not in directory:
        env["working_dir"] = str(_checked_directory(local_path(here, directory), env.get("excludes", ())))
    for hint in environment_hints(env):
        log.warning("%s", hint)
    composed = compose({}, env, identity={}, overlay=True)
    if has_overlay(composed):  # Ray packs this module; this process keeps its own packages
        composed["py_modules"] = [*composed.get("py_modules", ()), str(NODE_CODE / "raymc_overlay.py")]
    return composed


def first_task() -> float:
    """Run an empty task and return the seconds it took, including the setup of its environment."""
    begin = time.perf_counter()
    try:
        ray.get(ray.remote(_nothing).options(num_cpus=0).remote())
    except RuntimeEnvSetupError as problem:
        raise _bad_environment(problem) from None
    except WorkerCrashedError:
        raise InvalidRuntimeEnv(
            "workers die before their first task; mostly a package of the environment, such as numpy 1, does "
            "not fit those that Ray imports. The logs of the workers have the reason"
        ) from None
    return time.perf_counter() - begin


def check_packages(env: Mapping[str, Any]) -> None:
    """Raise if the packages that the environment installs keep workers from importing pandas.

    Ray Data would tell so as well, in a hundred lines.
    """
    if not env.keys() & {"pip", "uv", "conda"}:
        return
    problem = ray.get(ray.remote(_import_problem).options(num_cpus=0).remote())
    if problem is not None:
        older = for_numpy_1(packages_of(env))
        raise InvalidRuntimeEnv(
            f"the packages of this environment do not fit together: {problem}; "
            + (f"for {', '.join(older)} add {NUMPY_1}" if older else "pin versions that do")
        )


def _nothing() -> None:
    return None


def _import_problem() -> str | None:
    try:
        import pandas  # noqa: F401, PLC0415 - on a worker
        import pyarrow  # noqa: F401, PLC0415
    except Exception as problem:  # noqa: BLE001 - what a package raises at import can be anything
        return f"{type(problem).__name__}: {problem}"
    return None


def _checked_directory(path: Path, excludes: tuple[str, ...]) -> Path:
    """Refuse a directory that is too large: Ray would refuse it only after packing it."""
    source = Source(
        root=path, excludes=(*WORKING_DIR_EXCLUDES, *excludes), include_parent=False, use_gitignore=True
    )
    if path.is_file():
        return path
    tree = list_tree(source)
    if sum(tree.sizes.values()) > MAX_BYTES:
        raise too_large(tree, MAX_BYTES)
    return path


def _check_listening(address: str | None) -> None:
    """Raise within seconds if no server listens there; Ray itself would try for a minute.

    A head that listens on loopback only, such as those of `raymc local`, is looked for there.
    """
    ray_constants.ENABLE_RAY_CLUSTER = _AT_OWN_ADDRESS
    if (place := _host_port(address)) is None:
        return
    if (refused := _refused(place)) is not None:
        raise ClusterUnreachable(
            str(address),
            f"no server answers at {place[0]}:{place[1]} ({refused}). `ray start --head` prints the address "
            "of a head: port 6379 by default, 10001 with ray:// in front",
        )
    if str(address).startswith(_CLIENT) or not _is_loopback(place[0]) or _ray_finds(place[1]):
        return
    ray_constants.ENABLE_RAY_CLUSTER = False
    if not _ray_finds(place[1]):
        raise ClusterUnreachable(
            str(address),
            "this head listens on loopback only, and this version of Ray looks for it at the address of the "
            "machine; use ray:// with its client port, or start the program with "
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in its environment",
        )


def _ray_finds(port: int) -> bool:
    """Tell whether a head answers at the address that Ray takes 127.0.0.1 for."""
    return _refused((ray.util.get_node_ip_address(), port)) is None


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


def _refused(place: tuple[str, int]) -> str | None:
    try:
        socket.create_connection(place, timeout=CONNECT_TIMEOUT_S).close()
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _host_port(address: str | None) -> tuple[str, int] | None:
    host, _, port = (address or "").removeprefix(_CLIENT).rpartition(":")
    return (host, int(port)) if host and port.isdigit() else None


def _is_at(address: str | None) -> bool:
    """Tell whether the present connection is to this address; without an address, any cluster matches."""
    if address is None or address == "auto":
        return not ray.util.client.ray.is_connected() or address is None
    if address.startswith(_CLIENT):
        return bool(ray.util.client.ray.is_connected()) and _client_address() == address
    wanted, actual = _host_port(address), _host_port(_gcs_address())
    if wanted is None or actual is None:
        return wanted is None and actual is not None
    same_host = wanted[0] == actual[0] or _is_loopback(wanted[0]) or _resolved(wanted[0]) == actual[0]
    return same_host and wanted[1] == actual[1]


def _gcs_address() -> str | None:
    return None if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address


def _client_address() -> str:
    return f"{_CLIENT}{ray.util.client.ray.get_context().client_worker._conn_str}"


def _resolved(host: str) -> str | None:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return None


def _on_this_machine(address: str) -> bool:
    place = _host_port(address)
    return place is None or _is_loopback(place[0])


def _connection(address: str | None) -> Connection:
    return Connection(
        address=address,
        gcs_address=_gcs_address(),
        nodes=sum(bool(node["Alive"]) for node in ray.nodes()),
        ray_version=ray.__version__,
        namespace=ray.get_runtime_context().namespace,
    )


def _advice(address: str | None, problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    words = lines[-1] if lines[0].endswith(":") else lines[0]
    if address == "auto":
        return f"{words} Start one with `ray start --head`, or name an address"
    if address is not None and not address.startswith(_CLIENT):
        return (
            f"{words} With host:port this machine must itself be a node of the cluster; from elsewhere use "
            "ray://host:10001, or --cluster to run the pipeline as a job"
        )
    return words


def _bad_environment(problem: BaseException) -> InvalidRuntimeEnv:
    return InvalidRuntimeEnv(f"the cluster cannot set this environment up: {setup_error(str(problem))}")
