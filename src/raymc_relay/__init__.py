"""A relay for gRPC calls: HTTP/2 connections whose streams are joined without a look at each message."""

from raymc_relay.connection import Connection
from raymc_relay.errors import (
    ConnectionFailed,
    ConnectionLost,
    RelayError,
    StreamReset,
    TooManyStreams,
    UnreadableMessage,
)
from raymc_relay.limits import RelayLimits, StrangerLimits
from raymc_relay.listener import Handler, Listener, connect, listen
from raymc_relay.stream import Stream, splice

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
