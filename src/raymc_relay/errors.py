"""What goes wrong with a stream, a connection or a peer."""

from __future__ import annotations


class RelayError(Exception):
    """Base of the errors that users of this folder see."""


class ConnectionFailed(RelayError):
    """No HTTP/2 connection could be made; nothing was sent on it."""


class ConnectionLost(RelayError):
    """The connection of a stream ended before the stream did."""


class StreamReset(RelayError):
    """The peer, or this side, ended a stream with RST_STREAM; `code` is that of HTTP/2."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(message or f"the stream was reset with HTTP/2 code {code}")
        self.code = code


class TooManyStreams(RelayError):
    """The peer takes no further stream on this connection now: use another connection, or wait."""


class UnreadableMessage(RelayError):
    """A message is too large to be read as a whole, or compressed. It can still be spliced."""


class ProtocolError(Exception):
    """The peer broke the rules in a way that ends its connection. Never leaves this folder."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
