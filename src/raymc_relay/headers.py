"""Header blocks (HPACK, RFC 7541) without state, put together from frames, and which may be passed on.

Peers are told to use no dynamic table, and this side uses none. Then equal headers are equal bytes, and a
cache replaces the work: a program that makes the same call again and again costs a lookup. A peer may still
use its dynamic table until it has seen the settings of this side; `hpack` decodes such blocks, and they are
not kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import hpack
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from raymc_relay import frames
from raymc_relay.errors import ProtocolError
from raymc_relay.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, PROTOCOL_ERROR

Headers = tuple[tuple[str, str], ...]

# It writes each header into its debug log, credentials too.
logging.getLogger("hpack").setLevel(logging.INFO)

DEFAULT_TABLE_BYTES = 4_096
#: "From here my dynamic table has no bytes": the first block of a connection begins with it.
TABLE_OFF = b"\x20"
#: Fields that no hop may keep in a table.
SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "x-ray-authorization"})
MOST_CACHED = 1_024
LARGEST_CACHED = 2_048
#: What RFC 7541 adds to the length of each field.
FIELD_BYTES = 32

_STATIC: tuple[tuple[bytes, bytes], ...] = HeaderTable.STATIC_TABLE
_STATIC_TEXT: Headers = tuple((name.decode(), value.decode()) for name, value in _STATIC)
_FIELD_INDEX = {field: index for index, field in reversed(list(enumerate(_STATIC_TEXT, 1)))}
_NAME_INDEX = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC_TEXT, 1)))}

_NAME = re.compile(r":?[!-9;-@\[-~]+")
_VALUE = re.compile(r"[^\0\r\n]*")

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict of bounded size: the oldest entry makes place."""

    def keep(self, key: K, value: V) -> None:
        """Add an entry."""
        if len(self) >= MOST_CACHED:
            del self[next(iter(self))]
        self[key] = value


class _Dynamic(Exception):
    """A block uses the dynamic table."""


_encoded: BoundedCache[Headers, bytes] = BoundedCache()
#: Blocks that mean the same in every state of a decoder, and blocks that do if its table is off.
_decoded: BoundedCache[bytes, Headers] = BoundedCache()
_decoded_off: BoundedCache[bytes, Headers] = BoundedCache()


def encode(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the header block of these fields, which any decoder understands in any state."""
    key = tuple(headers)
    block = _encoded.get(key)
    if block is None:
        block = b"".join(_encode_field(name, value) for name, value in key)
        if len(block) <= LARGEST_CACHED:
            _encoded.keep(key, block)
    return block


def _encode_field(name: str, value: str) -> bytes:
    if (index := _FIELD_INDEX.get((name, value))) is not None:
        return _integer(index, 7, 0x80)
    kind = 0x10 if name in SECRET else 0x00
    index = _NAME_INDEX.get(name, 0)
    first = _integer(index, 4, kind) if index else bytes([kind]) + _string(name)
    return first + _string(value)


def _string(text: str) -> bytes:
    raw = text.encode("latin-1")
    return _integer(len(raw), 7, 0) + raw


def _integer(value: int, bits: int, kind: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([kind | value])
    out = bytearray([kind | most])
    value -= most
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class HeaderDecoder:
    """Decodes the header blocks of one peer."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._table_limit = DEFAULT_TABLE_BYTES
        self._off = False
        self._dynamic: hpack.Decoder | None = None

    def settings_acknowledged(self) -> None:
        """From now on the peer knows that it has no dynamic table."""
        self._table_limit = 0
        if self._dynamic is not None:
            self._dynamic.max_allowed_table_size = 0

    def decode(self, block: bytes) -> Headers:
        """Return the fields of a block, or raise `ProtocolError`."""
        cache = _decoded_off if self._off else _decoded
        found = cache.get(block)
        return found if found is not None else self._decode(block)

    def _decode(self, block: bytes) -> Headers:
        try:
            rest = self._resized(block)
            headers = self._parse(rest)
        except _Dynamic:
            return self._decode_dynamic(block)
        except (IndexError, hpack.HPACKError):
            raise ProtocolError(COMPRESSION_ERROR, "a header block that cannot be decoded") from None
        _check(headers)
        if len(rest) <= LARGEST_CACHED:
            (_decoded_off if self._off else _decoded).keep(bytes(rest), headers)
        return headers

    def _resized(self, block: bytes) -> bytes:
        """Follow the changes of the table size at the beginning of a block and return what is behind them."""
        while block and block[0] & 0xE0 == 0x20:
            size, position = _read_integer(block, 0, 5)
            if size > self._table_limit:
                raise ProtocolError(COMPRESSION_ERROR, "a header table of a size that was not allowed")
            if size:
                raise _Dynamic
            self._off, self._dynamic = True, None
            block = block[position:]
        return block

    def _parse(self, block: bytes) -> Headers:
        headers: list[tuple[str, str]] = []
        position, end, size = 0, len(block), 0
        while position < end:
            first = block[position]
            if first & 0x80:
                index, position = _read_integer(block, position, 7)
                field = self._static(index)
            else:
                if first & 0x40 and not self._off:
                    raise _Dynamic
                if first & 0xE0 == 0x20:
                    raise IndexError  # a change of the table size stands at the beginning of a block
                index, position = _read_integer(block, position, 6 if first & 0x40 else 4)
                if index:
                    name = self._static(index)[0]
                else:
                    name, position = _read_string(block, position)
                value, position = _read_string(block, position)
                field = (name, value)
            headers.append(field)
            size += len(field[0]) + len(field[1]) + FIELD_BYTES
            if size > self._most:
                raise ProtocolError(ENHANCE_YOUR_CALM, "more headers than allowed")
        return tuple(headers)

    def _static(self, index: int) -> tuple[str, str]:
        if index > len(_STATIC_TEXT) and not self._off:
            raise _Dynamic
        if index == 0:
            raise IndexError
        return _STATIC_TEXT[index - 1]

    def _decode_dynamic(self, block: bytes) -> Headers:
        if self._dynamic is None:
            self._off = False
            self._dynamic = hpack.Decoder(self._most)
            self._dynamic.max_allowed_table_size = self._table_limit
        try:
            fields = self._dynamic.decode(block, raw=True)
        except hpack.OversizedHeaderListError:
            raise ProtocolError(ENHANCE_YOUR_CALM, "more headers than allowed") from None
        except (hpack.HPACKError, IndexError):
            raise ProtocolError(COMPRESSION_ERROR, "a header block that cannot be decoded") from None
        headers = tuple((bytes(n).decode("latin-1"), bytes(v).decode("latin-1")) for n, v in fields)
        _check(headers)
        return headers


def _check(headers: Headers) -> None:
    """Refuse what HTTP/1 software behind the other side would take for something else."""
    if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers):
        raise ProtocolError(PROTOCOL_ERROR, "a header with characters that are not allowed")


def _read_integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[position] & most
    position += 1
    if value < most:
        return value, position
    for shift in (0, 7, 14, 21):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise IndexError


def _read_string(block: bytes, position: int) -> tuple[str, int]:
    huffman = block[position] & 0x80
    size, position = _read_integer(block, position, 7)
    stop = position + size
    if stop > len(block):
        raise IndexError
    raw = block[position:stop]
    return (decode_huffman(raw) if huffman else raw).decode("latin-1"), stop


# Puts header blocks together: a HEADERS frame, and CONTINUATION frames if it is long.


_EXTRA = frames.PADDED | frames.HAS_PRIORITY


class HeaderBlock(NamedTuple):
    """A whole block: whose it is, its bytes, and whether the stream ends with it."""

    stream_id: int
    block: bytes
    ends: bool


class HeaderBlocks:
    """The header block under way, if any, of one connection."""

    def __init__(self, *, most_bytes: int, most_frames: int) -> None:
        self._most_bytes = most_bytes
        self._most_frames = most_frames
        self._parts: list[bytes] = []
        self._stream_id = 0
        self._ends = False
        #: Only CONTINUATION of the same stream may follow.
        self.is_open = False

    def begin(self, flags: int, stream_id: int, payload: bytes) -> HeaderBlock | None:
        """Take HEADERS; return the block if it is whole."""
        fragment = _without_padding(flags, payload) if flags & _EXTRA else payload
        ends = bool(flags & frames.END_STREAM)
        if len(fragment) > self._most_bytes:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "more headers than allowed")
        if flags & frames.END_HEADERS:
            return HeaderBlock(stream_id, fragment, ends)
        self._parts, self._stream_id, self._ends, self.is_open = [fragment], stream_id, ends, True
        return None

    def go_on(self, flags: int, stream_id: int, payload: bytes) -> HeaderBlock | None:
        """Take CONTINUATION; return the block if it is whole."""
        if not self.is_open or stream_id != self._stream_id:
            raise ProtocolError(frames.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._parts.append(payload)
        if len(self._parts) > self._most_frames + 1 or sum(map(len, self._parts)) > self._most_bytes:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "more headers than allowed")
        if not flags & frames.END_HEADERS:
            return None
        block, self._parts, self.is_open = b"".join(self._parts), [], False
        return HeaderBlock(stream_id, block, self._ends)


def _without_padding(flags: int, payload: bytes) -> bytes:
    start, stop = 0, len(payload)
    if flags & frames.PADDED:
        if not payload:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, "HEADERS without the length of their padding")
        start, stop = 1, stop - payload[0]
    if flags & frames.HAS_PRIORITY:
        start += 5
    if start > stop:
        raise ProtocolError(frames.PROTOCOL_ERROR, "more padding than its frame has bytes")
    return payload[start:stop]


# Which headers may be passed on: what one client sends must not break a connection that others use too.


_REQUEST = frozenset({":method", ":scheme", ":path", ":authority"})
_REQUIRED = frozenset({":method", ":scheme", ":path"})
#: They belong to HTTP/1 connections.
_FORBIDDEN = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})


def is_request(headers: Headers) -> bool:
    """Tell whether these are the headers of a request."""
    count = 0
    for name, _ in headers:
        if not name.startswith(":"):
            break
        count += 1
    names = {name for name, _ in headers[:count]}
    return len(names) == count and _REQUIRED <= names <= _REQUEST and is_plain(headers[count:])


def is_response(headers: Headers) -> bool:
    """Tell whether these are the first headers of an answer."""
    return bool(headers) and headers[0][0] == ":status" and is_plain(headers[1:])


def is_plain(headers: Headers) -> bool:
    """Tell whether these are headers that may stand at the end of a stream."""
    for name, value in headers:
        if name.startswith(":") or name in _FORBIDDEN or (name == "te" and value != "trailers"):
            return False
    return True
