"""uvicorn's WebSockets, with an end that can't fail."""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket."""

    def shutdown(self) -> None:
        """The door closes. A client that said good-bye just before must not keep the door from ending the others."""
        try:
            super().shutdown()
        except InvalidState:
            self.transport.abort()  # it said good-bye: nothing is waited for any more
