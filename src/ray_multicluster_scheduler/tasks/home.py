"""The home cluster of this program: plain Ray calls go there, and all results are ObjectRefs of it.

Inside a job it is the job's own cluster, joined natively. A program that has called `ray.init` keeps its
cluster. Any other program gets a Ray Client connection to the cluster that is chosen for its first work.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.errors import ClusterUnreachable, HomeLost
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.tasks import lazy_import

log = logging.getLogger(__name__)

#: The name of a home cluster that is not configured.
UNNAMED = "(home)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The cluster that this program is connected to."""

    name: str
    #: This package opened the connection, so it closes it.
    connected_by_us: bool
    #: Connected over Ray Client, where each query is a round trip.
    over_client: bool
    #: The program's own part of its environment.
    program_env: Mapping[str, Any] = field(default_factory=dict)

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return total and free resources of the cluster."""
        ray = lazy_import.ray()
        return _without_node_ids(ray.cluster_resources()), _without_node_ids(ray.available_resources())

    def read_package(self, name: str) -> bytes | None:
        """Return a package from the home cluster, such as the job's working_dir, or None."""
        kv = lazy_import.module("ray.experimental.internal_kv")
        content: bytes | None = kv._internal_kv_get(f"gcs://{name}")
        return content

    @property
    def namespace(self) -> str:
        """Return the namespace of named actors, which is used on the other clusters too."""
        return str(lazy_import.ray().get_runtime_context().namespace)

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection is lost. After that a call to Ray would start a local cluster."""
        return not (over_client() if self.over_client else is_connected())

    @contextmanager
    def raising_home_lost(self) -> Iterator[None]:
        """Raise `HomeLost` if home is lost, whatever Ray raises."""
        if self.is_lost:
            raise HomeLost(self.name, "Ray is not connected any more")
        try:
            yield
        except BaseException as problem:
            if not self._is_loss(problem):
                raise
            raise HomeLost(self.name, _first_line(problem)) from problem

    @contextmanager
    def ignoring_loss(self) -> Iterator[None]:
        """Ignore errors that come from the loss of home."""
        try:
            yield
        except BaseException as problem:
            if not self._is_loss(problem):
                raise
            log.info("home cluster %r is lost: %s", self.name, _first_line(problem))

    def leave(self) -> None:
        """Disconnect, if this package connected."""
        if self.connected_by_us:
            with self.ignoring_loss():
                lazy_import.ray().shutdown()

    def _is_loss(self, problem: BaseException) -> bool:
        """Tell whether an error comes from the loss of home; Ray has no exception type for it."""
        by_user_code = isinstance(problem, lazy_import.ray().exceptions.RayError)  # from user code
        is_connection = isinstance(problem, (ConnectionError, lazy_import.module("grpc").RpcError))
        return (is_connection and not by_user_code) or (isinstance(problem, Exception) and self.is_lost)


def is_connected() -> bool:
    """Tell whether this program is connected to a cluster."""
    return bool(lazy_import.ray().is_initialized())


def join_natively() -> None:
    """Join the cluster that this job runs on."""
    lazy_import.wire("log_filters").drop_noise()
    lazy_import.ray().init()


def connect(
    spec: ClusterSpec, runtime_env: Mapping[str, Any], token: str | None, session_name: str | None
) -> None:
    """Connect to a cluster over Ray Client; `session_name` is from its dashboard, None if unknown."""
    ray, auth = lazy_import.ray(), lazy_import.wire("auth")
    session_check, connect_retry = lazy_import.wire("session_check"), lazy_import.wire("connect_retry")
    try:
        metadata = auth.auth_metadata(
            auth.Secret(token),
            cluster=spec.name,
            address=spec.head_address,
            over_https=spec.is_over_https,
        )
    except auth.TokenInTheClear as problem:
        raise ClusterUnreachable(spec.name, str(problem)) from problem

    lazy_import.wire("log_filters").drop_noise()

    def connect_once() -> None:
        with session_check.session_gate(spec.head_address):
            ray.init(f"ray://{spec.head_address}", runtime_env=dict(runtime_env), _metadata=metadata)
        with ExitStack() as undo:
            undo.callback(ray.shutdown)
            session_check.check_session(spec.name, session_name, runtime_env)
            undo.pop_all()

    try:
        connect_retry.connect_with_retries(connect_once)
    except connect_retry.NOT_CONNECTED as problem:
        raise ClusterUnreachable(spec.name, f"no Ray Client session: {problem}") from problem


def over_client() -> bool:
    """Tell whether this program is connected over Ray Client."""
    return bool(lazy_import.ray().util.client.ray.is_connected())


def current_runtime_env() -> dict[str, Any]:
    """Return the runtime_env that this program runs with."""
    runtime_env = lazy_import.ray().get_runtime_context().runtime_env
    return dict(json.loads(runtime_env) if isinstance(runtime_env, str) else runtime_env)


def configured_name(snapshots: Mapping[str, ClusterSnapshot]) -> str:
    """Return the name of the configured cluster with the nodes of this connection, or `UNNAMED`."""
    here = {node["NodeID"] for node in lazy_import.ray().nodes()}
    for name, snapshot in snapshots.items():
        if here & {node.node_id for node in snapshot.nodes or ()}:
            return name
    return UNNAMED


def _first_line(problem: BaseException) -> str:
    details = getattr(problem, "details", None)
    text = details() if callable(details) else str(problem)
    return (str(text or "").strip() or type(problem).__name__).splitlines()[0]


def _without_node_ids(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if not name.startswith("node:")}
