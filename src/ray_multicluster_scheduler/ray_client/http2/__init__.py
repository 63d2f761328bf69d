"""A relay for gRPC calls: HTTP/2 connections whose streams are joined without a look at each message."""

from ray_multicluster_scheduler.ray_client.http2.dial import connect
from ray_multicluster_scheduler.ray_client.http2.http2_connection import Connection
from ray_multicluster_scheduler.ray_client.http2.http2_errors import (
    ConnectionFailed,
    ConnectionLost,
    RelayError,
    StreamReset,
    TooManyStreams,
    UnreadableMessage,
)
from ray_multicluster_scheduler.ray_client.http2.http2_stream import Stream
from ray_multicluster_scheduler.ray_client.http2.listener import Handler, Listener, listen
from ray_multicluster_scheduler.ray_client.http2.relay_limits import RelayLimits, StrangerLimits
from ray_multicluster_scheduler.ray_client.http2.splicing import splice

__all__ = [
    "Connection",
    "ConnectionFailed",
    "ConnectionLost",
    "Handler",
    "Listener",
    "RelayError",
    "RelayLimits",
    "StrangerLimits",
    "Stream",
    "StreamReset",
    "TooManyStreams",
    "UnreadableMessage",
    "connect",
    "listen",
    "splice",
]
