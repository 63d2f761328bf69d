"""One HTTP/2 connection, in the role of the server or of the client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import cast

from ray_multicluster_scheduler.ray_client.http2 import frames
from ray_multicluster_scheduler.ray_client.http2.control_frames import ControlFrames
from ray_multicluster_scheduler.ray_client.http2.frames import Chunk
from ray_multicluster_scheduler.ray_client.http2.header_rules import is_request
from ray_multicluster_scheduler.ray_client.http2.headers import Headers, encode
from ray_multicluster_scheduler.ray_client.http2.http2_errors import (
    ConnectionLost,
    ProtocolError,
    TooManyStreams,
)
from ray_multicluster_scheduler.ray_client.http2.http2_stream import Stream
from ray_multicluster_scheduler.ray_client.http2.outgoing import turn_of
from ray_multicluster_scheduler.ray_client.http2.relay_limits import RelayLimits
from ray_multicluster_scheduler.ray_client.http2.stream_flow import StreamFlow

#: How long the peer may take to read the last frames before the socket is closed.
LINGER_S = 2.0
#: A peer whose machine has vanished is noticed after a minute and a half, if nothing is on its way to it.
KEEPALIVE = {"TCP_KEEPIDLE": 45, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}


class Connection(ControlFrames, asyncio.Protocol):
    """One HTTP/2 connection. It never stops to read: what the peer may send is bounded by its windows.

    So two connections never wait for each other: a frame that opens a window is always read.
    """

    def __init__(
        self,
        limits: RelayLimits,
        accept: Callable[[Stream], None] | None = None,
        welcome: Callable[[Connection], bool] | None = None,
    ) -> None:
        """`accept` takes the streams of the peer: this side is the server. `welcome` may refuse the peer."""
        loop = asyncio.get_running_loop()
        super().__init__(limits, turn_of(loop), is_server=accept is not None)
        self._loop = loop
        self._accept = accept
        self._welcome = welcome
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._preface = frames.PREFACE if accept is not None else b""
        self._next_id = 1
        self._going = False
        #: Since when there is this connection, and since when it has had a call, by the clock of the loop.
        self.since = self.used_at = loop.time()
        #: Handlers of streams of this connection that still run.
        self.handlers = 0
        #: Host and port of the other end.
        self.peer: tuple[str, int] = ("", 0)
        #: Why this connection takes no streams any more.
        self.lost: str | None = None
        #: Done when the peer has said what it allows; the result of `closed` is the reason.
        self.ready: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[str] = loop.create_future()

    # -- for users

    @property
    def is_open(self) -> bool:
        """Whether `open` may work."""
        return self.lost is None and not self._going and not self.peer_going and self._transport is not None

    @property
    def _most_own_streams(self) -> int:
        strangers = self.limits.strangers if self.is_stranger else None
        return self.limits.streams if strangers is None else min(self.limits.streams, strangers.streams)

    @property
    def buffered(self) -> int:
        """Bytes of all streams that wait here, and those that the socket has not taken."""
        return self.out.buffered() + sum(stream.buffered for stream in self.streams.values())

    def open(self, headers: Iterable[tuple[str, str]]) -> Stream:
        """Begin a call (client). Raises `ConnectionLost` or `TooManyStreams`."""
        if not self.is_open:
            raise ConnectionLost(self.lost or "the server takes no further calls on this connection")
        if len(self.streams) >= self.most_streams or self._next_id > frames.LARGEST_WINDOW:
            raise TooManyStreams(f"the server takes {self.most_streams} calls at once on one connection")
        stream = Stream(self, self._next_id, tuple(headers), is_server=False)
        self._next_id += 2
        self.streams[stream.id] = stream
        self.out.headers(stream.id, encode(stream.headers), end_stream=False)
        return stream

    def close(self, reason: str = "closed by this side") -> None:
        """End the connection now, and all calls on it; `closed` is done when the peer has read that."""
        self.fail(frames.NO_ERROR, reason)

    def abort(self) -> None:
        """End the connection and close its socket, whatever is left to be sent; soon, `closed` is done."""
        self._end("aborted by this side")
        if self._transport is not None:
            self._transport.abort()

    def go_away(self) -> None:
        """Take no further streams, and close when the last one is over."""
        if self.lost is None and not self._going:
            self._going = True
            self.out.control(frames.goaway(self.last_id, frames.NO_ERROR))
            self.close_if_done()

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings of this side."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else (str(peer), 0)
        if self._welcome is not None and not self._welcome(self):
            self.abort()
            return
        _tune(transport.get_extra_info("socket"))
        self.out.attach(self._transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self.fail(frames.PROTOCOL_ERROR, "the peer does not speak HTTP/2 (ALPN)")
            return
        self.set_timer()
        self.out.control(self.greeting())

    def data_received(self, data: bytes) -> None:
        """Take what the peer has sent, and write all that follows from it."""
        if self.lost is not None:
            return
        turn = self.turn
        turn.receiving = True
        try:
            if self._preface:
                data = self._without_preface(data)
            self.feed(data)
        except ProtocolError as error:
            self.fail(error.code, str(error))
        finally:
            turn.receiving = False
            turn.flush()

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        self.out.pause()

    def resume_writing(self) -> None:
        """The peer has read."""
        self.out.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams."""
        self._end(str(exc) if exc is not None and str(exc) else "the peer closed the connection")
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(self.lost or "")

    # -- for this folder

    def data_begins(self, stream_id: int, size: int) -> Stream | None:
        """Count the bytes of a frame against what was allowed."""
        self.check_no_block()
        self.received += size
        if self.received > self.allowed:
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "more bytes than the window of the connection")
        stream = self.streams.get(stream_id)
        if stream is None:
            self.check_known(stream_id)
            return None
        stream.received += size
        if stream.received > stream.allowed:
            self.break_stream(stream_id, frames.FLOW_CONTROL_ERROR)
            return None
        if stream.remote_ended or (stream.response is None and not self.is_server):
            self.break_stream(stream_id, frames.STREAM_CLOSED)
            return None
        return stream

    def data(self, owner: Stream | None, payload: Chunk, padding: int, *, ends: bool) -> None:
        """Give DATA to its stream; if that is over, only allow the peer to send as much again."""
        if owner is None or owner.is_over:
            self.credit(len(payload) + padding)
        else:
            owner.data_received(payload, padding, ends=ends)

    def is_known(self, stream_id: int) -> bool:
        """Tell whether a stream of this id exists or has existed."""
        return stream_id % 2 == 1 and stream_id < (self.last_id + 1 if self.is_server else self._next_id)

    def request(self, stream_id: int, headers: Headers, *, ends: bool) -> None:
        """Begin a call of the peer (server)."""
        if stream_id % 2 == 0 or self._accept is None:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"a stream with the id {stream_id}")
        self.last_id = stream_id
        if self._going or max(len(self.streams), self.handlers) >= self._most_own_streams:
            self.break_stream(stream_id, frames.REFUSED_STREAM)
            return
        if not is_request(headers):
            self.break_stream(stream_id, frames.PROTOCOL_ERROR)
            return
        stream = Stream(self, stream_id, headers, is_server=True)
        stream.remote_ended = ends
        self.streams[stream_id] = stream
        self._accept(stream)

    def forget(self, stream: StreamFlow) -> None:
        """Drop a stream that is over."""
        self.streams.pop(stream.id, None)
        self.used_at = self._loop.time()
        if self._going or self.peer_going:
            self.close_if_done()

    def close_if_done(self) -> None:
        """Close a connection that takes no streams and has none."""
        if not self.streams and self.lost is None:
            self._end("closed after its last call")
            self._hang_up()

    def fail(self, code: int, reason: str) -> None:
        """Say why, and end the connection."""
        if self.lost is None:
            self.out.control(frames.goaway(self.last_id, code, reason))
            self._end(reason)
            self._hang_up()

    def greeted(self) -> None:
        """The peer has sent its settings."""
        self.clear_timer()
        if not self.ready.done():
            self.ready.set_result(None)

    def set_timer(self) -> None:
        """Wait for the rest of something, but not for ever."""
        self.clear_timer()
        self._timer = self._loop.call_later(
            self.limits.handshake_timeout_s, self.fail, frames.SETTINGS_TIMEOUT, "the peer is too slow"
        )

    def clear_timer(self) -> None:
        """It has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _without_preface(self, data: bytes) -> bytes:
        expected = self._preface
        if data[: len(expected)] != expected[: len(data)]:
            raise ProtocolError(frames.PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._preface = expected[len(data) :]
        return data[len(expected) :]

    def _end(self, reason: str) -> None:
        """End all streams; nothing is sent for them any more."""
        self.clear_timer()
        if self.lost is None:
            self.lost = reason
        self.out.flush()
        self.out.detach()
        if not self.ready.done():
            self.ready.set_result(None)
        for stream in list(self.streams.values()):
            stream.connection_lost(self.lost)

    def _hang_up(self) -> None:
        """Close the socket when the peer does, or soon.

        If it were closed before all that the peer has sent is read, the peer would not get the last frames.
        """
        if self._transport is not None:
            try:
                half = self._transport.can_write_eof() and not self._transport.is_closing()
                (self._transport.write_eof if half else self._transport.close)()
            except OSError:
                self._transport.abort()  # the peer was faster
            self._timer = self._loop.call_later(LINGER_S, self.abort)


def _tune(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # asyncio does this only for sockets whose protocol was named when they were made.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
