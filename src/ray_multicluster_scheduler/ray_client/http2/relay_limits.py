"""How much one peer may take."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.ray_client.http2.frames import (
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    LARGEST_FRAME,
    LARGEST_WINDOW,
)


@dataclass(frozen=True, kw_only=True)
class StrangerLimits:
    """What a listener bears from connections on which nobody has shown yet who it is.

    One too many takes the place of the oldest of its kind, so idle ones lock nobody out.
    """

    #: At once, of all of them and of one address; the other places of the listener are for known ones.
    connections: int = 500
    connections_per_address: int = 50
    #: After this time such a connection is closed, and so is a known one that has had no call for so long.
    known_within_s: float = 30.0
    idle_s: float = 600.0
    #: Streams at once, and bytes of all of them that are on their way.
    streams: int = 100
    window_bytes: int = 2**20


@dataclass(frozen=True, kw_only=True)
class RelayLimits:
    """What is announced to peers of a connection, and what is borne from them."""

    #: Unread bytes of a stream that nobody reads yet.
    first_window_bytes: int = 256 * 1024
    #: Bytes of a stream that are on their way, once they flow.
    stream_window_bytes: int = 4 * 2**20
    #: Bytes of all streams of a connection that are on their way.
    connection_window_bytes: int = 64 * 2**20
    frame_bytes: int = 2**20
    #: Streams of one client at once, those with a handler that still runs included.
    streams: int = 1_000
    #: Connections of one listener.
    connections: int = 1_000
    header_bytes: int = 64 * 1024
    continuation_frames: int = 16
    #: Above this, what passes through waits until the socket has taken most of it.
    write_buffer_bytes: int = 512 * 1024
    #: Answers that wait because the peer does not read them.
    control_bytes: int = 256 * 1024
    #: Streams that a client resets, or breaks, at once, and per second in the long run.
    resets: int = 1_000
    resets_per_second: float = 100.0
    #: Windows of streams that settings of a client change at once, and per second in the long run.
    resized_windows: int = 20_000
    resized_windows_per_second: float = 2_000.0
    #: How long a client may take for its first bytes, and for a header block that it has begun.
    handshake_timeout_s: float = 10.0
    #: None: all clients are known.
    strangers: StrangerLimits | None = None

    def __post_init__(self) -> None:
        sizes = (self.first_window_bytes, self.stream_window_bytes, LARGEST_WINDOW)
        if sorted(sizes) != list(sizes) or self.first_window_bytes < 4:
            raise ValueError("the window of a stream grows from first_window_bytes to stream_window_bytes")
        if not DEFAULT_WINDOW < self.connection_window_bytes <= LARGEST_WINDOW:
            raise ValueError(f"connection_window_bytes is above {DEFAULT_WINDOW}, which every peer has")
        window = self.connection_window_bytes if self.strangers is None else self.strangers.window_bytes
        if not DEFAULT_WINDOW < window <= self.connection_window_bytes:
            raise ValueError("strangers get a window between that of every peer and connection_window_bytes")
        if not DEFAULT_FRAME <= self.frame_bytes <= LARGEST_FRAME:
            raise ValueError(f"frame_bytes is between {DEFAULT_FRAME} and {LARGEST_FRAME}")
