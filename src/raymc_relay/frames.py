"""The frames of HTTP/2 (RFC 9113) and the messages of gRPC, as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias
from urllib.parse import quote

#: What a client sends first.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
#: In front of each gRPC message: whether it is compressed, and its length.
PREFIX_BYTES = 5

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
INTERNAL_ERROR = 0x2
FLOW_CONTROL_ERROR = 0x3
SETTINGS_TIMEOUT = 0x4
STREAM_CLOSED = 0x5
FRAME_SIZE_ERROR = 0x6
REFUSED_STREAM = 0x7
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

HEADER_TABLE_SIZE = 0x1
ENABLE_PUSH = 0x2
MAX_CONCURRENT_STREAMS = 0x3
INITIAL_WINDOW_SIZE = 0x4
MAX_FRAME_SIZE = 0x5
MAX_HEADER_LIST_SIZE = 0x6

#: What holds until SETTINGS say something else.
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384
LARGEST_WINDOW = 2**31 - 1
LARGEST_FRAME = 2**24 - 1

Chunk: TypeAlias = bytes | bytearray | memoryview

# The first number holds the length (24 bits) and the kind (8 bits).
_HEADER = Struct(">IBI")
_SETTING = Struct(">HI")
_NUMBER = Struct(">I")
_GOAWAY = Struct(">II")
_PREFIX = Struct(">BI")

pack_header = _HEADER.pack
unpack_header = _HEADER.unpack_from

# All that gRPC lets through as it is: printable ASCII without the percent sign.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one whole frame."""
    return pack_header(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(values: dict[int, int]) -> bytes:
    """Return SETTINGS."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


SETTINGS_ACK = frame(SETTINGS, ACK, 0)


def parse_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield each setting, in order; the length of the payload is a multiple of six."""
    return _SETTING.iter_unpack(payload)


def window_update(stream_id: int, increment: int) -> bytes:
    """Return WINDOW_UPDATE; stream 0 is the connection."""
    return _WINDOW_UPDATE.pack(4 << 8 | WINDOW_UPDATE, 0, stream_id, increment)


_WINDOW_UPDATE = Struct(">IBII")


def rst_stream(stream_id: int, code: int) -> bytes:
    """Return RST_STREAM."""
    return frame(RST_STREAM, 0, stream_id, _NUMBER.pack(code))


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """Return GOAWAY; the reason is for whoever looks at the other side."""
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last_stream_id, code) + reason.encode()[:200])


def parse_goaway(payload: bytes) -> tuple[int, int]:
    """Return the last stream that the peer will answer, and its error code."""
    last, code = _GOAWAY.unpack_from(payload)
    return last & LARGEST_WINDOW, code


def ping(payload: bytes, *, ack: bool = False) -> bytes:
    """Return PING or its answer."""
    return frame(PING, ACK if ack else 0, 0, payload)


def number(payload: bytes) -> int:
    """Return the number that is the whole payload of RST_STREAM."""
    value: int = _NUMBER.unpack(payload)[0]
    return value


def header_frames(stream_id: int, block: bytes, *, end_stream: bool, most: int) -> bytes:
    """Return HEADERS, and CONTINUATION if the block is longer than `most`."""
    flags = END_STREAM if end_stream else 0
    if len(block) <= most:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    parts = [block[start : start + most] for start in range(0, len(block), most)]
    frames = [frame(HEADERS, flags, stream_id, parts[0])]
    frames += [frame(CONTINUATION, 0, stream_id, part) for part in parts[1:-1]]
    return b"".join([*frames, frame(CONTINUATION, END_HEADERS, stream_id, parts[-1])])


def message_prefix(size: int, *, compressed: bool = False) -> bytes:
    """Return what stands in front of a gRPC message of this size."""
    return _PREFIX.pack(compressed, size)


def parse_prefix(prefix: Chunk) -> tuple[bool, int]:
    """Return whether the gRPC message behind this prefix is compressed, and its size."""
    compressed, size = _PREFIX.unpack_from(prefix)
    return bool(compressed), size


def percent_encoded(message: str) -> str:
    """Return a status message as gRPC wants it in the header `grpc-message`."""
    return quote(message, safe=_PLAIN, errors="replace")
