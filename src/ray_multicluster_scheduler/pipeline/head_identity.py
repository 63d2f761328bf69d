"""Checks that a Ray Client session is on the cluster of its address.

Only the address is known here, no dashboard. But a head answers a query about its own cluster without a
session, and the same query can be sent through the session.
"""

from __future__ import annotations

import uuid
from typing import Any

from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc
from ray.experimental.internal_kv import _internal_kv_get

from ray_multicluster_scheduler.tasks.wire.session_check import WrongCluster, loss_as_connection_error

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
