"""How much one peer may take and cause, and memory that is kept for the bytes that pass."""

from __future__ import annotations

from dataclasses import dataclass

from raymc_relay.frames import DEFAULT_FRAME, DEFAULT_WINDOW, LARGEST_FRAME, LARGEST_WINDOW

# How much one peer may take.


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


# How much work a client may cause.


class WorkLimit:
    """A bucket that fills again: a client that only resets streams, or changes windows, is cut off."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._used = 0.0
        self._since = 0.0

    def exceeded(self, now: float, work: int = 1) -> bool:
        """Count this work and tell whether it is too much."""
        self._used = max(0.0, self._used - (now - self._since) * self._per_second) + work
        self._since = now
        return self._used > self._most


# Memory for the buffers that bytes pass through.


#: Larger than any buffer of a connection, and small enough for glibc to learn from it (below 32 MiB).
LARGE = 16 * 2**20


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed buffers for the next ones.

    Each received buffer is some hundred kilobytes. glibc would return such memory to the system and ask for
    it again, and the new pages cost more than all else that the relay does with the bytes: three times the
    processor time in bulk transfers. The first large block that is freed raises its threshold (`mallopt(3)`,
    M_MMAP_THRESHOLD). Up to 32 MiB stay with the process. Other C libraries do not mind.
    """
    bytes(LARGE)
