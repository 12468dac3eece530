"""The output of a stream as the body of a response."""

from collections.abc import AsyncIterator, Mapping

import structlog
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from controller.ports import StreamError
from controller.service.exec.relay import Relay

_log = structlog.get_logger("paddock.api")
_OUTPUT = ("stdout", "stderr")


class OutputResponse(StreamingResponse):
    """Both output streams, as text. The source is closed when the client disconnects."""

    def __init__(
        self, relay: Relay, headers: Mapping[str, str] | None, media_type: str = "text/plain; charset=utf-8"
    ) -> None:
        super().__init__(_text(relay), media_type=media_type, headers=headers)
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._relay.stop()

    async def stream_response(self, send: Send) -> None:
        """Stream the body. A later failure leaves it unfinished, which tells the client."""
        try:
            await super().stream_response(send)
        except StreamError as error:
            _log.info("log stream failed", error=str(error))


async def _text(relay: Relay) -> AsyncIterator[bytes]:
    async for chunks in relay.batches():
        data = b"".join(chunk.data for chunk in chunks if chunk.stream in _OUTPUT)
        chunks.clear()  # a client that reads nothing holds the data once
        if data:
            yield data
