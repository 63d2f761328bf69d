"""Websockets that let the server end whatever state they are in, and that send no more than it can read."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode

#: Frames that one websocket may send at once, and per second in the long run. A page sends some per second.
MOST_FRAMES = 2_000
FRAMES_PER_SECOND = 200.0
#: So much is read before the frames in it are counted.
READ_BYTES = 4 * 2**10


class CarefulWebSocket(WebSocketsSansIOProtocol):
    """Uvicorn says goodbye to each websocket when it ends, and fails if one has begun to close by itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._frames, self._counted_at = 0.0, self.loop.time()

    def shutdown(self) -> None:
        """Close the connection."""
        try:
            super().shutdown()
        except InvalidState:  # it is closing; the rest of its goodbye is not waited for
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take what the peer sends, unless that is more frames than anybody needs."""
        for start in range(0, len(data), READ_BYTES):
            if self.transport.is_closing():
                return
            self.conn.receive_data(data[start : start + READ_BYTES])
            if self.conn.parser_exc is not None:
                self.handle_parser_exception()
                return
            self._count(len(self.conn.events))
            self.handle_events()
            if self._frames > MOST_FRAMES:
                self._fail(CloseCode.POLICY_VIOLATION, "too many frames")

    def handle_parser_exception(self) -> None:
        """End a connection that has sent a wrong frame, also before or after its time."""
        if self.conn.close_sent is None:
            self._fail(CloseCode.PROTOCOL_ERROR, "a wrong frame")
        else:
            super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """Hand a message on, unless it is a text that is none."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self._fail(CloseCode.INVALID_DATA, "a text that is no UTF-8")
                return
        super().send_receive_event_to_app()

    def _count(self, frames: int) -> None:
        now = self.loop.time()
        self._frames = max(0.0, self._frames - (now - self._counted_at) * FRAMES_PER_SECOND) + frames
        self._counted_at = now

    def _fail(self, code: CloseCode, reason: str) -> None:
        if self.handshake_complete and not self.close_sent:
            self.conn.fail(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": int(code), "reason": reason})
        self.close_sent = True
        self.transport.close()
