"""The home cluster of this program: where plain Ray calls go, and whose ObjectRefs all results are.

Inside a job it is the job's own cluster, joined natively. A program that has called `ray.init` keeps its
cluster. Any other program gets a Ray Client connection to the cluster that is chosen for its first work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.bridge import lazy
from ray_multicluster_scheduler.bridge.wire.patience import NOT_CONNECTED, insist
from ray_multicluster_scheduler.errors import ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec

#: The name of a home that is none of the configured clusters.
UNNAMED = "(home)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The cluster that this program is connected to."""

    name: str
    #: We have connected, so we disconnect.
    ours: bool
    #: Over Ray Client, where each question is a round trip.
    over_client: bool
    #: What the program itself adds to the environment of its cluster.
    own_env: Mapping[str, Any] = field(default_factory=dict)

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return what the cluster has and what of it is free."""
        ray = lazy.ray()
        return _plain(ray.cluster_resources()), _plain(ray.available_resources())

    def read_package(self, name: str) -> bytes | None:
        """Return a package that the home cluster has, such as the job's working_dir."""
        kv = lazy.module("ray.experimental.internal_kv")
        content: bytes | None = kv._internal_kv_get(f"gcs://{name}")
        return content

    @property
    def namespace(self) -> str:
        """Return the namespace of named actors; the other clusters get the same."""
        return str(lazy.ray().get_runtime_context().namespace)

    def leave(self) -> None:
        """Disconnect, if we have connected."""
        if self.ours:
            lazy.ray().shutdown()


def is_connected() -> bool:
    """Tell whether this program has a cluster already."""
    return bool(lazy.ray().is_initialized())


def join_natively() -> None:
    """Join the cluster that this job runs on."""
    lazy.ray().init()


def connect(spec: ClusterSpec, runtime_env: Mapping[str, Any], token: str | None) -> None:
    """Connect to a cluster over Ray Client."""

    def connect_once() -> None:
        lazy.ray().init(
            f"ray://{spec.head_address}",
            runtime_env=dict(runtime_env),
            _metadata=[("authorization", f"Bearer {token}")] if token else None,
        )

    try:
        insist(connect_once)
    except NOT_CONNECTED as problem:
        raise ClusterUnreachable(spec.name, f"no Ray Client session: {problem}") from problem


def over_client() -> bool:
    """Tell whether this program's connection is a Ray Client one."""
    return bool(lazy.ray().util.client.ray.is_connected())


def environment() -> dict[str, Any]:
    """Return the runtime_env that this program runs with."""
    given = lazy.ray().get_runtime_context().runtime_env
    return dict(json.loads(given) if isinstance(given, str) else given)


def identify(snapshots: Mapping[str, ClusterSnapshot]) -> str:
    """Return which configured cluster this program is connected to, by the ids of its nodes."""
    here = {node["NodeID"] for node in lazy.ray().nodes()}
    for name, seen in snapshots.items():
        if here & {node.node_id for node in seen.nodes or ()}:
            return name
    return UNNAMED


def _plain(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if not name.startswith("node:")}
