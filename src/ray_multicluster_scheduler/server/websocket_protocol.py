"""Websockets that let the server end whatever state they are in."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState


class CarefulWebSocket(WebSocketsSansIOProtocol):
    """Uvicorn says goodbye to each websocket when it ends, and fails if one has begun to close by itself."""

    def shutdown(self) -> None:
        """Close the connection."""
        try:
            super().shutdown()
        except InvalidState:  # it is closing; the rest of its goodbye is not waited for
            self.transport.close()
