"""A cable that keeps what it passes on to a cluster: a test can read the headers of each gRPC call."""

import asyncio
from collections import defaultdict

from hpack import Decoder
from tests.support.cable import Cable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, CONTINUATION = 1, 9
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20


class Wiretap(Cable):
    """Keeps what clients have sent, by connection."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._sent: dict[int, bytearray] = defaultdict(bytearray)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        if answers:
            await super()._pump(source, sink, answers=True)
            return
        while data := await source.read(2**16):
            self._sent[id(sink)] += data
            sink.write(data)
            await sink.drain()
        sink.close()

    def sent(self) -> list[bytes]:
        """All bytes of each connection."""
        return [bytes(each) for each in self._sent.values()]

    def calls(self) -> list[list[tuple[str, str]]]:
        """The headers of each call."""
        return [headers for sent in self.sent() for headers in _headers(sent)]


def _headers(sent: bytes) -> list[list[tuple[str, str]]]:
    assert sent.startswith(PREFACE)
    at, block, decoder, found = len(PREFACE), b"", Decoder(), []
    while at + 9 <= len(sent):
        length, kind, flags = int.from_bytes(sent[at : at + 3], "big"), sent[at + 3], sent[at + 4]
        payload = sent[at + 9 : at + 9 + length]
        at += 9 + length
        if kind == HEADERS:
            block = _fragment(payload, flags)
        elif kind == CONTINUATION:
            block += payload
        if kind in {HEADERS, CONTINUATION} and flags & END_HEADERS:
            found.append([(str(name), str(value)) for name, value in decoder.decode(block)])
    return found


def _fragment(payload: bytes, flags: int) -> bytes:
    """The headers of a frame, without its padding and its priority."""
    if flags & PADDED:
        payload = payload[1 : len(payload) - payload[0]]
    return payload[5:] if flags & PRIORITY else payload
