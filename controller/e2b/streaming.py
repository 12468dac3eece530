"""Bodies that are made while they are sent. One that fails is left unfinished, which tells the client."""

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Send

from controller.service.errors import ServiceError

_log = structlog.get_logger("paddock.e2b")


class Stream(StreamingResponse):
    """A body whose failure closes the connection."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except ServiceError as error:
            _log.info("transfer failed", error=str(error))
